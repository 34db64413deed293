"""Propagate errors from step to step: their worst case, or their expected squares (spread.py).

Both are counted in unit roundoffs of the compute type. The worst case propagates by sizes, the expected squares by
squares.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .spread import CUT_OF_TF32, each_rounded, few, reach_of, walked
from .view import Array

MIN_INFINITE_HALF = 65520.0  # HALF rounds this and everything larger to infinity
LATER_FACTORS = 2.0**12  # largest factor that may follow a product that was lost


class Sized:
    """Hold numbers, and compute lazily the factors by which they enlarge errors."""

    __slots__ = ("_sizes", "arithmetic", "value")
    value: Array
    arithmetic: Any
    _sizes: Array | None

    @property
    def sizes(self) -> Array:
        """Return the factors by which errors grow in products with these numbers."""
        if self._sizes is None:
            self._sizes = self.arithmetic.size(self.value)
        return self._sizes

    @property
    def sizes_of_factors(self) -> Array:
        """Return the magnitudes that scale the errors of rounding these factors to TF32.

        All subnormal numbers have the same error, and zeros have none.
        """
        sizes, a = self.sizes, self.arithmetic
        least = a.worst.smallest
        if not a.factors or not (is_less := sizes[0] < least).any():
            return sizes
        return np.where(is_less & (sizes[0] > 0), a.beside(a.each(lambda way: way.size(least)), self.value.ndim), sizes)


@dataclass(frozen=True)
class Running:
    """Propagate errors of arithmetic with this unit roundoff.

    is_expected: whether expected squares are carried along. smallest: the smallest normal number.
    """

    unit: float
    is_expected: bool = False
    smallest: float = 0.0

    def size(self, numbers: Any) -> Any:
        """Return the factors by which errors grow in products with these numbers."""
        return np.square(numbers) if self.is_expected else np.abs(numbers)

    def rounding(self, roundings: Any) -> Any:
        """Return the error of this many roundings of 1."""
        return each_rounded(roundings, 1.0) if self.is_expected else roundings

    @property
    def of_products(self) -> float:
        """Return the factor of the product of two errors in the error of a product."""
        return float(reach_of(np.square(self.unit)) ** 2 if self.is_expected else self.unit)

    def reach(self, error: Array) -> Array:
        """Return how far a number with this error may be off."""
        return self.unit * (reach_of(error) if self.is_expected else error)

    def of_sum(
        self, total: Array, terms: Array, count: int, factors: float = 0.0, products: Any = 0.0, cut: bool = False
    ) -> Array:
        """Return the error of a sum with ``count`` roundings.

        terms: the sum of its terms' sizes. products: the sum of the sizes of terms whose two factors are rounded to
        ``factors`` roundoffs. cut: whether tensor cores may truncate the sum.
        """
        of_terms, of_products, of_total = self.weights_of_sum(count, factors, cut)
        found = of_terms * terms + of_products * products
        return np.asarray(found + of_total * np.square(total) if self.is_expected else found)

    def weights_of_sum(self, count: Any, factors: float = 0.0, cut: bool = False) -> tuple[Any, Any, Any]:
        """Return the weights of terms, products and the squared total in the error of a sum."""
        if not self.is_expected:
            return count * (1 + count * self.unit), 2 * factors, 0.0
        lost = few(CUT_OF_TF32[0] * count) if cut else 0.0
        return walked(count, 0.0, 1.0) + lost, each_rounded(factors, 1.0, 2), walked(count, 1.0, 0.0) + lost


@dataclass(frozen=True)
class Ways:
    """Propagate errors along the first dimension of arrays: the worst case and, if ``expects``, the expected squares.

    largest: the largest number of the compute type. factors: unit roundoffs by which both factors of a matrix product
    may be rounded (TF32).
    """

    worst: Running
    expects: bool = False
    largest: float = np.inf
    factors: float = 0.0

    @cached_property
    def ways(self) -> tuple[Running, ...]:
        return (self.worst, replace(self.worst, is_expected=True)) if self.expects else (self.worst,)

    @cached_property
    def _known(self) -> dict[Any, Any]:
        """Return the cache of values that all arrays of one rank share."""
        return {}

    def each(self, found: Callable[..., Any], *errors: Array) -> Array:
        """Apply a function to each way and its part of the errors."""
        of_ways = [found(*arguments) for arguments in zip(self.ways, *errors, strict=True)]
        return np.array(of_ways)

    def beside(self, numbers: Any, rank: int) -> Array:
        """Reshape one number for each way to multiply errors of arrays with this rank."""
        return np.reshape(numbers, (-1, *(1,) * rank))

    def rounding(self, roundings: Any, rank: int) -> Array:
        """Return the error of this many roundings of 1, shaped for arrays."""
        if (roundings, rank) not in self._known:
            of_ways = self.each(lambda way: way.rounding(roundings))
            self._known[roundings, rank] = self.beside(of_ways, rank)
        return np.asarray(self._known[roundings, rank])

    def size(self, numbers: Array) -> Array:
        """Return the factors by which errors grow in products with these numbers."""
        if not self.expects:
            return np.abs(numbers)[None]
        found = np.empty((2, *numbers.shape), numbers.dtype)
        np.abs(numbers, out=found[0])
        np.square(numbers, out=found[1])
        return found

    def rounded(self, roundings: Any, numbers: Array) -> Array:
        """Return the error of this many roundings of these numbers."""
        return self.size(numbers) * self.rounding(roundings, numbers.ndim)

    def reach(self, error: Array) -> Array:
        """Return how far numbers with these errors may be off, in each way."""
        return self.each(Running.reach, error)

    def of_product_of(self, value: Array, sizes: Array) -> Array:
        """Return the error of rounded products with these sizes.

        Subnormal products may be lost before other factors enlarge them, because the order of factors is free. Products
        with zero are exact.
        """
        least = LATER_FACTORS * self.worst.smallest / self.worst.unit
        lost = sizes[0] < least
        if lost.any():
            sizes = np.where(
                lost & (value != 0), self.beside(self.each(lambda way: way.size(least)), value.ndim), sizes
            )
        return sizes * self.rounding(1, value.ndim)

    def of_sum(self, total: Array, sizes: Array, count: int) -> Array:
        """Return the error of a sum with ``count`` roundings; ``sizes`` has the sums of its terms' sizes."""
        return self.each(lambda way, terms: way.of_sum(total, terms, count), sizes)


def beyond_half(values: Array) -> Array:
    """Return the numbers, infinite where HALF cannot hold them."""
    return np.where(np.abs(values) >= MIN_INFINITE_HALF, np.copysign(np.inf, values), values)
