"""Test the reference of batch normalization and cudnnNormalization* against loops in 50 digits and central
differences."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnBatchNormMode_t,
    cudnnNanPropagation_t,
    cudnnNormAlgo_t,
    cudnnNormMode_t,
    cudnnNormOps_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    NormalizationBackward,
    NormalizationForwardTraining,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, NHWC
from dualdnn.reference import evaluate, judge
from dualdnn.reference.judge import bounds

RANDOM = np.random.default_rng(41)
ACTIVATION, SPATIAL = cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION, cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
NORM_MODES = {ACTIVATION: cudnnNormMode_t.CUDNN_NORM_PER_ACTIVATION, SPATIAL: cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL}
RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
SHAPES = [(3, 2, 2, 4), (2, 3, 2, 2, 3)]
in_modes = pytest.mark.parametrize("mode", [ACTIVATION, SPATIAL])
of_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


def memory(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(array.tobytes(), np.uint8).copy() for name, array in arrays.items()}


def statistics_shape(mode: cudnnBatchNormMode_t, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (1, *shape[1:]) if mode == ACTIVATION else (1, shape[1], *(1 for _ in shape[2:]))


def statistic_of(mode: cudnnBatchNormMode_t, place: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of the statistic of an element: one per channel, or one per position (3.1.2.3)."""
    return (0, *place[1:]) if mode == ACTIVATION else (0, place[1], *(0 for _ in place[2:]))


@in_modes
@of_shapes
def test_inference_by_loops(mode, shape):
    """Each element agrees with the formula of 3.2.3 in 50 digits."""
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
    """Float arithmetic stays within the bound as scale * inverse * (x - mean) + bias and as x * a + b."""
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


def trained(mode, x, scale, bias, epsilon):
    """Return (y, mean, biased variance, unbiased variance) by loops over the elements of each statistic."""
    groups: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for place in np.ndindex(*x.shape):
        groups.setdefault(statistic_of(mode, place), []).append(place)
    y, shape = np.empty(x.shape), statistics_shape(mode, x.shape)
    mean, biased, unbiased = np.empty(shape), np.empty(shape), np.empty(shape)
    with mpmath.workdps(50):
        for at, places in groups.items():
            values = [mpmath.mpf(x[place]) for place in places]
            middle = sum(values) / len(values)
            squares = sum((value - middle) ** 2 for value in values)
            root = mpmath.sqrt(squares / len(values) + mpmath.mpf(epsilon))
            mean[at], biased[at], unbiased[at] = middle, squares / len(values), squares / (len(values) - 1)
            for place, value in zip(places, values, strict=True):
                y[place] = mpmath.mpf(scale[at]) * (value - middle) / root + mpmath.mpf(bias[at])
    return y, mean, biased, unbiased


@in_modes
@of_shapes
def test_training_by_loops(mode, shape):
    x, of_statistics, epsilon, factor = 5 + RANDOM.standard_normal(shape), statistics_shape(mode, shape), 0.01, 0.3
    scale, bias, running_mean, running_variance = RANDOM.standard_normal((4, *of_statistics))
    t, s = TensorSpec.packed(DOUBLE, shape), TensorSpec.packed(DOUBLE, of_statistics)
    operation = BatchNormalizationForwardTraining(mode, 1.0, 0.0, t, t, s, s, factor, s, epsilon, s)
    given = memory(x=x, scale=scale, bias=bias, runningMean=running_mean, runningVariance=running_variance)
    found = evaluate(operation, given)
    y, mean, biased, unbiased = trained(mode, x, scale, bias, epsilon)
    wanted = {
        "y": y, "savedMean": mean, "savedInvVariance": (biased + epsilon) ** -0.5,
        "runningMean": 0.7 * running_mean + 0.3 * mean, "runningVariance": 0.7 * running_variance + 0.3 * unbiased,
    }  # fmt: skip
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name].value.astype(float), values, rtol=1e-13, atol=1e-14)


