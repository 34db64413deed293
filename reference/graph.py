"""Evaluate operation graphs (chapter 9) node by node in wide arithmetic, with an error bound for each value.

A value between nodes has a bound |x - x'| <= e, and the next node propagates it. A node adds its own roundings, and one
rounding into the type of the tensor that holds its result. All pointwise operations but MUL and SQRT change by no more
than their arguments do; sums add the errors of their terms (docs/tolerance.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnConvolutionMode_t, cudnnDataType_t, cudnnNanPropagation_t
from dualdnn.api.enumerations import cudnnPointwiseMode_t as Mode
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    ConvolutionNode,
    GenStatsNode,
    GraphTensor,
    Node,
    PointwiseNode,
)
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, HALF

from .activation import ELU_ROUNDINGS, SIGMOID_ROUNDINGS, TANH_ROUNDINGS
from .engine import Exact, Result, Results, Wide, implements_in_parts, results_of
from .judge import BLEND_ROUNDINGS
from .precision import PRECISION
from .view import WHOLE, Array, read


@dataclass(slots=True)
class Known:
    """Hold a value and how far a correct implementation may be from it.

    The error is infinite where nothing is determined.
    """

    value: Array
    error: Array


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Describe the compute type of a graph: unit roundoff, smallest normal and largest finite number."""

    unit: float
    smallest: float
    largest: float

    def factor(self, value: float) -> float:
        """Return a scaling factor rounded to the compute type."""
        return value if self.unit == PRECISION[DOUBLE][0] else float(np.float32(value))

    def rounded(self, value: Array, error: Array, magnitude: Array, roundings: Any = 1) -> Known:
        """Return the value with the error of its arguments plus its own roundings, for terms of this magnitude."""
        total, is_open = np.asarray(roundings, value.dtype) * self.unit, np.isinf(error)
        error = error + total * (magnitude + error) * (1 + total) + self.smallest
        overflows = magnitude + error >= self.largest
        return _settled(value, np.where(overflows, np.inf, error), is_open)

    def beside_infinities(self, total: Array, error: Array, finite_sizes: Callable[[], Array]) -> Array:
        """Return the error of a sum, unbounded where an infinite sum has finite terms that may overflow to the
        other infinity.
        """
        infinite = np.isinf(total)
        return np.where(infinite & (finite_sizes() >= self.largest), np.inf, error) if infinite.any() else error


def _settled(value: Array, error: Array, is_open: Array) -> Known:
    """Make infinities and NaN exact, unless an undetermined value enters them."""
    error = np.where(np.isnan(error), np.inf, error)
    return Known(value, np.where(np.isfinite(value), error, np.where(is_open, np.inf, 0)))


@implements_in_parts(OperationGraph)
def operation_graph(operation: OperationGraph, wide: Wide) -> Results:
    """Evaluate the graph node by node, or as the single operation that its engine runs."""
    if operation.single is None:

        def parts(memory: Mapping[str, Array]) -> Iterator[Result]:
            inputs = [read(operation.tensor(name), memory[name], wide) for name in operation.inputs]
            for name, exact in node_by_node(operation, *inputs).items():
                yield name, WHOLE, exact

        return parts
    names, results = operation.single.names, results_of(operation.single.operation, wide)

    def of_single(memory: Mapping[str, Array]) -> Iterator[Result]:
        given = {inner: memory[outer] for inner, outer in names.items()}
        for name, place, exact in results(given):
            yield names[name], place, exact

    return of_single


def node_by_node(operation: OperationGraph, *inputs: Array) -> dict[str, Exact]:
    """Return every output that is not virtual."""
    arithmetic = Arithmetic(*PRECISION[operation.compute_type])
    given = dict(zip(operation.inputs, inputs, strict=True))
    known = {name: Known(value, np.zeros_like(value)) for name, value in given.items()}
    results: dict[str, Known] = {}
    for node in operation.nodes:
        arguments = [known[tensor.operand] for tensor in node.inputs]
        prior = given.get(node.outputs[0].operand) if node.blends else None
        found = EVALUATIONS[type(node)](node, arithmetic, prior, *arguments)
        for tensor, result in zip(node.outputs, found, strict=True):
            results[tensor.operand] = result
            known[tensor.operand] = _held(tensor, result)
    return {name: _exact(results[name], arithmetic) for name in operation.outputs}


def _exact(known: Known, arithmetic: Arithmetic) -> Exact:
    undetermined = partial(np.asarray, np.isinf(known.error) & ~np.isfinite(known.value))
    return Exact(known.value, known.error / arithmetic.unit, 1, undetermined=undetermined)


