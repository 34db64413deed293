"""Numbers with a running error bound: what arithmetic in the compute type can be off by, carried along with each value.

An error is counted in unit roundoffs of the compute type. Sums and products add the errors of their operands and their own
roundings; functions amplify the error of their argument by their slope, which within that error is at most ``exp(k * error)``
times the slope at the value itself for functions whose second derivative is at most k times the first. What is expected
of errors (spread.py) is carried along in the same way: squares in place of sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import Any

import numpy as np

from ..engine import VALUES_ALONE, Exact, differs
from ..running import Running, beyond_half
from ..spread import Steps
from ..view import Array

PATHS = 3  # An expected rounding counts so often: it reaches a result through several gates, which may all err the same way.
SMALLEST_HALF, LARGEST_HALF = 2.0**-14, 65504.0
FUNCTION_ROUNDINGS = 12  # exp or tanh (2 ulp each) and the operations around them, of relative effect 1 at most


class Tracking(Enum):
    """What is carried along with numbers: nothing, the worst case of their errors, or what is expected of their squares. OVERFLOWING: nothing,
    and numbers that may be stored in HALF are infinite beyond it. PASSING: the worst case, and gradients pass where rounding decides it."""

    NOTHING = 0
    WORST = 1
    EXPECTED = 2
    OVERFLOWING = 3
    PASSING = 4

    def __bool__(self) -> bool:
        return self in (Tracking.WORST, Tracking.EXPECTED, Tracking.PASSING)


@dataclass(frozen=True)
class Arithmetic(Running):
    """The compute type and what else is allowed to be rounded.

    unit: its unit roundoff. factors: unit roundoffs by which both factors of a matrix product may be rounded (TF32).
    stored: unit roundoffs by which a number that lies in memory between two steps may be rounded (the data type).
    tracked: whether errors are carried along: the judge needs them, the backend does not. largest: of its numbers.
    overflows: whether what lies in memory between two steps is infinite beyond HALF. passes: whether a gradient that is not finite passes
    where rounding decides it.
    """

    factors: float = 0.0
    stored: float = 0.0
    tracked: bool = True
    largest: float = np.inf
    overflows: bool = False
    passes: bool = False

    @property
    def _paths(self) -> int:
        return PATHS if self.is_expected else 1

    def of_storing(self, value: Array) -> Array:
        """The error of a number that has been stored between two steps; all that are no normal numbers of HALF have the same, but zeros."""
        size = np.where(value != 0, np.maximum(np.abs(value), SMALLEST_HALF), 0)
        return np.asarray(self.rounded(self._paths * self.stored, size))

    def together(self, products: Array, terms: Array) -> Any:
        """How much more than independent errors those grow that go along with the numbers, by vector. terms: sums of their sizes, of each
        product."""
        if not self.is_expected:
            return 1
        alone = terms.sum(-1, keepdims=True)
        return np.fmax(1, np.square(products).sum(-1, keepdims=True) / np.where(alone > 0, alone, 1))

    def of_product(self, total: Array, terms: Array, products: Array, count: int) -> Array:
        """The error of a sum of products, and of other terms."""
        return self.of_sum(
            total, terms, count, self._paths * self.factors, products, cut=self.factors + self.stored > 0
        )


UNTRACKED = np.zeros(())  # the error where none is carried along


@dataclass(frozen=True)
class Bounded:
    """Values, and by how many unit roundoffs each may be off."""

    value: Array
    error: Array
    arithmetic: Arithmetic

    @classmethod
    def exact(cls, value: Array, arithmetic: Arithmetic) -> Bounded:
        return cls(value, np.zeros_like(value) if arithmetic.tracked else UNTRACKED, arithmetic)

    def made(self, value: Array, error: Callable[[], Array]) -> Bounded:
        """Other values of the same arithmetic; their error is computed where it is tracked, and has no bound beyond the largest number."""
        if not self.arithmetic.tracked:
            return Bounded(value, UNTRACKED, self.arithmetic)
        found, sizes = error(), np.abs(value)
        if np.fmax.reduce(sizes, None, initial=0) > self.arithmetic.largest:
            found = np.where(np.isfinite(value) & (sizes > self.arithmetic.largest), np.inf, found)
        return Bounded(value, found, self.arithmetic)

    def moved(self, place: Callable[[Array], Array]) -> Bounded:
        """The same numbers elsewhere: a function of arrays that computes nothing."""
        return self.made(place(self.value), lambda: place(self.error))

    def result(self, value: Array | None = None, error: Array | None = None) -> Exact:
        """An output, or these numbers in its place; what has no bound is not determined."""
        value = self.value if value is None else value
        error = self.error if error is None else error
        return Exact(value, np.where(np.isnan(error) & np.isfinite(value), np.inf, error), 1)

    def __getitem__(self, place: Any) -> Bounded:
        return self.moved(lambda array: array[place])

    def __add__(self, other: Bounded) -> Bounded:
        value = self.value + other.value
        return self.made(value, lambda: self.error + other.error + self.arithmetic.rounded(1, self.value, other.value))

    def __sub__(self, other: Bounded) -> Bounded:
        value = self.value - other.value
        return self.made(value, lambda: self.error + other.error + self.arithmetic.rounded(1, self.value, other.value))

    def __mul__(self, other: Bounded) -> Bounded:
        value = self.value * other.value

        def error() -> Array:
            a = self.arithmetic
            own = a.size(self.value) * other.error + a.size(other.value) * self.error
            return np.asarray(own + a.of_products * self.error * other.error + a.of_product_of(value))

        return self.made(value, error)

    def complement(self) -> Bounded:
        """1 - value."""
        return self.made(1 - self.value, lambda: self.error + self.arithmetic.rounded(1, 1.0))

    def kept(self) -> Bounded:
        """The number once it has been stored between two steps."""
        a = self.arithmetic
        value = beyond_half(self.value) if a.overflows else self.value
        return self.made(value, lambda: self.error + a.of_storing(self.value))

    def read_again(self) -> Array:
        """The error once a product reads the number, without limit where memory in the data type may not have held it."""
        a = self.arithmetic
        if not a.stored:
            return self.error
        beyond = np.isfinite(self.value) & (np.abs(self.value) + a.reach(self.error) >= LARGEST_HALF)
        return np.where(beyond, np.inf, self.error)

    def through(self, value: Array, falling: int, steepest: float) -> Bounded:
        """A function of the number x that has this value, values between -1 and 1, and the slope e / (1 + e)^2, e = exp(-falling * |x|),
        times four times the steepest; by its logarithm, as that of a number far off is less than arithmetic holds."""

        def error() -> Array:
            a, exponent = self.arithmetic, -falling * np.abs(self.value)
            slope = exponent - 2 * np.log1p(np.exp(exponent)) + falling * a.reach(self.error)
            own = a.size(4 * steepest * np.exp(np.minimum(slope, -np.log(4)))) * self.error
            own = np.where(np.isinf(self.error), np.inf, np.minimum(own, a.rounded(2 / a.unit, 1.0)))
            return np.asarray(own + a.rounded(FUNCTION_ROUNDINGS, value))

        return self.made(value, error)

    def sigmoid(self) -> Bounded:
        return self.through(1 / (1 + np.exp(-self.value)), 1, 0.25)

    def tanh(self) -> Bounded:
        return self.through(np.tanh(self.value), 2, 1)

    def relu(self) -> Bounded:
        """max(x, 0), which keeps a NaN."""
        zero = np.zeros_like(self.value)

        def error() -> Array:
            below = self.value + self.arithmetic.reach(self.error) <= 0  # never where there is no bound
            return np.where(below, zero, self.error)

        return self.made(np.where(self.value < 0, zero, self.value), error)

    def select(self, where: Array, other: Bounded) -> Bounded:
        """These numbers where the condition holds, the others elsewhere."""
        value = np.where(where, self.value, other.value)
        return self.made(value, lambda: np.where(where, self.error, other.error))


def joined(parts: Sequence[Bounded], join: Callable[[list[Array]], Array]) -> Bounded:
    """One array of the parts, by a function of arrays that computes nothing."""
    return parts[0].made(join([part.value for part in parts]), lambda: join([part.error for part in parts]))


def concatenated(parts: Sequence[Bounded]) -> Bounded:
    """Side by side along the last axis."""
    return joined(parts, lambda arrays: np.concatenate(arrays, -1))


def affine(products: Sequence[tuple[Bounded, Array | None]], biases: Sequence[Array]) -> Bounded:
    """The sum of matrix products and biases, added in any order.

    products: (rows of K numbers, matrix of N rows and K columns); a matrix that is None leaves the rows as they are.
    """
    first = products[0][0]
    value: Any = 0.0
    parts = [numbers.value if matrix is None else numbers.value @ matrix.T for numbers, matrix in products]
    for part in parts:
        value = value + part
    for bias in biases:
        value = value + bias

    def error() -> Array:
        a, found, count = first.arithmetic, np.zeros(()), len(biases) + 1
        terms, of_products = np.zeros(()), np.zeros(())
        for part, (numbers, matrix) in zip(parts, products, strict=True):
            own = numbers.read_again()
            if matrix is None:
                found, terms, count = found + own, terms + a.size(numbers.value), count + 1
                continue
            sizes = a.size(matrix).T
            magnitude = a.size(numbers.value) @ sizes
            found, of_products = found + own @ sizes * a.together(part, magnitude), of_products + magnitude
            terms, count = terms + magnitude, count + matrix.shape[1]
        for bias in biases:
            terms = terms + a.size(bias)
        return np.asarray(found + a.of_product(np.asarray(value), terms, of_products, count))

    return first.made(np.asarray(value), error)


def with_bounds(
    compute: Callable[..., dict[str, Exact]],
    left_out: str = "",
    in_half: bool = False,
    underflows: bool = False,
    blocks: bool = False,
) -> dict[str, Exact]:
    """Results of arithmetic that tracks no errors for the backend, and the worst case of them for the judge; what is expected of them is
    that of the same arithmetic once more, made when the judge asks.

    compute: the results, with what is tracked of their errors; where ``left_out`` names initial states, also with their products left
        out: where the two differ, nothing is determined. in_half: whether numbers may be stored in HALF between steps: where they
        overflow there, what is not finite is not determined. underflows: whether a factor of an infinite number may be lost: what is
        infinite may be NaN. blocks: whether there are gradients of which rounding may decide whether they pass: where that decides a
        result, too, nothing is determined.
    """
    tracked, first = cache(compute), Tracking.NOTHING if VALUES_ALONE.get() else Tracking.WORST

    def undetermined(name: str) -> Array:
        value = tracked(first)[name].value
        open_ = ~np.isfinite(value)
        others = [(first, left_out)] if left_out else []
        if blocks and not np.isfinite(bound(name)).all():
            others += [(Tracking.PASSING, left) for left in {"", left_out}]
        found = np.zeros(value.shape, bool)
        for way in others:
            other = tracked(*way)[name]
            found |= differs(value, other.value) | (np.isfinite(other.value) & np.isinf(np.asarray(other.magnitude)))
        return found | open_ if in_half and open_.any() and overflowed() else found

    @cache
    def overflowed() -> bool:
        """Whether a result is another one where numbers overflow between steps."""
        whole, other = tracked(first), tracked(Tracking.OVERFLOWING)
        return any(differs(whole[name].value, other[name].value).any() for name in whole if not whole[name].opaque)

    def overflows(name: str) -> Array:
        return np.isinf(tracked(first)[name].value) & ~np.isfinite(bound(name))

    def bound(name: str) -> Array:
        magnitude = tracked(Tracking.WORST)[name].magnitude
        assert not callable(magnitude)
        return magnitude

    def spread(name: str) -> Steps:
        squares = tracked(Tracking.EXPECTED)[name].magnitude
        assert not callable(squares)
        return Steps(squares)

    return {
        name: exact
        if exact.opaque
        else replace(
            exact,
            magnitude=partial(bound, name),
            spread=partial(spread, name),
            undetermined=partial(undetermined, name) if left_out or in_half or blocks else None,
            overflows=partial(overflows, name) if underflows else None,
        )
        for name, exact in tracked(first).items()
    }
