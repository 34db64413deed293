"""Evaluate batch normalization and cudnnNormalization* (3.2.3, 4.1.2 to 4.1.5; docs/errata.md, D146, D157 and D158).

Rounding errors are counted in roundoffs of the compute type, as the ``size`` of a ``Found`` with one term
(docs/tolerance.md).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import (
    BatchNormalizationBackward,
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationForwardTrainingEx,
    NormalizationBackward,
    NormalizationForwardInference,
    NormalizationForwardTraining,
)
from dualdnn.api.operations.normalization.batch import PER_ACTIVATION

from ..precision import PRECISION
from .elements import Array, Elements, Found, Index, Untold, quotient, total
from .pointwise import PROPAGATE

AFFINE = 8  # roundings of scale * inverse * (x - mean) + bias


class Statistic(NamedTuple):
    """Hold one mean and inverse deviation, their errors in roundoffs, the variance, and the elements of x.

    The error of the mean is absolute, that of the inverse relative.
    """

    mean: float
    inverse: float
    mean_error: float
    inverse_error: float
    variance: float
    variance_error: float
    row: list[range]
    x: Array


def _row(o: Any, index: Index) -> list[range]:
    """Return the ranges of x that share a statistic with this element."""
    c, place = index[1], index[2:]
    if o.mode in PER_ACTIVATION:
        return [range(o.x.dims[0]), range(c, c + 1), *(range(i, i + 1) for i in place)]
    return [range(o.x.dims[0]), range(c, c + 1), *map(range, o.x.dims[2:])]


def _parameter(o: Any, index: Index) -> Index:
    """Return the index of the scale, bias and statistics of an element."""
    return (0, index[1], *(index[2:] if o.mode in PER_ACTIVATION else (0,) * len(index[2:])))


def _inverse(variance: float, epsilon: float) -> float:
    return quotient(1.0, math.sqrt(variance + epsilon)) if variance + epsilon >= 0 else math.nan


def _statistic(o: Any, index: Index, read: Elements) -> Statistic:
    row, epsilon = _row(o, index), read.parameter(o.epsilon)
    unit, smallest, _ = PRECISION[o.compute_type]
    x = read.array("x", row)
    m = len(x)
    mean = total(x) / m
    centred = x - mean
    variance = total(centred * centred) / m
    size, distance = total(np.abs(x)) / m, total(np.abs(centred)) / m
    mean_error = (m + 1) * size
    variance_error = (m + 6) * variance + unit * mean_error**2 + 4 * size * distance + smallest / unit
    share = quotient(unit * variance_error, variance + epsilon)
    inverse_error = (1 / math.sqrt(1 - share) - 1) / unit + 4 if share < 1 else math.inf
    return Statistic(mean, _inverse(variance, epsilon), mean_error, inverse_error, variance, variance_error, row, x)


def _remembered(o: Any, index: Index, read: Elements) -> Statistic:
    key = ("statistic", _parameter(o, index))
    if key not in read.remembered:
        read.remembered[key] = _statistic(o, index, read)
    found: Statistic = read.remembered[key]
    return found


def _affine_error(x: Any, s: Statistic, factor: float, bias: float) -> Array:
    argument = abs(factor) * (s.mean_error + AFFINE * (abs(x) + abs(s.mean)))
    product = abs(factor * (x - s.mean))
    # An infinite error of the inverse leaves a product of zero as it is.
    found: Array = argument + np.where(product == 0, 0.0, product * s.inverse_error) + AFFINE * abs(bias)
    return found


def inference(o: Any, _output: str, index: Index, read: Elements) -> Found:
    """Return scale * (x - mean) / sqrt(variance + epsilon) + bias with the caller's statistics."""
    at, epsilon = _parameter(o, index), read.parameter(o.epsilon)
    variance = read("variance", at)
    factor = read("scale", at) * _inverse(variance, epsilon)
    x, mean, bias = read("x", index), read("mean", at), read("bias", at)
    cancelled = quotient(abs(variance) + epsilon, abs(variance + epsilon))
    error = (abs(factor) * (abs(x) + abs(mean)) + abs(bias)) * (AFFINE + cancelled)
    return Found(factor * (x - mean) + bias, error)


def training(o: Any, output: str, index: Index, read: Elements) -> Found:
    """Return y, running or saved statistics, from the mean and the biased variance of x."""
    at = _parameter(o, index)
    s = _remembered(o, index, read)
    if output == "y":
        return _normalized(o, index, at, s, read)
    if output == "savedMean":
        return Found(s.mean, s.mean_error + abs(s.mean))
    if output == "savedInvVariance":
        return Found(s.inverse, abs(s.inverse) * s.inverse_error)
    f, m = read.parameter(o.exponentialAverageFactor), len(s.x)
    new, error = s.mean, s.mean_error
    if output == "runningVariance":
        unbiased = m / (m - 1) if m > 1 else math.nan
        new, error = s.variance * unbiased, s.variance_error * unbiased
    old = read(output, at)
    return Found((1 - f) * old + f * new, 4 * (1 + abs(f)) * abs(old) + abs(f) * (error + 4 * abs(new)))


