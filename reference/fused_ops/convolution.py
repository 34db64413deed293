"""Compute convolutions between other steps.

Intermediate values may be rounded to the tensors' types (docs/errata.md, D564).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from dualdnn.api.operations import (
    ConvScaleBiasAddActivation,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    TensorSpec,
)

from ..engine import Exact, evaluate, implements, magnitude_of, roundings_of, spread_of
from ..precision import PRECISION
from ..spread import Spread, Steps, each_rounded, few
from ..view import Array, write
from .residual import SUM_ROUNDINGS, activated, scaled

PROLOGUE_ROUNDINGS = 3


def _bytes_of(spec: TensorSpec, values: Array) -> Array:
    """Return memory that holds the values, rounded to the tensor's type."""
    memory = np.zeros(spec.nbytes, np.uint8)
    write(spec, memory, values)
    return memory


def _units(operation: Any, spec: TensorSpec) -> float:
    """Return the unit roundoff of the tensor's type, divided by that of the arithmetic."""
    return PRECISION[spec.data_type][0] / PRECISION[operation.compute_type][0]


def _beyond(operation: Any, spec: TensorSpec, value: Array, error: Array) -> Array:
    """Return where a finite value may become infinite when it is stored between two steps."""
    unit, _smallest, largest = PRECISION[operation.compute_type]
    reach = np.abs(value) + unit * error
    return np.asarray(np.isfinite(value) & (reach >= min(largest, PRECISION[spec.data_type][2])))


# This function returns the expected squared errors (spread.py), or None where they are not known.
Squares = Callable[[], Array | None]


def _convolved(
    operation: Any, x: Array, scale: Array | None, bias: Array | None, **others: Array
) -> tuple[Array, Array, Array, Squares]:
    """Return the convolution after the prologue, and its error in units of the arithmetic.

    Further results are the elements that are not determined, and a function of the expected squared error.
    """
    inner = operation.inner
    total, terms = scaled(x, scale, bias)
    passed = activated(operation.activation, total)
    # If the activation turns a NaN or an infinity into a number, the element has no error.
    terms = np.where(~np.isfinite(total) & np.isfinite(passed), 0, terms)
    memory = {name: _bytes_of(inner.tensor(name), values) for name, values in others.items()}
    output = inner.outputs[0]
    memory[output] = np.zeros(inner.nbytes(output), np.uint8)
    found = evaluate(inner, {**memory, "x": _bytes_of(operation.x, passed)})[output]
    roundings, magnitude = np.asarray(roundings_of(found)), magnitude_of(found)
    of_terms, per_term = found, 0.0
    open_ = np.zeros(found.value.shape, bool)
    if operation.prologue is not None:
        # The sum of its terms bounds each rounded value. An inexact sum may round to either of two neighbours.
        of_terms = evaluate(inner, {**memory, "x": _bytes_of(operation.x, terms)})[output]
        magnitude = np.maximum(magnitude, magnitude_of(of_terms))
        per_term = 2 * _units(operation, operation.x) + PROLOGUE_ROUNDINGS
        roundings = roundings + per_term
        beyond = _beyond(operation, operation.x, passed, PROLOGUE_ROUNDINGS * terms)
        if beyond.any():  # Even zero times infinity is NaN, so other factors do not matter.
            ones = {name: _bytes_of(inner.tensor(name), np.ones_like(values)) for name, values in others.items()}
            marks = {**memory, **ones, "x": _bytes_of(operation.x, beyond.astype(passed.dtype))}
            open_ = np.asarray(evaluate(inner, marks)[output].value) > 0
    return (
        np.asarray(found.value),
        np.asarray(roundings * magnitude),
        open_,
        partial(_squares, operation, found, of_terms, per_term),
    )


def _squares(operation: Any, found: Exact, of_terms: Exact, per_term: float) -> Array | None:
    """Return the expected squared errors.

    of_terms is the convolution of the values rounded before it; each of its terms has per_term such roundings.
    """
    sums, rounded = spread_of(found), spread_of(of_terms)
    if not isinstance(sums, Spread) or not isinstance(rounded, Spread):
        return None
    squares = sums.squares(found.value, PRECISION[operation.compute_type][0])
    return squares + each_rounded(per_term, np.square(rounded.norm))