def _held(tensor: GraphTensor, result: Known) -> Known:
    """Return a result as the next node may read it: rounded into the tensor's type, or unrounded where an
    engine keeps it.
    """
    if tensor.data_type not in PRECISION:
        value = np.clip(np.rint(result.value), *_limits(tensor.data_type))
        low, high = (np.clip(result.value + side * result.error, *_limits(tensor.data_type)) for side in (-1, 1))
        # Numbers on either side of a tie become two integers.
        error = np.maximum.reduce([value - low, high - value, np.rint(high) - np.rint(low)])
        # An integer holds no NaN, and the document does not say what it holds instead (D654).
        return Known(value, np.where(np.isnan(value) | np.isinf(result.error), np.inf, error))
    unit, smallest, largest = PRECISION[tensor.data_type]
    reach = np.abs(result.value) + result.error
    error = result.error + unit * reach + smallest
    return _settled(result.value, np.where(reach >= largest, np.inf, error), np.isinf(result.error))


def _limits(data_type: cudnnDataType_t) -> tuple[int, int]:
    from .view import NUMPY_TYPES

    limits = np.iinfo(NUMPY_TYPES[data_type])
    return limits.min, limits.max


def _finite(values: Array) -> Array:
    return np.where(np.isfinite(values), values, 0)


# --- pointwise ---


def _pointwise(node: PointwiseNode, arithmetic: Arithmetic, _prior: None, *arguments: Known) -> tuple[Known]:
    factors = (arithmetic.factor(node.alpha1), arithmetic.factor(node.alpha2))
    scaled = [_scaled(factor, known, arithmetic) for factor, known in zip(factors, arguments, strict=False)]
    found = POINTWISE[node.pointwise.mode](node, arithmetic, *scaled)
    return (Known(np.broadcast_to(found.value, node.y.dims), np.broadcast_to(found.error, node.y.dims)),)


def _scaled(factor: float, known: Known, arithmetic: Arithmetic) -> Known:
    if factor == 1:
        return known
    value = factor * known.value
    return arithmetic.rounded(value, _times(factor, known.error), np.abs(value))


def _times(factor: float, error: Array) -> Array:
    """Return the error of a product. An unbounded error stays unbounded even times zero."""
    return np.where(np.isinf(error), np.inf, abs(factor) * error)


def _add(_node: PointwiseNode, arithmetic: Arithmetic, x: Known, b: Known) -> Known:
    return arithmetic.rounded(x.value + b.value, x.error + b.error, np.abs(x.value) + np.abs(b.value))


def _multiply(_node: PointwiseNode, arithmetic: Arithmetic, x: Known, b: Known) -> Known:
    value = x.value * b.value
    error = np.abs(x.value) * b.error + np.abs(b.value) * x.error + x.error * b.error
    is_open = np.isinf(x.error + b.error) | (_may_vanish(x.value, x.error) & np.isinf(b.value))
    is_open = is_open | (_may_vanish(b.value, b.error) & np.isinf(x.value))
    return arithmetic.rounded(value, np.where(is_open, np.inf, error), np.abs(value))


def _may_vanish(value: Array, error: Array) -> Array:
    """Return where rounding may turn a number into zero: its product with an infinity is then infinite or NaN."""
    return np.asarray((error > 0) & (np.abs(value) <= error))


def _extremum(choose: Callable[[Array, Array], Array]) -> Callable[..., Known]:
    def evaluate(node: PointwiseNode, _arithmetic: Arithmetic, x: Known, b: Known) -> Known:
        value = choose(x.value, b.value)  # np.fmin and np.fmax return the other operand where one is NaN.
        if node.pointwise.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN:
            value = np.where(np.isnan(x.value) | np.isnan(b.value), np.nan, value)
        error = np.maximum(x.error, b.error)
        return _settled(value, error, np.isinf(error))

    return evaluate


def _square_root(_node: PointwiseNode, arithmetic: Arithmetic, x: Known) -> Known:
    """Take the square root. Nothing is determined where the argument may be negative, because the root may be NaN."""
    value, reach = np.sqrt(np.maximum(x.value, 0)), np.sqrt(np.maximum(x.value, 0) + x.error)
    least = np.sqrt(np.maximum(x.value - x.error, 0))
    error = np.where(np.isinf(x.error), np.inf, np.maximum(reach - value, value - least))
    doubtful = (x.error > 0) & (np.abs(x.value) <= x.error)
    value = np.where((x.value < 0) & ~doubtful | np.isnan(x.value), np.nan, value)
    found = arithmetic.rounded(value, error, np.abs(value), 3)
    return Known(found.value, np.where(doubtful, np.inf, found.error))


def _identity(_node: PointwiseNode, _arithmetic: Arithmetic, x: Known) -> Known:
    return x


