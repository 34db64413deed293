"""Carry a running error bound along with each number: how far arithmetic in the compute type may be off.

Errors are counted in unit roundoffs of the compute type. Sums and products add the errors of their operands and their
own roundings. Functions multiply the error of their argument by their slope. Where the second derivative is at most k
times the first, the slope grows by at most ``exp(k * error)`` within the error. Expected errors (spread.py) are carried
along in the same way, with squares in place of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property, partial
from typing import Any

import numpy as np

from ..engine import VALUES_ALONE, Exact, differs
from ..running import Sized, Ways, beyond_half
from ..spread import Steps
from ..view import Array

PATHS = 3  # weight of an expected rounding: it reaches a result through several gates, which may all err the same way
MIN_HALF = 2.0**-14  # the least normal number of half
MAX_HALF = 65504.0  # the largest number of half
# exp or tanh (2 ulp each) and the operations around them, each with a relative effect of at most 1
FUNCTION_ROUNDINGS = 12
# A function flattens by this power of exp(-|x|). Its steepest slope is a quarter of the square of the power.
SIGMOID = 1
TANGENT = 2


class Tracking(Enum):
    """Choose what is carried along with numbers.

    NOTHING carries no errors. ERRORS carries worst-case and expected errors. OVERFLOWING carries no errors, and makes
    numbers beyond HALF infinite where they may be stored in HALF. PASSING carries the worst case, and lets gradients
    pass where rounding decides.
    """

    NOTHING = 0
    ERRORS = 1
    OVERFLOWING = 2
    PASSING = 3

    def __bool__(self) -> bool:
        return self in (Tracking.ERRORS, Tracking.PASSING)


@dataclass(frozen=True)
class Arithmetic(Ways):
    """Describe the compute type and which other roundings are allowed.

    stored: unit roundoffs by which a number in memory between two steps may be rounded (the data type).

    tracked: whether errors are carried along: the judge needs them, the backend does not.

    overflows: whether numbers beyond HALF become infinite in memory between two steps.

    passes: whether a non-finite gradient passes where rounding decides.
    """

    stored: float = 0.0
    tracked: bool = True
    overflows: bool = False
    passes: bool = False

    @cached_property
    def _paths(self) -> list[int]:
        return [PATHS if way.is_expected else 1 for way in self.ways]

    def of_storing(self, numbers: Bounded) -> Array:
        """Return the error of storing numbers between two steps.

        All subnormal numbers of HALF have the same error, and zeros have none.
        """
        size = np.where(numbers.value != 0, np.maximum(numbers.sizes[0], MIN_HALF), 0)
        of_ways = [way.rounding(paths * self.stored) for way, paths in zip(self.ways, self._paths, strict=True)]
        return self.size(size) * self.beside(of_ways, size.ndim)

    def together(self, products: Array, terms: Array) -> Array:
        """Return for each vector how much faster correlated errors grow than independent ones.

        ``terms`` has the sums of the expected sizes of each vector's terms.
        """
        return np.fmax(1, (products * products).sum(-1, keepdims=True) / terms)

    def weights_of_sum(self, count: int, rank: int) -> tuple[Array, Array, float]:
        """Return the weights of terms and of products in the error of a sum with ``count`` roundings.

        The last number weighs the squared total in the expected error.
        """
        key = "sum", count, rank
        if key not in self._known:
            cut = self.factors + self.stored > 0
            found = [
                way.weights_of_sum(count, paths * self.factors, cut)
                for way, paths in zip(self.ways, self._paths, strict=True)
            ]
            of_terms = np.array([terms for terms, _, _ in found])
            of_products = of_terms + [products for _, products, _ in found]
            self._known[key] = self.beside(of_terms, rank), self.beside(of_products, rank), float(found[-1][2])
        known: tuple[Array, Array, float] = self._known[key]
        return known

    def of_products(self, rank: int) -> Array:
        """Return the factor of the product of two errors in the error of a product, shaped for arrays."""
        if rank not in self._known:
            self._known[rank] = self.beside([way.of_products for way in self.ways], rank)
        return np.asarray(self._known[rank])


class Bounded(Sized):
    """Hold values and their possible errors in unit roundoffs, in each way (the first dimension of errors)."""

    __slots__ = ("_error", "is_exact")

    def __init__(self, value: Array, error: Array | None, arithmetic: Arithmetic, sizes: Array | None = None) -> None:
        """Make numbers. The error is None for exact numbers, and where no errors are tracked."""
        self.value, self._error, self.arithmetic, self._sizes = value, error, arithmetic, sizes
        self.is_exact = error is None

    @property
    def error(self) -> Array:
        if self._error is None:
            self._error = np.zeros((len(self.arithmetic.ways), *self.value.shape), self.value.dtype)
        return self._error

    def within_range(self) -> Bounded:
        """Return these numbers, with an unlimited error where they may exceed the largest number."""
        sizes, largest = self.sizes[0], self.arithmetic.largest
        if not np.maximum.reduce(sizes, None, initial=0) <= largest:
            self._error = np.where(np.isfinite(self.value) & (sizes > largest), np.inf, self.error)
        return self

    def moved(self, place: Callable[[Array], Array]) -> Bounded:
        """Return the same numbers rearranged. ``place`` acts on the last dimensions and computes nothing."""
        error, sizes = (None if array is None else place(array) for array in (self._error, self._sizes))
        return Bounded(place(self.value), error, self.arithmetic, sizes)

    def at(self, step: int) -> Bounded:
        """Return the numbers of one step, an index of the first dimension."""
        error, sizes = (None if array is None else array[:, step] for array in (self._error, self._sizes))
        return Bounded(self.value[step], error, self.arithmetic, sizes)

    def result(self, place: Callable[[Array], Array] = np.asarray) -> Exact:
        """Return the numbers as an output in its memory layout; an unbounded number is not determined."""
        value = place(self.value)
        if not self.arithmetic.tracked:
            return Exact(value, np.zeros(()), 1)
        worst, *expected = map(place, self.error)
        open_ = np.isnan(worst)
        if open_.any():
            worst = np.where(open_ & np.isfinite(value), np.inf, worst)
        return Exact(value, worst, 1, spread=Steps(expected[0]) if expected else None)

    def __add__(self, other: Bounded) -> Bounded:
        value, a = self.value + other.value, self.arithmetic
        if not a.tracked:
            return Bounded(value, None, a)
        own = (self.sizes + other.sizes) * a.rounding(1, value.ndim)
        for numbers in (self, other):
            if not numbers.is_exact:
                own += numbers.error
        return Bounded(value, own, a).within_range()

    def __mul__(self, other: Bounded) -> Bounded:
        value, a = self.value * other.value, self.arithmetic
        if not a.tracked:
            return Bounded(value, None, a)
        sizes = a.size(value)
        error, growing = a.of_product_of(value, sizes), other.sizes
        if not other.is_exact:
            error += self.sizes * other.error
            growing = growing + a.of_products(value.ndim) * other.error
        if not self.is_exact:
            error += growing * self.error
        return Bounded(value, error, a, sizes).within_range()

    def negated(self) -> Bounded:
        return Bounded(-self.value, self._error, self.arithmetic, self._sizes)

    def complement(self) -> Bounded:
        """Return 1 - value."""
        value, a = 1 - self.value, self.arithmetic
        return Bounded(value, self.error + a.rounding(1, value.ndim) if a.tracked else None, a)

    def kept(self) -> Bounded:
        """Return the number after it is stored between two steps."""
        a = self.arithmetic
        if not a.stored:
            return self
        if a.tracked:
            return Bounded(self.value, self.error + a.of_storing(self), a, self._sizes)
        return Bounded(beyond_half(self.value), None, a) if a.overflows else self

    def read_again(self) -> Array:
        """Return the error when a product reads the number: unlimited where memory in the data type may not
        have held it.
        """
        if not self.arithmetic.stored:
            return self.error
        beyond = np.isfinite(self.value) & (self.sizes[0] + self.arithmetic.reach(self.error) >= MAX_HALF)
        return np.where(beyond, np.inf, self.error) if beyond.any() else self.error

    def through(self, value: Array, falling: Array | int) -> Bounded:
        """Return a bounded function of x with this value.

        The slope is falling^2 * e / (1 + e)^2 with e = exp(-falling * |x|), and values are between -1 and 1. The slope
        is computed by its logarithm, because it underflows for large x.
        """
        a = self.arithmetic
        if not a.tracked:
            return Bounded(value, None, a)
        exponent = -falling * self.sizes[0]
        slope = falling * a.reach(self.error) + (exponent - 2 * np.log1p(np.exp(exponent)))
        np.minimum(slope, -np.log(4), out=slope)
        own = np.square(falling) * np.exp(slope, out=slope)
        if a.expects:
            np.square(own[1], out=own[1])
        own *= self.error
        np.minimum(own, a.rounding(2 / a.worst.unit, value.ndim), out=own)
        np.copyto(own, np.inf, where=np.isinf(self.error))
        found = Bounded(value, own, a)
        own += found.sizes * a.rounding(FUNCTION_ROUNDINGS, value.ndim)
        return found

    def sigmoid(self) -> Bounded:
        return self.through(1 / (1 + np.exp(-self.value)), SIGMOID)

    def tanh(self) -> Bounded:
        return self.through(np.tanh(self.value), TANGENT)

    def relu(self) -> Bounded:
        """Return max(x, 0), which keeps a NaN."""
        value, a = np.where(self.value < 0, 0, self.value), self.arithmetic
        if not a.tracked:
            return Bounded(value, None, a)
        below = self.value + a.reach(self.error) <= 0  # This is false where there is no bound.
        return Bounded(value, np.where(below, 0, self.error), a)

    def select(self, where: Array | None, other: Bounded | None = None) -> Bounded:
        """Return these numbers where the condition holds, the others or zeros elsewhere. None means everywhere."""
        if where is None:
            return self
        value, a = np.where(where, self.value, 0 if other is None else other.value), self.arithmetic
        if not a.tracked or (self.is_exact and (other is None or other.is_exact)):
            return Bounded(value, None, a)
        return Bounded(value, np.where(where, self.error, 0 if other is None else other.error), a)


def _joined(parts: Sequence[Bounded], join: Callable[..., Array], axis: int, of_errors: int) -> Bounded:
    first = parts[0]
    value = join([part.value for part in parts], axis)
    if not first.arithmetic.tracked or all(part.is_exact for part in parts):
        return Bounded(value, None, first.arithmetic)
    return Bounded(value, join([part.error for part in parts], of_errors), first.arithmetic)


def concatenated(parts: Sequence[Bounded]) -> Bounded:
    """Concatenate along the last axis."""
    return _joined(parts, np.concatenate, -1, -1)


def stacked(parts: Sequence[Bounded]) -> Bounded:
    """Stack along a new first axis."""
    return _joined(parts, np.stack, 0, 1)


def split(numbers: Bounded, count: int) -> list[Bounded]:
    """Split into equal parts along the last axis."""
    width = numbers.value.shape[-1] // count
    return [columns(numbers, i * width, (i + 1) * width) for i in range(count)]


def columns(numbers: Bounded, start: int, stop: int) -> Bounded:
    """Return a range of the last axis."""
    return numbers.moved(lambda array: array[..., start:stop])


class Matrix(Sized):
    """Hold rows of weights that multiply vectors of the rows' length."""

    def __init__(self, rows: Array, arithmetic: Arithmetic, sizes: Array | None = None) -> None:
        self.value, self.arithmetic, self._sizes = rows, arithmetic, sizes

    @cached_property
    def sizes_of_factors(self) -> Array:
        """Return the sizes that roundings to TF32 are relative to; a network multiplies by a matrix in each step."""
        return super().sizes_of_factors

    @cached_property
    def of_columns(self) -> Array:
        """Return the sum of expected sizes of each column."""
        return np.asarray(self.sizes[-1].sum(0))

    @cached_property
    def transposed(self) -> Matrix:
        sizes = self.sizes.swapaxes(-1, -2) if self.arithmetic.tracked else None
        return Matrix(self.value.T, self.arithmetic, sizes)

    def part(self, rows: slice) -> Matrix:
        """Return some of its rows."""
        return Matrix(self.value[rows], self.arithmetic, self.sizes[:, rows] if self.arithmetic.tracked else None)


