"""Compute local response normalization across channels (3.2.65, 4.1.14). Formulas: docs/errata.md, D079 and D179."""

from __future__ import annotations

import numpy as np
from dualdnn.api.operations import LRNCrossChannelBackward, LRNCrossChannelForward

from ..engine import Exact, implements
from ..precision import PRECISION
from ..view import Array
from .windows import Power, allowed, combined, power, roundings, uncertain, window

CHANNELS = (1,)
# These count the roundings after the power.
PRODUCT = 1  # its product with x
GRADIENT = 8  # the products with dy, x and 1 / s, the sum over the window, and the products with x and the factor


def _power(operation: LRNCrossChannelForward | LRNCrossChannelBackward, x: Array) -> tuple[Power, float, float]:
    """Return ((k + alpha / n * sum of squares)^-beta, alpha / n, beta)."""
    lrn = operation.lrn
    alpha, beta, k = lrn.narrowed(operation.x.data_type)
    total = combined(x * x, CHANNELS, *window(lrn))
    return power(operation, k, alpha / lrn.n, beta, total, min(lrn.n, x.shape[1])), alpha / lrn.n, beta


@implements(LRNCrossChannelForward)
def lrn_forward(operation: LRNCrossChannelForward, x: Array) -> Exact:
    """Compute y = x * (k + alpha / n * sum of x^2 over the window)^-beta."""
    s, _, beta = _power(operation, x)
    value = x * s.value
    return Exact(
        value,
        lambda: allowed(np.abs(value) + s.lost_of(x), s),
        lambda: roundings(s, beta) + PRODUCT,
        undetermined=uncertain(s),
    )


@implements(LRNCrossChannelBackward, unread=lambda _: ("y",))
def lrn_backward(operation: LRNCrossChannelBackward, _y: None, dy: Array, x: Array) -> Exact:
    """Compute dx = dy * s^-beta - 2 alpha beta / n * x * (sum of dy * x * s^(-beta - 1)).

    The sum is over the channels whose windows contain this one.
    """
    first, last = window(operation.lrn)
    s, factor, beta = _power(operation, x)

    def spread(values: Array, combine: np.ufunc = np.add) -> Array:
        return combined(values, CHANNELS, -last, -first, combine)

    _, least, largest = PRECISION[operation.compute_type]
    direct, each = dy * s.value, dy * x * s.value / s.base
    value = direct - 2 * factor * beta * x * spread(each)

    def magnitude() -> Array:
        # Small terms may be lost before a large x multiplies them, and a small product of x before large terms multiply
        # it.
        terms, product = spread(np.abs(each) + s.smallest), np.maximum(np.abs(2 * factor * beta * x), s.smallest)
        own = s.of_gradient(largest, dy, x)
        beyond = np.fmax.reduce([np.abs(direct), terms, np.abs(x) * terms, product * terms]) >= largest
        return np.where(beyond, np.inf, allowed(np.abs(direct) + s.lost_of(dy) + product * terms, own, spread))

    def worst() -> Array:
        return spread(roundings(s, beta + 1), np.maximum) + min(operation.lrn.n, x.shape[1]) + GRADIENT

    def lost() -> Array:
        """Return where an underflowing product of x meets an infinity: zero times infinity is NaN."""
        found = np.asarray((np.abs(2 * factor * beta * x) < least) & np.isinf(value))
        return found if unsure is None else found | unsure()

    unsure = uncertain(s, spread)
    return Exact(value, magnitude, worst, undetermined=lost)
