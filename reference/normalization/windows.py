"""Share the window sums, the power of a sum, and its rounding errors between LRN and divisive normalization."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import LRNSpec, Operation

from ..precision import PRECISION
from ..view import Array

# x^-beta may be computed by CUDA's powf (4 ulp) or as exp2(-beta * log2(x)). In the second form, errors of log2 (1 ulp)
# and of the product are a share of the exponent. The exponential makes them relative errors and adds 2 ulp.
POWER_ROUNDINGS = 8
EXPONENT_ROUNDINGS = 3


def shifted(values: Array, axis: int, offset: int) -> Array:
    """Move the values so that position i has the element at i + offset along the axis, or zero outside."""
    result = np.zeros_like(values)
    length = values.shape[axis] - abs(offset)
    if length > 0:
        source, target = [slice(None)] * values.ndim, [slice(None)] * values.ndim
        source[axis] = slice(max(offset, 0), max(offset, 0) + length)
        target[axis] = slice(max(-offset, 0), max(-offset, 0) + length)
        result[tuple(target)] = values[tuple(source)]
    return result


def combined(
    values: Array, axes: Sequence[int], first: int, last: int, combine: Callable[..., Array] = np.add
) -> Array:
    """Return sums (or maxima) over the window [first, last] around every position, along each axis; zeros outside."""
    for axis in axes:
        total = shifted(values, axis, first)
        for offset in range(first + 1, last + 1):
            total = combine(total, shifted(values, axis, offset))
        values = total
    return values


def offsets(dimensions: int, first: int, last: int) -> Iterator[tuple[int, ...]]:
    """Return the offsets of a window in several dimensions."""
    return product(range(first, last + 1), repeat=dimensions)


class Power(NamedTuple):
    """Hold base^-beta of s = k + factor * total, and the error of arithmetic in the compute type.

    value: s^-beta. base: s. per_power: roundings for each power of s. constant: further roundings of the power itself.

    overflows: where an intermediate leaves the range of the compute type, so that the document promises nothing.

    uncertain: where rounding may decide whether s is negative or zero, so that not even NaN is certain.

    smallest: the smallest normal number in unit roundoffs; smaller numbers may be lost.

    flushed: where the power is below the smallest normal number.
    """

    value: Array
    base: Array
    per_power: Array
    constant: Array
    overflows: Array
    uncertain: Array
    smallest: float
    flushed: Array

    def lost_of(self, factor: Array) -> Array:
        """Return what the product with a factor may lose because the power underflows, in unit roundoffs."""
        return np.where(self.flushed, np.abs(factor) * self.smallest, 0)

    def of_gradient(self, largest: float, dy: Array, x: Array) -> Power:
        """Return this power with overflows where dy * x * s^(-beta - 1), or a part of this product, leaves the
        range.
        """
        steeper, direct = self.value / self.base, dy * self.value
        products = np.abs(np.stack([steeper + 0 * x, dy * x, direct, direct * x, dy * x * steeper]))
        return self._replace(overflows=self.overflows | (np.isfinite(self.base) & (products >= largest).any(0)))


def power(operation: Operation, k: float, factor: float, beta: float, total: Array, terms: Array | int) -> Power:
    """Return the power of k + factor * total, where total is a sum with ``terms`` roundings."""
    unit, smallest, largest = PRECISION[operation.compute_type]
    base = k + factor * total
    size = k + abs(factor) * np.abs(total)
    # The 4 roundings are the factor's (two: the cast, the division by the window), its product's, and that of adding k.
    relative = (np.asarray(terms) + 4) * size / np.abs(base)
    exponent = np.abs(np.log(np.abs(base)))
    uncertain = np.isfinite(base) & (base != 0) & (unit * relative >= 0.5)
    value = base ** -np.asarray(beta, dtype=total.dtype)
    if not float(beta).is_integer():
        value = np.where(base < 0, np.nan, value)  # -infinity gives NaN too (D116).
    most = np.fmax.reduce([np.abs(total), size, np.abs(value)])
    lost = np.isfinite(base) & ((base != 0) & (most >= largest) | (unit * relative >= 0.5))
    return Power(
        value, base, relative + EXPONENT_ROUNDINGS * exponent, np.asarray(POWER_ROUNDINGS), lost, uncertain, smallest / unit,
        np.isfinite(base) & (np.abs(value) < smallest),
    )  # fmt: skip


def allowed(magnitude: Array, power: Power, around: Callable[[Array], Array] | None = None) -> Array:
    """Return the magnitude, infinite where the result is not determined.

    ``around`` spreads the marks to the elements that read the power.
    """
    lost = power.overflows if around is None else around(power.overflows.astype(np.float64)) > 0
    return np.where(lost, np.inf, magnitude)


def uncertain(power: Power, around: Callable[[Array], Array] | None = None) -> Callable[[], Array] | None:
    """Return a function of where not even NaN is certain, or None if every element is certain."""
    if not power.uncertain.any():
        return None
    return lambda: power.uncertain if around is None else around(power.uncertain.astype(np.float64)) > 0


def roundings(power: Power, exponent: float) -> Array:
    """Return the roundings of s^-exponent."""
    found: Any = abs(exponent) * power.per_power + power.constant
    return np.where(np.isfinite(found), found, 0)


def window(lrn: LRNSpec) -> tuple[int, int]:
    """Return the first and last offset of the window from its centre."""
    return -lrn.look_behind, lrn.look_ahead
