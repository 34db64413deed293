"""Holds cases of the gradient of a convolution with respect to its filter: formula, algorithms, layouts, tables, workspace, statuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import ConvolutionBackwardFilter, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32, NCHW, NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import described, sized
from dualdnn.conformance.layouts import LAYOUTS, laid_out
from dualdnn.conformance.marks import shows
from dualdnn.conformance.solvers import divided_among

from .checks import beside_direct_sums, is_the_adjoint, refuses_a_small_workspace, takes_a_workspace_anywhere
from .convolution import FLOATING, by_name, convolution_spec, formats_of

F, SIZE, KINDS = (
    "cudnnConvolutionBackwardFilter",
    "cudnnGetConvolutionBackwardFilterWorkspaceSize",
    "cudnnConvolutionBwdFilterAlgo_t",
)
ALGO_0, ALGO_1, FFT, ALGO_3, WINOGRAD, NONFUSED, FFT_TILING = Algo
DIRECT_SUMS = (ALGO_0, ALGO_1, ALGO_3)
FMA, DEFAULT = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_DEFAULT_MATH
# These are the configurations of table 37 that each algorithm takes with a filter in NCHW.
TAKES = {
    ALGO_0: ("PSEUDO_HALF", "PSEUDO_BFLOAT16", "FLOAT", "DOUBLE"), ALGO_1: ("PSEUDO_HALF", "PSEUDO_BFLOAT16", "FLOAT", "DOUBLE"),
    FFT: ("PSEUDO_HALF", "FLOAT"), ALGO_3: ("PSEUDO_HALF", "FLOAT", "DOUBLE"), WINOGRAD: (),
    NONFUSED: ("TRUE_HALF", "PSEUDO_HALF", "PSEUDO_BFLOAT16", "FLOAT"), FFT_TILING: ("PSEUDO_HALF", "FLOAT", "DOUBLE"),
}  # fmt: skip
SERVED = tuple(algo for algo in Algo if algo != WINOGRAD)
# Half holds these sums of transformed values.
FEW_IN_HALF: dict[str, Any] = {"configuration": "TRUE_HALF", "x": (1, 2, 4, 4), "dw": (3, 2, 3, 3), "padding": (0, 0)}


def gradient(
    x: tuple[int, ...] | None = None,
    dw: tuple[int, ...] | None = None,
    *,
    configuration: str = "FLOAT",
    algo: Algo = ALGO_1,
    padding: tuple[int, ...] | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    formats: Any = NCHW,
    dy_layout: str | None = None,
    dy: tuple[int, ...] | None = None,
    **options: Any,
) -> ConvolutionBackwardFilter:
    """Return a gradient whose dy has the right size. FFT_TILING takes one row.

    formats: one format, or those of x, dw and dy. options: those of ``convolution_spec``.
    """
    one_row = algo == FFT_TILING and x is None
    x = x or ((2, 4, 1, 9) if one_row else (2, 4, 7, 6))
    dw = dw or ((6, 4, 1, 3) if one_row else (6, 4, 3, 3))
    data_type, _, compute_type, _ = FLOATING[configuration]
    padding = padding or ((0, 1) if one_row else None)
    spec = convolution_spec(len(x) - 2, compute_type, padding=padding, **options)
    x_format, w_format, dy_format = formats_of(formats)
    dy_dims = dy or spec.output_dims(x, dw)
    dy_spec = laid_out(data_type, dy_dims, dy_layout) if dy_layout else TensorSpec.packed(data_type, dy_dims, dy_format)
    x_spec = TensorSpec.packed(data_type, x, x_format)
    return ConvolutionBackwardFilter(spec, algo, 0, alpha, beta, x_spec, dy_spec, FilterSpec(data_type, w_format, dw))


@shows(*(f"{F}/c{n:02}" for n in (*range(1, 5), *range(7, 12), *range(14, 20), 39, 49)), f"{SIZE}/c01", f"{SIZE}/c04", f"{KINDS}/c01",
       "cudnnConvolutionMode_t/c02", "cudnnSetConvolution2dDescriptor/c04")  # fmt: skip
@pytest.mark.parametrize("configuration", FLOATING)
@pytest.mark.parametrize("algo", list(Algo), ids=by_name)
def test_formula(run, refused, algo, configuration):
    operation = gradient(algo=algo, configuration=configuration, alpha=-1.75, beta=0.5)
    if configuration not in TAKES[algo]:
        refused(operation, NOT_SUPPORTED, f"{F}/c49")
        return
    if configuration == "TRUE_HALF":
        run(gradient(**FEW_IN_HALF, algo=algo, alpha=-1.75, beta=0.5))
        return
    run(operation)
    shape: Any = (
        {"x": (3, 5, 1, 11), "dw": (3, 5, 1, 4), "padding": (0, 3)}
        if algo == FFT_TILING
        else {"x": (3, 5, 6, 5), "dw": (3, 5, 3, 3)}
    )
    run(gradient(**shape, algo=algo, configuration=configuration, mode=Mode.CUDNN_CONVOLUTION))


@shows(*(f"{F}/c{n:02}" for n in range(14, 20)))
@pytest.mark.parametrize("dy_layout", LAYOUTS)
@pytest.mark.parametrize("algo", SERVED, ids=by_name)
def test_layouts(run, refused, algo, dy_layout):
    """dy may have any layout but NCHW_VECT_C; the Fourier transforms take packed images. x has gaps between images."""
    operation = gradient(algo=algo, dy_layout=dy_layout, beta=0.5)
    strides = operation.x.strides
    operation = replace(operation, x=replace(operation.x, strides=(strides[0] + 5, *strides[1:])))
    packed = gradient(algo=algo).dy
    if algo in (FFT, FFT_TILING) and operation.dy.strides[1:] != packed.strides[1:]:
        refused(operation, NOT_SUPPORTED, f"{F}/c49")
    else:
        run(operation)


@shows(f"{F}/c13", f"{F}/c15", f"{F}/c49")
def test_layouts_of_x_and_dw(run, refused):
    """By tables 36 and 37, x is CHW-packed, or HWC-packed with a filter in NHWC, and dy has any layout (docs/errata.md,
    D274)."""
    for algo in (ALGO_0, ALGO_1):
        run(gradient(algo=algo, formats=(NCHW, NCHW, NHWC)))
        run(gradient(algo=algo, formats=(NHWC, NHWC, NCHW)))
        for formats in ((NHWC, NCHW, NCHW), (NCHW, NHWC, NHWC)):
            refused(gradient(algo=algo, formats=formats), NOT_SUPPORTED, f"{F}/c49")
        operation = gradient(algo=algo)
        gaps = TensorSpec(FLOAT, operation.x.dims, (300, 49, 7, 1))
        refused(replace(operation, x=gaps), NOT_SUPPORTED, f"{F}/c49")


@shows(f"{F}/c20", f"{F}/c21", f"{F}/c22", "cudnnSetConvolutionNdDescriptor/c03")
@pytest.mark.parametrize("configuration", FLOATING)
@pytest.mark.parametrize("formats", [NCHW, NHWC], ids=by_name)
def test_3d(run, refused, formats, configuration):
    geometry: dict[str, Any] = {"x": (2, 4, 4, 5, 3), "dw": (4, 2, 2, 3, 2), "padding": (1, 0, 1), "groups": 2, "stride": (1, 2, 2),
                                "dilation": (2, 1, 1), "configuration": configuration, "formats": formats}  # fmt: skip
    taken = {
        NCHW: {ALGO_0: configuration != "TRUE_HALF", ALGO_3: configuration in ("PSEUDO_HALF", "FLOAT", "DOUBLE")},
        NHWC: {ALGO_1: configuration != "DOUBLE"},
    }[formats]
    for algo in Algo:
        operation = gradient(algo=algo, **geometry, beta=1.0)
        if taken.get(algo):
            run(operation)
            run(gradient(algo=algo, **geometry, mode=Mode.CUDNN_CONVOLUTION))
        else:
            refused(operation, NOT_SUPPORTED, f"{F}/c49")
    if formats == NHWC and configuration == "FLOAT":
        run(gradient((8, 3, 4, 3, 5), (5, 3, 2, 2, 3), formats=formats, mode=Mode.CUDNN_CONVOLUTION))
    if formats == NCHW and configuration == "FLOAT":
        operation = gradient(**{**geometry, "algo": ALGO_3})
        apart = replace(operation, x=replace(operation.x, strides=(250, *operation.x.strides[1:])))
        refused(apart, NOT_SUPPORTED, f"{F}/c49")


OUTSIDE: dict[str, tuple[Algo, str, dict[str, Any], dict[str, Any]]] = {
    # Each row has the algorithm, the clause, what it takes, and what it does not take.
    "fft dilation": (FFT, "c36", {}, {"dilation": (2, 1)}),
    "fft stride": (FFT, "c33", {}, {"stride": (2, 1)}),
    "fft padding": (FFT, "c34", {"padding": (2, 2)}, {"padding": (3, 2)}),
    "fft size": (FFT, "c32", {"x": (1, 1, 3, 254), "dw": (1, 1, 3, 3)}, {"x": (1, 1, 3, 255), "dw": (1, 1, 3, 3)}),
    "tiling rows": (FFT_TILING, "c35", {"x": (2, 3, 1, 7), "dw": (2, 3, 1, 4), "padding": (0, 0)}, {"x": (2, 3, 2, 7), "dw": (2, 3, 1, 4), "padding": (0, 0)}),
    "tiling columns": (FFT_TILING, "c35", {"x": (2, 3, 9, 1), "dw": (2, 3, 4, 1), "padding": (1, 0)}, {"x": (2, 3, 9, 2), "dw": (2, 3, 4, 2), "padding": (1, 0)}),
    "tiling size": (FFT_TILING, "c35", {"x": (1, 1, 1, 259), "dw": (1, 1, 1, 4), "padding": (0, 0)}, {"x": (1, 1, 1, 260), "dw": (1, 1, 1, 4), "padding": (0, 0)}),
    "tiling wide filters": (FFT_TILING, "c34", {"x": (2, 2, 1, 70), "dw": (2, 2, 1, 63), "padding": (0, 20)}, {"padding": (0, 3)}),
    "tiling stride": (FFT_TILING, "c33", {}, {"stride": (1, 2)}),
    "tiling dilation": (FFT_TILING, "c36", {"mode": Mode.CUDNN_CONVOLUTION}, {"dilation": (1, 2)}),
    "algo 3 dilation": (ALGO_3, "c36", {"stride": (2, 1)}, {"dilation": (1, 2)}),
    "nonfused filter": (NONFUSED, "c37", {"dw": (6, 4, 5, 5), "padding": (2, 6)}, {"dw": (6, 4, 3, 5)}),
    "nonfused stride": (NONFUSED, "c37", {"dw": (6, 4, 5, 5), "mode": Mode.CUDNN_CONVOLUTION}, {"stride": (1, 2)}),
    "nonfused dilation": (NONFUSED, "c36", {"padding": (3, 0)}, {"dilation": (1, 2)}),
    "nonfused true half": (NONFUSED, "c38", FEW_IN_HALF, {"configuration": "TRUE_HALF", "dw": (6, 4, 5, 5)}),
}  # fmt: skip


@shows(f"{F}/c49", f"{SIZE}/c07", *(f"{F}/c{n}" for n in range(32, 39)))
@pytest.mark.parametrize("limit, clause", [(limit, row[1]) for limit, row in OUTSIDE.items()], ids=OUTSIDE)
def test_limits_of_the_tables(caller, run, refused, refuses, limit, clause):
    algo, _, inside, outside = OUTSIDE[limit]
    run(gradient(algo=algo, **inside, alpha=0.5))
    operation = gradient(algo=algo, **outside)
    refused(operation, NOT_SUPPORTED, f"{F}/c49")
    query = caller.cudnn.cudnnGetConvolutionBackwardFilterWorkspaceSize
    refuses(NOT_SUPPORTED, f"{F}/c49", query, caller.handle, *described(caller, operation), algo)


@shows(*(f"{F}/c{n:02}" for n in (2, 23, 24, 25, 26, 27, 28)), *(f"{KINDS}/c{n:02}" for n in (2, 3, 5, 7, 9, 11)))
@pytest.mark.parametrize("algo", SERVED, ids=by_name)
def test_repeated_calls_are_equal_bit_by_bit(subject, run, algo):
    """Every algorithm gives the same bits here, ALGO_0 and ALGO_3 too (docs/errata.md, D275)."""
    if algo in (ALGO_0, ALGO_1) and not subject.cites_clauses:
        pytest.skip("the document calls their results non-deterministic")
    first, second = (run(gradient(algo=algo, alpha=0.3)).after["dw"] for _ in range(2))
    assert np.array_equal(first, second)


@shows(f"{F}/c29", f"{F}/c30", f"{F}/c31")
@pytest.mark.parametrize("algo, formats", [(ALGO_0, NCHW), (ALGO_3, NCHW), (ALGO_1, NHWC)], ids=by_name)
def test_repeated_volumes_are_equal_bit_by_bit(run, algo, formats):
    volume = gradient((4, 3, 4, 5, 6), (5, 3, 2, 3, 2), algo=algo, formats=formats)
    first, second = (run(volume).after["dw"] for _ in range(2))
    assert np.array_equal(first, second)


@shows(f"{F}/c01")
def test_it_is_the_adjoint_of_the_forward_convolution(caller):
    """<conv(x, w), dy> equals <w, dw>, by two calls of the subject, exactly in small whole numbers."""
    for options in (
        {},
        {"stride": (2, 3), "padding": (2, 0)},
        {"mode": Mode.CUDNN_CONVOLUTION, "dw": (6, 4, 2, 3), "x": (8, 4, 5, 6)},
    ):
        is_the_adjoint(caller, gradient(**options), DIRECT_SUMS)


TRANSFORMED: list[tuple[Algo, dict[str, Any]]] = [
    (FFT, {"padding": (2, 0)}),
    (FFT_TILING, {"x": (2, 4, 1, 70), "dw": (6, 4, 1, 5), "padding": (0, 3)}),
    (NONFUSED, {"x": (3, 4, 11, 9)}),
    (NONFUSED, {"x": (2, 4, 11, 9), "dw": (6, 4, 5, 5), "padding": (3, 1)}),
]


@shows(f"{F}/c01", f"{F}/c16", f"{F}/c18", f"{F}/c19")
@pytest.mark.parametrize("algo, options", TRANSFORMED, ids=by_name)
def test_transforms_beside_direct_sums(caller, algo, options):
    for more in ({}, {"mode": Mode.CUDNN_CONVOLUTION, "beta": 1.0}):
        beside_direct_sums(caller, gradient(**options, algo=algo, **more), ALGO_0)
    _, depth, *taps = options.get("dw", (6, 4, 3, 3))
    grouped = {**options, "dw": (6, depth // 2, *taps)}
    for mode in Mode:
        beside_direct_sums(caller, gradient(**grouped, algo=algo, groups=2, mode=mode), ALGO_0)


@shows(f"{F}/c01", f"{SIZE}/c01")
@pytest.mark.parametrize("algo, x", [(NONFUSED, (3, 40, 98, 97)), (FFT, (12, 10, 40, 33))], ids=by_name)
def test_images_that_pass_through_the_workspace_in_slices(caller, algo, x):
    """A device of one multiprocessor passes the images through its workspace in slices."""
    with divided_among(caller.handle, 1):
        beside_direct_sums(caller, gradient(x, (4, x[1], 3, 3), algo=algo, beta=1.0), ALGO_0)


@pytest.mark.parametrize(
    "dy", [(2, 6, 6, 6), (2, 6, 8, 6), (2, 6, 7, 7), (1, 6, 7, 6), (3, 6, 7, 6), (2, 5, 7, 6), (2, 7, 7, 6)], ids=str
)
def test_dy_of_another_size(refused, dy):
    for algo in DIRECT_SUMS:
        refused(gradient(dy=dy, algo=algo), BAD_PARAM, "cudnnStatus_t/c05")


@shows(f"{F}/c44", f"{SIZE}/c06")
@pytest.mark.parametrize("operand", ["x", "dy", "dw"])
@pytest.mark.parametrize("data_type", [HALF, DOUBLE, BFLOAT16, INT8, INT32], ids=by_name)
def test_data_types_must_agree(caller, refused, refuses, data_type, operand):
    base = gradient()
    changed = replace(base, **{operand: replace(getattr(base, operand), data_type=data_type)})
    refused(changed, BAD_PARAM, f"{F}/c44")
    query = caller.cudnn.cudnnGetConvolutionBackwardFilterWorkspaceSize
    query(caller.handle, *described(caller, base), ALGO_1)
    refuses(BAD_PARAM, f"{SIZE}/c06", query, caller.handle, *described(caller, changed), ALGO_1)


@shows(f"{F}/c05", f"{F}/c06", f"{SIZE}/c01")
@pytest.mark.parametrize("algo", SERVED, ids=by_name)
def test_workspace(subject, caller, run, refuses, algo):
    """The reported size is enough; less, or NULL, is refused before anything is written."""
    operation = sized(caller, gradient(algo=algo, alpha=0.5))
    run(operation)
    refuses_a_small_workspace(subject, caller, refuses, operation, missing=f"{F}/c05", small=f"{F}/c06")


@shows(f"{F}/c05")
@pytest.mark.parametrize("start", [1, 8])
@pytest.mark.parametrize("algo", [algo for algo in SERVED if algo != ALGO_0], ids=by_name)
def test_workspaces_begin_anywhere(subject, caller, algo, start):
    """The reported size is enough at any address, no byte outside it is written, and the result has the same bits."""
    shape: Any = (
        {"x": (8, 20, 1, 7), "dw": (24, 20, 1, 3), "padding": (0, 1)}
        if algo == FFT_TILING
        else {"x": (8, 20, 4, 5), "dw": (24, 20, 3, 3)}
    )
    for configuration, math_type in (("FLOAT", FMA), ("PSEUDO_HALF", DEFAULT)):
        operation = sized(caller, gradient(**shape, configuration=configuration, algo=algo, math_type=math_type))
        takes_a_workspace_anywhere(subject, caller, operation, start)
