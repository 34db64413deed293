"""Numbers with a running error bound: what arithmetic in the compute type can be off by, carried along with each value.

An error is counted in unit roundoffs of the compute type. Sums and products add the errors of their operands and their own
roundings; functions amplify the error of their argument by their slope, which within that error is at most ``exp(k * error)``
times the slope at the value itself for functions whose second derivative is at most k times the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np

from ..engine import Exact
from ..view import Array

FUNCTION_ROUNDINGS = 12  # exp or tanh (2 ulp each) and the operations around them, of relative effect 1 at most


@dataclass(frozen=True)
class Arithmetic:
    """The compute type and what else is allowed to be rounded.

    unit: its unit roundoff. factors: unit roundoffs by which both factors of a matrix product may be rounded (TF32).
    stored: unit roundoffs by which a number that lies in memory between two steps may be rounded (the data type).
    tracked: whether errors are carried along: the judge needs them, the backend does not.
    """

    unit: float
    factors: float = 0.0
    stored: float = 0.0
    tracked: bool = True


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
        """Other values of the same arithmetic; their error is computed where it is tracked."""
        return Bounded(value, error() if self.arithmetic.tracked else UNTRACKED, self.arithmetic)

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
        return self.made(value, lambda: self.error + other.error + np.abs(self.value) + np.abs(other.value))

    def __sub__(self, other: Bounded) -> Bounded:
        value = self.value - other.value
        return self.made(value, lambda: self.error + other.error + np.abs(self.value) + np.abs(other.value))

    def __mul__(self, other: Bounded) -> Bounded:
        value = self.value * other.value

        def error() -> Array:
            own = np.abs(self.value) * other.error + np.abs(other.value) * self.error
            return np.asarray(own + self.arithmetic.unit * self.error * other.error + np.abs(value))

        return self.made(value, error)

    def complement(self) -> Bounded:
        """1 - value."""
        return self.made(1 - self.value, lambda: self.error + 1)

    def kept(self) -> Bounded:
        """The number once it has been stored between two steps."""
        return self.made(self.value, lambda: self.error + self.arithmetic.stored * np.abs(self.value))

    def through(self, value: Array, slope: Callable[[], Array], curvature: float, steepest: float) -> Bounded:
        """A function of the number that has this value and slope there, nowhere a larger slope, and values between -1 and 1."""

        def error() -> Array:
            unit = self.arithmetic.unit
            reach = np.exp(np.minimum(curvature * unit * self.error, 50))
            own = np.minimum(np.minimum(np.abs(slope()) * reach, steepest) * self.error, 2 / unit)
            return np.asarray(own + FUNCTION_ROUNDINGS * np.abs(value))

        return self.made(value, error)

    def sigmoid(self) -> Bounded:
        value = 1 / (1 + np.exp(-self.value))
        return self.through(value, lambda: value * (1 - value), 1, 0.25)

    def tanh(self) -> Bounded:
        value = np.tanh(self.value)
        return self.through(value, lambda: 1 - value * value, 2, 1)

    def relu(self) -> Bounded:
        """max(x, 0), which keeps a NaN."""
        zero = np.zeros_like(self.value)

        def error() -> Array:
            return np.where(self.value + self.arithmetic.unit * self.error > 0, self.error, zero)

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
    for numbers, matrix in products:
        value = value + (numbers.value if matrix is None else numbers.value @ matrix.T)
    for bias in biases:
        value = value + bias

    def error() -> Array:
        unit, found, terms, count = first.arithmetic.unit, np.zeros(()), np.zeros(()), len(biases) + 1
        for numbers, matrix in products:
            if matrix is None:
                found, terms, count = found + numbers.error, terms + np.abs(numbers.value), count + 1
                continue
            absolute = np.abs(matrix).T
            magnitude = np.abs(numbers.value) @ absolute
            found = found + numbers.error @ absolute + 2 * first.arithmetic.factors * magnitude
            terms, count = terms + magnitude, count + matrix.shape[1]
        for bias in biases:
            terms = terms + np.abs(bias)
        return np.asarray(found + count * (1 + count * unit) * terms)

    return first.made(np.asarray(value), error)


def with_bounds(compute: Callable[[bool], dict[str, Exact]]) -> dict[str, Exact]:
    """Results of arithmetic that tracks no errors; their bounds are those of the same with errors, made when the judge asks.

    compute: the results, with errors tracked or not.
    """
    tracked = cache(lambda: compute(True))

    def bound(name: str) -> Array:
        magnitude = tracked()[name].magnitude
        assert not callable(magnitude)
        return magnitude

    return {
        name: exact if exact.opaque else replace(exact, magnitude=partial(bound, name))
        for name, exact in compute(False).items()
    }
