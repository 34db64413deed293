"""Compute pooling (3.2.69, 4.1.18). Formulas: docs/errata.md, D090, D091 and D188.

A window is a box, so sums and maxima are taken one dimension at a time. In each dimension a window covers a range of
positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
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
# A sum of n terms takes n - 1 additions in any order. A division, or a product with a rounded reciprocal, adds two
# roundings.
DIVISION_ROUNDINGS = 2
# A divisor beyond the exact integers of the compute type is a product of three rounded factors.
INEXACT_DIVISOR_ROUNDINGS = 5
MAX_STEPS_IN_PARTS = 16  # positions of a window along a dimension; more cost more time in Python than the cache saves

Step = tuple[slice, slice]


class Range(NamedTuple):
    """Hold for every position of one dimension the positions [first, last) of the other side that belong to it."""

    first: Array
    last: Array

    @property
    def counts(self) -> Array:
        return self.last - self.first


def covered(pooling: PoolingSpec, x: TensorSpec, y: TensorSpec) -> list[Range]:
    """Return for each dimension which inputs the window of an output position covers."""
    ranges = []
    for d, (extent, count) in enumerate(zip(x.dims[2:], y.dims[2:], strict=True)):
        start = np.arange(count) * pooling.stride[d] - pooling.padding[d]
        first = np.clip(start, 0, extent)
        ranges.append(Range(first, np.maximum(first, np.clip(start + pooling.window[d], 0, extent))))
    return ranges


def covering(pooling: PoolingSpec, x: TensorSpec, y: TensorSpec) -> list[Range]:
    """Return for each dimension which output positions have windows that cover an input position."""
    ranges = []
    for d, (extent, count) in enumerate(zip(x.dims[2:], y.dims[2:], strict=True)):
        reach = np.arange(extent) + pooling.padding[d]
        first = np.clip(-((pooling.window[d] - 1 - reach) // pooling.stride[d]), 0, count)
        ranges.append(Range(first, np.maximum(first, np.clip(reach // pooling.stride[d] + 1, 0, count))))
    return ranges


def divisors(pooling: PoolingSpec, x: TensorSpec, y: TensorSpec) -> Array:
    """Return the divisor of each window's sum: its positions inside the input, or inside the input and its padding."""
    if pooling.mode == Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING:
        return _product([r.counts for r in covered(pooling, x, y)])
    counts = []
    for d, (extent, count) in enumerate(zip(x.dims[2:], y.dims[2:], strict=True)):
        start = np.arange(count) * pooling.stride[d] - pooling.padding[d]
        end = np.minimum(start + pooling.window[d], extent + max(pooling.padding[d], 0))
        counts.append(np.maximum(end - start, 0))
    return _product(counts)


def _product(factors: Sequence[Array]) -> Array:
    """Return the outer product over the dimensions."""
    product = np.ones((), np.float64)
    for factor in factors:
        product = product[..., None] * factor
    return product


def window_sum(x: Array, pooling: PoolingSpec, counts: Sequence[int]) -> Array:
    """Return the sum over the positions of every window."""
    return _summed(x, pooling, x.shape[-len(counts) :], counts, counts)


def covering_sum(y: Array, pooling: PoolingSpec, extents: Sequence[int]) -> Array:
    """Return for every input position the sum over the windows that cover it."""
    return _summed(y, pooling, extents, y.shape[-len(extents) :], extents)


def _summed(
    values: Array, pooling: PoolingSpec, extents: Sequence[int], counts: Sequence[int], wanted: Sequence[int]
) -> Array:
    """Sum one dimension after the other.

    ``wanted`` is ``counts`` for sums over inputs, or ``extents`` for sums over windows.
    """
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
    """Return the maximum of every window, one dimension after the other.

    A propagated NaN is larger than everything; otherwise NaN is ignored. A window without a value gives -infinity if
    NaN is propagated, else NaN.
    """
    for d, count in enumerate(counts):
        axis = x.ndim - len(counts) + d
        x = _maxima_along(x, axis, count, _steps_of(pooling, d, x.shape[axis], count), propagate)
    return x


