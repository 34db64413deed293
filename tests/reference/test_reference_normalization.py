"""Test the reference of LRN and divisive normalization against loops in 50 digits, SciPy's box filters, central
differences, and the formula of torch.nn.LocalResponseNorm."""

from __future__ import annotations

from itertools import product

import mpmath
import numpy as np
import pytest
from dualdnn.api.operations import (
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    LRNSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.reference import evaluate, judge
from dualdnn.reference.engine import magnitude_of
from dualdnn.reference.judge import bounds
from scipy import ndimage

RANDOM = np.random.default_rng(20)


def memory(**arrays: np.ndarray) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(array.tobytes(), np.uint8).copy() for name, array in arrays.items()}


def lrn_by_loops(lrn: LRNSpec, x: np.ndarray) -> np.ndarray:
    """Return LRN by plain loops, with the window that 3.2.83 describes."""
    found = np.empty(x.shape)
    behind = (lrn.n - 1) // 2
    ahead = lrn.n - behind - 1
    with mpmath.workdps(50):
        for place in np.ndindex(*x.shape):
            n, c, *spatial = place
            near = range(max(0, c - behind), min(x.shape[1] - 1, c + ahead) + 1)
            total = mpmath.fsum(mpmath.mpf(float(x[(n, j, *spatial)])) ** 2 for j in near)
            s = mpmath.mpf(lrn.k) + mpmath.mpf(lrn.alpha) / lrn.n * total
            found[place] = mpmath.mpf(float(x[place])) * s ** -mpmath.mpf(lrn.beta)
    return found


def divisive_by_loops(lrn: LRNSpec, x: np.ndarray, means: np.ndarray) -> np.ndarray:
    found = np.empty(x.shape)
    behind = (lrn.n - 1) // 2
    with mpmath.workdps(50):
        for place in np.ndindex(*x.shape):
            total = mpmath.mpf(0)
            for step in product(range(lrn.n), repeat=x.ndim - 2):
                j = tuple(p - behind + s for p, s in zip(place[2:], step, strict=True))
                if all(0 <= p < extent for p, extent in zip(j, x.shape[2:], strict=True)):
                    total += (mpmath.mpf(float(x[(*place[:2], *j)])) - mpmath.mpf(float(means[place]))) ** 2
            s = mpmath.mpf(lrn.k) + mpmath.mpf(lrn.alpha) / lrn.n ** (x.ndim - 2) * total
            found[place] = mpmath.mpf(float(x[place])) * s ** -mpmath.mpf(lrn.beta)
    return found


def gradient(function, values: np.ndarray, dy: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """Return the central differences of sum(dy * function(values))."""
    found = np.empty(values.shape)
    for place in np.ndindex(*values.shape):
        sides = []
        for sign in (1, -1):
            moved = values.copy()
            moved[place] += sign * step
            sides.append(float((dy * function(moved)).sum()))
        found[place] = (sides[0] - sides[1]) / (2 * step)
    return found


def lrn_forward(lrn: LRNSpec, x: np.ndarray) -> np.ndarray:
    spec = TensorSpec.packed(DOUBLE, x.shape)
    return evaluate(LRNCrossChannelForward(lrn, 1.0, 0.0, spec, spec), memory(x=x))["y"].value


def divisive_forward(lrn: LRNSpec, x: np.ndarray, means: np.ndarray | None) -> np.ndarray:
    spec = TensorSpec.packed(DOUBLE, x.shape)
    operation = DivisiveNormalizationForward(lrn, 1.0, 0.0, spec, None if means is None else spec, spec)
    return evaluate(operation, memory(x=x) if means is None else memory(x=x, means=means))["y"].value


@pytest.mark.parametrize("n, channels", [(1, 3), (2, 5), (5, 7), (10, 12), (16, 20), (5, 3), (16, 2)])
@pytest.mark.parametrize("alpha, beta, k", [(2.5, 0.75, 1.5), (1e-4, 0.75, 2.0), (-0.25, 1.25, 9.0)])
def test_lrn_forward(n, channels, alpha, beta, k):
    lrn, x = LRNSpec(n, alpha, beta, k), RANDOM.standard_normal((2, channels, 2, 2))
    np.testing.assert_allclose(lrn_forward(lrn, x), lrn_by_loops(lrn, x), rtol=1e-14)


def test_lrn_as_torch_maps_it():
    """LocalResponseNorm(5, alpha=0.5, beta=0.75, k=2.0) of channels 1 to 8; alpha / n is 0.1, the sums are by hand."""
    x = np.arange(1.0, 9.0).reshape(1, 8, 1, 1)
    total = np.array([14, 30, 55, 90, 135, 190, 174, 149])
    expected = np.arange(1, 9) / (2 + 0.1 * total) ** 0.75
    np.testing.assert_allclose(lrn_forward(LRNSpec(5, 0.5, 0.75, 2.0), x).ravel(), expected, rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 4, 7])
