"""Pooling (3.2.69, 4.1.18). Formulas: docs/errata.md, D090, D091 and D188.

Windows are boxes, so sums and maxima over them are taken one dimension after the other; what a window covers of one
dimension is a range of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t, cudnnNanPropagation_t
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, SCALAR_BYTES

from .engine import Exact, implements
from .precision import PRECISION
from .spread import Spread, of_reciprocal
from .view import NUMPY_TYPES, Array

MAXIMA = (Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_MAX_DETERMINISTIC)
# A sum of n terms takes n - 1 additions in whatever order; dividing it, or multiplying it with a rounded reciprocal, two
# roundings more.
DIVISION_ROUNDINGS = 2
# A divisor beyond the integers of the compute type is itself a product of three rounded factors.
INEXACT_DIVISOR_ROUNDINGS = 5


class Range(NamedTuple):
    """For every position of one dimension: the positions [first, last) of the other side that belong to it."""

    first: Array
    last: Array

    @property
    def counts(self) -> Array:
        return self.last - self.first


def covered(pooling: PoolingSpec, x: TensorSpec, y: TensorSpec) -> list[Range]:
    """Per dimension and output position: which inputs its window covers."""
    ranges = []
    for d, (extent, count) in enumerate(zip(x.dims[2:], y.dims[2:], strict=True)):
        start = np.arange(count) * pooling.stride[d] - pooling.padding[d]
        first = np.clip(start, 0, extent)
        ranges.append(Range(first, np.maximum(first, np.clip(start + pooling.window[d], 0, extent))))
    return ranges


def covering(pooling: PoolingSpec, x: TensorSpec, y: TensorSpec) -> list[Range]:
    """Per dimension and input position: which outputs' windows cover it."""
    ranges = []
    for d, (extent, count) in enumerate(zip(x.dims[2:], y.dims[2:], strict=True)):
        reach = np.arange(extent) + pooling.padding[d]
        first = np.clip(-((pooling.window[d] - 1 - reach) // pooling.stride[d]), 0, count)
        ranges.append(Range(first, np.maximum(first, np.clip(reach // pooling.stride[d] + 1, 0, count))))
    return ranges


def divisors(pooling: PoolingSpec, x: TensorSpec, y: TensorSpec) -> Array:
    """By how much each window's sum is divided: its positions inside the input, or inside the input and its padding."""
    if pooling.mode == Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING:
        return _product([r.counts for r in covered(pooling, x, y)])
    counts = []
    for d, (extent, count) in enumerate(zip(x.dims[2:], y.dims[2:], strict=True)):
        start = np.arange(count) * pooling.stride[d] - pooling.padding[d]
        end = np.minimum(start + pooling.window[d], extent + max(pooling.padding[d], 0))
        counts.append(np.maximum(end - start, 0))
    return _product(counts)


def _product(factors: Sequence[Array]) -> Array:
    """The outer product over the dimensions."""
    product = np.ones((), np.float64)
    for factor in factors:
        product = product[..., None] * factor
    return product


def _along(values: Array, axis: int, rank: int) -> Array:
    return values.reshape([-1 if d == axis else 1 for d in range(rank)])


def window_sum(x: Array, pooling: PoolingSpec, counts: Sequence[int]) -> Array:
    """The sum over a box of positions, for every window."""
    return _summed(x, pooling, x.shape[-len(counts) :], counts, counts)


def covering_sum(y: Array, pooling: PoolingSpec, extents: Sequence[int]) -> Array:
    """For every position of the input, the sum over the windows that cover it."""
    return _summed(y, pooling, extents, y.shape[-len(extents) :], extents)


def _summed(
    values: Array, pooling: PoolingSpec, extents: Sequence[int], counts: Sequence[int], wanted: Sequence[int]
) -> Array:
    """Sums one dimension after the other; ``wanted`` is ``counts``, those over inputs, or ``extents``, those over windows."""
    for d, length in enumerate(wanted):
        axis = values.ndim - len(wanted) + d
        before = (slice(None),) * axis
        total = np.zeros((*values.shape[:axis], length, *values.shape[axis + 1 :]), values.dtype)
        for outputs, inputs in _steps(extents[d], counts[d], pooling.window[d], pooling.padding[d], pooling.stride[d]):
            there, here = (outputs, inputs) if wanted is counts else (inputs, outputs)
            total[(*before, there)] += values[(*before, here)]
        values = total
    return values


def first_maxima(x: Array, pooling: PoolingSpec, counts: Sequence[int]) -> Array:
    """The flat spatial position of the first maximum, in row-major order, of every window.

    NaN is larger than everything when it is propagated, and not there otherwise; the position is -1 where no value is.
    """
    lead, volume = x.ndim - len(counts), 1
    # Data is of a narrower type than x (view.wide_type), so an infinity has a rank of its own beside the finite numbers.
    best = _ranks(x, _propagates(pooling))
    where: Any = None  # nothing before the first dimension
    # The last dimension first: then the first of equal rows holds the first of equal values.
    for d in reversed(range(len(counts))):
        ranks, axis, extent = best, lead + d, best.shape[lead + d]
        shape, before = (*ranks.shape[:axis], counts[d], *ranks.shape[axis + 1 :]), (slice(None),) * axis
        best, free, position = np.full(shape, -np.inf, x.dtype), np.ones(shape, bool), np.zeros(shape, np.int32)
        steps = _steps(extent, counts[d], pooling.window[d], pooling.padding[d], pooling.stride[d])
        for there, here in steps:
            np.maximum(best[(*before, there)], ranks[(*before, here)], out=best[(*before, there)])
        for there, here in steps:
            first = ranks[(*before, here)] == best[(*before, there)]
            first &= free[(*before, there)]
            free[(*before, there)] ^= first
            position[(*before, there)] += first * _along(np.arange(extent, dtype=np.int32)[here], axis, x.ndim)
        inner = 0 if where is None else np.take_along_axis(where, position, axis)
        where, volume = position * np.intp(volume) + inner, volume * extent
    return np.where(np.isneginf(best), -1, where)


def _ranks(x: Array, propagate: bool) -> Array:
    """The same order among numbers, NaN at its end: infinity where it is propagated, else -infinity, below every number."""
    if np.isfinite(x).all():
        return x
    limits = np.finfo(x.dtype)
    return np.where(np.isnan(x), np.inf if propagate else -np.inf, np.clip(x, limits.min, limits.max))


def window_maxima(x: Array, pooling: PoolingSpec, counts: Sequence[int], propagate: bool) -> Array:
    """The maximum over a box of positions, one dimension after the other.

    NaN is larger than everything when it is propagated, and not there otherwise. Where no value is, the result is NaN, or
    -infinity when NaN is propagated.
    """
    maximum, nothing = (np.maximum, -np.inf) if propagate else (np.fmax, np.nan)
    values = x
    for d, count in enumerate(counts):
        axis = x.ndim - len(counts) + d
        best = np.empty((*values.shape[:axis], count, *values.shape[axis + 1 :]), values.dtype)
        lead = (slice(None),) * axis
        covered = slice(0, 0)
        steps = _steps(values.shape[axis], count, pooling.window[d], pooling.padding[d], pooling.stride[d])
        for place, part in sorted(steps, key=lambda step: step[0].start - step[0].stop):
            if covered.stop:
                maximum(best[(*lead, place)], values[(*lead, part)], out=best[(*lead, place)])
                continue
            covered = place  # the first step covers the most; beside it nothing has been seen
            best[(*lead, place)] = values[(*lead, part)]
            best[(*lead, slice(0, place.start))] = best[(*lead, slice(place.stop, None))] = nothing
        if not covered.stop:
            best[...] = nothing
        values = best
    return values


def _steps(extent: int, count: int, window: int, padding: int, stride: int) -> list[tuple[slice, slice]]:
    """Per position in the window: the outputs for which it lies inside, and the inputs that lie there."""
    steps = []
    for start in range(max(-padding, -(count - 1) * stride), min(window - padding, extent)):
        first = max(0, -(start // stride))
        last = min(count, (extent - 1 - start) // stride + 1)
        if first < last:
            begin = first * stride + start
            steps.append((slice(first, last), slice(begin, begin + (last - first - 1) * stride + 1, stride)))
    return steps


def lowest(data_type: cudnnDataType_t) -> float:
    """The lowest finite value of a type: the maximum of a window that holds no value."""
    if data_type in PRECISION:
        return -PRECISION[data_type][2]
    return float(np.iinfo(NUMPY_TYPES[data_type]).min)


def _propagates(pooling: PoolingSpec) -> bool:
    return pooling.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


@implements(PoolingForward)
def pooling_forward(operation: PoolingForward, x: Array) -> Exact:
    """The maximum or the average of every window."""
    pooling = operation.pooling
    ranges, counts = covered(pooling, operation.x, operation.y), operation.y.dims[2:]
    if pooling.mode in MAXIMA:
        value = window_maxima(x, pooling, counts, _propagates(pooling))
        if _propagates(pooling):
            empty = _product([r.counts for r in ranges]) == 0
            value[..., empty] = lowest(operation.y.scalar_type)
        else:
            value[np.isnan(value)] = lowest(operation.y.scalar_type)
        # A maximum is one of the inputs: nothing is rounded.
        return Exact(value, np.zeros(()))
    divisor = divisors(pooling, operation.x, operation.y)

    def roundings() -> Array:
        terms = _product([r.counts for r in ranges])
        if SCALAR_BYTES[operation.x.scalar_type] == 1:
            # Sums of 8-bit integers are exact in float up to 2**16 terms, and so is their division by a power of two.
            whole = np.where(np.log2(np.maximum(divisor, 1)) % 1 == 0, 0, DIVISION_ROUNDINGS)
            return np.where(terms <= 2**16, whole, terms + DIVISION_ROUNDINGS)
        return np.maximum(terms - 1, 0) + _division(divisor, operation.compute_type)

    def magnitude() -> Array:
        total = window_sum(np.abs(x), pooling, counts)
        return np.where(total >= PRECISION[operation.compute_type][2], np.inf, total / divisor)  # the sum may overflow

    def spread() -> Spread | None:
        if SCALAR_BYTES[operation.x.scalar_type] == 1:
            return None
        shared = of_reciprocal(divisor, operation.compute_type)
        return Spread(np.sqrt(window_sum(np.square(x), pooling, counts)) / divisor, roundings(), shared=shared)

    return Exact(window_sum(x, pooling, counts) / divisor, magnitude, roundings, spread=spread)


@implements(PoolingBackward)
def pooling_backward(operation: PoolingBackward, _y: Array, dy: Array, x: Array) -> Exact:
    """Every window's dy goes to its first maximum, or in equal parts to all it averaged."""
    pooling = operation.pooling
    if pooling.mode in MAXIMA:
        where = first_maxima(x, pooling, operation.y.dims[2:])

        def additions() -> Array:
            return np.maximum(_scattered(np.ones_like(dy), where, x.shape) - 1, 0)

        return Exact(_scattered(dy, where, x.shape), lambda: _scattered(np.abs(dy), where, x.shape), additions)
    extents = operation.x.dims[2:]
    divisor = divisors(pooling, operation.x, operation.y)
    part = dy / divisor
    terms = _product([r.counts for r in covering(pooling, operation.x, operation.y)])
    roundings = np.maximum(terms - 1, 0) + _division(divisor, operation.compute_type).max()

    def spread() -> Spread:
        shared = np.fmax.reduce(
            of_reciprocal(divisor, operation.compute_type), None
        )  # NaN of windows that hold nothing
        return Spread(np.sqrt(covering_sum(np.square(part), pooling, extents)), roundings, shared=shared)

    value = covering_sum(part, pooling, extents)
    return Exact(value, lambda: covering_sum(np.abs(part), pooling, extents), roundings, spread=spread)


def _division(divisor: Array, compute_type: cudnnDataType_t) -> Array:
    """Roundings of the division by ``divisor``."""
    whole = 2.0**53 if compute_type == DOUBLE else 2.0**24
    return np.where(divisor > whole, DIVISION_ROUNDINGS + INEXACT_DIVISOR_ROUNDINGS, DIVISION_ROUNDINGS)


def _scattered(values: Array, where: Array, shape: tuple[int, ...]) -> Array:
    """Sums of ``values`` at their flat spatial positions; -1 drops a value."""
    planes = shape[0] * shape[1]
    volume = int(np.prod(shape[2:]))
    flat = where.reshape(planes, -1)
    target = np.where(flat < 0, planes * volume, flat + np.arange(planes)[:, None] * volume).ravel()
    if values.dtype == np.float64:
        return np.bincount(target, values.ravel(), planes * volume + 1)[:-1].reshape(shape)
    total = np.zeros(planes * volume + 1, values.dtype)
    np.add.at(total, target, values.ravel())
    return total[:-1].reshape(shape)