def _maxima_along(values: Array, axis: int, count: int, steps: Sequence[Step], propagate: bool) -> Array:
    """Return the maximum of each window along one dimension."""
    maximum, nothing = (np.maximum, -np.inf) if propagate else (np.fmax, np.nan)
    best = np.empty((*values.shape[:axis], count, *values.shape[axis + 1 :]), values.dtype)
    lead = (slice(None),) * axis
    covered = slice(0, 0)
    for place, part in sorted(steps, key=lambda step: step[0].start - step[0].stop):
        if covered.stop:
            maximum(best[(*lead, place)], values[(*lead, part)], out=best[(*lead, place)])
            continue
        covered = place  # The first step covers the most outputs; all others are still unset.
        best[(*lead, place)] = values[(*lead, part)]
        best[(*lead, slice(0, place.start))] = best[(*lead, slice(place.stop, None))] = nothing
    if not covered.stop:
        best[...] = nothing
    return best


class Along(NamedTuple):
    """Hold the maxima of windows along one axis.

    apart says that no windows overlap. settled says that each window has a value at each step and a maximum that one of
    them meets; has_nan says that some maxima are a propagated NaN.
    """

    axis: int
    steps: Sequence[Step]
    values: Array
    best: Array
    apart: bool
    settled: bool
    has_nan: bool


def maxima_along_axes(x: Array, pooling: PoolingSpec, counts: Sequence[int], propagate: bool) -> list[Along]:
    """Return the maxima of ``window_maxima`` for each dimension, with the values they were taken from.

    The last dimension comes first. Then the first of equal rows contains the first of equal values, in row-major order.
    """
    found = []
    for d in reversed(range(len(counts))):
        axis = x.ndim - len(counts) + d
        steps = _steps_of(pooling, d, x.shape[axis], counts[d])
        best = _maxima_along(x, axis, counts[d], steps, propagate)
        has_nan = bool(np.isnan(best).any())
        settled = all(outputs == slice(0, counts[d]) for outputs, _ in steps) and (propagate or not has_nan)
        found.append(Along(axis, steps, x, best, _apart(pooling, d, counts[d]), settled, propagate and has_nan))
        x = best
    return found


def at_first_maxima(numbers: Array, axes: Sequence[Along]) -> Array:
    """Add each window's number at its first maximum: their sum at each input, or 0.

    A window without a value adds its number to no input.
    """
    for along in reversed(axes):
        numbers = _at_first_maxima_along(numbers, along)
    return numbers


def _at_first_maxima_along(numbers: Array, along: Along) -> Array:
    """Add each window's number at the first of its maxima along one axis.

    A step takes the numbers of the windows whose maximum it meets; zeros are left for the next steps.
    """
    lead = (slice(None),) * along.axis
    left = numbers.copy()
    each_once = along.apart and sum(part.stop - part.start for part, _ in along.steps) == along.values.shape[along.axis]
    total = (np.empty if each_once else np.zeros)(along.values.shape, numbers.dtype)
    for step, (outputs, inputs) in enumerate(along.steps, 1):
        there, here = (*lead, outputs), (*lead, inputs)
        if along.settled and step == len(along.steps):
            taken = left  # Each window that met its maximum at no other step meets it at the last.
        else:
            # Vector units compare a contiguous copy faster than the copy costs.
            values = np.ascontiguousarray(along.values[here])
            met = values == along.best[there]
            if along.has_nan:
                met |= np.isnan(values)
            taken = _taken(left[there], met)
        total[here] = taken if along.apart else total[here] + taken
    return total


def _taken(numbers: Array, chosen: Array) -> Array:
    """Take the chosen numbers out of an array, and return them with zeros elsewhere; zeros replace them, too."""
    if numbers.itemsize > np.int64().itemsize:
        taken = np.where(chosen, numbers, 0)
        numbers[chosen] = 0
        return taken
    # Products of bits are exact for infinities and NaN, too, and take a tenth of the time of np.where.
    bits = numbers.view(f"i{numbers.itemsize}")
    products = bits * chosen
    bits ^= products
    return products.view(numbers.dtype)


@lru_cache(maxsize=16)
def _steps_of(pooling: PoolingSpec, d: int, extent: int, count: int) -> Sequence[Step]:
    """Return, for each window position along dimension d, the outputs with that position inside, and the inputs
    there.
    """
    window, padding, stride = pooling.window[d], pooling.padding[d], pooling.stride[d]
    # Position -o * stride meets the first input at output o. Beyond the inputs it meets none until output o - 1 does.
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
    """Return the lowest finite value of a type, which is the maximum of a window without values."""
    if data_type in PRECISION:
        return -PRECISION[data_type][2]
    return float(np.iinfo(NUMPY_TYPES[data_type]).min)


