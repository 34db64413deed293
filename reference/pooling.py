"""Pooling (3.2.69, 4.1.18). Formulas: docs/errata.md, D090, D091 and D188.

Windows are boxes, so sums and maxima over them are taken one dimension after the other; what a window covers of one
dimension is a range of positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

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
MOST_STEPS_IN_PARTS = 16  # positions of a window along a dimension; Python's time for more is longer than a cache saves

Step = tuple[slice, slice]


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
        for outputs, inputs in _steps_of(pooling, d, extents[d], counts[d]):
            there, here = (outputs, inputs) if wanted is counts else (inputs, outputs)
            total[(*before, there)] += values[(*before, here)]
        values = total
    return values


def window_maxima(x: Array, pooling: PoolingSpec, counts: Sequence[int], propagate: bool) -> Array:
    """The maximum over a box of positions, one dimension after the other.

    NaN is larger than everything when it is propagated, and not there otherwise. Where no value is, the result is NaN, or
    -infinity when NaN is propagated.
    """
    for d, count in enumerate(counts):
        axis = x.ndim - len(counts) + d
        x = _maxima_along(x, axis, count, _steps_of(pooling, d, x.shape[axis], count), propagate)
    return x


def _maxima_along(values: Array, axis: int, count: int, steps: Sequence[Step], propagate: bool) -> Array:
    """The maximum of each window along one dimension."""
    maximum, nothing = (np.maximum, -np.inf) if propagate else (np.fmax, np.nan)
    best = np.empty((*values.shape[:axis], count, *values.shape[axis + 1 :]), values.dtype)
    lead = (slice(None),) * axis
    covered = slice(0, 0)
    for place, part in sorted(steps, key=lambda step: step[0].start - step[0].stop):
        if covered.stop:
            maximum(best[(*lead, place)], values[(*lead, part)], out=best[(*lead, place)])
            continue
        covered = place  # the first step covers the most; beside it nothing has been seen
        best[(*lead, place)] = values[(*lead, part)]
        best[(*lead, slice(0, place.start))] = best[(*lead, slice(place.stop, None))] = nothing
    if not covered.stop:
        best[...] = nothing
    return best


class Along(NamedTuple):
    """The maxima of windows along one axis. apart: no windows overlap. has_nan: some maxima are NaN that is propagated."""

    axis: int
    steps: list[Step]
    values: Array
    best: Array
    apart: bool
    has_nan: bool


def maxima_along_axes(x: Array, pooling: PoolingSpec, counts: Sequence[int], propagate: bool) -> list[Along]:
    """The maxima of ``window_maxima``, and the values that each dimension's were taken of.

    The last dimension comes first: then the first of equal rows holds the first of equal values, in row-major order.
    """
    found = []
    for d in reversed(range(len(counts))):
        axis = x.ndim - len(counts) + d
        steps = _steps_of(pooling, d, x.shape[axis], counts[d])
        best = _maxima_along(x, axis, counts[d], steps, propagate)
        has_nan = propagate and bool(np.isnan(best).any())
        found.append(Along(axis, steps, x, best, _apart(pooling, d, counts[d]), has_nan))
        x = best
    return found


def at_first_maxima(numbers: Array, axes: Sequence[Along]) -> Array:
    """Each window's number at its first maximum: their sum at each input, 0 where there is none.

    A window without a value gives its number to no input.
    """
    for axis, steps, values, best, apart, has_nan in reversed(axes):
        lead = (slice(None),) * axis
        total, free = np.zeros(values.shape, numbers.dtype), np.ones(best.shape, bool)
        for outputs, inputs in steps:
            there, here = (*lead, outputs), (*lead, inputs)
            met = np.ascontiguousarray(values[here])  # vector units compare it, and a copy costs less than they save
            first = met == best[there]
            if has_nan:
                first |= np.isnan(met)
            first &= free[there]
            free[there] ^= first
            kept = _kept(first, numbers[there])
            total[here] = kept if apart else total[here] + kept
        numbers = total
    return numbers


def _kept(chosen: Array, numbers: Array) -> Array:
    """The chosen numbers, and zeros; masks of their bits take a third of the time of a choice."""
    if numbers.itemsize > np.int64().itemsize:
        return np.where(chosen, numbers, 0)
    bits = np.dtype(f"i{numbers.itemsize}")
    return (np.negative(chosen.view(np.int8)).astype(bits) & numbers.view(bits)).view(numbers.dtype)


def _steps_of(pooling: PoolingSpec, d: int, extent: int, count: int) -> list[Step]:
    """Per position in the window along dimension d: the outputs for which it lies inside, and the inputs that lie there."""
    window, padding, stride = pooling.window[d], pooling.padding[d], pooling.stride[d]
    # Position -o * stride meets the first input at output o; behind the inputs there is none until output o - 1 meets them.
    parts = [(-o * stride, min(extent - o * stride, (1 - o) * stride) if o else extent) for o in reversed(range(count))]
    steps = []
    for start in chain(*(range(max(low, -padding), min(high, window - padding)) for low, high in parts)):
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


def selects(operation: PoolingForward | PoolingBackward) -> bool:
    """Whether each output is one of the inputs, or a constant of the output's type."""
    pooling = operation.pooling
    if pooling.mode not in MAXIMA or operation.blend_of(operation.outputs[0]) != (1, 0):
        return False
    # A gradient is a sum where windows overlap.
    apart = all(_apart(pooling, d, count) for d, count in enumerate(operation.y.dims[2:]))
    return isinstance(operation, PoolingForward) or apart


def _apart(pooling: PoolingSpec, d: int, count: int) -> bool:
    """Whether no two windows meet along dimension d."""
    return count == 1 or pooling.stride[d] >= pooling.window[d]


def _few_steps(operation: PoolingBackward) -> bool:
    """Whether what one position of the window takes is worth a step for each part of the tensors."""
    extents = zip(operation.pooling.window, operation.x.dims[2:], strict=True)
    return all(min(window, extent) <= MOST_STEPS_IN_PARTS for window, extent in extents)


@implements(PoolingForward, selects=selects)
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


@implements(PoolingBackward, planewise=_few_steps, selects=selects)
def pooling_backward(operation: PoolingBackward, _y: Array, dy: Array, x: Array) -> Exact:
    """Every window's dy goes to its first maximum, or in equal parts to all it averaged."""
    pooling = operation.pooling
    if pooling.mode in MAXIMA:
        axes = maxima_along_axes(x, pooling, operation.y.dims[2:], _propagates(pooling))

        def additions() -> Array:
            return np.maximum(at_first_maxima(np.ones_like(dy), axes) - 1, 0)

        return Exact(at_first_maxima(dy, axes), lambda: at_first_maxima(np.abs(dy), axes), additions)
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
