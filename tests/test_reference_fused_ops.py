"""The formulas of fused operations against batch normalisation in plain loops."""

from __future__ import annotations

import numpy as np
from dualdnn.api.operations import BnFinalizeStatisticsInference, BnFinalizeStatisticsTraining, TensorSpec
from dualdnn.api.operations.specs import DOUBLE
from dualdnn.reference import evaluate

CHANNELS = 3
VECTOR = TensorSpec.packed(DOUBLE, (1, CHANNELS, 1, 1))
RANDOM = np.random.default_rng(11)


def numbers(*shape):
    return RANDOM.standard_normal(shape)


def evaluated(operation, **inputs):
    found = evaluate(
        operation, {name: np.ascontiguousarray(value).view(np.uint8).reshape(-1) for name, value in inputs.items()}
    )
    return {name: np.asarray(exact.value, np.float64).reshape(exact.value.shape) for name, exact in found.items()}


def test_finalised_statistics_normalise():
    """eqScale * y + eqBias is the batch normalisation of y; the moving averages move."""
    y = numbers(4, CHANNELS, 2, 5)
    scale, bias, mean, variance = numbers(CHANNELS), numbers(CHANNELS), numbers(CHANNELS), numbers(CHANNELS) ** 2
    operation = BnFinalizeStatisticsTraining(40, 0.25, 1e-2, *(VECTOR,) * 10)
    found = evaluated(
        operation, ySum=y.sum((0, 2, 3)), ySqSum=(y**2).sum((0, 2, 3)), scale=scale, bias=bias, runningMean=mean, runningVar=variance
    )  # fmt: skip
    for c in range(CHANNELS):
        values = [float(v) for v in y[:, c].reshape(-1)]
        m = sum(values) / len(values)
        squares = sum((v - m) ** 2 for v in values)
        deviation = (squares / len(values) + 1e-2) ** 0.5
        for v in values:
            wanted = scale[c] * (v - m) / deviation + bias[c]
            assert np.isclose(found["eqScale"][0, c, 0, 0] * v + found["eqBias"][0, c, 0, 0], wanted)
        assert np.isclose(found["savedMean"][0, c, 0, 0], m)
        assert np.isclose(found["savedInvStd"][0, c, 0, 0], 1 / deviation)
        assert np.isclose(found["runningMean"][0, c, 0, 0], 0.75 * mean[c] + 0.25 * m)
        assert np.isclose(found["runningVar"][0, c, 0, 0], 0.75 * variance[c] + 0.25 * squares / (len(values) - 1))


def test_running_statistics_normalise():
    scale, bias, mean, variance = numbers(CHANNELS), numbers(CHANNELS), numbers(CHANNELS), numbers(CHANNELS) ** 2
    operation = BnFinalizeStatisticsInference(1e-2, *(VECTOR,) * 6)
    found = evaluated(operation, scale=scale, bias=bias, runningMean=mean, runningVar=variance)
    for c in range(CHANNELS):
        for v in (-2.0, 0.5, 3.0):
            wanted = scale[c] * (v - mean[c]) / (variance[c] + 1e-2) ** 0.5 + bias[c]
            assert np.isclose(found["eqScale"][0, c, 0, 0] * v + found["eqBias"][0, c, 0, 0], wanted)
