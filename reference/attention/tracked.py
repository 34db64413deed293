"""Numbers with what the arithmetic of another implementation may have added to them: running error analysis (docs/tolerance.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from dualdnn.api.operations import AttnSpec
from dualdnn.api.operations.attention import allows_tensor_cores
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF

from ..precision import PRECISION
from ..running import Running, beyond_half
from ..view import Array

TF32_UNIT = 2.0**-11
HALF_UNIT, HALF_SMALLEST, HALF_LARGEST = 2.0**-11, 2.0**-25, 65504.0  # the second: half of the least subnormal number


@dataclass(frozen=True)
class Arithmetic(Running):
    """What may be rounded where (docs/errata.md, D364).

    terms: roundings of a term for each addition of a product of matrices; tensor cores
    cut off their sums. factors: roundoffs to which both factors of a product are rounded (TF32). is_kept: whether intermediate
    vectors and factors are rounded to HALF. largest: of its numbers. overflows: whether what is kept becomes infinite beyond HALF.
    """

    terms: int = 1
    factors: float = 0.0
    is_kept: bool = False
    largest: float = np.inf
    overflows: bool = False

    @classmethod
    def of(cls, attn: AttnSpec, overflows: bool = False) -> Arithmetic:
        unit, smallest, largest = PRECISION[DOUBLE if attn.data_type == DOUBLE else FLOAT]
        cores, half = allows_tensor_cores(attn), attn.data_type == HALF
        factors = TF32_UNIT / unit if cores and not half else 0.0
        return cls(unit, False, smallest, 2 if cores else 1, factors, half, largest, overflows)

    @cached_property
    def expected(self) -> Arithmetic:
        """The same for what is expected of the squares of errors."""
        return replace(self, is_expected=True)

    def of_product(self, total: Array, terms: Array, roundings: int) -> Array:
        """The error of a sum of products, of which a part may leave the range. roundings: of each in the worst case, those of its factors apart."""
        error = self.of_sum(total, terms, roundings, self.factors, terms, cut=self.terms > 1)
        return error if self.is_expected else np.where(terms > self.largest, np.inf, error)


Error = Callable[[Arithmetic], Array]  # of the worst case, or of what is expected, whose arithmetic it gets


class Tracked:
    """An array and a bound of the error of each element, in units of the roundoff of the compute type, computed for who asks."""

    __slots__ = ("_error", "_known", "arithmetic", "value")

    def __init__(self, value: Array, error: Error, arithmetic: Arithmetic) -> None:
        self.value, self._error, self.arithmetic = value, error, arithmetic
        self._known: dict[bool, Array] = {}

    @classmethod
    def exact(cls, value: Array, arithmetic: Arithmetic) -> Tracked:
        return cls(value, lambda _: np.zeros_like(value), arithmetic)

    def made(self, value: Array, error: Error) -> Tracked:
        """Numbers of the same arithmetic."""
        return Tracked(value, error, self.arithmetic)

    def error(self, a: Arithmetic) -> Array:
        """The bound; what has none, or may be beyond the largest number, is not determined."""
        if a.is_expected not in self._known:
            error = self._error(a)
            most = error if a.is_expected else np.abs(self.value) + a.reach(error)
            if not most.max(initial=0) <= a.largest:  # nor where one is NaN
                error = np.where((most <= a.largest) | ~np.isfinite(self.value), error, np.inf)
            self._known[a.is_expected] = error
        return self._known[a.is_expected]

    def moved(self, place: Callable[[Array], Array]) -> Tracked:
        """The same numbers elsewhere: a function of arrays that computes nothing."""
        return self.made(place(self.value), lambda a: place(self.error(a)))

    @property
    def transposed(self) -> Tracked:
        """With the last two dimensions exchanged."""
        return self.moved(lambda part: part.swapaxes(-1, -2))

    @property
    def joined(self) -> Tracked:
        """(heads, count, size) as (count, heads * size)."""
        heads, count, size = self.value.shape
        return self.moved(lambda part: part.swapaxes(0, 1).reshape(count, heads * size))

    def __add__(self, other: Tracked) -> Tracked:
        """The rounded sum."""
        value = self.value + other.value
        return self.made(value, lambda a: self.error(a) + other.error(a) + a.rounded(1, value))

    def __sub__(self, other: Tracked) -> Tracked:
        return self + self.made(-other.value, other.error)

    def __mul__(self, other: Tracked) -> Tracked:
        """The rounded product, element by element."""
        value = self.value * other.value

        def error(a: Arithmetic) -> Array:
            own = self.error(a) * a.size(other.value) + a.size(self.value) * other.error(a)
            return np.asarray(own + a.of_product_of(value))

        return self.made(value, error)

    def scaled(self, factor: float) -> Tracked:
        """The product with a number, rounded once."""
        value = self.value * factor
        return self.made(value, lambda a: self.error(a) * a.size(factor) + a.rounded(1, value))

    def kept(self) -> Tracked:
        """The numbers once they are stored, or are factors, in the data type: zeros stay, numbers beyond its range are not determined."""
        if not self.arithmetic.is_kept:
            return self

        def error(a: Arithmetic) -> Array:
            most = np.abs(self.value) + a.reach(self.error(a))
            own = np.where(most > 0, a.rounded((HALF_UNIT * most + HALF_SMALLEST) / a.unit, 1.0), 0)
            return np.where(most >= HALF_LARGEST, np.inf, self.error(a) + own)

        return self.made(beyond_half(self.value) if self.arithmetic.overflows else self.value, error)

    def sum_over_heads(self) -> Tracked:
        """The sum over the first dimension."""
        return self.sum(0)

    def sum(self, axis: int, keepdims: bool = False) -> Tracked:
        """The sum over a dimension."""
        total, count = self.value.sum(axis=axis, keepdims=keepdims), self.value.shape[axis]

        def error(a: Arithmetic) -> Array:
            terms = a.size(self.value).sum(axis=axis, keepdims=keepdims)
            return np.asarray(self.error(a).sum(axis=axis, keepdims=keepdims) + a.of_sum(total, terms, count - 1))

        return self.made(total, error)


def product(first: Tracked, second: Tracked, roundings: int = 0) -> Tracked:
    """The product of matrices: each term is rounded, and added in any order. roundings: of a term beside these."""
    total, length = first.value @ second.value, first.value.shape[-1]

    def error(a: Arithmetic) -> Array:
        sizes, others = a.size(first.value), a.size(second.value)
        of_factors = first.error(a) @ others + sizes @ second.error(a)
        return np.asarray(of_factors + a.of_product(total, sizes @ others, a.terms * length + roundings))

    return first.made(total, error)


def masked_product(weights: Tracked, mask: Array, rows: Tracked, roundings: int = 0) -> Tracked:
    """The same for weights (heads, a, b), which count where mask (a, b) says so, and rows (heads, b, elements): what is masked
    may be no number."""

    def of_row(i: int) -> Tracked:
        own = weights.moved(lambda part: part[:, i : i + 1, mask[i]])
        return product(own, rows.moved(lambda part: part[:, mask[i]]), roundings)

    def row_by_row() -> Tracked:
        found = [of_row(i) for i in range(len(mask))]
        value = np.concatenate([row.value for row in found], axis=1)
        return weights.made(value, lambda a: np.concatenate([row.error(a) for row in found], axis=1))

    if len(mask) and not np.isfinite(rows.value).all():
        return row_by_row()
    whole = product(weights, rows, roundings)

    def error(a: Arithmetic) -> Array:
        is_bounded = not len(mask) or np.isfinite(rows.error(a)).all()
        return (whole if is_bounded else row_by_row()).error(a)

    return weights.made(whole.value, error)