def _relu(node: PointwiseNode, arithmetic: Arithmetic, x: Known) -> Known:
    lower, upper = node.pointwise.lower_clip, node.pointwise.upper_clip
    value = np.fmin(np.fmax(x.value, lower), upper)  # NaN gives the lower clip unless it is propagated.
    if node.pointwise.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN:
        value = np.where(np.isnan(x.value), np.nan, value)
    # The clips are rounded into the compute type.
    clips = sum(abs(clip) for clip in (lower, upper) if np.isfinite(clip))
    return _settled(value, x.error + arithmetic.unit * clips, np.isinf(x.error))


def _function(evaluate: Callable[[Array], Array], steepest: float, roundings: int) -> Callable[..., Known]:
    """Return an evaluation of a function with slopes up to ``steepest``. Its value is its only term."""

    def found(_node: PointwiseNode, arithmetic: Arithmetic, x: Known) -> Known:
        value = evaluate(x.value)
        return arithmetic.rounded(value, steepest * x.error, np.abs(value), roundings)

    return found


def _elu(_node: PointwiseNode, arithmetic: Arithmetic, x: Known) -> Known:
    """Return x or exp(x) - 1, a difference of two terms."""
    value = np.where(x.value >= 0, x.value, np.expm1(np.minimum(x.value, 0)))
    terms = np.where(x.value >= 0, np.abs(x.value), np.exp(np.minimum(x.value, 0)) + 1)
    return arithmetic.rounded(value, x.error, terms, ELU_ROUNDINGS)


POINTWISE: dict[Mode, Callable[..., Known]] = {
    Mode.CUDNN_POINTWISE_ADD: _add,
    Mode.CUDNN_POINTWISE_MUL: _multiply,
    Mode.CUDNN_POINTWISE_MIN: _extremum(np.fmin),
    Mode.CUDNN_POINTWISE_MAX: _extremum(np.fmax),
    Mode.CUDNN_POINTWISE_SQRT: _square_root,
    Mode.CUDNN_POINTWISE_IDENTITY_FWD: _identity,
    Mode.CUDNN_POINTWISE_RELU_FWD: _relu,
    Mode.CUDNN_POINTWISE_TANH_FWD: _function(np.tanh, 1.0, TANH_ROUNDINGS),
    Mode.CUDNN_POINTWISE_SIGMOID_FWD: _function(lambda x: 1 / (1 + np.exp(-x)), 0.25, SIGMOID_ROUNDINGS),
    Mode.CUDNN_POINTWISE_ELU_FWD: _elu,
}


# --- statistics ---


def _statistics(_node: GenStatsNode, arithmetic: Arithmetic, _prior: None, x: Known) -> tuple[Known, Known]:
    axes = (0, *range(2, x.value.ndim))
    terms, squares = x.value.size // x.value.shape[1], x.value * x.value

    def over(values: Array) -> Array:
        return values.sum(axis=axes, keepdims=True)

    error, total = over(x.error), over(x.value)
    of_sum = arithmetic.beside_infinities(total, error, lambda: over(np.abs(_finite(x.value))))
    sums = arithmetic.rounded(total, of_sum, over(np.abs(x.value)), terms)
    spread = np.where(np.isinf(error), np.inf, over(2 * np.abs(x.value) * x.error + x.error * x.error))
    return sums, arithmetic.rounded(over(squares), spread, over(squares), terms + 1)


# --- convolutions ---


