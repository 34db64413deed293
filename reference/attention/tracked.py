"""Track a bound of the error that another implementation may have: running error analysis (docs/tolerance.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import AttnSpec
from dualdnn.api.operations.attention import allows_tensor_cores
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF

from ..engine import EXPECTED_ASKED
from ..precision import PRECISION
from ..running import Running, Sized, Ways, beyond_half
from ..view import Array

TF32_UNIT = 2.0**-11  # unit roundoff
HALF_UNIT = 2.0**-11  # unit roundoff
HALF_SMALLEST = 2.0**-25  # half of the least subnormal number
MAX_HALF = 65504.0  # the largest number of half


@dataclass(frozen=True)
class Arithmetic(Ways):
    """Describe where attention may round (docs/errata.md, D364).

    terms counts the roundings of a term for each addition of a matrix product; it is 2 for tensor cores, which
    truncate. is_kept says whether intermediate vectors and factors are rounded to HALF. overflows says whether kept
    numbers beyond HALF become infinite.
    """

    terms: int = 1
    is_kept: bool = False
    overflows: bool = False

    @classmethod
    def of(cls, attn: AttnSpec, overflows: bool = False) -> Arithmetic:
        return _arithmetic(attn.data_type, allows_tensor_cores(attn), EXPECTED_ASKED.get(), overflows)

    def weights_of_products(self, roundings: int, rank: int) -> tuple[Array, float]:
        """Return how much the sizes of products count in the error of their sum.

        The array has one weight for each way, shaped for operands of ``rank`` dimensions. The number weighs the square
        of the sum in the last way.
        """
        key = "products", roundings, rank
        if key not in self._known:
            found = [way.weights_of_sum(roundings, self.factors, self.terms > 1) for way in self.ways]
            of_sizes = [of_terms + of_products for of_terms, of_products, _ in found]
            self._known[key] = self.beside(of_sizes, rank), float(found[-1][2])
        known: tuple[Array, float] = self._known[key]
        return known


@cache
def _arithmetic(data_type: cudnnDataType_t, cores: bool, expects: bool, overflows: bool) -> Arithmetic:
    unit, smallest, largest = PRECISION[DOUBLE if data_type == DOUBLE else FLOAT]
    half = data_type == HALF
    factors = TF32_UNIT / unit if cores and not half else 0.0
    worst = Running(unit, smallest=smallest)
    return Arithmetic(worst, expects, largest, factors, 2 if cores else 1, half, overflows)


class Tracked(Sized):
    """Hold an array and a lazy bound of each element's error in each way, in unit roundoffs of the compute type."""

    __slots__ = ("_error", "_known", "beyond", "is_bounded")

    def __init__(
        self, value: Array, error: Callable[[], Array] | None, arithmetic: Arithmetic,
        beyond: Callable[[], Array] | None = None,
    ) -> None:  # fmt: skip
        """Make a tracked array.

        ``beyond`` returns a mask of the elements with an intermediate out of range; error None means exact.
        """
        self.value, self._error, self.arithmetic, self.beyond = value, error, arithmetic, beyond
        self._known: Array | None = None
        self._sizes: Array | None = None
        self.is_bounded = error is None  # whether all elements are known to have a finite bound

    @classmethod
    def exact(cls, value: Array, arithmetic: Arithmetic) -> Tracked:
        return cls(value, None, arithmetic)

    @property
    def is_exact(self) -> bool:
        return self._error is None

    def made(self, value: Array, error: Callable[[], Array], beyond: Callable[[], Array] | None = None) -> Tracked:
        """Make rounded numbers in the same arithmetic."""
        return Tracked(value, error, self.arithmetic, beyond)

    @property
    def error(self) -> Array:
        """Return the bounds. They are infinite where a number has none or may exceed the largest number."""
        if self._known is None:
            a = self.arithmetic
            if self._error is None:
                self._known = np.zeros((len(a.ways), *self.value.shape), self.value.dtype)
            else:
                found = self._error()
                # A rounded number has an error at least of its own size. This comparison is also false for NaN.
                self.is_bounded = bool(2 * np.maximum.reduce(found, None, initial=0) <= a.largest)
                self._known = found if self.is_bounded else self._within_range(found)
        return self._known

    def _within_range(self, error: Array) -> Array:
        most = np.concatenate([np.abs(self.value) + self.arithmetic.worst.reach(error[:1]), error[1:]])
        error = np.where((most <= self.arithmetic.largest) | ~np.isfinite(self.value), error, np.inf)
        if self.beyond:
            error[0][self.beyond()] = np.inf
        return error

    def moved(self, place: Callable[[Array], Array]) -> Tracked:
        """Return the same numbers rearranged.

        ``place`` acts on the last three dimensions or fewer and computes nothing.
        """
        return _Moved(self, place)

    @property
    def transposed(self) -> Tracked:
        """Return the numbers with the last two dimensions exchanged."""
        return self.moved(lambda part: part.swapaxes(-1, -2))

    @property
    def joined(self) -> Tracked:
        """Return (heads, count, size) as (count, heads * size)."""
        heads, count, size = self.value.shape
        return self.moved(lambda part: part.swapaxes(-3, -2).reshape(*part.shape[:-3], count, heads * size))

    def __add__(self, other: Tracked) -> Tracked:
        """Return the rounded sum."""
        value = self.value + other.value
        return self.made(value, lambda: self.error + other.error + self.arithmetic.rounded(1, value))

    def __sub__(self, other: Tracked) -> Tracked:
        return self + Tracked(-other.value, other._error and (lambda: other.error), other.arithmetic)

    def __mul__(self, other: Tracked) -> Tracked:
        """Return the rounded product, element by element."""
        value, a = self.value * other.value, self.arithmetic

        def error() -> Array:
            own = self.error * other.sizes + self.sizes * other.error
            return np.asarray(own + a.of_product_of(value, a.size(value)))

        return self.made(value, error)

    def scaled(self, factor: float) -> Tracked:
        """Return the product with a number, rounded once."""
        value, a = self.value * factor, self.arithmetic

        def error() -> Array:
            found = a.rounded(1, value)
            for part, way, own in zip(found, a.ways, self.error, strict=True):
                part += own * way.size(factor)
            return found

        return self.made(value, error)

    def kept(self) -> Tracked:
        """Return the numbers after they are stored in HALF.

        Zeros stay exact; numbers beyond the range are not determined.
        """
        if not self.arithmetic.is_kept:
            return self

        def of_way(way: Running, error: Array) -> Array:
            most = np.abs(self.value) + way.reach(error)
            own = np.where(most > 0, way.rounding((HALF_UNIT * most + HALF_SMALLEST) / way.unit), 0)
            return np.where(most >= MAX_HALF, np.inf, error + own)

        value = beyond_half(self.value) if self.arithmetic.overflows else self.value
        return self.made(value, lambda: self.arithmetic.each(of_way, self.error))

    def sum_over_heads(self) -> Tracked:
        """Return the sum over the heads, the third dimension from the end."""
        return self.sum(-3)

    def sum(self, axis: int, keepdims: bool = False) -> Tracked:
        """Return the sum over a dimension, counted from the end."""
        total, count = self.value.sum(axis=axis, keepdims=keepdims), self.value.shape[axis]

        def error() -> Array:
            sizes = self.sizes.sum(axis=axis, keepdims=keepdims)
            own = self.error.sum(axis=axis, keepdims=keepdims)
            return np.asarray(own + self.arithmetic.of_sum(total, sizes, count - 1))

        return self.made(total, error)


