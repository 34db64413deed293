"""Compute divisive normalization (3.2.33, 4.1.6). Formulas: docs/errata.md, D050 and D168."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from dualdnn.api.operations import DivisiveNormalizationBackward, DivisiveNormalizationForward

from ..engine import Exact, implements
from ..precision import PRECISION
from ..view import Array
from .windows import Power, allowed, combined, offsets, power, roundings, shifted, uncertain, window

# A squared difference has two roundings, and the square one.
TERM_ROUNDINGS = 3
PRODUCT = 1  # roundings after the power, forward
GRADIENT = 9  # roundings after the power, of a gradient


def _shifted(values: Array, axes: Sequence[int], offset: Sequence[int]) -> Array:
    return reduce(lambda moved, step: shifted(moved, *step), zip(axes, offset, strict=True), values)


class _Windows:
    """Sum over the windows of one call, around every position and inside the image."""

    def __init__(
        self,
        operation: DivisiveNormalizationForward | DivisiveNormalizationBackward,
        x: Array,
        means: Array | None,
    ) -> None:
        lrn = operation.lrn
        self.first, self.last = window(lrn)
        self.axes = tuple(range(2, x.ndim))
        alpha, self.beta, self.k = lrn.narrowed(operation.x.data_type)
        self.factor = alpha / lrn.n ** len(self.axes)
        self.terms = int(np.prod([min(lrn.n, extent) for extent in x.shape[2:]]))
        self.x, self.means = x, means
        self.power: Power = power(
            operation, self.k, self.factor, self.beta, self.squares(), self.terms + TERM_ROUNDINGS
        )

    def squares(self) -> Array:
        """Return the sum of (x - m)^2 over each window, with m at its centre."""
        if self.means is None:
            return combined(self.x * self.x, self.axes, self.first, self.last)
        return self.sum_of(lambda difference: difference * difference)

    def sum_of(self, function: Callable[[Array], Array]) -> Array:
        """Return the sum of a function of x - m over each window, with m at its centre."""
        inside = np.ones(self.x.shape[2:], bool)
        total = np.zeros_like(self.x)
        means = np.zeros((), self.x.dtype) if self.means is None else self.means
        for offset in offsets(len(self.axes), self.first, self.last):
            term = function(_shifted(self.x, self.axes, offset) - means)
            total += np.where(_shifted(inside, range(inside.ndim), offset), term, 0)
        return total

    def spread(self, values: Array, combine: np.ufunc = np.add) -> Array:
        """Return for every position the sum over the positions whose windows contain it."""
        return combined(values, self.axes, -self.last, -self.first, combine)


@implements(DivisiveNormalizationForward)
def divisive_forward(operation: DivisiveNormalizationForward, x: Array, means: Array | None) -> Exact:
    """Compute y = x * (k + alpha / n^d * sum of (x - m)^2 over the window)^-beta."""
    windows = _Windows(operation, x, means)
    value = x * windows.power.value
    s = windows.power
    return Exact(
        value,
        lambda: allowed(np.abs(value) + s.lost_of(x), s),
        lambda: roundings(s, windows.beta) + PRODUCT,
        undetermined=uncertain(s),
    )


@implements(DivisiveNormalizationBackward)
def divisive_backward(
    operation: DivisiveNormalizationBackward, x: Array, means: Array | None, dy: Array
) -> dict[str, Exact]:
    """Compute the gradients of x and means as independent inputs."""
    windows = _Windows(operation, x, means)
    s, beta, largest = windows.power, windows.beta, PRECISION[operation.compute_type][2]
    factor = 2 * windows.factor * beta
    direct, each = dy * s.value, dy * x * s.value / s.base
    # ``gathered`` sums q * (x - m) over the windows that contain x, each with its own m.
    mean = np.zeros((), x.dtype) if means is None else means

    def gathered(q: Array, terms: Callable[[Array, Any], Array]) -> Array:
        if means is None:
            return terms(x, 0) * windows.spread(q)
        total = np.zeros_like(x)
        inside = np.ones(x.shape[2:], bool)
        for offset in offsets(len(windows.axes), -windows.last, -windows.first):
            held = _shifted(inside, range(inside.ndim), offset)
            term = _shifted(q, windows.axes, offset) * terms(x, _shifted(mean, windows.axes, offset))
            total += np.where(held, term, 0)
        return total

    def worst() -> Array:
        return windows.spread(roundings(s, beta + 1), np.maximum) + windows.terms + GRADIENT

    dx = Exact(
        direct - factor * gathered(each, np.subtract),
        lambda: allowed(
            np.abs(direct)
            + s.lost_of(dy)
            + abs(factor) * gathered(np.abs(each) + s.smallest, lambda a, b: np.abs(a - b)),
            s.of_gradient(largest, dy, x),
            windows.spread,
        ),
        worst,
        undetermined=uncertain(s, windows.spread),
    )
    if operation.dMeans is None:
        return {"dx": dx}
    return {
        "dx": dx,
        "dMeans": Exact(
            factor * each * windows.sum_of(lambda difference: difference),
            lambda: allowed(
                abs(factor) * (np.abs(each) + s.smallest) * windows.sum_of(np.abs), s.of_gradient(largest, dy, x)
            ),
            lambda: roundings(s, beta + 1) + windows.terms + GRADIENT,
            undetermined=uncertain(s),
        ),
    }