def _normalized(o: Any, index: Index, at: Index, s: Statistic, read: Elements) -> Found:
    x, factor, bias = read("x", index), read("scale", at) * s.inverse, read("bias", at)
    z = read("z", index) if o.z is not None else 0.0
    value, error = factor * (x - s.mean) + bias + z, float(_affine_error(x, s, factor, bias)) + 2 * abs(z)
    if o.activation is None:
        return Found(value, error)
    if math.isnan(value):
        return Found(value if o.activation.relu_nan == PROPAGATE else 0.0, error)
    # Values that the activation certainly stops are exactly zero.
    return Found(max(value, 0.0), 0.0 if value < -PRECISION[o.compute_type][0] * error else error)


def _given(o: Any, index: Index, read: Elements) -> Statistic:
    """Return the saved statistics, or else those of x."""
    if o.saved is None:
        return _remembered(o, index, read)
    at, row = _parameter(o, index), _row(o, index)
    return Statistic(read("savedMean", at), read("savedInvVariance", at), 0.0, 0.0, 0.0, 0.0, row, read.array("x", row))


def _passed(o: Any, s: Statistic, at: Index, gradients: Array, read: Elements) -> Array:
    """Return dy where the activation passed its argument, and 0 elsewhere."""
    if o.activation is None:
        return gradients
    unit = PRECISION[o.compute_type][0]
    factor, bias = read("scale", at) * s.inverse, read("bias", at)
    if o.dz is None:
        argument = factor * (s.x - s.mean) + bias
        if np.any((np.abs(argument) <= unit * _affine_error(s.x, s, factor, bias)) & (gradients != 0)):
            raise Untold("rounding decides what the activation passes")
        return np.where(argument > 0, gradients, 0.0)
    kept = read.bytes("reserveSpace").reshape(o.x.dims[0], *o.x.dims[2:], o.x.dims[1])
    images, channels, *places = s.row
    box = tuple(slice(r.start, r.stop) for r in (images, *places, channels))
    marks = kept[box].ravel()
    if np.any(marks == 2):
        raise Untold("rounding decides what the activation passes")
    return np.where(marks, gradients, 0.0)


class Gradients(NamedTuple):
    """Hold dBias and dScale of one statistic, their errors in roundoffs, and the gradients that the activation
    passed.
    """

    s: Statistic
    bias: float
    scale: float
    bias_error: float
    scale_error: float
    dy: Array


def _gradients(o: Any, index: Index, at: Index, read: Elements) -> Gradients:
    key = ("gradients", at)
    if key not in read.remembered:
        s = _given(o, index, read)
        dy = _passed(o, s, at, read.array("dy", s.row), read)
        normalized = (s.x - s.mean) * s.inverse
        products, m = dy * normalized, len(dy)
        errors = total(np.abs(dy) * _error_of(normalized, s)) + (m + 1) * total(np.abs(products))
        read.remembered[key] = Gradients(s, total(dy), total(products), m * total(np.abs(dy)), errors, dy)
    found: Gradients = read.remembered[key]
    return found


def _error_of(normalized: Any, s: Statistic) -> Any:
    return abs(s.inverse) * s.mean_error + abs(normalized) * (s.inverse_error + 3)


def gradient(o: Any, output: str, index: Index, read: Elements) -> Found:
    """Return one gradient (4.1.2), for example dx = scale * inverse * (dy - (dBias + n * dScale) / m).

    n is the normalised x, and dz the part of dy that the activation passed.
    """
    at = _parameter(o, index)
    g = _gradients(o, index, at, read)
    s, m = g.s, len(g.dy)
    if output == "dBias":
        return Found(g.bias, g.bias_error)
    if output == "dScale":
        return Found(g.scale, g.scale_error)
    position = 0
    for i, positions in zip(index, s.row, strict=True):
        position = position * len(positions) + positions.index(i)
    dy, x = float(g.dy[position]), read("x", index)
    if output == "dz":
        return Found(dy, 0.0)
    unit, smallest, _ = PRECISION[o.compute_type]
    factor, n = read("scale", at) * s.inverse, (x - s.mean) * s.inverse
    sums = g.bias_error + abs(n) * g.scale_error + _error_of(n, s) * abs(g.scale)
    terms = abs(dy) + (abs(g.bias) + abs(n * g.scale)) / m
    error = max(abs(factor), smallest / unit) * (sums / m + (s.inverse_error + 6) * terms)
    return Found(factor * (dy - (g.bias + n * g.scale) / m), error + smallest / unit * abs(x - s.mean))


FORMULAS: dict[type, Any] = {
    BatchNormalizationBackward: gradient,
    BatchNormalizationBackwardEx: gradient,
    BatchNormalizationForwardInference: inference,
    BatchNormalizationForwardTraining: training,
    BatchNormalizationForwardTrainingEx: training,
    NormalizationBackward: gradient,
    NormalizationForwardInference: inference,
    NormalizationForwardTraining: training,
}
