"""Evaluate element-by-element operations: activations, tensor arithmetic, transforms, dropout."""

from __future__ import annotations

import math
from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnActivationMode_t as Activation
from dualdnn.api.enumerations import cudnnFoldingDirection_t as Direction
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnOpTensorOp_t as Op
from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    AddTensor,
    DropoutBackward,
    DropoutForward,
    OpTensor,
    ScaleTensor,
    SetTensor,
    TransformFilter,
    TransformTensor,
    TransformTensorEx,
)

from .elements import Elements, Found, Index, exponential

PROPAGATE = Nan.CUDNN_PROPAGATE_NAN


def activated(mode: Activation, x: float, coefficient: float, propagates: bool) -> float:
    """Return the activation of a number (3.1.2.1)."""
    if mode == Activation.CUDNN_ACTIVATION_SIGMOID:
        return 1 / (1 + exponential(-x)) if x > 0 or math.isnan(x) else exponential(x) / (1 + exponential(x))
    if mode == Activation.CUDNN_ACTIVATION_TANH:
        return math.tanh(x)
    if mode == Activation.CUDNN_ACTIVATION_ELU:
        return x if x >= 0 else coefficient * math.expm1(x)
    if mode == Activation.CUDNN_ACTIVATION_IDENTITY:
        return x
    if math.isnan(x) and propagates:
        return x
    x = 0.0 if math.isnan(x) else x
    return min(max(x, 0.0), coefficient) if mode == Activation.CUDNN_ACTIVATION_CLIPPED_RELU else max(x, 0.0)


def activation_forward(o: ActivationForward, _output: str, index: Index, read: Elements) -> Found:
    spec, x = o.activation, read("x", index)
    coefficient = read.parameter(spec.coefficient)
    value = activated(spec.mode, x, coefficient, spec.relu_nan == PROPAGATE)
    if spec.mode == Activation.CUDNN_ACTIVATION_ELU and x < 0:
        return Found(value, abs(coefficient) * (1 + exponential(x)), 6)
    return Found(value, abs(value), 12)


def activation_backward(o: ActivationBackward, _output: str, index: Index, read: Elements) -> Found:
    """Return the slope times dy. Sigmoid, tanh and ELU compute it from y, the rectified modes from x (4.1.1)."""
    mode, coefficient = o.activation.mode, read.parameter(o.activation.coefficient)
    dy = read("dy", index)
    if mode in (Activation.CUDNN_ACTIVATION_RELU, Activation.CUDNN_ACTIVATION_CLIPPED_RELU):
        limit = coefficient if mode == Activation.CUDNN_ACTIVATION_CLIPPED_RELU else math.inf
        passed = dy if 0 < read("x", index) <= limit else 0.0
        return Found(passed, abs(passed), 0)
    y = read("y", index)
    if mode == Activation.CUDNN_ACTIVATION_SIGMOID:
        return Found(dy * y * (1 - y), abs(dy * y) * (1 + abs(y)), 3)
    if mode == Activation.CUDNN_ACTIVATION_TANH:
        return Found(dy * (1 - y * y), abs(dy) * (1 + y * y), 3)
    return Found(dy, abs(dy), 0) if y >= 0 else Found(dy * (y + coefficient), abs(dy) * (abs(y) + abs(coefficient)), 3)


def _broadcast(index: Index, dims: Index) -> Index:
    return tuple(0 if extent == 1 else i for i, extent in zip(index, dims, strict=True))


def add_tensor(o: AddTensor, _output: str, index: Index, read: Elements) -> Found:
    value = read("A", _broadcast(index, o.A.dims))
    return Found(value, abs(value), 0)


def scale_tensor(_o: ScaleTensor, _output: str, index: Index, read: Elements) -> Found:
    value = read("y", index)
    return Found(value, abs(value), 0)


def set_tensor(o: SetTensor, _output: str, _index: Index, _read: Elements) -> Found:
    return Found(o.value, abs(o.value), 0)


def op_tensor(o: OpTensor, _output: str, index: Index, read: Elements) -> Found:
    """Return op(alpha1 * A, alpha2 * B) (3.2.68; docs/errata.md, D021, D086 and D087)."""
    a, op = o.alpha1 * read("A", index), o.op_tensor.op
    if op == Op.CUDNN_OP_TENSOR_SQRT:
        root = math.sqrt(a) if a >= 0 else math.nan
        return Found(root)
    if op == Op.CUDNN_OP_TENSOR_NOT:
        return Found(1 - a, 1 + abs(a), 2)
    b = o.alpha2 * read("B", _broadcast(index, o.B.dims))
    if op == Op.CUDNN_OP_TENSOR_ADD:
        return Found(a + b, abs(a) + abs(b), 2)
    if op == Op.CUDNN_OP_TENSOR_MUL:
        return Found(a * b)
    if math.isnan(a) or math.isnan(b):
        propagates = o.op_tensor.nan == PROPAGATE
        return Found(math.nan if propagates or (math.isnan(a) and math.isnan(b)) else b if math.isnan(a) else a)
    value = min(a, b) if op == Op.CUDNN_OP_TENSOR_MIN else max(a, b)
    return Found(value, abs(value), 1)


