"""Compute softmax (3.2.96, 4.1.19). Formulas: docs/errata.md, D026, D133 and D190."""

from __future__ import annotations

from math import prod

import numpy as np
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t as Algorithm
from dualdnn.api.enumerations import cudnnSoftmaxMode_t as Mode
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward

from .engine import Exact, implements
from .precision import PRECISION
from .spread import Relative, Steps, few, walked
from .view import Array

# These are roundings of the compute type; one ulp is two of them.
EXP = 4  # exp or 2 ** x within 2 ulp
ARGUMENT = 3  # x - maximum, its product with log2(e), and that constant, each with the effect |x - maximum|
LOG = 2  # log within 1 ulp
DIVISION = 5  # the reciprocal of a sum near the largest number is subnormal (up to 4), and a product
RESCALE = EXP + 1  # a product of a running sum with exp(old maximum - new maximum)
EDGE = 1 + 2.0**-10  # factor that covers the errors of float sums and exponentials
MAX_RESCALES = 64  # rescales in parts of a row and between them; a short row has at most one per element


def _axes(mode: Mode, rank: int) -> tuple[int, ...]:
    """Return the axes of one softmax: C and all spatial dimensions of an image, or C at each position."""
    return tuple(range(1, rank)) if mode == Mode.CUDNN_SOFTMAX_MODE_INSTANCE else (1,)


def _total(values: Array, axes: tuple[int, ...]) -> Array:
    return values.sum(axis=axes, keepdims=True)


@implements(SoftmaxForward, in_float64=True)
def softmax_forward(operation: SoftmaxForward, x: Array) -> Exact:
    """Compute exp(x) / sum(exp(x)). ACCURATE and LOG subtract the maximum first; LOG takes the logarithm."""
    axes = _axes(operation.mode, x.ndim)
    count = prod([x.shape[axis] for axis in axes])
    unit, smallest, largest = PRECISION[operation.compute_type]
    fast = operation.algorithm == Algorithm.CUDNN_SOFTMAX_FAST

    def shift() -> Array:
        return x.copy() if fast else x - x.max(axis=axes, keepdims=True)

    # The backend needs only one array besides x: terms and results overwrite the shifted values. The judge's functions
    # below recompute them.
    value = shift()
    is_log = operation.algorithm == Algorithm.CUDNN_SOFTMAX_LOG
    terms = np.exp(value) if is_log else np.exp(value, out=value)
    total = _total(terms, axes)
    logarithm = np.log(total) if is_log else total  # Only LOG uses this.
    if is_log:
        value -= logarithm
    else:
        value /= total

    def relative(weight: Array, shifted: Array) -> Array:
        """Return weight times the roundings of exp at each element. A vanishing term has no error."""
        return np.where(weight > 0, weight * (EXP + ARGUMENT * np.abs(shifted)), 0)

    def total_roundings(shifted: Array) -> Array:
        """Return the relative roundings of the sum: its terms' own, the additions in any order, rescaled maxima."""
        rescales = 0 if fast else RESCALE * min(count, MAX_RESCALES)
        return _total(relative(np.exp(shifted), shifted), axes) / total + count + rescales

    def magnitude_of_log() -> Array:
        shifted = shift()
        return np.abs(shifted) + LOG * np.abs(logarithm) + total_roundings(shifted) + np.abs(value)

    def magnitude() -> Array:
        shifted = shift()
        error = relative(value, shifted) + value * (total_roundings(shifted) + DIVISION)
        if not fast:
            return error
        # Terms below the smallest normal number may be flushed. Everything is undetermined if only the compute type
        # cannot hold the sum. The same holds if no normal number is left of the sum or of alpha / sum. Where even wide
        # arithmetic overflows, exp(x) / inf is 0 for every finite exp(x).
        exponentials, alpha = np.exp(shifted), abs(operation.alpha)
        flushed = smallest / unit * (1 + count * value) / total + (value * total * smallest / alpha if alpha else 0)
        normal = _total(np.where(exponentials > EDGE * smallest, exponentials, 0), axes)
        is_held = (EDGE * total < largest) & (normal > EDGE * max(smallest, alpha / largest))
        return np.where(np.isinf(total), 0, np.where(is_held, error + flushed, np.inf))

    if is_log:
        return Exact(value, magnitude_of_log, 1)
    return Exact(
        value, magnitude, 1, spread=lambda: Relative(value, 1 + np.abs(x - x.max(axis=axes, keepdims=True)), axes)
    )


@implements(SoftmaxBackward, in_float64=True)
def softmax_backward(operation: SoftmaxBackward, y: Array, dy: Array) -> Exact:
    """Compute y * (dy - sum(y * dy)), or for LOG dy - exp(y) * sum(dy)."""
    axes = _axes(operation.mode, y.ndim)
    count, largest = prod([y.shape[axis] for axis in axes]), PRECISION[operation.compute_type][2]
    if operation.algorithm == Algorithm.CUDNN_SOFTMAX_LOG:
        probability = np.exp(y)
        value = dy - probability * _total(dy, axes)

        def magnitude() -> Array:
            # These are ``count`` additions, the product, exp and its argument. The subtraction weighs both sides once.
            roundings = count + 2 + EXP + ARGUMENT * np.abs(y)
            total = _total(np.abs(dy), axes)
            error = np.abs(dy) + np.where(probability > 0, probability * roundings, 0) * total
            return np.where((probability < largest) & (total < largest), error, np.inf)

        def squares_of_log() -> Steps:
            total = _total(dy, axes)
            sums = walked(count, total, np.sqrt(_total(np.square(dy), axes)))
            of_exp = few(2 + EXP + ARGUMENT * np.abs(y)) * np.square(total)
            return Steps(few(1) * np.square(dy) + np.square(probability) * (sums + of_exp))

        return Exact(value, magnitude, 1, spread=squares_of_log)
    total = _total(y * dy, axes)
    value = y * (dy - total)

    def magnitude_of_products() -> Array:
        products = _total(np.abs(y * dy), axes)
        return np.where(products < largest, np.abs(y) * (np.abs(dy) + products), np.inf)

    def squares() -> Steps:
        sums = walked(count, total, np.sqrt(_total(np.square(y * dy), axes)))
        return Steps(np.square(y) * (sums + few(3) * (np.square(dy) + np.square(total))))

    # These are a product and ``count`` additions, the subtraction, and the product with y.
    return Exact(value, magnitude_of_products, count + 3, spread=squares)
