"""Numbers with a running error bound: what arithmetic in the compute type can be off by, carried along with each value.

An error is counted in unit roundoffs of the compute type. Sums and products add the errors of their operands and their own
roundings; functions amplify the error of their argument by their slope, which within that error is at most ``exp(k * error)``
times the slope at the value itself for functions whose second derivative is at most k times the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    """

    unit: float
    factors: float = 0.0
    stored: float = 0.0


@dataclass(frozen=True)
class Bounded:
    """Values, and by how many unit roundoffs each may be off."""

    value: Array
    error: Array
    arithmetic: Arithmetic

    @classmethod
    def exact(cls, value: Array, arithmetic: Arithmetic) -> Bounded:
        return cls(value, np.zeros_like(value), arithmetic)

    def made(self, value: Array, error: Array) -> Bounded:
        return Bounded(value, error, self.arithmetic)

    def result(self, value: Array | None = None, error: Array | None = None) -> Exact:
        """An output, or these numbers in its place; what has no bound is not determined."""
        value = self.value if value is None else value
        error = self.error if error is None else error
        return Exact(value, np.where(np.isnan(error) & np.isfinite(value), np.inf, error), 1)

    def __getitem__(self, place: Any) -> Bounded:
        return self.made(self.value[place], self.error[place])

    def __add__(self, other: Bounded) -> Bounded:
        value = self.value + other.value
        return self.made(value, self.error + other.error + np.abs(self.value) + np.abs(other.value))

    def __sub__(self, other: Bounded) -> Bounded:
        return self + other.made(-other.value, other.error)

    def __mul__(self, other: Bounded) -> Bounded:
        value = self.value * other.value
        own = np.abs(self.value) * other.error + np.abs(other.value) * self.error
        return self.made(value, own + self.arithmetic.unit * self.error * other.error + np.abs(value))

    def complement(self) -> Bounded:
        """1 - value."""
        return self.made(1 - self.value, self.error + 1)

    def kept(self) -> Bounded:
        """The number once it has been stored between two steps."""
        return self.made(self.value, self.error + self.arithmetic.stored * np.abs(self.value))

    def through(self, value: Array, slope: Array, curvature: float, steepest: float) -> Bounded:
        """A function of the number that has this value and slope there, nowhere a larger slope, and values between -1 and 1."""
        unit = self.arithmetic.unit
        reach = np.exp(np.minimum(curvature * unit * self.error, 50))
        own = np.minimum(np.minimum(np.abs(slope) * reach, steepest) * self.error, 2 / unit)
        return self.made(value, own + FUNCTION_ROUNDINGS * np.abs(value))

    def sigmoid(self) -> Bounded:
        value = 1 / (1 + np.exp(-self.value))
        return self.through(value, value * (1 - value), 1, 0.25)

    def tanh(self) -> Bounded:
        value = np.tanh(self.value)
        return self.through(value, 1 - value * value, 2, 1)

    def relu(self) -> Bounded:
        """max(x, 0), which keeps a NaN."""
        positive = self.value + self.arithmetic.unit * self.error > 0
        zero = np.zeros_like(self.value)
        return self.made(np.where(self.value < 0, zero, self.value), np.where(positive, self.error, zero))

    def select(self, where: Array, other: Bounded) -> Bounded:
        """These numbers where the condition holds, the others elsewhere."""
        return self.made(np.where(where, self.value, other.value), np.where(where, self.error, other.error))


def concatenated(parts: Sequence[Bounded]) -> Bounded:
    """Side by side along the last axis."""
    value, error = (np.concatenate([getattr(part, name) for part in parts], -1) for name in ("value", "error"))
    return parts[0].made(value, error)


def affine(products: Sequence[tuple[Bounded, Array | None]], biases: Sequence[Array]) -> Bounded:
    """The sum of matrix products and biases, added in any order.

    products: (rows of K numbers, matrix of N rows and K columns); a matrix that is None leaves the rows as they are.
    """
    first = products[0][0]
    unit = first.arithmetic.unit
    value: Any = 0.0
    error: Any = 0.0
    terms: Any = 0.0
    count = len(biases) + 1
    for numbers, matrix in products:
        if matrix is None:
            value, error, terms, count = (
                value + numbers.value,
                error + numbers.error,
                terms + np.abs(numbers.value),
                count + 1,
            )
            continue
        absolute = np.abs(matrix).T
        magnitude = np.abs(numbers.value) @ absolute
        value = value + numbers.value @ matrix.T
        error = error + numbers.error @ absolute + 2 * first.arithmetic.factors * magnitude
        terms, count = terms + magnitude, count + matrix.shape[1]
    for bias in biases:
        value, terms = value + bias, terms + np.abs(bias)
    roundings = count * (1 + count * unit)
    return first.made(np.asarray(value), np.asarray(error + roundings * terms))