@in_modes
@of_shapes
def test_gradients_are_central_differences(mode, shape):
    """Gradients of x, scale and bias are differences of the loops, with saved statistics and without."""
    of_statistics, epsilon, step = statistics_shape(mode, shape), 0.05, 1e-5
    x, dy = RANDOM.standard_normal((2, *shape))
    scale, bias = RANDOM.standard_normal((2, *of_statistics))
    _, mean, biased, _ = trained(mode, x, scale, bias, epsilon)

    def slope(values: np.ndarray, loss) -> np.ndarray:
        found = np.empty(values.shape)
        for place in np.ndindex(*values.shape):
            up, down = values.copy(), values.copy()
            up[place] += step
            down[place] -= step
            found[place] = (loss(up) - loss(down)) / (2 * step)
        return found

    wanted = {
        "dx": slope(x, lambda v: (dy * trained(mode, v, scale, bias, epsilon)[0]).sum()),
        "dScale": slope(scale, lambda v: (dy * trained(mode, x, v, bias, epsilon)[0]).sum()),
        "dBias": slope(bias, lambda v: (dy * trained(mode, x, scale, v, epsilon)[0]).sum()),
    }
    t, s = TensorSpec.packed(DOUBLE, shape), TensorSpec.packed(DOUBLE, of_statistics)
    saved = {"savedMean": mean, "savedInvVariance": (biased + epsilon) ** -0.5}
    for described in (s, None):
        operation = BatchNormalizationBackward(mode, 1.0, 0.0, 1.0, 0.0, t, t, t, s, s, epsilon, described)
        found = evaluate(operation, memory(x=x, dy=dy, scale=scale, **(saved if described else {})))
        for name, values in wanted.items():
            np.testing.assert_allclose(found[name].value.astype(float), values, rtol=1e-6, atol=1e-7)


def test_bounds_of_training_hold_float_arithmetic_and_little_more():
    shape = (4, 3, 5, 6)
    t, s = TensorSpec.packed(FLOAT, shape), TensorSpec.packed(FLOAT, (1, 3, 1, 1))
    for offset in (0, 100):
        x = (RANDOM.standard_normal(shape) + offset).astype(np.float32)
        scale, bias = RANDOM.standard_normal((2, 1, 3, 1, 1)).astype(np.float32)
        operation = BatchNormalizationForwardTraining(SPATIAL, 1.0, 0.0, t, t, s, s, 0.5, None, 1e-3, s)
        given = memory(x=x, scale=scale, bias=bias)
        exact = evaluate(operation, given)
        mean = x.mean((0, 2, 3), keepdims=True)
        inverse = 1 / np.sqrt(((x - mean) ** 2).mean((0, 2, 3), keepdims=True) + np.float32(1e-3))
        ours = {"y": scale * inverse * (x - mean) + bias, "savedMean": mean, "savedInvVariance": inverse}
        for name, values in ours.items():
            value, bound = bounds(operation, name, exact[name], given)
            assert (np.abs(values - value) <= bound + np.abs(value) * 2.0**-24).all(), name
            assert (bound <= 2.0**-24 * (120 + offset) * (40 + 6 * offset)).all(), name