Product = tuple[Bounded, Matrix | None]  # vectors and the matrix that multiplies them; None leaves them unchanged


def roundings_of(products: Sequence[tuple[Any, Matrix | None]], biases: Sequence[Array]) -> int:
    """Return how many roundings a sum of these products and biases has."""
    return 1 + len(biases) + sum(1 if matrix is None else matrix.value.shape[1] for _, matrix in products)


def addends(products: Sequence[Product], biases: Sequence[Array], count: int) -> Bounded:
    """Return a part of a sum with ``count`` roundings, made of products and biases; ``added`` completes the sum."""
    parts, errors, a = [], [], products[0][0].arithmetic
    for numbers, matrix in products:
        value = numbers.value if matrix is None else numbers.value @ matrix.value.T
        parts.append(value)
        if not a.tracked:
            continue
        of_terms, of_products, _ = a.weights_of_sum(count, value.ndim)
        own = numbers.read_again()
        if matrix is None:
            errors.append(own + of_terms * numbers.sizes)
            continue
        found = of_products * numbers.sizes_of_factors
        if a.expects:
            found[0] += own[0]
            found[1] += own[1] * a.together(value, (numbers.sizes[1] @ matrix.of_columns)[..., np.newaxis])
        else:
            found += own
        errors.append(_times(found, matrix.sizes_of_factors))
    value = sum(parts[1:], parts[0])
    for bias in biases:
        value = value + bias
    if not a.tracked:
        return Bounded(value, None, a)
    error = sum(errors[1:], errors[0])
    if biases:
        sizes = sum((a.size(bias) for bias in biases[1:]), a.size(biases[0]))
        sizes = sizes.reshape(len(sizes), *(1,) * (value.ndim - 1), -1)
        error = error + a.weights_of_sum(count, value.ndim)[0] * sizes
    return Bounded(value, error, a)


