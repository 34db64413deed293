"""Test the formulas of fused operations against batch normalisation in plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    ConvolutionSpec,
    ConvScaleBiasAddActivation,
    DactivationForkDbatchnorm,
    FilterSpec,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ScaleBiasAddActivationGenBitmask,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT32, NCHW
from dualdnn.reference import evaluate, judge

RELU = ActivationSpec(cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)
FORWARD = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
BACKWARD = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
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
    """eqScale * y + eqBias is the batch normalisation of y, and the running statistics are updated."""
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


def test_sum_and_bit_mask():
    """Each element of the sum and each bit of the mask agree with plain loops."""
    x, z = numbers(2, 35, 1, 3), numbers(2, 35, 1, 3)
    vectors = [numbers(35) for _ in range(4)]
    tensor, vector = TensorSpec.packed(DOUBLE, x.shape), TensorSpec.packed(DOUBLE, (1, 35, 1, 1))
    mask = TensorSpec.packed(INT32, (8, 3, 1, 1))
    operation = ScaleBiasAddActivationGenBitmask(RELU, tensor, vector, vector, tensor, vector, vector, tensor, mask)
    scale, bias, z_scale, z_bias = vectors
    found = evaluated(operation, x=x, eqScale=scale, eqBias=bias, z=z, zEqScale=z_scale, zEqBias=z_bias)
    words = [[0] * 3 for _ in range(8)]
    for n in range(2):
        for c in range(35):
            for w in range(3):
                total = scale[c] * x[n, c, 0, w] + bias[c] + z_scale[c] * z[n, c, 0, w] + z_bias[c]
                assert np.isclose(found["y"][n, c, 0, w], max(total, 0))
                words[3 * n + w][c // 32] |= int(total > 0) << c % 32
    signed = [[word - 2**32 if word >= 2**31 else word for word in row] for row in words]
    assert found["bitMask"].reshape(8, 3).tolist() == signed


def test_gradient_is_that_of_batch_normalisation():
    """Gradients are central differences of sum(relu(normalised x) * dy)."""
    x, dy = numbers(2, CHANNELS, 2, 2), numbers(2, CHANNELS, 2, 2)
    scale, bias = numbers(CHANNELS), numbers(CHANNELS)
    epsilon, step = 1e-2, 1e-6

    def normalised(x, scale, bias):
        mean, variance = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
        return scale.reshape(1, -1, 1, 1) * (x - mean) / np.sqrt(variance + epsilon) + bias.reshape(1, -1, 1, 1)

    above = normalised(x, scale, bias) > 0
    words = np.zeros((8, 1), np.int32)
    for n in range(2):
        for c in range(CHANNELS):
            for p in range(4):
                words[4 * n + p] |= int(above[n, c, p // 2, p % 2]) << c

    def objective(x, scale, bias):
        return float((np.where(above, normalised(x, scale, bias), 0) * dy).sum())

    tensor, mask = TensorSpec.packed(DOUBLE, x.shape), TensorSpec.packed(INT32, (8, 1, 1, 1))
    operation = DactivationForkDbatchnorm(
        RELU, epsilon, 0, tensor, tensor, mask, *(VECTOR,) * 3, tensor, tensor, VECTOR, VECTOR
    )
    mean, inverse = x.mean((0, 2, 3)), (x.var((0, 2, 3)) + epsilon) ** -0.5
    found = evaluated(operation, x=x, dy=dy, bitMask=words, scale=scale, savedMean=mean, savedInvStd=inverse)
    assert np.array_equal(found["dz"], np.where(above, dy, 0))
    unsaved = replace(operation, savedMean=None, savedInvStd=None)
    again = evaluated(unsaved, x=x, dy=dy, bitMask=words, scale=scale)
    assert all(np.allclose(again[name], found[name]) for name in found)
    for name, at in (("dx", 0), ("dScale", 1), ("dBias", 2)):
        given = [x, scale, bias]
        for index in np.ndindex(given[at].shape):
            change = np.zeros_like(given[at])
            change[index] = step
            up, down = list(given), list(given)
            up[at], down[at] = given[at] + change, given[at] - change
            wanted = (objective(*up) - objective(*down)) / (2 * step)
            got = found[name][index] if at == 0 else found[name][0, index[0], 0, 0]
            assert np.isclose(got, wanted, atol=1e-6), (name, index)


def convolved(x, w, stride, padding):
    """Return the cross-correlation by plain loops."""
    images, channels, height, width = x.shape
    filters, _, rows, columns = w.shape
    out = [1 + (extent + 2 * padding - taps) // stride for extent, taps in ((height, rows), (width, columns))]
    y = np.zeros((images, filters, *out))
    for n, k, p, q, c, r, s in np.ndindex(images, filters, *out, channels, rows, columns):
        i, j = p * stride - padding + r, q * stride - padding + s
        if 0 <= i < height and 0 <= j < width:
            y[n, k, p, q] += x[n, c, i, j] * w[k, c, r, s]
    return y


CONVOLUTION = ConvolutionSpec(
    cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, DOUBLE, (1, 1), (2, 2), (1, 1), 1,
    cudnnMathType_t.CUDNN_DEFAULT_MATH, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
)  # fmt: skip
X, Y, W = (
    TensorSpec.packed(DOUBLE, (2, 3, 5, 4)),
    TensorSpec.packed(DOUBLE, (2, 4, 3, 2)),
    FilterSpec(DOUBLE, NCHW, (4, 3, 3, 3)),
)
FOUR = TensorSpec.packed(DOUBLE, (1, 4, 1, 1))


def rectified(x, scale, bias):
    return np.maximum(x * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1), 0)


def test_convolution_and_its_statistics():
    x, w, scale, bias = numbers(*X.dims), numbers(*W.dims), numbers(3), numbers(3)
    operation = ScaleBiasActivationConvBnstats(CONVOLUTION, RELU, FORWARD, 0, X, VECTOR, VECTOR, W, Y, FOUR, FOUR)
    found = evaluated(operation, x=x, eqScale=scale, eqBias=bias, w=w)
    y = convolved(rectified(x, scale, bias), w, 2, 1)
    assert np.allclose(found["y"], y)
    assert np.allclose(found["ySum"].reshape(-1), [y[:, k].sum() for k in range(4)])
    assert np.allclose(found["ySqSum"].reshape(-1), [(y[:, k] ** 2).sum() for k in range(4)])


@pytest.mark.parametrize("scale, last", [(1, 1), (1, -np.inf), (10, 1)])
@np.errstate(all="ignore")
def test_statistics_of_what_half_does_not_hold(scale, last):
    """Sums may be taken before y is rounded to half, or after it, where 2e5 is infinite: such a channel is not judged.

    If x is 1e5 after the prologue, half does not hold it either: its half may be infinite, and no sum is judged.
    """
    half, of_x = TensorSpec.packed(HALF, (1, 2, 1, 3)), TensorSpec.packed(HALF, (1, 1, 1, 3))
    convolution = replace(CONVOLUTION, compute_type=FLOAT, padding=(0, 0), stride=(1, 1))
    vector, sums = TensorSpec.packed(FLOAT, (1, 1, 1, 1)), TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    w = FilterSpec(HALF, NCHW, (2, 1, 1, 1))
    operation = ScaleBiasActivationConvBnstats(convolution, None, FORWARD, 0, of_x, vector, vector, w, half, sums, sums)
    given = {"x": np.float16([1e4, 1, last]), "w": np.float16([20, 0.5]), "eqScale": np.float32([scale])}
    before = {name: values.view(np.uint8) for name, values in given.items()} | {"eqBias": np.zeros(4, np.uint8)}
    before |= {name: np.zeros(operation.nbytes(name), np.uint8) for name in ("y", "ySum", "ySqSum")}
    y = scale * np.outer(given["w"], given["x"].astype(float))

    def agrees(of_sums, wrong=0.0, infinite=(0, 0)):
        stored = np.float16(y)
        stored[infinite] = np.inf
        after = {"y": stored, "ySum": np.float32(of_sums.sum(1)), "ySqSum": np.float32(np.square(of_sums).sum(1))}
        after["ySum"][1] += wrong
        return judge(operation, before, before | {name: a.ravel().view(np.uint8) for name, a in after.items()}).agrees

    assert agrees(y) and agrees(np.float32(np.float16(y)))
    assert agrees(y, infinite=(1, 0)) == agrees(y, wrong=np.nan) == (scale == 10)
    assert not agrees(y, infinite=(1, 1))


def test_gradient_of_the_filter():
    """The objective is linear in the filter, so each gradient element is the objective of a unit filter."""
    x, dy, scale, bias = numbers(*X.dims), numbers(*Y.dims), numbers(3), numbers(3)
    operation = ScaleBiasActivationWgrad(CONVOLUTION, RELU, BACKWARD, 0, X, VECTOR, VECTOR, Y, W)
    found = evaluated(operation, x=x, eqScale=scale, eqBias=bias, dy=dy)["dw"]
    for index in ((0, 0, 0, 0), (3, 2, 2, 1), (1, 1, 0, 2), (2, 0, 1, 1)):
        unit = np.zeros(W.dims)
        unit[index] = 1
        assert np.isclose(found[index], (convolved(rectified(x, scale, bias), unit, 2, 1) * dy).sum())


def test_convolution_with_a_residual():
    x, w, z, scale, z_scale, bias = (
        numbers(*X.dims),
        numbers(*W.dims),
        numbers(*Y.dims),
        numbers(4),
        numbers(4),
        numbers(4),
    )
    operation = ConvScaleBiasAddActivation(CONVOLUTION, RELU, FORWARD, 0, X, W, FOUR, Y, FOUR, FOUR, Y)
    found = evaluated(operation, x=x, w=w, eqScale=scale, z=z, zEqScale=z_scale, zEqBias=bias)["y"]
    y = convolved(x, w, 2, 1)
    for k in range(4):
        assert np.allclose(found[:, k], np.maximum(scale[k] * y[:, k] + z_scale[k] * z[:, k] + bias[k], 0))


@np.errstate(all="ignore")
def test_results_between_steps_may_be_rounded_to_half():
    """A product of 3e-7 may become a multiple of 2^-24 before it is scaled by 256, and one of 8e4 an infinity."""
    x, y = TensorSpec.packed(HALF, (1, 1, 1, 3)), TensorSpec.packed(HALF, (1, 2, 1, 3))
    vector = TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    convolution = replace(CONVOLUTION, compute_type=FLOAT, padding=(0, 0), stride=(1, 1))
    w = FilterSpec(HALF, NCHW, (2, 1, 1, 1))
    operation = ConvScaleBiasAddActivation(convolution, None, FORWARD, 0, x, w, vector, None, None, None, y)
    given = {"x": np.float16([3e-4, 1, 4e4]), "w": np.float16([1e-3, 2]), "eqScale": np.float32([256, 0.25])}
    before = {name: values.view(np.uint8) for name, values in given.items()} | {"y": np.zeros(12, np.uint8)}
    between = np.outer(given["w"].astype(np.float32), given["x"])

    def agrees(held, factor=1.0):
        found = given["eqScale"][:, None] * held.astype(np.float32) * factor
        return judge(operation, before, before | {"y": np.float16(found).view(np.uint8).ravel()}).agrees

    halves = np.float16(between)
    assert agrees(between) and agrees(halves) and not agrees(between, 1.1)
    assert np.isinf(halves[1, 2]) and np.float16(256 * between[0, 0]) != np.float16(256) * halves[0, 0]