def transform_tensor(_o: TransformTensor, _output: str, index: Index, read: Elements) -> Found:
    value = read("x", index)
    return Found(value, abs(value), 0)


def transform(o: TransformTensorEx | TransformFilter, _output: str, index: Index, read: Elements) -> Found:
    """Return the source element of this element, or zero (3.2.100; docs/errata.md, D077 and D132)."""
    source = o.srcData.dims
    at = _source(o.transform, source, index)
    inside = at is not None and all(0 <= i < extent for i, extent in zip(at, source, strict=True))
    value = read("srcData", at) if inside and at is not None else 0.0
    return Found(value, abs(value), 0)


def _source(transform: Any, dims: Index, index: Index) -> Index | None:
    """Return the source index of a destination element. None or an index outside the source means padding."""
    factors = [max(1, f) for f in transform.fold]
    blocks, before = prod(factors), transform.pad_before
    if blocks == 1:
        return tuple(i - b for i, b in zip(index, before, strict=True))
    n, c, *spatial = index
    if transform.direction == Direction.CUDNN_TRANSFORM_UNFOLD:
        n, c, *spatial = (i - b for i, b in zip(index, before, strict=True))
        unfolded = [extent * f for extent, f in zip(dims[2:], factors, strict=True)]
        if not all(
            0 <= i < extent
            for i, extent in zip((n, c, *spatial), (dims[0], -(-dims[1] // blocks), *unfolded), strict=True)
        ):
            return None
        offset = 0
        for i, f in zip(spatial, factors, strict=True):
            offset = offset * f + i % f
        return (n, offset * -(-dims[1] // blocks) + c, *(i // f for i, f in zip(spatial, factors, strict=True)))
    c -= before[1]
    if not 0 <= c < blocks * dims[1]:
        return None
    offset, channel = divmod(c, dims[1])
    inside: list[int] = []
    for f in reversed(factors):
        offset, of_dimension = divmod(offset, f)
        inside.insert(0, of_dimension)
    places = [i * f + o for i, f, o in zip(spatial, factors, inside, strict=True)]
    padded = [extent + b + a for extent, b, a in zip(dims, before, transform.pad_after, strict=True)]
    if not all(place < extent for place, extent in zip(places, padded[2:], strict=True)):
        return None
    places = [place - b for place, b in zip(places, before[2:], strict=True)]
    return (n - before[0], channel, *places)


def dropout_forward(o: DropoutForward, _output: str, index: Index, read: Elements) -> Found:
    """Return x / (1 - probability), or 0 where the element's random number is below the threshold (3.2.34,
    docs/dropout.md).
    """
    number = _position(index, o.y.dims)
    seed, call = (int(word) for word in read.bytes("states").view("<u8"))
    if random_number(seed, call, number) < math.ceil(o.probability * 2**32):
        return Found(0.0, 0.0, 0)
    value = read("x", _place(number, o.x.dims)) / (1 - o.probability)
    return Found(value, abs(value), 3)


def dropout_backward(o: DropoutBackward, _output: str, index: Index, read: Elements) -> Found:
    """Return dy / (1 - probability) where the reserve space has the element's bit, else 0."""
    number = _position(index, o.dx.dims)
    if not int(read.bytes("reserveSpace")[number // 8]) >> number % 8 & 1:
        return Found(0.0, 0.0, 0)
    value = read("dy", _place(number, o.dy.dims)) / (1 - o.probability)
    return Found(value, abs(value), 3)


def _position(index: Index, dims: Index) -> int:
    number = 0
    for i, extent in zip(index, dims, strict=True):
        number = number * extent + i
    return number


def _place(number: int, dims: Index) -> Index:
    found = []
    for extent in reversed(dims):
        number, i = divmod(number, extent)
        found.append(i)
    return tuple(reversed(found))


def random_number(seed: int, call: int, number: int, sequence: int = 0) -> int:
    """Return the 32-bit random number of an element.

    The upper 16 bits come from one Philox sequence, the lower 16 from another (docs/dropout.md).
    """
    halves = []
    for which in (sequence, sequence + 2**31):
        words = _philox([number // 8, which, call % 2**32, call >> 32], [seed % 2**32, seed >> 32])
        halves.append(words[number % 8 // 2] >> 16 * (number % 2) & 0xFFFF)
    return halves[0] << 16 | halves[1]


def _philox(counter: list[int], key: list[int]) -> list[int]:
    """Compute Philox 4x32-10 (Salmon et al. 2011)."""
    for _ in range(10):
        left, right = counter[0] * 0xD2511F53, counter[2] * 0xCD9E8D57
        counter = [right >> 32 ^ counter[1] ^ key[0], right % 2**32, left >> 32 ^ counter[3] ^ key[1], left % 2**32]
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return counter


FORMULAS: dict[type, Any] = {
    ActivationBackward: activation_backward,
    ActivationForward: activation_forward,
    AddTensor: add_tensor,
    DropoutBackward: dropout_backward,
    DropoutForward: dropout_forward,
    OpTensor: op_tensor,
    ScaleTensor: scale_tensor,
    SetTensor: set_tensor,
    TransformFilter: transform,
    TransformTensor: transform_tensor,
    TransformTensorEx: transform,
}
