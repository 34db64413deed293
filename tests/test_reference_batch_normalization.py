"""The reference of batch normalization and cudnnNormalization* against loops in 50 digits."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnBatchNormMode_t
from dualdnn.api.operations import BatchNormalizationForwardInference, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT
from dualdnn.reference import evaluate
from dualdnn.reference.judge import bounds

RANDOM = np.random.default_rng(41)
ACTIVATION, SPATIAL = cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION, cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
SHAPES = [(3, 2, 2, 4), (2, 3, 2, 2, 3)]
in_modes = pytest.mark.parametrize("mode", [ACTIVATION, SPATIAL])
of_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def memory(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(array.tobytes(), np.uint8).copy() for name, array in arrays.items()}


def statistics_shape(mode: cudnnBatchNormMode_t, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1, *shape[1:]) if mode == ACTIVATION else (1, shape[1], *(1 for _ in shape[2:]))


def statistic_of(mode: cudnnBatchNormMode_t, place: tuple[int, ...]) -> tuple[int, ...]:
    """Where the statistic of an element stands, from 3.1.2.3: of its channel, or of its position in the image."""
    return (0, *place[1:]) if mode == ACTIVATION else (0, place[1], *(0 for _ in place[2:]))


@in_modes
@of_shapes
def test_inference_by_loops(mode, shape):
    """The formula of 3.2.3, element by element."""
    x, of_statistics = RANDOM.standard_normal(shape), statistics_shape(mode, shape)
    scale, bias, mean = RANDOM.standard_normal((3, *of_statistics))
    variance, epsilon = RANDOM.random(of_statistics) + 0.1, 0.01
    t, s = TensorSpec.packed(DOUBLE, shape), TensorSpec.packed(DOUBLE, of_statistics)
    operation = BatchNormalizationForwardInference(mode, 1.0, 0.0, t, t, s, s, epsilon)
    found = evaluate(operation, memory(x=x, scale=scale, bias=bias, mean=mean, variance=variance))["y"].value
    with mpmath.workdps(50):
        for place in np.ndindex(*shape):
            at = statistic_of(mode, place)
            root = mpmath.sqrt(mpmath.mpf(epsilon) + mpmath.mpf(variance[at]))
            wanted = mpmath.mpf(bias[at]) + mpmath.mpf(scale[at]) * (mpmath.mpf(x[place]) - mpmath.mpf(mean[at])) / root
            assert abs(wanted - mpmath.mpf(float(found[place]))) <= 1e-15 * (1 + abs(wanted))


def test_bounds_of_inference_hold_both_orders_of_computation():
    """scale * inverse * (x - mean) + bias and x * a + b, in float, beside a large mean."""
    shape = (2, 4, 5, 6)
    x = (RANDOM.standard_normal(shape) + 1000).astype(np.float32)
    scale, bias = RANDOM.standard_normal((2, 1, 4, 1, 1)).astype(np.float32)
    mean, variance = np.full((1, 4, 1, 1), 1000.3, np.float32), np.full((1, 4, 1, 1), 0.9, np.float32)
    t, s = TensorSpec.packed(FLOAT, shape), TensorSpec.packed(FLOAT, (1, 4, 1, 1))
    operation = BatchNormalizationForwardInference(SPATIAL, 1.0, 0.0, t, t, s, s, 1e-3)
    given = memory(x=x, scale=scale, bias=bias, mean=mean, variance=variance)
    value, bound = bounds(operation, "y", evaluate(operation, given)["y"], given)
    factor = scale / np.sqrt(variance + np.float32(1e-3))
    for ours in (factor * (x - mean) + bias, factor * x + (bias - factor * mean)):
        assert (np.abs(ours - value) <= bound + np.abs(value) * 2.0**-24).all()
    assert (bound <= 2.0**-24 * 20 * (np.abs(factor) * 2100 + np.abs(bias))).all()
