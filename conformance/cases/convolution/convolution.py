"""Holds cases of the forward convolution: formula, layouts, groups, blending, workspace, statuses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t, cudnnReorderType_t
from dualdnn.api.operations import ConvolutionForward, ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT8,
    INT32,
    NCHW,
    NCHW_VECT_C,
    NHWC,
    INT8x4,
    INT8x32,
)
from dualdnn.conformance.calls import sized
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.solvers import divided_among
from dualdnn.reference import judge

from .checks import refuses_a_small_workspace, refuses_each_dimension, takes_a_workspace_anywhere

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

F = "cudnnConvolutionForward"
GEMM_ALGORITHMS = [Algo(n) for n in range(3)]
IMPLICIT, PRECOMP, GEMM, DIRECT, FFT, FFT_TILING, WINOGRAD, NONFUSED = Algo
FMA, DEFAULT = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_DEFAULT_MATH
PLAIN = cudnnReorderType_t.CUDNN_DEFAULT_REORDER
FLOATING = {"TRUE_HALF": (HALF, HALF), "PSEUDO_HALF": (HALF, FLOAT), "PSEUDO_BFLOAT16": (BFLOAT16, FLOAT), "FLOAT": (FLOAT, FLOAT),
            "DOUBLE": (DOUBLE, DOUBLE)}  # fmt: skip  # data and compute type
# Each of these configurations of table 17 has (x and w, compute type, y).
CONFIGURATIONS = {
    **{name: (data_type, compute_type, data_type) for name, (data_type, compute_type) in FLOATING.items()},
    "INT8_EXT": (INT8, INT32, FLOAT), "INT8x4_EXT": (INT8x4, INT32, FLOAT), "INT8x32": (INT8x32, INT32, INT8x32),
}  # fmt: skip


def convolution_spec(
    rank: int,
    compute_type: cudnnDataType_t,
    *,
    padding: tuple[int, ...] | None = None,
    stride: tuple[int, ...] | None = None,
    dilation: tuple[int, ...] | None = None,
    groups: int = 1,
    mode: Mode = Mode.CUDNN_CROSS_CORRELATION,
    math_type: cudnnMathType_t = FMA,
    reorder_type: cudnnReorderType_t = PLAIN,
) -> ConvolutionSpec:
    """Return a convolution of ``rank`` dimensions; unnamed settings are ones."""
    ones = (1,) * rank
    return ConvolutionSpec(
        mode, compute_type, padding or ones, stride or ones, dilation or ones, groups, math_type, reorder_type
    )


def formats_of(formats: Any) -> tuple[Any, Any, Any]:
    """Return one format thrice, or three formats."""
    return formats if isinstance(formats, tuple) else (formats,) * 3


def convolution(
    x: tuple[int, ...] = (2, 4, 7, 6),
    w: tuple[int, ...] = (6, 4, 3, 3),
    *,
    configuration: str = "FLOAT",
    algo: Algo = IMPLICIT,
    alpha: float = 1.0,
    beta: float = 0.0,
    formats: Any = NCHW,
    y: tuple[int, ...] | None = None,
    **options: Any,
) -> ConvolutionForward:
    """Return a convolution whose output has the right size.

    formats: one format, or those of x, w and y. options: those of ``convolution_spec``.
    """
    x_type, compute_type, y_type = CONFIGURATIONS[configuration]
    spec = convolution_spec(len(x) - 2, compute_type, **options)
    x_format, w_format, y_format = formats_of(formats)
    x_spec = TensorSpec.packed(x_type, x, x_format)
    y_spec = TensorSpec.packed(y_type, y or spec.output_dims(x, w), y_format)
    return ConvolutionForward(spec, algo, 0, alpha, beta, x_spec, FilterSpec(x_type, w_format, w), y_spec)


def called(caller: Caller, operation: Any, x: Any, w: Any) -> Any:
    """Return the output of one call on these values."""
    handle, operation = caller.handle, sized(caller, operation)
    memory = {
        "x": handle.to_device(x), "w": handle.to_device(np.ascontiguousarray(w)),
        "y": handle.to_device(np.zeros(operation.y.count, np.float32)),
        "workSpace": handle.allocate(operation.workspace_bytes) if operation.workspace_bytes else None,
    }  # fmt: skip
    caller(operation, memory)
    return memory["y"].to_host(np.float32, operation.y.dims)


# Each kind of kernel has an entry: few products, few channels, depthwise, and matrices of each layout.
PADDED: dict[str, Any] = {
    "few products": {"x": (1, 1, 4, 4), "w": (1, 1, 3, 3)},
    "few channels": {"x": (1, 3, 9, 8), "w": (40, 3, 3, 3)},
    "depthwise": {"x": (1, 8, 5, 4), "w": (8, 1, 3, 3), "groups": 8},
    "depthwise, dilated": {"x": (1, 8, 5, 4), "w": (8, 1, 3, 3), "groups": 8, "dilation": (2, 2), "padding": (2, 2)},
    "NCHW": {"x": (1, 20, 7, 6), "w": (24, 20, 3, 3), "stride": (2, 1), "padding": (2, 1)},
    "channels last": {"x": (1, 72, 5, 6), "w": (40, 72, 3, 3), "formats": NHWC},
    "few filters, channels last": {"x": (2, 8, 5, 6), "w": (5, 8, 3, 2), "formats": NHWC},
}


@shows(f"{F}/c01")
@pytest.mark.parametrize("math_type", [FMA, DEFAULT], ids=by_name)
@pytest.mark.parametrize("configuration", [name for name in FLOATING if name != "TRUE_HALF"])
@pytest.mark.parametrize("geometry", PADDED)
def test_padding_meets_filters_that_are_not_finite(
    run: Callable[..., Trial], geometry: Any, configuration: Any, math_type: Any
) -> None:
    """The input is padded with zeros, and zero times an infinity or NaN of the filter is NaN."""
    for algo in GEMM_ALGORITHMS:
        options: Any = {"configuration": configuration, "math_type": math_type, "algo": algo, **PADDED[geometry]}
        if algo != IMPLICIT and "dilation" in options:
            continue
        if algo == GEMM and (options.get("formats") == NHWC or configuration == "PSEUDO_BFLOAT16"):
            continue
        found = run(convolution(**options), inputs={"x": "near_one", "w": "special"})
        if geometry == "few products":
            assert found.after["y"].any()


def test_an_infinity_over_the_padding(caller: Caller) -> None:
    """An infinite weight over the padding makes the first row and column NaN, and all other results infinite."""
    x, w = np.ones((1, 1, 4, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    for algo in GEMM_ALGORITHMS:
        y = called(caller, convolution(x.shape, w.shape, algo=algo), x, w)[0, 0]
        assert np.isnan(y[0]).all() and np.isnan(y[:, 0]).all() and (y[1:, 1:] == np.inf).all()


@shows(f"{F}/c21", "cudnnConvolutionFwdAlgoPerf_t/c07")
@pytest.mark.parametrize("algo", [algo for algo in Algo if algo != DIRECT], ids=by_name)
def test_repeated_calls_are_equal_bit_by_bit(run: Callable[..., Trial], algo: Any) -> None:
    first, second = (run(convolution((2, 16, 8, 8), (8, 16, 3, 3), algo=algo)).after["y"] for _ in range(2))
    assert np.array_equal(first, second)


@shows(f"{F}/c21")
@pytest.mark.parametrize("configuration, channels", [("PSEUDO_HALF", 1032), ("FLOAT", 516)], ids=by_name)
def test_repeated_sums_of_many_channels_are_equal_bit_by_bit(
    caller: Caller, run: Callable[..., Trial], configuration: str, channels: int
) -> None:
    """Blocks of a device of 132 multiprocessors share the channels of few pixels; the results are right, too."""
    operation = convolution((1, channels, 4, 4), (24, channels, 3, 3), configuration=configuration, algo=PRECOMP,
                            formats=NHWC, math_type=DEFAULT, alpha=0.5)  # fmt: skip
    with divided_among(caller.handle, 132):
        first, second = (run(operation).after["y"] for _ in range(2))
    assert np.array_equal(first, second)


# Algorithms that take no dilation, with a convolution of each row of the tables.
IN_EACH: list[tuple[Algo, dict[str, Any]]] = [
    *((algo, {}) for algo in (PRECOMP, GEMM, FFT, FFT_TILING, WINOGRAD, NONFUSED)),
    *((algo, {"configuration": "INT8x4_EXT", "formats": NCHW_VECT_C}) for algo in (IMPLICIT, PRECOMP)),
    (PRECOMP, {"x": (2, 32, 7, 6), "w": (32, 32, 3, 3), "configuration": "INT8x32", "formats": NCHW_VECT_C}),
    *((algo, {"configuration": "INT8_EXT", "formats": NHWC}) for algo in (IMPLICIT, PRECOMP)),
    (FFT_TILING, {"x": (1, 2, 5, 6, 7), "w": (2, 2, 3, 3, 3)}),
]
STRIDE_1 = (FFT, FFT_TILING, WINOGRAD, NONFUSED)


@pytest.mark.ours
@shows(f"{F}/c25-c30 c33 c34 c36 c41 c58")
@pytest.mark.parametrize("algo, options", IN_EACH, ids=by_name)
def test_limits_in_each_dimension(caller: Caller, refuses: Callable[..., bool], algo: Any, options: Any) -> None:
    """Each dimension alone must keep to the limit of the algorithm."""
    for setting in ("dilation", "stride") if algo in STRIDE_1 else ("dilation",):
        refuses_each_dimension(caller, refuses, partial(convolution, algo=algo, **options), setting, f"{F}/c58")


def tensor(data_type: cudnnDataType_t, *dims: int) -> TensorSpec:
    return TensorSpec.packed(data_type, dims)


@shows("cudnnConvolutionForward/c05 c06", "cudnnGetConvolutionForwardWorkspaceSize/c01 c02")
@pytest.mark.parametrize("algo", [algo for algo in Algo if algo != DIRECT], ids=by_name)
def test_workspace(
    subject: Subject, caller: Caller, run: Callable[..., Trial], refuses: Callable[..., bool], algo: Any
) -> None:
    """The reported size is enough; less, or NULL, is refused before anything is written."""
    operation = sized(caller, convolution((2, 8, 16, 16), (8, 8, 3, 3), algo=algo))
    run(operation)
    refuses_a_small_workspace(subject, caller, refuses, operation, missing=f"{F}/c05", small=f"{F}/c06")


@shows(f"{F}/c05", "cudnnGetConvolutionForwardWorkspaceSize/c01")
@pytest.mark.parametrize("start", [1, 8])
@pytest.mark.parametrize("algo", [PRECOMP, GEMM, FFT, FFT_TILING, WINOGRAD, NONFUSED], ids=by_name)
def test_workspaces_begin_anywhere(subject: Subject, caller: Caller, algo: Any, start: int) -> None:
    """The reported size is enough at any address, no byte outside it is written, and the result has the same bits."""
    for configuration, formats, math_type in (("FLOAT", NCHW, FMA), ("PSEUDO_HALF", NCHW, DEFAULT)):
        operation = sized(caller, convolution((1, 24, 5, 5), (20, 24, 3, 3), configuration=configuration, algo=algo,
                                              formats=formats, math_type=math_type))  # fmt: skip
        takes_a_workspace_anywhere(subject, caller, operation, start)


@shows(f"{F}/c44")
def test_transformed_tensors(caller: Caller) -> None:
    """A convolution in NCHW_VECT_C, its operands made by cudnnTransformTensor, equals the one in NHWC."""
    cudnn, handle = caller.cudnn, caller.handle
    x = np.random.default_rng(5).integers(-9, 10, (1, 8, 4, 4)).astype(np.int8)
    # Formats of a filter differ only where there is a spatial extent.
    w = np.random.default_rng(6).integers(-9, 10, (4, 8, 1, 1)).astype(np.int8)
    plain = convolution(x.shape, w.shape, configuration="INT8_EXT", formats=(NHWC, NHWC, NHWC), padding=(0, 0))
    expected = called(caller, plain, np.moveaxis(x, 1, -1).copy(), w[:, :, 0, 0])
    operation = convolution(
        x.shape, w.shape, configuration="INT8x4_EXT", formats=(NCHW_VECT_C, NCHW_VECT_C, NCHW), padding=(0, 0)
    )
    vectors = handle.allocate(x.size)
    source, target = caller.tensor(TensorSpec.packed(INT8, x.shape)), caller.tensor(operation.x)
    cudnn.cudnnTransformTensor(handle, 1.0, source, handle.to_device(x), 0.0, target, vectors)
    got = called(caller, operation, vectors.to_host(np.int8, x.size), w)
    assert np.array_equal(got, np.moveaxis(expected.reshape(1, 4, 4, 4), -1, 1))
    memory = {"x": vectors.to_host(np.uint8, x.size), "w": w.view(np.uint8).ravel(), "y": got.view(np.uint8).ravel()}
    assert judge(operation, memory, memory).agrees
