"""Numbers with what the arithmetic of another implementation may have added to them: running error analysis (docs/tolerance.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from dualdnn.api.operations import AttnSpec
from dualdnn.api.operations.attention import allows_tensor_cores
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF

from ..precision import PRECISION
from ..running import Running
from ..view import Array

TF32_UNIT = 2.0**-11
HALF_UNIT, HALF_SMALLEST, HALF_LARGEST = 2.0**-11, 2.0**-25, 65504.0  # the second: half of the least subnormal number


@dataclass(frozen=True)
class Arithmetic(Running):
    """What may be rounded where (docs/errata.md, D364).

    terms: roundings of a term for each addition of a product of matrices; tensor cores
    cut off their sums. factors: roundoffs to which both factors of a product are rounded (TF32). is_kept: whether intermediate
    vectors and factors are rounded to HALF. largest: of its numbers.
    """

    terms: int = 1
    factors: float = 0.0
    is_kept: bool = False
    largest: float = np.inf

    @classmethod
    def of(cls, attn: AttnSpec, is_expected: bool = False) -> Arithmetic:
        unit, _, largest = PRECISION[DOUBLE if attn.data_type == DOUBLE else FLOAT]
        cores, half = allows_tensor_cores(attn), attn.data_type == HALF
        return cls(unit, is_expected, 2 if cores else 1, TF32_UNIT / unit if cores and not half else 0.0, half, largest)

    def of_product(self, total: Array, terms: Array, roundings: int) -> Array:
        """The error of a sum of products. roundings: of each in the worst case, those of its factors apart."""
        return self.of_sum(total, terms, roundings, self.factors, terms, cut=self.terms > 1)


@dataclass(frozen=True, slots=True)
class Tracked:
    """An array and a bound of the error of each element, in units of the roundoff of the compute type."""

    value: Array
    error: Array
    arithmetic: Arithmetic

    @classmethod
    def exact(cls, value: Array, arithmetic: Arithmetic) -> Tracked:
        return cls(value, np.zeros_like(value), arithmetic)

    def made(self, value: Array, error: Array) -> Tracked:
        """Numbers of the same arithmetic; what has no bound, or is beyond the largest number, is not determined."""
        open_ = np.isnan(error) | (np.abs(value) > self.arithmetic.largest)
        return Tracked(value, np.where(open_ & np.isfinite(value), np.inf, error), self.arithmetic)

    @property
    def transposed(self) -> Tracked:
        """With the last two dimensions exchanged."""
        return self.made(self.value.swapaxes(-1, -2), self.error.swapaxes(-1, -2))

    @property
    def joined(self) -> Tracked:
        """(heads, count, size) as (count, heads * size)."""
        heads, count, size = self.value.shape
        return self.made(*(part.swapaxes(0, 1).reshape(count, heads * size) for part in (self.value, self.error)))

    def __add__(self, other: Tracked) -> Tracked:
        """The rounded sum."""
        value = self.value + other.value
        return self.made(value, self.error + other.error + self.arithmetic.rounded(1, value))

    def __sub__(self, other: Tracked) -> Tracked:
        return self + self.made(-other.value, other.error)

    def __mul__(self, other: Tracked) -> Tracked:
        """The rounded product, element by element."""
        value = self.value * other.value
        a = self.arithmetic
        error = self.error * a.size(other.value) + a.size(self.value) * other.error
        return self.made(value, error + a.rounded(1, value))

    def scaled(self, factor: float) -> Tracked:
        """The product with a number, rounded once."""
        value = self.value * factor
        return self.made(value, self.error * self.arithmetic.size(factor) + self.arithmetic.rounded(1, value))

    def kept(self) -> Tracked:
        """The numbers once they are stored, or are factors, in the data type: zeros stay, numbers beyond its range are not determined."""
        if not self.arithmetic.is_kept:
            return self
        a = self.arithmetic
        most = np.abs(self.value) + a.reach(self.error)
        error = self.error + np.where(most > 0, a.rounded((HALF_UNIT * most + HALF_SMALLEST) / a.unit, 1.0), 0)
        return self.made(self.value, np.where(most >= HALF_LARGEST, np.inf, error))

    def sum_over_heads(self) -> Tracked:
        """The sum over the first dimension."""
        return self.sum(0)

    def sum(self, axis: int, keepdims: bool = False) -> Tracked:
        """The sum over a dimension."""
        a, total = self.arithmetic, self.value.sum(axis=axis, keepdims=keepdims)
        terms = a.size(self.value).sum(axis=axis, keepdims=keepdims)
        error = self.error.sum(axis=axis, keepdims=keepdims) + a.of_sum(total, terms, self.value.shape[axis] - 1)
        return self.made(total, error)


def product(first: Tracked, second: Tracked, roundings: int = 0) -> Tracked:
    """The product of matrices: each term is rounded, and added in any order. roundings: of a term beside these."""
    a, total = first.arithmetic, first.value @ second.value
    sizes, others = a.size(first.value), a.size(second.value)
    count = a.terms * first.value.shape[-1] + roundings
    error = first.error @ others + sizes @ second.error + a.of_product(total, sizes @ others, count)
    return first.made(total, error)


def masked_product(weights: Tracked, mask: Array, rows: Tracked, roundings: int = 0) -> Tracked:
    """The same for weights (heads, a, b), which count where mask (a, b) says so, and rows (heads, b, elements): what is masked
    may be no number."""
    if not len(mask) or (np.isfinite(rows.value).all() and np.isfinite(rows.error).all()):
        return product(weights, rows, roundings)
    found = [
        product(
            weights.made(weights.value[:, i : i + 1, chosen], weights.error[:, i : i + 1, chosen]),
            rows.made(rows.value[:, chosen], rows.error[:, chosen]),
            roundings,
        )
        for i, chosen in enumerate(mask)
    ]
    return weights.made(*(np.concatenate([getattr(row, part) for row in found], axis=1) for part in ("value", "error")))
