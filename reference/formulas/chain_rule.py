"""Record how numbers are computed from others, and derive gradients by the chain rule.

A formula that computes with these numbers in plain loops has its gradients by definition: no second formula is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import mul

from .elements import Untold, exponential, quotient, total

MAX_PRODUCTS = 2**15  # products in the computation of one call, which take some 15 ms


class Number:
    """Hold a number, the numbers that it is computed from, and its gradient once ``derive`` has set it.

    slopes: other numbers, each with the derivative by it. factors: two vectors, if the number is their scalar product.
    """

    __slots__ = ("factors", "gradient", "slopes", "value")

    def __init__(self, value: float, slopes: Sequence[tuple[Number, float]] = ()) -> None:
        self.value, self.slopes, self.gradient = value, slopes, 0.0
        self.factors: tuple[Vector, Vector] | None = None


Vector = list[Number]
Matrix = list[Vector]


def leaves(values: Iterable[float]) -> Vector:
    """Return numbers that are given, not computed."""
    return [Number(value) for value in values]


def limit(products: int) -> None:
    """Raise Untold where a call needs too many products."""
    if products > MAX_PRODUCTS:
        raise Untold(f"its numbers are made of more than {MAX_PRODUCTS} products")


class Tape:
    """Compute numbers from others, and keep them in the order in which they were computed."""

    def __init__(self) -> None:
        self.made: Vector = []

    def __call__(self, value: float, *slopes: tuple[Number, float]) -> Number:
        """Return a computed number. slopes: the numbers that it depends on, with the derivatives."""
        self.made.append(Number(value, slopes))
        return self.made[-1]

    def total(self, *terms: Number) -> Number:
        return self(total(n.value for n in terms), *((n, 1.0) for n in terms))

    def product(self, a: Number, b: Number) -> Number:
        return self(a.value * b.value, (a, b.value), (b, a.value))

    def products(self, matrix: Matrix, vector: Vector) -> Vector:
        """Return a matrix times a vector."""
        values, found = [number.value for number in vector], []
        for row in matrix:
            found.append(self(sum(map(mul, [number.value for number in row], values))))
            found[-1].factors = row, vector
        return found

    def scaled(self, a: Number, factor: float) -> Number:
        return self(factor * a.value, (a, factor))

    def complement(self, a: Number) -> Number:
        return self(1 - a.value, (a, -1.0))

    def exponential(self, a: Number) -> Number:
        value = exponential(a.value)
        return self(value, (a, value))

    def quotient(self, a: Number, b: Number) -> Number:
        value = quotient(a.value, b.value)
        return self(value, (a, quotient(1.0, b.value)), (b, -quotient(value, b.value)))

    def sigmoid(self, a: Number) -> Number:
        value = 1 / (1 + exponential(-a.value))
        return self(value, (a, value * (1 - value)))

    def tanh(self, a: Number) -> Number:
        value = math.tanh(a.value)
        return self(value, (a, 1 - value * value))

    def relu(self, a: Number) -> Number:
        """Return max(a, 0). A number that is not positive, or NaN, passes no gradient."""
        if a.value > 0:
            return self(a.value, (a, 1.0))
        return Number(a.value if math.isnan(a.value) else 0.0)

    def derive(self, results: Iterable[tuple[Number, float]]) -> None:
        """Set the gradient of every number, given those of the results."""
        for number, gradient in results:
            number.gradient += gradient
        for number in reversed(self.made):
            gradient = number.gradient
            for source, slope in number.slopes:
                source.gradient += gradient * slope
            if number.factors is not None:
                for a, b in zip(*number.factors, strict=True):
                    a.gradient += gradient * b.value
                    b.gradient += gradient * a.value