def _propagates(pooling: PoolingSpec) -> bool:
    return pooling.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


def selects(operation: PoolingForward | PoolingBackward) -> bool:
    """Return whether each output is one of the inputs, or a constant of the output's type."""
    pooling = operation.pooling
    if pooling.mode not in MAXIMA or operation.blend_of(operation.outputs[0]) != (1, 0):
        return False
    # A gradient is a sum where windows overlap.
    apart = all(_apart(pooling, d, count) for d, count in enumerate(operation.y.dims[2:]))
    return isinstance(operation, PoolingForward) or apart


def _apart(pooling: PoolingSpec, d: int, count: int) -> bool:
    """Return whether no two windows overlap along dimension d."""
    return count == 1 or pooling.stride[d] >= pooling.window[d]


def _few_steps(operation: PoolingBackward) -> bool:
    """Return whether windows are small enough to compute the tensors part by part."""
    extents = zip(operation.pooling.window, operation.x.dims[2:], strict=True)
    return all(min(window, extent) <= MAX_STEPS_IN_PARTS for window, extent in extents)


@implements(PoolingForward, selects=selects)
def pooling_forward(operation: PoolingForward, x: Array) -> Exact:
    """Compute the maximum or the average of every window."""
    pooling = operation.pooling
    ranges, counts = covered(pooling, operation.x, operation.y), operation.y.dims[2:]
    if pooling.mode in MAXIMA:
        value = window_maxima(x, pooling, counts, _propagates(pooling))
        if _propagates(pooling):
            empty = _product([r.counts for r in ranges]) == 0
            value[..., empty] = lowest(operation.y.scalar_type)
        else:
            value[np.isnan(value)] = lowest(operation.y.scalar_type)
        # A maximum is one of the inputs, so nothing is rounded.
        return Exact(value, np.zeros(()))
    divisor = divisors(pooling, operation.x, operation.y)

    def roundings() -> Array:
        terms = _product([r.counts for r in ranges])
        if SCALAR_BYTES[operation.x.scalar_type] == 1:
            # Float sums of 8-bit integers are exact up to 2**16 terms, and so is their division by a power of two.
            whole = np.where(np.log2(np.maximum(divisor, 1)) % 1 == 0, 0, DIVISION_ROUNDINGS)
            return np.where(terms <= 2**16, whole, terms + DIVISION_ROUNDINGS)
        return np.maximum(terms - 1, 0) + _division(divisor, operation.compute_type)

    def magnitude() -> Array:
        total = window_sum(np.abs(x), pooling, counts)
        return np.where(total >= PRECISION[operation.compute_type][2], np.inf, total / divisor)  # The sum may overflow.

    def spread() -> Spread | None:
        if SCALAR_BYTES[operation.x.scalar_type] == 1:
            return None
        shared = of_reciprocal(divisor, operation.compute_type)
        return Spread(np.sqrt(window_sum(np.square(x), pooling, counts)) / divisor, roundings(), shared=shared)

    return Exact(window_sum(x, pooling, counts) / divisor, magnitude, roundings, spread=spread)


def _unread(operation: PoolingBackward) -> tuple[str, ...]:
    return ("y",) if operation.pooling.mode in MAXIMA else ("y", "x")


@implements(PoolingBackward, planewise=_few_steps, selects=selects, unread=_unread)
def pooling_backward(operation: PoolingBackward, _y: None, dy: Array, x: Any) -> Exact:
    """Add every window's dy to its first maximum, or in equal parts to all inputs that it averaged."""
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
        )  # Windows without inputs give NaN, which fmax ignores.
        return Spread(np.sqrt(covering_sum(np.square(part), pooling, extents)), roundings, shared=shared)

    value = covering_sum(part, pooling, extents)
    return Exact(value, lambda: covering_sum(np.abs(part), pooling, extents), roundings, spread=spread)


def _division(divisor: Array, compute_type: cudnnDataType_t) -> Array:
    """Return the roundings of the division by ``divisor``."""
    whole = 2.0**53 if compute_type == DOUBLE else 2.0**24
    return np.where(divisor > whole, DIVISION_ROUNDINGS + INEXACT_DIVISOR_ROUNDINGS, DIVISION_ROUNDINGS)
