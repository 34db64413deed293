"""Holds cases of the softmax family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t as Algorithm
from dualdnn.api.enumerations import cudnnSoftmaxMode_t as Mode
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF, INT8, NCHW, NHWC
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import by_name, shows
from dualdnn.reference.view import rounded, stored

if TYPE_CHECKING:
    from dualdnn.conformance.trial import Trial

FAST, ACCURATE, LOG = Algorithm.CUDNN_SOFTMAX_FAST, Algorithm.CUDNN_SOFTMAX_ACCURATE, Algorithm.CUDNN_SOFTMAX_LOG
INSTANCE, CHANNEL = Mode.CUDNN_SOFTMAX_MODE_INSTANCE, Mode.CUDNN_SOFTMAX_MODE_CHANNEL
ALGORITHMS, MODES = list(Algorithm), list(Mode)
DIMS = (2, 3, 5, 7)
# One softmax runs over one element up to more than a block can hold; some lengths are odd.
SIZES = [
    (1, 1, 1, 1), (3, 1, 1, 1), (5, 1, 3, 3), (70, 3, 1, 1), (2, 31, 1, 1), (3, 127, 1, 2), (2, 21, 9, 9), (2, 130, 4, 8), (3, 70, 2, 6),
    (1, 257, 3, 1), (2, 1001, 1, 1), (1, 1100, 3, 3), (2, 5, 35, 35), (1, 3, 83, 83),
]  # fmt: skip


def forward(algorithm: Algorithm = ACCURATE, mode: Mode = CHANNEL, x: TensorSpec | None = None, y: TensorSpec | None = None, *,
            alpha: float = 1.0, beta: float = 0.0) -> SoftmaxForward:  # fmt: skip
    x = x or TensorSpec.packed(FLOAT, DIMS)
    return SoftmaxForward(algorithm, mode, alpha, beta, x, y or x)


def backward(algorithm: Algorithm, mode: Mode, spec: TensorSpec) -> SoftmaxBackward:
    return SoftmaxBackward(algorithm, mode, 1.0, 0.0, spec, spec, spec)


def holding(operation: Any, values: Any) -> dict[str, Any]:
    """Return memory of a forward call on packed tensors whose x holds these values."""
    x = rounded(np.asarray(values, np.float64).reshape(operation.x.dims), operation.x.data_type)
    return {"x": np.frombuffer(x.tobytes(), np.uint8), "y": np.full(operation.y.nbytes, 0xFF, np.uint8)}


def by_shape(value: object) -> str:
    """Return the name of a parameter in a case's id."""
    return "x".join(map(str, value)) if isinstance(value, tuple) else getattr(value, "name", str(value))


