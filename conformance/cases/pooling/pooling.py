"""Holds cases of the pooling family."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, HALF, INT8
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.layouts import laid_out
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.trial import prepare
from dualdnn.reference.engine import run
from dualdnn.reference.view import strided

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

MAXIMA = [Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_MAX_DETERMINISTIC]
AVERAGES = [Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING, Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING]


class Geometry(NamedTuple):
    """Holds the dimensions of x and its pooling; the output dimensions are the advised ones unless given."""

    dims: tuple[int, ...]
    window: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    output: tuple[int, ...] | None = None

    @property
    def outputs(self) -> tuple[int, ...]:
        if self.output:
            return (*self.dims[:2], *self.output)
        sizes = zip(self.dims[2:], self.padding, self.window, self.stride, strict=True)
        return (*self.dims[:2], *(1 + (extent + 2 * p - w) // s for extent, p, w, s in sizes))


STANDARD = Geometry((2, 3, 9, 11), (3, 3), (1, 1), (2, 2))
# Large windows are pooled by rows first, which are fewer or more than a block's threads.
LARGE = {
    "large-window": Geometry((1, 2, 19, 21), (17, 18), (1, 1), (2, 2)),
    "larger-windows": Geometry((1, 3, 35, 34), (33, 32), (1, 1), (1, 2)),
    "larger-global-channels": Geometry((1, 5, 33, 34), (33, 34), (0, 0), (1, 1)),
}


def forward(mode: Mode, geometry: Geometry = STANDARD, data_type: Any = FLOAT, x: str = "nchw", y: str = "nchw", *,
            nan: Nan = Nan.CUDNN_NOT_PROPAGATE_NAN, alpha: float = 1.0, beta: float = 0.0) -> PoolingForward:  # fmt: skip
    spec = PoolingSpec(mode, nan, geometry.window, geometry.padding, geometry.stride)
    return PoolingForward(
        spec, alpha, beta, laid_out(data_type, geometry.dims, x), laid_out(data_type, geometry.outputs, y)
    )


def backward(mode: Mode, geometry: Geometry = STANDARD, data_type: Any = FLOAT, wide: str = "nchw", narrow: str = "nchw", *,
             nan: Nan = Nan.CUDNN_NOT_PROPAGATE_NAN, alpha: float = 1.0, beta: float = 0.0,
             **specs: TensorSpec) -> PoolingBackward:  # fmt: skip
    spec = PoolingSpec(mode, nan, geometry.window, geometry.padding, geometry.stride)
    x, y = laid_out(data_type, geometry.dims, wide), laid_out(data_type, geometry.outputs, narrow)
    return PoolingBackward(spec, alpha, beta, **{"y": y, "dy": y, "x": x, "dx": x} | specs)


def pooled(operation: PoolingBackward, inputs: str = "normal", **values: Any) -> dict[str, Any]:
    """Return memory for a backward call whose y is the forward result of x.

    ``inputs`` fills x and dy; ``values`` replace whole operands.
    """
    memory = prepare(operation, {"x": inputs, "dy": inputs}, 0)
    for name, numbers in values.items():
        target = strided(operation.tensor(name), memory[name])
        target[...] = np.asarray(numbers, target.dtype).reshape(target.shape)
    run(PoolingForward(operation.pooling, 1.0, 0.0, operation.x, operation.y), {"x": memory["x"], "y": memory["y"]})
    return memory


def numbers_of(result: Any, name: str) -> list[float]:
    """Return the elements of an output in logical order."""
    return strided(result.operation.tensor(name), result.after[name]).astype(np.float64).ravel().tolist()


# --- forward ---


@shows("cudnnPoolingMode_t/c02 c03")
@pytest.mark.parametrize(
    "mode, expected", [(AVERAGES[0], [3, 4.5, 3.5]), (AVERAGES[1], [4.5, 4.5, 5.25])], ids=["include", "exclude"]
)
def test_divisor_of_the_average(trial: Callable[..., Trial], mode: Any, expected: Any) -> None:
    """The windows have 3 of the elements 3 6 3 4.5 6 and of one position of padding at either end. By hand, their sums
    are 9, 13.5 and 10.5."""
    x = np.array([3, 6, 3, 4.5, 6], np.float32)
    for layout in ("nchw", "nhwc"):
        operation = forward(mode, Geometry((1, 1, 1, 5), (1, 3), (0, 1), (1, 2)), FLOAT, layout, layout)
        result = trial(operation, before={"x": x.view(np.uint8), "y": np.full(12, 0xFF, np.uint8)})
        assert numbers_of(result, "y") == expected


@shows("cudnnPoolingForward/c06-c08")
@pytest.mark.parametrize("mode", AVERAGES, ids=by_name)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("alpha, expected", [
    (1.0, [2, 4, -2, -3, 127, -128, 0, 0]),
    (2.0, [3, 7, -3, -6, 127, -128, 1, -1]),
    (-2.0, [-3, -7, 3, 6, -128, 127, -1, 1]),
])  # fmt: skip
def test_integer_average(trial: Callable[..., Trial], mode: Any, layout: str, alpha: float, expected: Any) -> None:
    """Halves are rounded to even, after alpha multiplies; numbers out of range are clamped."""
    pairs = np.array([1, 2, 3, 4, -1, -2, -3, -3, 127, 127, -128, -127, 0, 1, -1, 0], np.int8)
    operation = forward(mode, Geometry((1, 1, 1, 16), (1, 2), (0, 0), (1, 2)), INT8, layout, layout, alpha=alpha)
    result = trial(operation, before={"x": pairs.view(np.uint8), "y": np.full(8, 0xFF, np.uint8)})
    assert numbers_of(result, "y") == expected


@shows("cudnnSetPooling2dDescriptor/c03", "cudnnPoolingForward/c01")
@pytest.mark.parametrize("nan, expected", [
    (Nan.CUDNN_NOT_PROPAGATE_NAN, [1.0, 2.0, -65504.0, -np.inf, -np.inf, 3.0]),
    (Nan.CUDNN_PROPAGATE_NAN, [np.nan, np.nan, np.nan, np.nan, -np.inf, 3.0]),
], ids=lambda v: getattr(v, "name", ""))  # fmt: skip
@pytest.mark.parametrize("mode", MAXIMA, ids=by_name)
def test_maximum_of_nan_and_infinity(trial: Callable[..., Trial], mode: Any, nan: Any, expected: Any) -> None:
    """NaN is ignored unless it is propagated; a window of NaN gives the lowest finite number (docs/errata.md, D090)."""
    inf = np.inf
    x = np.array([np.nan, 1, 2, np.nan, np.nan, np.nan, np.nan, -inf, -inf, -inf, 3, -inf], np.float16)
    for layout in ("nchw", "nhwc"):
        operation = forward(mode, Geometry((1, 1, 1, 12), (1, 2), (0, 0), (1, 2)), HALF, layout, layout, nan=nan)
        result = trial(operation, before={"x": x.view(np.uint8), "y": np.full(12, 0xFF, np.uint8)})
        assert np.array_equal(numbers_of(result, "y"), expected, equal_nan=True)


# --- backward ---


@shows("cudnnSetPooling2dDescriptor/c03")
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("size", LARGE)
def test_gradient_of_large_windows_with_nan(trial: Callable[..., Trial], size: Any, layout: str) -> None:
    """Gradients are right where one NaN or infinity is the maximum of many windows."""
    for nan in Nan:
        for values in ([np.nan], [np.inf], [np.nan, 50.0], [-np.inf, 50.0, 50.0]):
            operation = backward(MAXIMA[0], LARGE[size], FLOAT, layout, layout, nan=nan, alpha=0.5, beta=1.0)
            x = prepare(operation, "normal", 0)["x"].view(np.float32).copy().reshape(operation.x.dims)
            x.reshape(-1)[np.arange(len(values)) * x.size // 3 + x.size // 4] = values
            trial(operation, before=pooled(operation, x=x))


@shows("cudnnPoolingBackward/c01", "cudnnSetPooling2dDescriptor/c03")
@pytest.mark.parametrize("nan, expected", [
    (Nan.CUDNN_NOT_PROPAGATE_NAN, [0, 10, 20, 0, 0, 0, 40, 0]),
    (Nan.CUDNN_PROPAGATE_NAN, [10, 0, 0, 20, 30, 0, 40, 0]),
], ids=lambda v: getattr(v, "name", ""))  # fmt: skip
@pytest.mark.parametrize("mode", MAXIMA, ids=by_name)
def test_gradient_of_a_maximum_with_nan(trial: Callable[..., Trial], mode: Any, nan: Any, expected: Any) -> None:
    """The gradient goes to the first maximum, or to the first NaN if NaN is propagated; ignored NaN gets no
    gradient."""
    x = [np.nan, 1, 2, np.nan, np.nan, np.nan, 3, 3]
    for layout in ("nchw", "nhwc"):
        operation = backward(mode, Geometry((1, 1, 1, 8), (1, 2), (0, 0), (1, 2)), FLOAT, layout, layout, nan=nan)
        result = trial(operation, before=pooled(operation, x=x, dy=[10, 20, 30, 40]))
        assert numbers_of(result, "dx") == expected


@shows("cudnnPoolingBackward/c01")
@pytest.mark.parametrize("mode", MAXIMA, ids=by_name)
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("window, x, expected", [
    ((3, 3), [1, 5, 5, 5, 7, 9, 8, 9, 9], [0, 0, 0, 0, 0, 1, 0, 0, 0]),
    ((2, 2), [4, 4, 1, 4, 4, 4, 3, 4, 4], [1, 2, 0, 3, 4, 0, 0, 0, 0]),
    ((2, 2), [1, 2, 1, 3, 4, 4, 3, 2, 4], [0, 0, 0, 0, 1 + 2 + 3 + 4, 0, 0, 0, 0]),
], ids=["3x3", "2x2", "2x2-shared"])  # fmt: skip
def test_gradient_goes_to_the_first_of_equal_maxima(
    trial: Callable[..., Trial], mode: Any, layout: str, window: Any, x: Any, expected: Any
) -> None:
    """The gradient goes to the first of equal maxima in row-major order; dy is 1, 2, 3, 4 and dx was 10."""
    operation = backward(mode, Geometry((1, 1, 3, 3), window, (0, 0), (1, 1)), FLOAT, layout, layout, beta=1.0)
    result = trial(operation, before=pooled(operation, x=x, dy=np.arange(1, operation.dy.count + 1), dx=[10] * 9))
    assert numbers_of(result, "dx") == [10 + given for given in expected]


@shows("cudnnPoolingBackward/c02", "cudnnPoolingMode_t/c04")
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_deterministic_maximum(trial: Callable[..., Trial], layout: str) -> None:
    """Every run gives the same bits, although windows overlap and sums depend on their order."""
    operation = backward(MAXIMA[1], Geometry((2, 8, 12, 12), (5, 5), (2, 2), (1, 1)), FLOAT, layout, layout, beta=1.0)
    memory = pooled(operation, "wide")
    runs = [trial(operation, before=memory).after["dx"].tobytes() for _ in range(3)]
    assert len(set(runs)) == 1


# --- descriptors ---

IMAGES = (Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING, Nan.CUDNN_PROPAGATE_NAN, 3, 2, 1, -4, 5, 6)


@shows("cudnnCreatePoolingDescriptor/c01 c02", "cudnnPoolingDescriptor_t/c01 c02", "cudnnSetPooling2dDescriptor/c01-c05",
       "cudnnGetPooling2dDescriptor/c01-c08 c10")  # fmt: skip
@pytest.mark.parametrize("nan", list(Nan), ids=by_name)
@pytest.mark.parametrize("mode", list(Mode), ids=by_name)
def test_2d_descriptor(cudnn: Any, mode: Any, nan: Any) -> None:
    descriptor, other = cudnn.cudnnCreatePoolingDescriptor(), cudnn.cudnnCreatePoolingDescriptor()
    cudnn.cudnnSetPooling2dDescriptor(descriptor, mode, nan, 3, 2, 1, -4, 5, 6)
    cudnn.cudnnSetPooling2dDescriptor(other, *IMAGES)
    assert tuple(cudnn.cudnnGetPooling2dDescriptor(descriptor)) == (mode, nan, 3, 2, 1, -4, 5, 6)
    found = cudnn.cudnnGetPoolingNdDescriptor(descriptor, 2)
    arrays = [list(array) for array in (found.windowDimA, found.paddingA, found.strideA)]
    assert found.nbDims == 2 and arrays == [[3, 2], [1, -4], [5, 6]]


@shows("cudnnSetPoolingNdDescriptor/c01-c08", "cudnnPoolingDescriptor_t/c02", "cudnnGetPoolingNdDescriptor/c01-c08 c10")
@pytest.mark.parametrize("rank", range(1, 7))
def test_nd_descriptor(cudnn: Any, rank: int) -> None:
    window, padding, stride = list(range(1, rank + 1)), list(range(-2, rank - 2)), list(range(11, rank + 11))
    descriptor = cudnn.cudnnCreatePoolingDescriptor()
    mode, nan = Mode.CUDNN_POOLING_MAX_DETERMINISTIC, Nan.CUDNN_PROPAGATE_NAN
    cudnn.cudnnSetPoolingNdDescriptor(descriptor, mode, nan, rank, window, padding, stride)
    for requested in range(7):
        found = cudnn.cudnnGetPoolingNdDescriptor(descriptor, requested)
        assert (found.mode, found.maxpoolingNanOpt, found.nbDims) == (mode, nan, rank)
        kept = min(requested, rank) or None
        arrays = [list(array)[:kept] for array in (found.windowDimA, found.paddingA, found.strideA)]
        assert arrays == [window[:requested], padding[:requested], stride[:requested]]


@shows("cudnnGetPoolingNdDescriptor/c11")
@pytest.mark.parametrize("requested", [7, 8])
def test_nd_descriptor_asked_for_dim_max(cudnn: Any, requested: int) -> None:
    """The limit is CUDNN_DIM_MAX here, although no descriptor has as many dimensions (docs/errata.md, D073)."""
    descriptor = cudnn.cudnnCreatePoolingDescriptor()
    cudnn.cudnnSetPooling2dDescriptor(descriptor, *IMAGES)
    assert cudnn.cudnnGetPoolingNdDescriptor(descriptor, requested).nbDims == 2


@shows("cudnnDestroyPoolingDescriptor/c01 c02")
def test_destroyed_descriptor(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    descriptor, kept = cudnn.cudnnCreatePoolingDescriptor(), cudnn.cudnnCreatePoolingDescriptor()
    for one in (descriptor, kept):
        cudnn.cudnnSetPooling2dDescriptor(one, *IMAGES)
    cudnn.cudnnDestroyPoolingDescriptor(descriptor)
    assert tuple(cudnn.cudnnGetPooling2dDescriptor(kept)) == IMAGES
    if subject.survives_stray_pointers:  # Other subjects would follow a dangling pointer.
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnSetPooling2dDescriptor, descriptor, *IMAGES)


# --- output dimensions ---


def tensor_descriptor(cudnn: Any, dims: tuple[int, ...]) -> Any:
    descriptor, spec = cudnn.cudnnCreateTensorDescriptor(), TensorSpec.packed(FLOAT, dims)
    cudnn.cudnnSetTensorNdDescriptor(descriptor, FLOAT, len(dims), dims, spec.strides)
    return descriptor


@shows("cudnnGetPooling2dForwardOutputDim/c01-c06", "cudnnGetPoolingNdForwardOutputDim/c01-c04")
@pytest.mark.parametrize("seed", range(8))
def test_output_dimensions(cudnn: Any, seed: int) -> None:
    """The advised output counts the windows that fit into the padded input."""
    random = np.random.default_rng(seed)
    pooling = cudnn.cudnnCreatePoolingDescriptor()
    for _ in range(20):
        window, stride, extent = (random.integers(1, high, 2).tolist() for high in (6, 5, 14))
        lowest = [(w - e + 1) // 2 for w, e in zip(window, extent, strict=True)]
        padding = [int(random.integers(low, max(low, 4) + 1)) for low in lowest]
        n, c = random.integers(1, 5, 2).tolist()
        tensor = tensor_descriptor(cudnn, (n, c, *extent))
        cudnn.cudnnSetPooling2dDescriptor(pooling, *IMAGES[:2], *window, *padding, *stride)
        expected = [n, c]
        for w, s, p, e in zip(window, stride, padding, extent, strict=True):
            expected.append(sum(1 for start in range(-p, e + p, s) if start + w <= e + p))
        assert list(cudnn.cudnnGetPooling2dForwardOutputDim(pooling, tensor)) == expected
        assert list(cudnn.cudnnGetPoolingNdForwardOutputDim(pooling, tensor, 4)) == expected


@shows("cudnnGetPoolingNdForwardOutputDim/c01 c02")
@pytest.mark.parametrize("rank", range(1, 7))
def test_output_dimensions_of_every_rank(cudnn: Any, rank: int) -> None:
    pooling = cudnn.cudnnCreatePoolingDescriptor()
    window, padding, stride = [2, 3, 1, 4, 2, 5][:rank], [0, 1, -1, 2, 0, 1][:rank], [1, 2, 3, 2, 2, 1][:rank]
    cudnn.cudnnSetPoolingNdDescriptor(pooling, *IMAGES[:2], rank, window, padding, stride)
    tensor = tensor_descriptor(cudnn, (2, 3, *[7, 6, 9, 5, 4, 8][:rank]))
    expected = [2, 3, *[6, 3, 3, 3, 2, 6][:rank]]
    assert list(cudnn.cudnnGetPoolingNdForwardOutputDim(pooling, tensor, rank + 2)) == expected


@shows("cudnnGetPooling2dForwardOutputDim/c08 c09", "cudnnGetPoolingNdForwardOutputDim/c06")
@pytest.mark.parametrize("pooling_rank, tensor_rank", [(1, 3), (1, 4), (2, 3), (2, 5), (3, 4), (3, 5)])
def test_output_dimensions_need_fitting_ranks(
    cudnn: Any, refuses: Callable[..., bool], pooling_rank: int, tensor_rank: int
) -> None:
    pooling = cudnn.cudnnCreatePoolingDescriptor()
    cudnn.cudnnSetPoolingNdDescriptor(pooling, *IMAGES[:2], pooling_rank, *([1] * pooling_rank for _ in range(3)))
    tensor = tensor_descriptor(cudnn, (2, 3, 4, 5, 6)[:tensor_rank])
    clause = f"cudnnGetPooling2dForwardOutputDim/{'c08' if pooling_rank != 2 else 'c09'}"
    refuses(BAD_PARAM, clause, cudnn.cudnnGetPooling2dForwardOutputDim, pooling, tensor)
    fitting = pooling_rank + 2 if pooling_rank + 2 == tensor_rank else None
    for dims in (-1, 0, 1, 2, 3, 4, 5, 6, 9):
        if dims != fitting:
            name = "cudnnGetPoolingNdForwardOutputDim"
            refuses(BAD_PARAM, f"{name}/c06", cudnn.cudnnGetPoolingNdForwardOutputDim, pooling, tensor, dims)


@pytest.mark.parametrize("window, padding", [((5, 5), (0, 0)), ((6, 2), (0, 0)), ((2, 2), (-2, -1)), ((2, 9), (0, 2))])
def test_output_dimensions_of_a_window_larger_than_the_input(
    cudnn: Any, refuses: Callable[..., bool], window: Any, padding: Any
) -> None:
    """A window larger than the input has no output to advise (docs/errata.md, D071)."""
    pooling, tensor = cudnn.cudnnCreatePoolingDescriptor(), tensor_descriptor(cudnn, (2, 3, 4, 4))
    for stride in (1, 2):
        cudnn.cudnnSetPooling2dDescriptor(pooling, *IMAGES[:2], *window, *padding, stride, stride)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnGetPooling2dForwardOutputDim, pooling, tensor)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnGetPoolingNdForwardOutputDim, pooling, tensor, 4)


@shows("cudnnGetPooling2dForwardOutputDim/c01", "cudnnPoolingForward/c05")
def test_advised_output_is_computed(cudnn: Any, trial: Callable[..., Trial]) -> None:
    """An output of the advised dimensions is computed."""
    pooling, tensor = cudnn.cudnnCreatePoolingDescriptor(), tensor_descriptor(cudnn, STANDARD.dims)
    cudnn.cudnnSetPooling2dDescriptor(pooling, *IMAGES[:2], *STANDARD.window, *STANDARD.padding, *STANDARD.stride)
    advised = tuple(cudnn.cudnnGetPooling2dForwardOutputDim(pooling, tensor))
    assert advised == STANDARD.outputs
    trial(forward(MAXIMA[0], STANDARD._replace(output=advised[2:])))