def _exact(value: Array, error: Array, open_: Array, spread: Callable[[], Steps | None] | None = None) -> Exact:
    return Exact(value, error, 1, undetermined=lambda: open_, spread=spread)


def _steps(squares: Squares) -> Steps | None:
    found = squares()
    return None if found is None else Steps(found)


@implements(ScaleBiasActivationConvBnstats)
def convolution_statistics(
    operation: ScaleBiasActivationConvBnstats, x: Array, scale: Array | None, bias: Array | None, w: Array
) -> dict[str, Exact]:
    """Compute the convolution, and sums over y before or after y is rounded."""
    value, error, open_, squares_of_y = _convolved(operation, x, scale, bias, w=w)
    found = {"y": _exact(value, error, open_, partial(_steps, squares_of_y))}
    if operation.ySum is not None:
        over, unit = (0, *range(2, value.ndim)), PRECISION[operation.compute_type][0]
        size, count = np.abs(value), value.size // value.shape[1]
        open_ = np.any(open_ | _beyond(operation, operation.y, value, error), over, keepdims=True)
        apart = error + _units(operation, operation.y) * size
        doubled = 2 * size * apart + unit * apart**2

        def summed(values: Array) -> Array:
            return np.asarray(values.sum(over, keepdims=True))

        sums, squares = summed(value), summed(value**2)
        of_sums, of_squares = summed(apart) + count * summed(size), summed(doubled) + (count + 1) * squares
        found["ySum"] = _exact(sums, 1.01 * of_sums, open_)
        found["ySqSum"] = _exact(squares, 1.01 * of_squares, open_)
    return found


@implements(ScaleBiasActivationWgrad)
def convolution_filter_gradient(
    operation: ScaleBiasActivationWgrad, x: Array, scale: Array | None, bias: Array | None, dy: Array
) -> Exact:
    """Compute the gradient of the filter."""
    value, error, open_, squares = _convolved(operation, x, scale, bias, dy=dy)
    return _exact(value, error, open_, partial(_steps, squares))


@implements(ConvScaleBiasAddActivation)
def convolution_add_activation(
    operation: ConvScaleBiasAddActivation, x: Array, w: Array, scale: Array | None, z: Array | None, z_scale: Array | None,
    z_bias: Array | None,
) -> Exact:  # fmt: skip
    """Compute the activation of the scaled convolution plus the scaled z and the bias."""
    inner = operation.inner
    memory = {"x": _bytes_of(inner.x, x), "w": _bytes_of(inner.w.tensor, w), "y": np.zeros(inner.y.nbytes, np.uint8)}
    found = evaluate(inner, memory)["y"]
    value = np.asarray(found.value)
    error = np.asarray(roundings_of(found)) * magnitude_of(found)
    squares = partial(_squares, operation, found, found, 0.0)
    if operation.epilogue is None:
        return Exact(value, error, 1, spread=partial(_steps, squares))
    open_ = _beyond(operation, operation.y, value, error)
    total, terms = scaled(value, scale, None)
    factor = 1.0 if scale is None else np.abs(scale)
    stored = np.maximum(
        np.abs(value), PRECISION[operation.y.data_type][1]
    )  # All subnormal numbers have the same error.
    error = factor * (error + 2 * _units(operation, operation.y) * stored)
    if z is not None:
        residual, residual_terms = scaled(z, z_scale, None)
        total, terms = total + residual, terms + residual_terms
    if z_bias is not None:
        total, terms = total + z_bias, terms + np.abs(z_bias)

    def steps() -> Steps | None:
        of_sums = squares()
        if of_sums is None:
            return None
        of_sums = of_sums + few(2 * _units(operation, operation.y)) * np.square(value)
        return Steps(np.square(factor) * of_sums + few(SUM_ROUNDINGS) * np.square(terms))

    return _exact(activated(operation.activation, total), error + SUM_ROUNDINGS * terms, open_, steps)
