"""Numbers with what the arithmetic of another implementation may have added to them: running error analysis (docs/tolerance.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..view import Array


@dataclass(frozen=True, slots=True)
class Tracked:
    """An array and a bound of the error of each element, in units of the roundoff of the compute type."""

    value: Array
    error: Array

    @classmethod
    def exact(cls, value: Array) -> Tracked:
        return cls(value, np.zeros_like(value))

    @property
    def transposed(self) -> Tracked:
        """With the last two dimensions exchanged."""
        return Tracked(self.value.swapaxes(-1, -2), self.error.swapaxes(-1, -2))

    def __add__(self, other: Tracked) -> Tracked:
        """The rounded sum."""
        value = self.value + other.value
        return Tracked(value, self.error + other.error + np.abs(value))

    def __sub__(self, other: Tracked) -> Tracked:
        return self + Tracked(-other.value, other.error)

    def __mul__(self, other: Tracked) -> Tracked:
        """The rounded product, element by element."""
        value = self.value * other.value
        error = self.error * np.abs(other.value) + np.abs(self.value) * other.error
        return Tracked(value, error + np.abs(value))

    def scaled(self, factor: float) -> Tracked:
        """The product with a number, rounded once."""
        value = self.value * factor
        return Tracked(value, self.error * abs(factor) + np.abs(value))

    def sum_over_heads(self) -> Tracked:
        """The sum over the first dimension."""
        count = len(self.value)
        error = self.error.sum(axis=0) + (count - 1) * np.abs(self.value).sum(axis=0)
        return Tracked(self.value.sum(axis=0), error)


def product(first: Tracked, second: Tracked, roundings: int = 0) -> Tracked:
    """The product of matrices: each term is rounded, and added in any order. roundings: of a term beside these."""
    sizes, others = np.abs(first.value), np.abs(second.value)
    count = first.value.shape[-1] + roundings
    error = first.error @ others + sizes @ (second.error + count * others)
    return Tracked(first.value @ second.value, error)


def masked_product(weights: Tracked, mask: Array, rows: Tracked, roundings: int = 0) -> Tracked:
    """The same for weights (heads, a, b), which count where mask (a, b) says so, and rows (heads, b, elements): what is masked
    may be no number."""
    if np.isfinite(rows.value).all():
        return product(weights, rows, roundings)
    found = [
        product(
            Tracked(weights.value[:, i : i + 1, chosen], weights.error[:, i : i + 1, chosen]),
            Tracked(rows.value[:, chosen], rows.error[:, chosen]),
            roundings,
        )
        for i, chosen in enumerate(mask)
    ]
    return Tracked(*(np.concatenate([getattr(row, part) for row in found], axis=1) for part in ("value", "error")))
