"""Draw poolings forward and backward, in 2 and 3 dimensions, also with output sizes other than the formula's."""

from __future__ import annotations

from typing import Any

from dualdnn.api.cudnn.pooling import BACKWARD_TYPES, FORWARD_TYPES, POSITIONS
from dualdnn.api.enumerations import cudnnNanPropagation_t, cudnnPoolingMode_t
from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.conformance.trial import prepare
from dualdnn.reference import run

from .pieces import Drawn, Source, fitted, need

OPERATIONS = (PoolingForward, PoolingBackward)
USUAL = ((2, 2, 0), (3, 2, 0), (3, 2, 1), (7, 7, 0), (3, 1, 1))  # Each is (window, stride, padding).
PLAIN = tuple(kind for kind in FORWARD_TYPES if TensorSpec.packed(kind, (1, 32)).vector_length == 1)
KINDS = ("normal", "ties", "wide")
GLOBAL_ROWS = 40  # percent of the inputs of global windows whose rows have gaps, which vectors may read
SPECIAL = ("special", "ties_and_nan")


def draw(source: Source) -> Drawn:
    """Draw a pooling or its gradient."""
    if source.chance(5):
        return identity(source)
    backward, rank = source.chance(50), source.pick((2, 2, 3))
    images, channels = source.integer(1, 3), source.channels()
    extents = tuple(source.extent() for _ in range(rank))
    images, channels, *spatial = fitted((images, channels, *extents), source.profile.most)
    window, stride, padding = geometry(source, spatial)
    axes = zip(spatial, padding, window, stride, strict=True)
    out = [max(1, 1 + (extent + 2 * pad - size) // step) for extent, pad, size, step in axes]
    if source.profile.extremes:
        out = [source.integer(1, 4) for _ in spatial]
        ends = zip(spatial, out, window, stride, padding, strict=True)
        need(max(extent + (count - 1) * step + size + abs(pad) for extent, count, size, step, pad in ends) < POSITIONS)
    elif source.chance(10):
        out = [max(1, size + source.pick((-1, 1, 2))) for size in out]
    mode, nan = source.pick(tuple(cudnnPoolingMode_t)), source.pick(tuple(cudnnNanPropagation_t))
    pooling = PoolingSpec(mode, nan, tuple(window), tuple(padding), tuple(stride))
    data_type = source.pick(BACKWARD_TYPES if backward else PLAIN)
    alpha, beta = source.blend()
    dims, result = (images, channels, *spatial), (images, channels, *out)
    if not backward:
        rows = max(out) == 1 and source.chance(GLOBAL_ROWS)
        x = source.rows(data_type, dims) if rows else source.tensor(data_type, dims)
        operation: Any = PoolingForward(pooling, alpha, beta, x, source.tensor(data_type, result))
        return Drawn((operation,), source.inputs(KINDS, SPECIAL))
    x, y = contiguous(source, data_type, dims), contiguous(source, data_type, result)
    return Drawn((PoolingBackward(pooling, alpha, beta, y, y, x, x),), source.inputs(KINDS, SPECIAL))


def identity(source: Source) -> Drawn:
    """Draw a pooling in place, which has windows of one element."""
    rank, data_type = source.pick((2, 3)), source.pick(PLAIN)
    spec, one = source.tensor(data_type, source.dims(rank + 2)), (1,) * rank
    mode, nan = source.pick(tuple(cudnnPoolingMode_t)), source.pick(tuple(cudnnNanPropagation_t))
    pooling = PoolingSpec(mode, nan, one, (0,) * rank, one)
    operation = PoolingForward(pooling, *source.blend(), spec, spec)
    return Drawn((operation,), source.inputs(KINDS, SPECIAL), aliases=(("y", "x"),))


def geometry(source: Source, spatial: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Draw (window, stride, padding): over everything, a usual one, or any."""
    if source.profile.extremes:
        window, stride, padding = ([source.large(30) for _ in spatial] for _ in range(3))
        some = [source.pick((pad, -pad, 0, size // 2, size - 1)) for pad, size in zip(padding, window, strict=True)]
        return window, stride, some
    kind, rank = source.pick(("usual", "any", "everything")), len(spatial)
    if kind == "everything":
        return list(spatial), [1] * rank, [0] * rank
    if kind == "usual":
        size, step, pad = source.pick(USUAL)
        return [size] * rank, [step] * rank, [pad] * rank
    window = [source.integer(1, min(extent + 2, 25)) for extent in spatial]
    stride = [source.integer(1, max(size, 5)) for size in window]
    padding = [source.pick((0, size // 2, size - 1, -1, size)) for size in window]
    return window, stride, padding


def contiguous(source: Source, data_type: Any, dims: tuple[int, ...]) -> TensorSpec:
    """Draw a tensor with contiguous rows or channels: gradients accept no others."""
    spec = source.tensor(data_type, dims)
    return spec if 1 in (spec.strides[-1], spec.strides[1]) else source.packed(data_type, dims, source.chance(50))


def before(drawn: Drawn, seed: int) -> dict[str, Any]:
    """Return the memory of a gradient, in which y is the forward result of x."""
    operation = drawn.operation
    if not isinstance(operation, PoolingBackward):
        return {}
    memory = prepare(operation, drawn.inputs, seed)
    if isinstance(drawn.inputs, str) and drawn.inputs in SPECIAL:
        memory |= {"dy": prepare(operation, "normal", seed)["dy"]}
    forward = PoolingForward(operation.pooling, 1.0, 0.0, operation.x, operation.y)
    run(forward, {"x": memory["x"], "y": memory["y"]})
    return memory
