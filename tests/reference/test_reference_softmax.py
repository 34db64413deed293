"""Test the reference of softmax against loops over single elements, by the formulas in docs/errata.md."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import mpmath
import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t as Algorithm
from dualdnn.api.enumerations import cudnnSoftmaxMode_t as Mode
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NCHW, NHWC
from dualdnn.reference import evaluate, run
from dualdnn.reference.engine import magnitude_of
from dualdnn.reference.judge import bounds, judge

DIMS = (2, 3, 2, 4)
Index = tuple[int, ...]


def rows(dims: Index, mode: Mode) -> Iterator[list[Index]]:
    """Yield the positions of each row that softmax normalizes."""
    indices = list(product(*map(range, dims)))
    instance = mode == Mode.CUDNN_SOFTMAX_MODE_INSTANCE
    for key in dict.fromkeys(index[:1] if instance else index[:1] + index[2:] for index in indices):
        yield [index for index in indices if (index[:1] if instance else index[:1] + index[2:]) == key]


def softmax(algorithm: Algorithm, x: list[mpmath.mpf]) -> list[mpmath.mpf]:
    """Return softmax with 60 digits, which makes the subtraction of the maximum unnecessary."""
    with mpmath.workdps(60):
        total = mpmath.fsum(mpmath.exp(value) for value in x)
        if algorithm == Algorithm.CUDNN_SOFTMAX_LOG:
            return [value - mpmath.log(total) for value in x]
        return [mpmath.exp(value) / total for value in x]


def gradient(algorithm: Algorithm, y: list[float], dy: list[float]) -> list[float]:
    if algorithm == Algorithm.CUDNN_SOFTMAX_LOG:
        return [b - math.exp(a) * math.fsum(dy) for a, b in zip(y, dy, strict=True)]
    total = math.fsum(a * b for a, b in zip(y, dy, strict=True))
    return [a * (b - total) for a, b in zip(y, dy, strict=True)]


def memory(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(array.tobytes(), np.uint8).copy() for name, array in arrays.items()}


@pytest.mark.parametrize("offset", [0.0, 40.0])
@pytest.mark.parametrize("mode", list(Mode), ids=lambda m: m.name)
@pytest.mark.parametrize("algorithm", list(Algorithm), ids=lambda a: a.name)
def test_forward_agrees_with_mpmath(algorithm, mode, offset):
    spec = TensorSpec.packed(DOUBLE, DIMS)
    x = np.random.default_rng(3).standard_normal(DIMS) * 3 + offset
    exact = evaluate(SoftmaxForward(algorithm, mode, 1.0, 0.0, spec, spec), memory(x=x))["y"]
    for row in rows(DIMS, mode):
        expected = softmax(algorithm, [mpmath.mpf(float(x[index])) for index in row])
        for index, value in zip(row, expected, strict=True):
            assert abs(float(exact.value[index]) - float(value)) <= 1e-14 * max(abs(float(value)), 1e-3)


@pytest.mark.parametrize("mode", list(Mode), ids=lambda m: m.name)
@pytest.mark.parametrize("algorithm", list(Algorithm), ids=lambda a: a.name)
def test_backward_agrees_with_the_definition(algorithm, mode):
    spec = TensorSpec.packed(DOUBLE, DIMS)
    random = np.random.default_rng(4)
    y, dy = random.standard_normal(DIMS), random.standard_normal(DIMS)
    exact = evaluate(SoftmaxBackward(algorithm, mode, 1.0, 0.0, spec, spec, spec), memory(y=y, dy=dy))["dx"]
    for row in rows(DIMS, mode):
        expected = gradient(algorithm, [float(y[p]) for p in row], [float(dy[p]) for p in row])
        for index, value in zip(row, expected, strict=True):
            assert float(exact.value[index]) == pytest.approx(value, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("mode", list(Mode), ids=lambda m: m.name)
@pytest.mark.parametrize("algorithm", list(Algorithm), ids=lambda a: a.name)
def test_gradient_is_the_derivative_of_forward(algorithm, mode):
    """dx agrees with the central difference of sum(dy * softmax(x))."""
    spec = TensorSpec.packed(DOUBLE, DIMS)
    random = np.random.default_rng(5)
    x, dy = random.standard_normal(DIMS), random.standard_normal(DIMS)
    forward = SoftmaxForward(algorithm, mode, 1.0, 0.0, spec, spec)

    def value(x: np.ndarray) -> np.ndarray:
        return evaluate(forward, memory(x=x))["y"].value

    backward = SoftmaxBackward(algorithm, mode, 1.0, 0.0, spec, spec, spec)
    dx = evaluate(backward, memory(y=value(x).astype(np.float64), dy=dy))["dx"].value
    for index in [(0, 0, 0, 0), (1, 2, 1, 3), (0, 1, 1, 2)]:
        step = np.zeros(DIMS)
        step[index] = 1e-5
        difference = float(np.sum(dy * (value(x + step) - value(x - step)))) / 2e-5
        assert float(dx[index]) == pytest.approx(difference, rel=1e-6, abs=1e-8)


def test_layouts_and_blending():
    """Softmax reads x in NHWC, and blends into y in NCHW with alpha and beta."""
    x_spec, y_spec = TensorSpec.packed(FLOAT, DIMS, NHWC), TensorSpec.packed(FLOAT, DIMS, NCHW)
    random = np.random.default_rng(6)
    x, y = (random.standard_normal(DIMS).astype(np.float32) for _ in range(2))
    operation = SoftmaxForward(
        Algorithm.CUDNN_SOFTMAX_ACCURATE, Mode.CUDNN_SOFTMAX_MODE_CHANNEL, 2.0, -0.5, x_spec, y_spec
    )
    held = memory(x=x.transpose(0, 2, 3, 1), y=y)
    run(operation, held)
    got = held["y"].view(np.float32).reshape(DIMS)
    for row in rows(DIMS, operation.mode):
        expected = softmax(operation.algorithm, [mpmath.mpf(float(x[index])) for index in row])
        for index, value in zip(row, expected, strict=True):
            assert got[index] == pytest.approx(2 * float(value) - 0.5 * float(y[index]), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("algorithm", list(Algorithm), ids=lambda a: a.name)
def test_bound_holds_and_catches_errors(algorithm):
    """Plain float arithmetic stays within the bound in any order of summation; a sum that lacks an element does not."""
    dims = (1, 60, 1, 1)
    spec = TensorSpec.packed(FLOAT, dims)
    x = (np.random.default_rng(7).standard_normal(dims) * 2).astype(np.float32)
    operation = SoftmaxForward(algorithm, Mode.CUDNN_SOFTMAX_MODE_CHANNEL, 1.0, 0.0, spec, spec)
    exact = evaluate(operation, memory(x=x))["y"]
    value, bound = bounds(operation, "y", exact, memory(x=x, y=x))
    log = algorithm == Algorithm.CUDNN_SOFTMAX_LOG

    def computed(elements: np.ndarray) -> np.ndarray:
        top = np.float32(0) if algorithm == Algorithm.CUDNN_SOFTMAX_FAST else elements.max()
        total = np.float32(0)
        for element in elements:
            total += np.exp(element - top)
        shifted = x.ravel() - top
        return shifted - np.log(total) if log else np.exp(shifted) / total

    for order in (np.sort(x.ravel()), np.sort(x.ravel())[::-1]):
        assert (np.abs(computed(order) - value.ravel()) <= bound.ravel()).all()
    assert (np.abs(computed(np.sort(x.ravel())[1:]) - value.ravel()) > bound.ravel()).all()


def test_fast_is_undetermined_exactly_where_exp_leaves_the_compute_type():
    """exp(88) fits in float, exp(89) only in double."""
    for x, data_type, determined in [
        (88.0, FLOAT, True),
        (89.0, FLOAT, False),
        (89.0, DOUBLE, True),
        (710.0, DOUBLE, False),
    ]:
        spec = TensorSpec.packed(data_type, (1, 2, 1, 1))
        operation = SoftmaxForward(Algorithm.CUDNN_SOFTMAX_FAST, Mode.CUDNN_SOFTMAX_MODE_CHANNEL, 1.0, 0.0, spec, spec)
        values = np.array([x, 0.0], np.float32 if data_type == FLOAT else np.float64)
        exact = evaluate(operation, memory(x=values))["y"]
        assert np.isfinite(exact.value).all()
        assert np.isfinite(magnitude_of(exact)).all() == determined


@pytest.mark.parametrize("alpha", [2.0, 1000.0])
@pytest.mark.parametrize("x, allowed", [(-88.0, True), (-80.0, False)], ids=("no normal number", "a normal number"))
def test_only_exponentials_that_are_no_normal_numbers_may_be_zero(x, allowed, alpha):
    """exp(-88) is 6e-39, a subnormal, so it may be zero before alpha multiplies it."""
    spec = TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    operation = SoftmaxForward(
        Algorithm.CUDNN_SOFTMAX_ACCURATE, Mode.CUDNN_SOFTMAX_MODE_CHANNEL, alpha, 0.0, spec, spec
    )
    before = memory(x=np.array([0.0, x], np.float32), y=np.zeros(2, np.float32))
    after = {**before, **memory(y=np.array([alpha, 0.0], np.float32))}
    assert judge(operation, before, after).agrees == allowed


@pytest.mark.parametrize(
    "algorithm, y, dy",
    [
        (Algorithm.CUDNN_SOFTMAX_ACCURATE, (1e-8, 1e25), (0, 1e20)),
        (Algorithm.CUDNN_SOFTMAX_LOG, (-90, 0), (2e38, 2e38)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_gradients_after_an_overflowing_sum_are_not_determined(algorithm, y, dy):
    """The sum over the channels overflows in float, although its product with a small factor would not."""
    spec = TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    operation = SoftmaxBackward(algorithm, Mode.CUDNN_SOFTMAX_MODE_CHANNEL, 1.0, 0.0, spec, spec, spec)
    exact = evaluate(operation, memory(y=np.array(y, np.float32), dy=np.array(dy, np.float32)))["dx"]
    assert abs(exact.value.flat[0]) < 3e38
    assert np.isinf(magnitude_of(exact)).all()


def test_sixteen_bit_results_are_rounded_once():
    """Every result is the half nearest to the exact value."""
    spec = TensorSpec.packed(HALF, (1, 7, 1, 1))
    x = np.random.default_rng(8).standard_normal((1, 7, 1, 1)).astype(np.float16)
    held = memory(x=x, y=x)
    run(SoftmaxForward(Algorithm.CUDNN_SOFTMAX_ACCURATE, Mode.CUDNN_SOFTMAX_MODE_CHANNEL, 1.0, 0.0, spec, spec), held)
    expected = softmax(Algorithm.CUDNN_SOFTMAX_ACCURATE, [mpmath.mpf(float(value)) for value in x.ravel()])
    np.testing.assert_array_equal(
        held["y"].view(np.float16), np.array([float(value) for value in expected]).astype(np.float16)
    )