def _times(errors: Array, sizes: Array) -> Array:
    """Multiply errors of vectors by the sizes of a matrix's rows, with one matrix product for each way."""
    shape = errors.shape
    found = errors.reshape(shape[0], -1, shape[-1]) @ sizes.swapaxes(-1, -2)
    return found.reshape(*shape[:-1], -1)


def added(parts: Sequence[Bounded], count: int) -> Bounded:
    """Return a sum with ``count`` roundings of parts that are added in any order."""
    first = parts[0]
    value, a = first.value, first.arithmetic
    for part in parts[1:]:
        value = value + part.value
    if not a.tracked:
        return Bounded(value, None, a)
    error = sum((part.error for part in parts[1:]), first.error)
    if a.expects:
        error[1] += a.weights_of_sum(count, value.ndim)[2] * (value * value)
    return Bounded(value, error, a).within_range()


def affine(products: Sequence[Product], biases: Sequence[Array] = ()) -> Bounded:
    """Return the sum of matrix products and biases, added in any order."""
    count = roundings_of(products, biases)
    return added([addends(products, biases, count)], count)


def with_bounds(
    compute: Callable[..., dict[str, Exact]],
    left_out: Sequence[str] = (),
    in_half: bool = False,
    underflows: bool = False,
    blocks: bool = False,
) -> dict[str, Exact]:
    """Compute results without errors for the backend, and with errors for the judge.

    compute: returns the results for a kind of tracking.

    left_out: ways to leave out products of initial states; where one changes a result, nothing is determined.

    in_half: numbers may be stored in HALF between steps; where they overflow there, non-finite results are not
    determined.

    underflows: a factor of an infinite number may be lost, so an infinite result may be NaN.

    blocks: rounding may decide whether gradients pass; where that changes a result, nothing is determined.
    """
    tracked, first = cache(compute), Tracking.NOTHING if VALUES_ALONE.get() else Tracking.ERRORS

    def undetermined(name: str) -> Array:
        value = tracked(first)[name].value
        open_ = ~np.isfinite(value)
        others = [(first, left) for left in left_out]
        if blocks and not np.isfinite(bound(name)).all():
            others += [(Tracking.PASSING, left) for left in ("", *left_out)]
        found = np.zeros(value.shape, bool)
        for way in others:
            other = tracked(*way)[name]
            found |= differs(value, other.value) | (np.isfinite(other.value) & np.isinf(np.asarray(other.magnitude)))
        return found | open_ if in_half and open_.any() and overflowed() else found

    @cache
    def overflowed() -> bool:
        """Return whether any result changes where numbers overflow between steps."""
        whole, other = tracked(first), tracked(Tracking.OVERFLOWING)
        return any(differs(whole[name].value, other[name].value).any() for name in whole if not whole[name].opaque)

    def overflows(name: str) -> Array:
        return np.isinf(tracked(first)[name].value) & ~np.isfinite(bound(name))

    def bound(name: str) -> Array:
        magnitude = tracked(first)[name].magnitude
        assert not callable(magnitude)
        return magnitude

    return {
        name: exact
        if exact.opaque
        else replace(
            exact,
            undetermined=partial(undetermined, name) if left_out or in_half or blocks else None,
            overflows=partial(overflows, name) if underflows else None,
        )
        for name, exact in tracked(first).items()
    }