class _Moved(Tracked):
    """Hold rearranged numbers, whose errors are taken from the original."""

    __slots__ = ("_from", "_place")

    def __init__(self, numbers: Tracked, place: Callable[[Array], Array]) -> None:
        super().__init__(place(numbers.value), numbers._error, numbers.arithmetic)
        self._from, self._place = numbers, place

    @property
    def sizes(self) -> Array:
        if self._sizes is None:
            self._sizes = self._place(self._from.sizes)
        return self._sizes

    @property
    def error(self) -> Array:
        if self._known is None:
            self._known, self.is_bounded = self._place(self._from.error), self._from.is_bounded
        return self._known


def product(first: Tracked, second: Tracked, roundings: int = 0, shares: bool = False) -> Tracked:
    """Return the matrix product.

    Each term is rounded, the terms are added in any order, and partial sums may leave the range. ``roundings`` counts
    extra roundings of each term. ``shares``: the numbers that a sum multiplies may share one error, which moves them
    all to the same side. Otherwise their errors are independent.
    """
    total, a = first.value @ second.value, first.arithmetic

    def error() -> Array:
        of_sizes, of_total = a.weights_of_products(a.terms * first.value.shape[-1] + roundings, second.value.ndim)
        terms = of_sizes * second.sizes_of_factors
        found: Array = first.sizes_of_factors @ (terms if second.is_exact else terms + second.error)
        if not first.is_exact:
            found += first.error @ second.sizes
        if of_total:
            found[-1] += of_total * (total * total)
        if shares and a.expects:
            if not first.is_exact:
                found[-1] += np.square(np.sqrt(first.error[-1]) @ second.value)
            if not second.is_exact:
                found[-1] += np.square(first.value @ np.sqrt(second.error[-1]))
        return found

    return first.made(total, error, lambda: first.sizes[0] @ second.sizes[0] > a.largest)


def masked_product(weights: Tracked, mask: Array, rows: Tracked, roundings: int = 0, shares: bool = False) -> Tracked:
    """Return the product of weights (heads, a, b), restricted by mask (a, b), and rows (heads, b, elements).

    Masked elements may be NaN or infinite without an effect.
    """

    def of_row(i: int) -> Tracked:
        own = weights.moved(lambda part: part[..., i : i + 1, mask[i]])
        return product(own, rows.moved(lambda part: part[..., mask[i], :]), roundings, shares)

    def row_by_row() -> Tracked:
        found = [of_row(i) for i in range(len(mask))]
        value = np.concatenate([row.value for row in found], axis=-2)
        return weights.made(value, lambda: np.concatenate([row.error for row in found], axis=-2))

    if len(mask) and not np.isfinite(rows.value).all():
        return row_by_row()
    whole = product(weights, rows, roundings, shares)

    def error() -> Array:
        found = rows.error  # Reading the error also sets rows.is_bounded.
        return (whole if rows.is_bounded or not len(mask) or np.isfinite(found).all() else row_by_row()).error

    return weights.made(whole.value, error)