@in_modes
@pytest.mark.parametrize("added", [False, True], ids=["relu", "add_relu"])
def test_fused_gradients_are_central_differences(mode, added):
    """Gradients of x, scale, bias and z are differences of relu(n + z); forward fills the reserve space."""
    shape, epsilon, step = (3, 2, 2, 3), 0.05, 1e-6
    of_statistics = statistics_shape(mode, shape)
    x, dy, z = RANDOM.standard_normal((3, *shape))
    z = z if added else np.zeros(shape)
    scale, bias = RANDOM.standard_normal((2, *of_statistics))
    t, s = TensorSpec.packed(DOUBLE, shape, NHWC), TensorSpec.packed(DOUBLE, of_statistics)
    relu = ActivationSpec(RELU, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.0)
    ops, kept = cudnnNormOps_t(2 if added else 1), t.count if added else 0
    kind, algo = NORM_MODES[mode], cudnnNormAlgo_t.CUDNN_NORM_ALGO_STANDARD
    extra = t if added else None

    def nhwc(values: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(np.moveaxis(values, 1, -1))

    forward = NormalizationForwardTraining(
        kind, 1.0, 0.0, t, t, s, s, 0.5, None, epsilon, None, 0, kept, ops, algo, extra, relu
    )
    given = memory(x=nhwc(x), scale=scale, bias=bias, **({"z": nhwc(z)} if added else {}))
    first = evaluate(forward, given)

    def made(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, z: np.ndarray) -> np.ndarray:
        return np.maximum(trained(mode, x, scale, bias, epsilon)[0] + z, 0)

    np.testing.assert_allclose(first["y"].value.astype(float), made(x, scale, bias, z), rtol=1e-12, atol=1e-13)
    operation = NormalizationBackward(
        kind, 1.0, 0.0, 1.0, 0.0, t, t, t, s, s, epsilon, None, 0, kept, ops, algo, t, extra, relu
    )
    reserve = {"reserveSpace": first["reserveSpace"].value} if added else {}
    found = evaluate(operation, {**memory(x=nhwc(x), dy=nhwc(dy), scale=scale, bias=bias, y=nhwc(x)), **reserve})
    points = {"dx": x, "dScale": scale, "dBias": bias, **({"dz": z} if added else {})}
    assert found.keys() == points.keys()
    for index, (name, values) in enumerate(points.items()):
        for place in np.ndindex(*values.shape):
            ends = []
            for sign in (1, -1):
                arguments = [x, scale, bias, z]
                arguments[index] = values.copy()
                arguments[index][place] += sign * step
                ends.append((dy * made(*arguments)).sum())
            slope = (ends[0] - ends[1]) / (2 * step)
            assert abs(slope - float(found[name].value[place])) < 1e-6 * (1 + abs(slope)), name


def test_elements_that_rounding_decides_may_count_or_not():
    """If the argument of the ReLU is zero up to rounding, dy may pass or not, and both sums are right."""
    x = np.array([[[[1.0]], [[2.0]]], [[[3.0]], [[2.0]]]], np.float32)
    t, s = TensorSpec.packed(FLOAT, x.shape, NHWC), TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    relu = ActivationSpec(RELU, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.0)
    mode, algo = cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL, cudnnNormAlgo_t.CUDNN_NORM_ALGO_STANDARD
    operation = NormalizationBackward(
        mode, 1.0, 0.0, 1.0, 0.0, t, t, t, s, s, 1e-3, None, 0, 0, cudnnNormOps_t(1), algo, t, None, relu
    )
    ones = np.ones(2, np.float32)
    values = {"x": x.reshape(2, 2), "dy": np.full((2, 2), 5, np.float32), "scale": ones, "bias": 0 * ones, "y": x}
    given = memory(**values)
    value, bound = bounds(operation, "dBias", evaluate(operation, given)["dBias"], given)
    assert value.ravel().tolist() == [5, 0] and bound[0, 0, 0, 0] < 1e-5 and 9.99 < bound[0, 1, 0, 0] < 10.1


def test_orders_of_the_products_that_infinities_tell_apart():
    """The order of products decides between infinity and NaN: scale is infinite in channel 0, n in channel 1."""
    t, s = TensorSpec.packed(FLOAT, (1, 3, 1, 2)), TensorSpec.packed(FLOAT, (1, 3, 1, 1))
    operation = BatchNormalizationBackward(SPATIAL, 1.0, 0.0, 1.0, 0.0, t, t, t, s, s, 1e-3, s)
    dy, n = np.array([[1, 2], [1, 2], [1, 3]], np.float32), np.array([[1, -1], [np.inf, 1], [1, -1]], np.float32)
    scale, ones = np.array([np.inf, 1, 1], np.float32), np.ones(3, np.float32)
    given = memory(x=n, dy=dy, scale=scale, savedMean=0 * ones, savedInvVariance=ones)
    sums = {"dScale": np.array([-1, np.inf, -2]), "dBias": np.array([3, 3, 4])}

    def agrees(dx: list[float]) -> bool:
        after = given | memory(dx=np.array(dx, np.float32), **{k: v.astype(np.float32) for k, v in sums.items()})
        return judge(
            operation, given | {name: 0 * after[name] for name in operation.outputs if name in after}, after
        ).agrees

    inf, nan, rest = np.inf, np.nan, [0.0, 0.0]
    assert agrees([inf, -inf, -inf, -inf, *rest]) and agrees([nan, inf, nan, nan, *rest])
    for at in range(4):
        assert not agrees([0.5 if i == at else nan for i in range(4)] + rest)
    assert not agrees([nan] * 6)
    sums["dScale"][1] = nan
    assert agrees([nan] * 4 + rest)  # An overflowed dScale agrees, too.
    sums["dScale"][1] = 5
    assert not agrees([nan] * 4 + rest)


@pytest.mark.parametrize("factor", [0.0, 0.1])
def test_running_statistics_of_squares_that_overflow(factor):
    """A variance may be infinite or NaN where squares overflow; the variance of the other channel is judged."""
    t, s = TensorSpec.packed(FLOAT, (2, 2, 1, 1)), TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    operation = BatchNormalizationForwardTraining(SPATIAL, 1.0, 0.0, t, t, s, s, factor, s, 1e-3, None)
    ones = np.ones(2, np.float32)
    given = memory(x=np.array([1e19, 1, -1e19, -1], np.float32), scale=ones, bias=ones)
    given |= memory(y=np.zeros(4, np.float32), runningMean=ones, runningVariance=ones)
    normal = 1 / np.sqrt(1.001)
    right = memory(y=np.array([1, 1 + normal, 1, 1 - normal], np.float32), runningMean=ones * np.float32(1 - factor))

    def agrees(*variances: float) -> bool:
        return judge(operation, given, given | right | memory(runningVariance=np.array(variances, np.float32))).agrees

    determined = 1 - factor + 2 * factor
    assert agrees(np.nan, determined) and agrees(np.inf, determined)
    assert not agrees(np.nan, np.nan) and not agrees(np.nan, determined + 0.01)


@pytest.mark.parametrize("dy", [np.inf, np.nan])
def test_a_gradient_that_is_not_finite_counts_or_does_not(dy):
    """Rounding decides whether the ReLU passes dy: an infinite or NaN dy then gives NaN gradients or zeros."""
    t = TensorSpec.packed(FLOAT, (1, 2, 1, 1), NHWC)
    relu = ActivationSpec(RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)
    operation = NormalizationBackward(
        cudnnNormMode_t.CUDNN_NORM_PER_ACTIVATION, 1.0, 0.0, 1.0, 0.0, t, t, t, t, t, 1e-5, t, 0, 0,
        cudnnNormOps_t.CUDNN_NORM_OPS_NORM_ACTIVATION, cudnnNormAlgo_t.CUDNN_NORM_ALGO_STANDARD, t, None, relu,
    )  # fmt: skip
    x, ones = np.array([6e4, 1], np.float32), np.ones(2, np.float32)
    given = memory(x=x, dy=np.array([dy, 2], np.float32), y=ones, scale=ones, bias=ones / 2, savedMean=x)
    given |= memory(savedInvVariance=ones * np.float32(316.2))

    def agrees(dx: float, scale: float, bias: float) -> bool:
        outputs = {"dx": (dx, 0), "dScale": (scale, 0), "dBias": (bias, 2)}
        after = memory(**{name: np.array(values, np.float32) for name, values in outputs.items()})
        return judge(operation, given | {name: 0 * old for name, old in after.items()}, given | after).agrees

    assert agrees(0, 0, 0) and agrees(np.nan, np.nan, dy)


def stored(before: dict[str, np.ndarray], **results: np.ndarray) -> dict[str, np.ndarray]:
    """Return the memory after a call with these results, rounded to float."""
    return before | memory(**{name: values.astype(np.float32) for name, values in results.items()})


def suspected(operation, before: dict[str, np.ndarray], **results: np.ndarray) -> set[str]:
    """Return the outputs that are within their worst case but that the statistical rule suspects."""
    verdict = judge(operation, before, stored(before, **results), random=True)
    assert verdict.agrees, verdict.explanation()
    return {said.partition(":")[0] for said in verdict.suspicions}


def test_the_statistical_rule_notices_one_missing_element():
    """The statistical rule notices a sum that lacks one of 8192 elements, and a variance divided by 8191."""
    shape, axes, epsilon = (8, 2, 32, 32), (0, 2, 3), 1e-3
    t, s, count = TensorSpec.packed(FLOAT, shape), TensorSpec.packed(FLOAT, (1, 2, 1, 1)), 8192
    x, dy = (RANDOM.standard_normal(shape).astype(np.float32).astype(float) for _ in range(2))
    x[-1, :, -1, -1], dy[-1, :, -1, -1] = 2.0, 1.5
    scale, bias, old = RANDOM.standard_normal((3, 1, 2, 1, 1)).astype(np.float32)
    operation = BatchNormalizationForwardTraining(SPATIAL, 1.0, 0.0, t, t, s, s, 0.5, s, epsilon, s)
    before = memory(x=x.astype(np.float32), scale=scale, bias=bias, runningMean=old, runningVariance=old)
    before |= {name: np.zeros(operation.nbytes(name), np.uint8) for name in ("y", "savedMean", "savedInvVariance")}

    def trained_with(mean, variance):
        inverse = 1 / np.sqrt(variance + np.float32(epsilon))
        return {
            "y": scale * inverse * (x - mean) + bias, "savedMean": mean, "savedInvVariance": inverse,
            "runningMean": 0.5 * old + 0.5 * mean, "runningVariance": 0.5 * old + 0.5 * variance * count / (count - 1),
        }  # fmt: skip

    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    assert not suspected(operation, before, **trained_with(mean, variance))
    assert suspected(operation, before, **trained_with(mean - 2 / count, variance)) == {"y", "savedMean", "runningMean"}
    divided = suspected(operation, before, **trained_with(mean, variance * count / (count - 1)))
    assert divided == {"y", "savedInvVariance", "runningVariance"}

    inverse = 1 / np.sqrt(variance + np.float32(epsilon))
    gradient = BatchNormalizationBackward(SPATIAL, 1.0, 0.0, 1.0, 0.0, t, t, t, s, s, epsilon, None)
    before = memory(x=x.astype(np.float32), dy=dy.astype(np.float32), scale=scale)
    before |= {name: np.zeros(gradient.nbytes(name), np.uint8) for name in ("dx", "dScale", "dBias")}
    normal = (x - mean) * inverse

    def gradients_with(of_bias, of_scale):
        dx = scale * inverse * (dy - (of_bias + normal * of_scale) / count)
        return {"dx": dx, "dScale": of_scale, "dBias": of_bias}

    of_bias, of_scale = dy.sum(axes, keepdims=True), (dy * normal).sum(axes, keepdims=True)
    assert not suspected(gradient, before, **gradients_with(of_bias, of_scale))
    assert suspected(gradient, before, **gradients_with(of_bias - 1.5, of_scale)) == {"dx", "dBias"}
    last = (dy * normal)[-1:, :, -1:, -1:]
    assert suspected(gradient, before, **gradients_with(of_bias, of_scale - last)) == {"dx", "dScale"}
