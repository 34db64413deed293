"""One element of an output from its formula, in plain loops over Python's numbers.

It shares nothing with the reference's arrays, strides and blocks, so that, where the two backends disagree, it can say
which of them is outside the bound. Slow, and of forward operations only.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnActivationMode_t as Activation
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Pooling
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t as Algorithm
from dualdnn.api.enumerations import cudnnSoftmaxMode_t as Mode
from dualdnn.api.operations import (
    ActivationForward,
    AddTensor,
    ConvolutionForward,
    Operation,
    PoolingForward,
    ScaleTensor,
    SoftmaxForward,
    TensorSpec,
)

from .judge import Verdict
from .view import NUMPY_TYPES, Array

Index = tuple[int, ...]
Element = Callable[[str, Index], float]


def second_opinion(operation: Operation, verdict: Verdict, before: Mapping[str, Array]) -> str:
    """Which side an independent evaluation of the worst element finds outside the bound, or that it cannot tell."""
    worst = verdict.worst
    if worst is None:
        return ""
    formula = _FORMULAS.get(type(operation))
    unknown = "which of the two is wrong cannot be told"
    if formula is None or not math.isfinite(worst.bound):
        return f"{unknown}: {type(operation).__name__} has no second evaluation"
    try:
        value = _blended(operation, worst.output, worst.index, formula, before)
    except (ArithmeticError, ValueError, IndexError) as error:
        return f"{unknown}: the second evaluation failed ({error})"
    ours, theirs = (abs(number - value) <= worst.bound or number == value for number in (worst.exact, worst.got))
    where = f"evaluated from its formula alone {worst.output}{list(worst.index)} is {value!r}"
    if ours and not theirs:
        return f"{where}: the accelerated backend lies outside the bound"
    if theirs and not ours:
        return f"{where}: the reference lies outside the bound, the accelerated backend does not"
    return f"{where}: " + ("both lie inside the bound" if ours else "both lie outside the bound") + f", {unknown}"


def _blended(operation: Any, name: str, index: Index, formula: Any, before: Mapping[str, Array]) -> float:
    def element(operand: str, at: Index) -> float:
        return _stored(operation.tensor(operand), before[operand], at)

    alpha, beta = operation.blend_of(name)
    value = alpha * formula(operation, index, element)
    return float(value if beta == 0 else value + beta * element(name, index))


def _stored(spec: TensorSpec, memory: Array, index: Index) -> float:
    """The element of a tensor that lies at an index (n, c, spatial ...)."""
    n, c, *spatial = index
    length = spec.vector_length
    place = n * spec.strides[0] + c // length * spec.strides[1]
    place += sum(i * stride for i, stride in zip(spatial, spec.strides[2:], strict=True))
    dtype = NUMPY_TYPES[spec.scalar_type]
    return float(np.frombuffer(memory, dtype, 1, (place * length + c % length) * dtype.itemsize)[0])


def _activation(operation: ActivationForward, index: Index, element: Element) -> float:
    x, c = element("x", index), operation.activation.coefficient
    mode = operation.activation.mode
    if mode == Activation.CUDNN_ACTIVATION_SIGMOID:
        return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
    if mode == Activation.CUDNN_ACTIVATION_TANH:
        return math.tanh(x)
    if mode == Activation.CUDNN_ACTIVATION_ELU:
        return x if x > 0 else c * math.expm1(x)
    if mode == Activation.CUDNN_ACTIVATION_IDENTITY:
        return x
    if math.isnan(x):
        raise ValueError("NaN")
    return min(max(x, 0.0), c) if mode == Activation.CUDNN_ACTIVATION_CLIPPED_RELU else max(x, 0.0)


def _softmax(operation: SoftmaxForward, index: Index, element: Element) -> float:
    n, _, *spatial = index
    dims = operation.x.dims
    instance = operation.mode == Mode.CUDNN_SOFTMAX_MODE_INSTANCE
    places: Any = (
        itertools.product(*map(range, dims[1:])) if instance else ((channel, *spatial) for channel in range(dims[1]))
    )
    row = [element("x", (n, *place)) for place in places]
    top = max(row)
    total = math.fsum(math.exp(x - top) for x in row)
    shifted = element("x", index) - top
    if operation.algorithm == Algorithm.CUDNN_SOFTMAX_LOG:
        return shifted - math.log(total)
    return math.exp(shifted) / total


def _window(index: Index, sizes: Sequence[int], stride: Sequence[int], padding: Sequence[int]) -> Any:
    """The positions under a window, those in the padding too."""
    starts = [i * s - p for i, s, p in zip(index[2:], stride, padding, strict=True)]
    return itertools.product(*(range(start, start + size) for start, size in zip(starts, sizes, strict=True)))


def _inside(position: Index, extents: Sequence[int], margin: Sequence[int]) -> bool:
    return all(-m <= i < extent + m for i, extent, m in zip(position, extents, margin, strict=True))


def _pooling(operation: PoolingForward, index: Index, element: Element) -> float:
    pooling, extents = operation.pooling, operation.x.dims[2:]
    window = list(_window(index, pooling.window, pooling.stride, pooling.padding))
    none = [0] * len(extents)
    values = [element("x", (*index[:2], *position)) for position in window if _inside(position, extents, none)]
    if pooling.mode in (Pooling.CUDNN_POOLING_MAX, Pooling.CUDNN_POOLING_MAX_DETERMINISTIC):
        if pooling.nan == Nan.CUDNN_PROPAGATE_NAN and any(map(math.isnan, values)):
            return math.nan
        return max(value for value in values if not math.isnan(value))
    included = pooling.mode == Pooling.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
    margin = [max(p, 0) for p in pooling.padding] if included else none
    return math.fsum(values) / sum(_inside(position, extents, margin) for position in window)


def _convolution(operation: ConvolutionForward, index: Index, element: Element) -> float:
    if operation.filter_is_reordered:
        raise ValueError("a reordered filter")
    convolution, (n, k, *_) = operation.convolution, index
    filters, depth, *sizes = operation.w.dims
    first = k // (filters // convolution.group_count) * depth
    terms = []
    for tap in itertools.product(*map(range, sizes)):
        position = tuple(
            i * stride - padding + dilation * t
            for i, stride, padding, dilation, t in zip(
                index[2:], convolution.stride, convolution.padding, convolution.dilation, tap, strict=True
            )
        )
        if not _inside(position, operation.x.dims[2:], [0] * len(sizes)):
            continue
        applied = tuple(size - 1 - t for size, t in zip(sizes, tap, strict=True)) if convolution.is_flipped else tap
        for c in range(depth):
            terms.append(element("x", (n, first + c, *position)) * element("w", (k, c, *applied)))
    return math.fsum(terms)


def _added(operation: AddTensor, index: Index, element: Element) -> float:
    return element("A", tuple(0 if size == 1 else i for i, size in zip(index, operation.A.dims, strict=True)))


def _scaled(_operation: ScaleTensor, index: Index, element: Element) -> float:
    return element("y", index)


_FORMULAS: dict[type[Operation], Any] = {
    ActivationForward: _activation,
    AddTensor: _added,
    ConvolutionForward: _convolution,
    PoolingForward: _pooling,
    ScaleTensor: _scaled,
    SoftmaxForward: _softmax,
}
