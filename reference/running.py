"""Errors that are carried along with numbers from step to step: the worst case of each, or what is expected of their squares (spread.py).

Both are counted in unit roundoffs of the compute type, and propagate alike: by sizes in the worst case, by squares in what is expected.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .spread import CUT_OF_TF32, each_rounded, few, reach_of, walked
from .view import Array

LEAST_INFINITE_HALF = 65520.0  # and all beyond it, as HALF
LATER_FACTORS = 2.0**12  # by which a product that was lost may be multiplied


class Sized:
    """Numbers of an arithmetic, and by how much errors grow where they are multiplied by these: worked out when somebody asks."""

    __slots__ = ("_sizes", "arithmetic", "value")
    value: Array
    arithmetic: Any
    _sizes: Array | None

    @property
    def sizes(self) -> Array:
        """By which errors grow where numbers are multiplied by these."""
        if self._sizes is None:
            self._sizes = self.arithmetic.size(self.value)
        return self._sizes


@dataclass(frozen=True)
class Running:
    """How errors of arithmetic with this unit roundoff propagate. is_expected: squares are carried along. smallest: of its normal numbers."""

    unit: float
    is_expected: bool = False
    smallest: float = 0.0

    def size(self, numbers: Any) -> Any:
        """The factors by which errors grow where numbers are multiplied by these."""
        return np.square(numbers) if self.is_expected else np.abs(numbers)

    def rounding(self, roundings: Any) -> Any:
        """The error of so many roundings of 1."""
        return each_rounded(roundings, 1.0) if self.is_expected else roundings

    @property
    def of_products(self) -> float:
        """The factor between the product of two errors and what it adds to the error of a product."""
        return float(reach_of(np.square(self.unit)) ** 2 if self.is_expected else self.unit)

    def reach(self, error: Array) -> Array:
        """The distance by which a number of this error may be off."""
        return self.unit * (reach_of(error) if self.is_expected else error)

    def of_sum(
        self, total: Array, terms: Array, count: int, factors: float = 0.0, products: Any = 0.0, cut: bool = False
    ) -> Array:
        """The error of a sum of ``count`` roundings. terms: the sum of the sizes of its terms. products: of those terms whose two factors are
        rounded to ``factors`` roundoffs. cut: whether tensor cores may cut the sum off."""
        of_terms, of_products, of_total = self.weights_of_sum(count, factors, cut)
        found = of_terms * terms + of_products * products
        return np.asarray(found + of_total * np.square(total) if self.is_expected else found)

    def weights_of_sum(self, count: Any, factors: float = 0.0, cut: bool = False) -> tuple[Any, Any, Any]:
        """How much the sizes of terms and of products, and the square of the total, count in the error of a sum."""
        if not self.is_expected:
            return count * (1 + count * self.unit), 2 * factors, 0.0
        lost = few(CUT_OF_TF32[0] * count) if cut else 0.0
        return walked(count, 0.0, 1.0) + lost, each_rounded(factors, 1.0, 2), walked(count, 1.0, 0.0) + lost


@dataclass(frozen=True)
class Ways:
    """How errors propagate along the first dimension of their arrays: in the worst case and, where ``expects``, as their squares are expected
    to. largest: of the numbers of the compute type."""

    worst: Running
    expects: bool = False
    largest: float = np.inf

    @cached_property
    def ways(self) -> tuple[Running, ...]:
        return (self.worst, replace(self.worst, is_expected=True)) if self.expects else (self.worst,)

    @cached_property
    def _known(self) -> dict[Any, Any]:
        """What has been computed once for all arrays of as many dimensions."""
        return {}

    def each(self, found: Callable[..., Any], *errors: Array) -> Array:
        """What a function gives of each way, and of errors in it."""
        of_ways = [found(*arguments) for arguments in zip(self.ways, *errors, strict=True)]
        return np.array(of_ways)

    def beside(self, numbers: Any, rank: int) -> Array:
        """A number of each way, beside arrays of errors of numbers of so many dimensions."""
        return np.reshape(numbers, (-1, *(1,) * rank))

    def rounding(self, roundings: Any, rank: int) -> Array:
        """The error of so many roundings of 1, beside arrays."""
        if (roundings, rank) not in self._known:
            of_ways = self.each(lambda way: way.rounding(roundings))
            self._known[roundings, rank] = self.beside(of_ways, rank)
        return np.asarray(self._known[roundings, rank])

    def size(self, numbers: Array) -> Array:
        """By which errors grow where numbers are multiplied by these."""
        if not self.expects:
            return np.abs(numbers)[None]
        found = np.empty((2, *numbers.shape), numbers.dtype)
        np.abs(numbers, out=found[0])
        np.square(numbers, out=found[1])
        return found

    def rounded(self, roundings: Any, numbers: Array) -> Array:
        """The error of so many roundings of these numbers."""
        return self.size(numbers) * self.rounding(roundings, numbers.ndim)

    def reach(self, error: Array) -> Array:
        """The distances by which numbers of this error may be off."""
        return self.each(Running.reach, error)

    def of_product_of(self, value: Array, sizes: Array) -> Array:
        """The error of rounded products of these sizes, which may be lost where they are no normal numbers, before other factors enlarge
        them: their order is free. One with zero is not."""
        least = LATER_FACTORS * self.worst.smallest / self.worst.unit
        lost = sizes[0] < least
        if lost.any():
            sizes = np.where(
                lost & (value != 0), self.beside(self.each(lambda way: way.size(least)), value.ndim), sizes
            )
        return sizes * self.rounding(1, value.ndim)

    def of_sum(self, total: Array, sizes: Array, count: int) -> Array:
        """The error of a sum of so many roundings, the sizes of whose terms have these sums."""
        return self.each(lambda way, terms: way.of_sum(total, terms, count), sizes)


def beyond_half(values: Array) -> Array:
    """The numbers, infinite where memory in HALF does not hold them."""
    return np.where(np.abs(values) >= LEAST_INFINITE_HALF, np.copysign(np.inf, values), values)