def _in_groups(node: ConvolutionNode, values: Array, which: int) -> Array:
    """Return an image (0) or response (2) as (N, G, C, spatial), or a filter (1) as (G, K, C, spatial)."""
    spatial, groups = node.convolution.rank, node.groups
    if values.ndim == spatial + 3:
        return values
    if which == 1:
        return values.reshape(groups, values.shape[0] // groups, *values.shape[1:])
    return values.reshape(values.shape[0], groups, values.shape[1] // groups, *values.shape[2:])


def _taps(node: ConvolutionNode) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every filter position: the index of its value, and the pixel that it meets for the first result."""
    settings, window = node.convolution, node.bound[1].dims[-node.convolution.rank :]
    flipped = settings.mode == cudnnConvolutionMode_t.CUDNN_CONVOLUTION
    for tap in product(*map(range, window)):
        first = (i * apart - pad for i, apart, pad in zip(tap, settings.dilation, settings.pre_padding, strict=True))
        yield tuple(size - 1 - i if flipped else i for i, size in zip(tap, window, strict=True)), tuple(first)


def _sum(node: ConvolutionNode, first: Array, second: Array) -> Array:
    """Convolve the two tensors that the node reads: (N or G, G or K, C or K, spatial).

    Padding is multiplied too, and so are the zeros that a gradient reads outside the response: zero times infinity is
    NaN (D212).
    """
    dims, steps = _grouped_dims(node), node.convolution.stride
    result = np.zeros(dims[_output_of(node)], first.dtype)
    image, response = dims[0][3:], dims[2][3:]
    everything = (slice(None),) * 3
    for at, begins in _taps(node):
        weight: Any = (*everything, *at)
        if isinstance(node, ConvolutionBackwardDataNode):
            pixels = [np.arange(b % s, size, s) for b, s, size in zip(begins, steps, image, strict=True)]
            met = [(pixel - b) // s for pixel, b, s in zip(pixels, begins, steps, strict=True)]
            every: Any = (*everything, *(slice(b % s, None, s) for b, s in zip(begins, steps, strict=True)))
            result[every] += np.einsum("gkc,ngk...->ngc...", first[weight], _taken(second, met))
            continue
        pixels = [b + s * np.arange(size) for b, s, size in zip(begins, steps, response, strict=True)]
        padded = _taken(first, pixels)
        if isinstance(node, ConvolutionForwardNode):
            result += np.einsum("ngc...,gkc->ngk...", padded, second[weight])
        else:
            result[weight] += np.einsum("ngcp,ngkp->gkc", _flat(padded), _flat(second))
    return result


def _taken(values: Array, indices: Sequence[Array]) -> Array:
    """Return the elements at the indices of each spatial dimension, and zeros where an index is outside."""
    for axis, index in enumerate(indices, values.ndim - len(indices)):
        inside = (index >= 0) & (index < values.shape[axis])
        values = np.take(values, np.where(inside, index, 0), axis)
        if not inside.all():
            values[(slice(None),) * axis + (~inside,)] = 0
    return values


def _flat(values: Array) -> Array:
    return values.reshape(*values.shape[:3], -1)


def _output_of(node: ConvolutionNode) -> int:
    return node.roles.index(node.writes[0])


def _grouped_dims(node: ConvolutionNode) -> list[tuple[int, ...]]:
    return [_in_groups(node, np.broadcast_to(np.zeros(()), t.dims), i).shape for i, t in enumerate(node.bound)]


def _terms(node: ConvolutionNode) -> int:
    """Return how many products one element of the output sums at most."""
    _image, window, response = _grouped_dims(node)
    taps = int(np.prod(window[3:]))
    return {0: window[1] * taps, 1: response[0] * int(np.prod(response[3:])), 2: window[2] * taps}[_output_of(node)]


def _convolution(node: ConvolutionNode, arithmetic: Arithmetic, prior: Array | None, *arguments: Known) -> tuple[Known]:
    parts = [node.roles.index(name) for name in node.reads]
    values = [_in_groups(node, known.value, part) for known, part in zip(arguments, parts, strict=True)]
    errors = [_in_groups(node, known.error, part) for known, part in zip(arguments, parts, strict=True)]
    sizes = [np.abs(value) for value in values]
    carried = np.zeros(())
    if any(error.any() for error in errors):
        carried = _sum(node, sizes[0] + errors[0], sizes[1] + errors[1]) - _sum(node, *sizes)
        # A sum is undetermined if one of its terms is.
        kind = errors[0].dtype
        lost = [_may_vanish(value, error).astype(kind) for value, error in zip(values, errors, strict=True)]
        opens, infinite = ([np.isinf(part).astype(kind) for part in parts] for parts in (errors, values))
        met = [
            (opens[0], np.ones_like(lost[1])),
            (np.ones_like(lost[0]), opens[1]),
            (lost[0], infinite[1]),
            (infinite[0], lost[1]),
        ]
        for first, second in met:
            if first.any() and second.any():
                carried = np.where(_sum(node, first, second) > 0, np.inf, carried)
    # Tensor cores truncate their sums instead of rounding them.
    cut = 2 if node.inputs[0].data_type in (HALF, BFLOAT16) else 1
    total = _sum(node, *values)
    carried = arithmetic.beside_infinities(total, carried, lambda: _sum(node, *map(_finite, sizes)))
    found = arithmetic.rounded(total, carried, _sum(node, *sizes), cut * _terms(node))
    dims = node.outputs[0].dims
    value, error = found.value.reshape(dims), found.error.reshape(dims)
    alpha, beta = arithmetic.factor(node.alpha), arithmetic.factor(node.beta)
    if alpha == 1 and prior is None:
        return (Known(value, error),)
    blended = alpha * value + (0 if prior is None else beta * prior)
    terms = np.abs(alpha * value) + (0 if prior is None else np.abs(beta * prior))
    return (arithmetic.rounded(blended, _times(alpha, error), terms, BLEND_ROUNDINGS),)


EVALUATIONS: dict[type[Node], Callable[..., tuple[Known, ...]]] = {
    PointwiseNode: _pointwise,
    GenStatsNode: _statistics,
    ConvolutionForwardNode: _convolution,
    ConvolutionBackwardDataNode: _convolution,
    ConvolutionBackwardFilterNode: _convolution,
}
