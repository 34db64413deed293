"""Errors that are carried along with numbers from step to step: the worst case of each, or what is expected of their squares (spread.py).

Both are counted in unit roundoffs of the compute type, and propagate alike: by sizes in the worst case, by squares in what is expected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .spread import CUT_OF_TF32, each_rounded, few, reach_of, walked
from .view import Array

LEAST_INFINITE_HALF = 65520.0  # and all beyond it, as HALF
LATER_FACTORS = 2.0**12  # by which a product that was lost may be multiplied


@dataclass(frozen=True)
class Running:
    """How errors of arithmetic with this unit roundoff propagate. is_expected: squares are carried along. smallest: of its normal numbers."""

    unit: float
    is_expected: bool = False
    smallest: float = 0.0

    def size(self, numbers: Any, out: Array | None = None) -> Any:
        """The factors by which errors grow where numbers are multiplied by these."""
        return np.square(numbers, out) if self.is_expected else np.abs(numbers, out)

    def rounded(self, roundings: Any, *terms: Any) -> Any:
        """The error of so many roundings of each term. What is expected leaves room for several that all go one way."""
        size = self.size(terms[0])
        for term in terms[1:]:
            size = size + self.size(term)
        return self.rounding(roundings) * size

    def rounding(self, roundings: Any) -> Any:
        """The error of so many roundings of 1."""
        return each_rounded(roundings, 1.0) if self.is_expected else roundings

    def of_product_of(self, value: Array) -> Any:
        """The error of a rounded product, which may be lost where it is no normal number, before other factors enlarge it: their order is
        free. One with zero is not."""
        size, least = self.size(value), self.size(LATER_FACTORS * self.smallest / self.unit)
        lost = size < least
        if lost.any():
            size = np.where(lost & (value != 0), least, size)
        return each_rounded(1, size) if self.is_expected else size

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


def beyond_half(values: Array) -> Array:
    """The numbers, infinite where memory in HALF does not hold them."""
    return np.where(np.abs(values) >= LEAST_INFINITE_HALF, np.copysign(np.inf, values), values)