@shows("cudnnSoftmaxMode_t/c02 c03")
@pytest.mark.parametrize("mode, axes", [(INSTANCE, (1, 2, 3)), (CHANNEL, (1,))], ids=["instance", "channel"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=by_name)
def test_results_sum_to_one(trial: Callable[..., Trial], algorithm: Any, mode: Any, axes: Any) -> None:
    operation = forward(algorithm, mode)
    y = stored(operation.y, trial(operation).after["y"]).astype(np.float64)
    np.testing.assert_allclose((np.exp(y) if algorithm == LOG else y).sum(axis=axes), 1, rtol=1e-5)


@shows("cudnnSoftmaxAlgorithm_t/c02")
@pytest.mark.parametrize("data_type", [FLOAT, HALF], ids=by_name)
@pytest.mark.parametrize("mode", MODES, ids=by_name)
@pytest.mark.parametrize("dims", [(3, 127, 1, 2), (5, 6, 1, 1), (3, 70, 2, 6), (1, 1201, 2, 1)], ids=by_shape)
def test_large_numbers(trial: Callable[..., Trial], dims: Any, mode: Any, data_type: Any) -> None:
    """Every kernel subtracts the maximum of large numbers, whose powers would overflow."""
    for algorithm in (ACCURATE, LOG):
        operation = forward(algorithm, mode, TensorSpec.packed(data_type, dims))
        trial(operation, before=holding(operation, np.resize(np.linspace(-300, 300, 41), operation.x.count)))


@shows("cudnnSoftmaxAlgorithm_t/c03")
@pytest.mark.parametrize("mode", MODES, ids=by_name)
@pytest.mark.parametrize("dims", [(3, 127, 1, 2), (5, 6, 1, 1), (3, 70, 2, 6), (1, 1201, 2, 1)], ids=by_shape)
def test_logarithms_beside_large_numbers(trial: Callable[..., Trial], dims: Any, mode: Any) -> None:
    """Logarithms near zero are accurate, although the rounding error of the largest numbers exceeds them."""
    operation = forward(LOG, mode, TensorSpec.packed(HALF, dims))
    for largest in (59968, 1003):
        x = np.full(operation.x.count, -largest, np.float32)
        x[:: dims[1] // 2 + 1] = largest
        trial(operation, before=holding(operation, x))


@pytest.mark.parametrize("mode", MODES, ids=by_name)
def test_rows_exceed_registers_and_shared_memory(trial: Callable[..., Trial], mode: Any) -> None:
    """130000 elements exceed the registers and shared memory of one block or of several, with rises and falls of the
    maximum."""
    dims = (1, 2, 250, 260) if mode == INSTANCE else (1, 65000, 1, 2)
    trial(forward(LOG, mode, TensorSpec.packed(FLOAT, dims)))
    operation = forward(ACCURATE, mode, TensorSpec.packed(HALF, dims), alpha=1024.0)
    trial(operation, before=holding(operation, np.linspace(-8, 8, 130000)))
    trial(operation, before=holding(operation, np.linspace(8, -8, 130000)))
    trial(backward(ACCURATE, mode, TensorSpec.packed(FLOAT, dims)))
    # The same sizes are read in single elements along a row, and in vectors across rows.
    spec = laid_out(FLOAT, dims, "gaps") if mode == INSTANCE else TensorSpec.packed(FLOAT, (1, 15001, 1, 8))
    trial(forward(ACCURATE, mode, spec))
    trial(backward(ACCURATE, mode, spec))


@shows("cudnnSoftmaxForward/c01")
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=by_name)
@pytest.mark.parametrize("dims", [*SIZES[2:8], (3, 9, 5, 7), (2, 45, 4, 4)], ids=by_shape)
def test_the_lowest_integers(trial: Callable[..., Trial], dims: Any, tensor_format: Any) -> None:
    """Padding of rows must not count, even where all values are near the lowest integer."""
    x = TensorSpec.packed(INT8, dims, tensor_format)
    values = np.random.default_rng(5).integers(-128, -125, x.count).astype(np.int8)
    algorithm, alpha = (ACCURATE, 100.0) if dims[1] < 32 else (LOG, 10.0)
    trial(forward(algorithm, CHANNEL, x, alpha=alpha), before={"x": values.view(np.uint8)})


# These are the library's results for rows that hold infinities (docs/errata.md, D133): x, FAST, ACCURATE (None: NaN).
INF = float("inf")
ROWS = {
    "all -inf": ([-INF, -INF, -INF, -INF], [None] * 4, [None] * 4), "one +inf": ([INF, 1, 2, 3], [None, 0, 0, 0], [None] * 4),
    "two +inf": ([INF, INF, 1, 2], [None, None, 0, 0], [None] * 4), "both": ([INF, -INF, 1, 2], [None, 0, 0, 0], [None] * 4),
    "NaN": ([float("nan"), 1, 2, 3], [None] * 4, [None] * 4),
}  # fmt: skip


@shows("cudnnSoftmaxForward/c01")
@pytest.mark.parametrize("mode", MODES, ids=by_name)
@pytest.mark.parametrize("name", ROWS)
def test_infinities(trial: Callable[..., Trial], name: Any, mode: Any) -> None:
    x, fast, accurate = ROWS[name]
    for algorithm, expected in ((FAST, fast), (ACCURATE, accurate), (LOG, accurate)):
        operation = forward(algorithm, mode, TensorSpec.packed(FLOAT, (1, 4, 1, 1)))
        got = stored(operation.y, trial(operation, before=holding(operation, x)).after["y"]).ravel()
        assert [None if np.isnan(value) else float(value) for value in got] == expected


@shows("cudnnSoftmaxAlgorithm_t/c02 c03")
@pytest.mark.parametrize("offset", [1000.0, -1000.0, 2.0e38])
@pytest.mark.parametrize("mode", MODES, ids=by_name)
@pytest.mark.parametrize("algorithm", [ACCURATE, LOG], ids=by_name)
def test_subtracting_the_maximum_avoids_overflow(
    trial: Callable[..., Trial], algorithm: Any, mode: Any, offset: float
) -> None:
    """The result is finite even where exp(offset) overflows or underflows in every type."""
    operation = forward(algorithm, mode)
    before = holding(operation, offset + np.random.default_rng(1).standard_normal(DIMS))
    assert np.isfinite(stored(operation.y, trial(operation, before=before).after["y"])).all()


@shows("cudnnSoftmaxForward/c01", "cudnnSoftmaxAlgorithm_t/c02")
@pytest.mark.parametrize("alpha", [2.0, 2.0**20])
@pytest.mark.parametrize("mode", MODES, ids=by_name)
def test_exponentials_around_the_smallest_normal_number(trial: Callable[..., Trial], mode: Any, alpha: Any) -> None:
    """Exponentials below 2^-126 may count as 0 before alpha multiplies them."""
    operation = forward(ACCURATE, mode, TensorSpec.packed(FLOAT, (2, 24, 1, 1)), alpha=alpha)
    x = np.linspace(-90.0, -70.0, 48).reshape(2, 24)
    x[:, 0] = 0.0
    trial(operation, before=holding(operation, x))


@shows("cudnnSoftmaxForward/c01")
@pytest.mark.parametrize("mode", MODES, ids=by_name)
def test_fast_overflows(trial: Callable[..., Trial], mode: Any) -> None:
    """FAST is the straightforward softmax: inf / inf is NaN, finite / inf is 0, 0 / 0 is NaN."""
    operation = forward(FAST, mode, TensorSpec.packed(FLOAT, (1, 4, 1, 1)))
    for x, expected in [
        ([1e4, 1e4, 0, -1e4], [None, None, 0, 0]),
        ([-1e4] * 4, [None] * 4),
        ([80, 0, 70, 80], [0.5, 0, 2.3e-5, 0.5]),
    ]:
        got = stored(operation.y, trial(operation, before=holding(operation, x)).after["y"]).ravel()
        for value, wanted in zip(got, expected, strict=True):
            assert np.isnan(value) if wanted is None else abs(value - wanted) < 1e-4


@shows("cudnnSoftmaxForward/c01")
@pytest.mark.parametrize("mode", MODES, ids=by_name)
def test_fast_sums_are_subnormal(trial: Callable[..., Trial], mode: Any) -> None:
    """Sums below the normal range may have infinite reciprocals, so these lines are not determined."""
    x = np.array([[-93, -89, -102, -117], [-84, -85, -110, -84], [-1, 0, 1, 2], [80, 85, 86, 80]])
    for alpha, beta in ((1.0, 0.0), (100.0, 0.0), (0.0, 1.0)):
        operation = forward(FAST, mode, TensorSpec.packed(INT8, (4, 4, 1, 1)), alpha=alpha, beta=beta)
        trial(operation, before=holding(operation, x))