def test_lrn_gradient(n):
    lrn, shape = LRNSpec(n, 2.5, 0.75, 1.5), (2, 5, 1, 2)
    x, y, dy = RANDOM.standard_normal((3, *shape))
    spec = TensorSpec.packed(DOUBLE, shape)
    found = evaluate(LRNCrossChannelBackward(lrn, 1.0, 0.0, *[spec] * 4), memory(x=x, y=y, dy=dy))["dx"].value
    np.testing.assert_allclose(
        found.astype(float), gradient(lambda v: lrn_by_loops(lrn, v), x, dy), rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("n", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("shape", [(2, 2, 4, 3), (1, 2, 2, 3, 2)])
def test_divisive_forward(shape, n):
    lrn = LRNSpec(n, 2.0, 0.75, 1.5)
    x, means = RANDOM.standard_normal((2, *shape))
    np.testing.assert_allclose(divisive_forward(lrn, x, means), divisive_by_loops(lrn, x, means), rtol=1e-14)
    zeros = np.zeros(shape)
    np.testing.assert_allclose(divisive_forward(lrn, x, None), divisive_by_loops(lrn, x, zeros), rtol=1e-14)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_divisive_forward_as_a_box_filter(n):
    """Results equal those with sums by SciPy's box filters of x^2, x and 1, with zeros outside."""
    lrn = LRNSpec(n, 2.0, 0.75, 1.5)
    x, means = RANDOM.standard_normal((2, 2, 3, 13, 17))

    def mean(values):
        # SciPy's window begins n // 2 before its center, ours (n - 1) // 2.
        origin = [0, 0, *[(n - 1) // 2 - n // 2] * 2]
        return ndimage.uniform_filter(values, (1, 1, n, n), mode="constant", origin=origin)

    total = mean(x * x) - 2 * means * mean(x) + means**2 * mean(np.ones_like(x))
    np.testing.assert_allclose(divisive_forward(lrn, x, means), x * (1.5 + 2.0 * total) ** -0.75, rtol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (1, 1, 2, 3, 2)])
@pytest.mark.parametrize("with_means", [True, False])
def test_divisive_gradients(shape, n, with_means):
    lrn, spec = LRNSpec(n, 2.0, 0.75, 1.5), TensorSpec.packed(DOUBLE, shape)
    x, means, dy = RANDOM.standard_normal((3, *shape))
    given = {"means": means} if with_means else {}
    operation = DivisiveNormalizationBackward(lrn, 1.0, 0.0, spec, spec if with_means else None, spec, spec, spec)
    found = evaluate(operation, memory(x=x, dy=dy, **given))
    means = means if with_means else np.zeros(shape)
    for name, wanted in (
        ("dx", gradient(lambda v: divisive_by_loops(lrn, v, means), x, dy)),
        ("dMeans", gradient(lambda v: divisive_by_loops(lrn, x, v), means, dy)),
    ):
        np.testing.assert_allclose(found[name].value.astype(float), wanted, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("kind, unit", [(np.float32, 2.0**-24), (np.float16, 2.0**-11)])
def test_parameters_are_narrowed(kind, unit):
    data_type = {np.float32: FLOAT, np.float16: HALF}[kind]
    lrn = LRNSpec(3, 1 + unit * 0.9, 0.7501, 2 + unit)
    assert lrn.narrowed(data_type) == (1.0, float(kind(0.7501)), 2.0)
    assert LRNSpec(3, 1e300, 1.0, 1.0).narrowed(data_type)[0] == np.inf
    assert lrn.narrowed(DOUBLE) == (lrn.alpha, lrn.beta, lrn.k)


def test_bounds_hold_float_arithmetic_and_little_more():
    """NumPy's float results are within the bound; for small exponents, an error of three units is not."""
    shape = (1, 32, 4, 4)
    spec, x = TensorSpec.packed(FLOAT, shape), RANDOM.standard_normal(shape).astype(np.float32)
    for n, beta in ((5, 0.75), (16, 0.5), (3, 8.0)):
        operation = LRNCrossChannelForward(LRNSpec(n, 1.0, beta, 1.0), 1.0, 0.0, spec, spec)
        exact = evaluate(operation, memory(x=x))["y"]
        value, bound = bounds(operation, "y", exact, memory(x=x))
        ours = np.empty(shape, np.float32)
        for c in range(shape[1]):
            near = x[:, max(0, c - (n - 1) // 2) : c + n // 2 + 1]
            s = np.float32(1) + np.float32(1 / n) * (near * near).sum(1, dtype=np.float32)
            ours[:, c] = x[:, c] * np.exp2(np.float32(-beta) * np.log2(s))
        assert (np.abs(ours - value) <= bound + np.abs(value) * 2.0**-24).all()
        assert (bound <= np.abs(value) * 2.0**-24 * (beta * (n + 12) + 10 + 3 * beta * 6) + 1e-37).all()


def test_sums_beyond_the_compute_type_are_not_determined():
    spec = TensorSpec.packed(FLOAT, (1, 3, 1, 2))
    x = np.array([1e25, 1, 2, 3, 1, 5], np.float32)
    operation = LRNCrossChannelForward(LRNSpec(1, 1.0, 0.75, 1.0), 1.0, 0.0, spec, spec)
    exact = evaluate(operation, memory(x=x))["y"]
    assert np.isinf(magnitude_of(exact)).ravel().tolist() == [True] + [False] * 5


@pytest.mark.parametrize("beta, power", [(0.75, np.nan), (2.0, 0.0)])
def test_powers_of_negative_sums_that_are_infinite(beta, power):
    """The power of an infinite negative sum is NaN, except for whole exponents; C's pow returns 0."""
    spec = TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    operation = LRNCrossChannelForward(LRNSpec(2, -1.0, beta, 1.0), 1.0, 0.0, spec, spec)
    value = evaluate(operation, memory(x=np.array([3, np.inf], np.float32)))["y"].value.ravel()
    np.testing.assert_array_equal(value, [3 * power, np.nan])


@pytest.mark.parametrize("beta", [0.75, 2.0])
def test_products_that_float_does_not_hold(beta):
    """For x = 1e16 the power, or the term of the sum, is subnormal in float and may become zero."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 2))
    x, dy = np.array([1e16, 2.0], np.float32), np.array([3.0, 5.0], np.float32)
    lrn = LRNSpec(1, 5.0, beta, 1.0)
    forward = LRNCrossChannelForward(lrn, 1.0, 0.0, spec, spec)
    backward = LRNCrossChannelBackward(lrn, 1.0, 0.0, spec, spec, spec, spec)
    s = np.float32(1) + np.float32(5) * x * x
    power = np.exp2(np.float32(-beta) * np.log2(s))
    power[power < 2.0**-126] = 0
    each = dy * power * x / s
    each[np.abs(each) < 2.0**-126] = 0
    results = {forward: x * power, backward: dy * power - np.float32(10 * beta) * x * each}
    for operation, ours in results.items():
        held = memory(x=x, y=x, dy=dy)
        (name,) = operation.outputs
        value, bound = (array.ravel() for array in bounds(operation, name, evaluate(operation, held)[name], held))
        assert (np.abs(ours - value) <= bound + np.abs(value) * 2.0**-24).all()
        assert bound[1] <= np.abs(value[1]) * 2.0**-16


def test_a_product_of_x_that_float_does_not_hold():
    """2 alpha beta / n * x is below the smallest float and may become zero, although the other factor is 1e10."""
    spec = TensorSpec.packed(FLOAT, (1, 2, 1, 1))
    x, dy = np.array([2e-41, 0.03], np.float32), np.array([0, 6e4], np.float32)
    operation = LRNCrossChannelBackward(LRNSpec(10, 1e-4, 0.5, 1e-5), 1.0, 0.0, spec, spec, spec, spec)
    held = memory(x=x, y=x, dy=dy)
    value, bound = (array.ravel() for array in bounds(operation, "dx", evaluate(operation, held)["dx"], held))
    assert 1e-36 < abs(value[0]) < bound[0]
    assert bound[1] <= abs(value[1]) * 2.0**-16
    x[1], dy[1] = 0.03, np.inf
    held = memory(x=x, y=x, dy=dy)
    for found in (-np.inf, np.nan):  # The product may be zero, and zero times infinity is NaN.
        after = {"dx": np.array([found, np.nan], np.float32).view(np.uint8)}
        assert judge(operation, held | {"dx": 0 * after["dx"]}, held | after).agrees


def test_a_term_beyond_float():
    """dy * x * s^(-beta - 1) is 9e39 and overflows in float, although the gradient is 3e35: an infinity is accepted."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 2))
    x, dy = np.array([0.1, 0.1], np.float32), np.array([5e19, 5e9], np.float32)
    operation = LRNCrossChannelBackward(LRNSpec(1, 1e-4, 3.3, 1e-5), 1.0, 0.0, spec, spec, spec, spec)
    held = memory(x=x, y=x, dy=dy)
    value = np.asarray(evaluate(operation, held)["dx"].value, np.float64).ravel()
    for found, right in ((value, True), ([-np.inf, value[1]], True), ([value[0], np.inf], False)):
        after = {"dx": np.array(found, np.float32).view(np.uint8)}
        assert judge(operation, held | {"dx": 0 * after["dx"]}, held | after).agrees == right


@pytest.mark.parametrize(
    "operation_type, output, lrn, x, dy",
    [
        (LRNCrossChannelBackward, "dx", LRNSpec(1, 5.0, 0.5, 1.0), 1e18, 1e22),
        (DivisiveNormalizationBackward, "dx", LRNSpec(1, 5.0, 0.5, 1.0), 1e18, 1e22),
        (DivisiveNormalizationBackward, "dMeans", LRNSpec(1, -0.1, 2.0, 1e-5), 1e-3, 3e28),
    ],
    ids=["dy * x", "dy * x in NCHW", "dy * x * s^(-beta - 1)"],
)
def test_factors_of_a_gradient_beyond_float(operation_type, output, lrn, x, dy):
    """The order of the factors decides whether a product overflows, although the gradient is finite: it is not judged."""
    spec = TensorSpec.packed(FLOAT, (1, 1, 1, 2))
    held = memory(x=np.array([x, 0.5], np.float32), dy=np.array([dy, 2.0], np.float32), y=np.zeros(2, np.float32))
    if operation_type is LRNCrossChannelBackward:
        operation = LRNCrossChannelBackward(lrn, 1.0, 0.0, spec, spec, spec, spec)
    else:
        operation = DivisiveNormalizationBackward(lrn, 1.0, 0.0, spec, spec, spec, spec, spec)
        held |= memory(means=np.zeros(2, np.float32))
    exact = {name: found.value.astype(np.float32) for name, found in evaluate(operation, held).items()}
    assert np.isfinite(exact[output]).all()
    for at, right in ((0, True), (1, False)):
        after = {name: value.copy() for name, value in exact.items()}
        after[output].ravel()[at] = np.inf
        found = memory(**after)
        assert judge(operation, held | {name: 0 * part for name, part in found.items()}, held | found).agrees == right


@pytest.mark.parametrize("operation_type", [LRNCrossChannelForward, DivisiveNormalizationForward])
def test_a_power_is_undetermined_if_rounding_decides_the_sign(operation_type):
    """The sum s is zero or a rounding error of either sign, so its power may be infinite, large or NaN."""
    in_channels = operation_type is LRNCrossChannelForward
    spec = TensorSpec.packed(DOUBLE, (1, 3, 1, 1) if in_channels else (1, 1, 3, 1))
    x = np.array([1.0, 5.0, 2.0])
    lrn = LRNSpec(3, float(np.nextafter(-0.1 if in_channels else -0.3, -1)), 0.75, 1.0)
    operation = operation_type(lrn, 1.0, 0.0, spec, *(() if in_channels else (None,)), spec)
    held = memory(x=x)
    value = np.asarray(evaluate(operation, held)["y"].value, np.float64).ravel()
    assert np.isnan(value[1]) and np.isfinite(value[[0, 2]]).all()
    for at, found, right in ((1, np.inf, True), (1, 1e12, True), (0, np.nan, False)):
        after = value.copy()
        after[at] = found
        assert judge(operation, held | memory(y=0 * x), held | memory(y=after)).agrees == right
