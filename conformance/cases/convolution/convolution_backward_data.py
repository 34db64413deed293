"""Holds cases of the gradient of a convolution with respect to its input: formula, algorithms, layouts, tables, workspace, statuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import ConvolutionBackwardData, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, HALF, INT8, INT32, NCHW, NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import described, sized
from dualdnn.conformance.layouts import LAYOUTS, laid_out
from dualdnn.conformance.marks import shows

from .checks import beside_direct_sums, is_the_adjoint, refuses_a_small_workspace, takes_a_workspace_anywhere
from .convolution import FLOATING, by_name, convolution_spec, formats_of

D, SIZE = "cudnnConvolutionBackwardData", "cudnnGetConvolutionBackwardDataWorkspaceSize"
ALGO_0, ALGO_1, FFT, FFT_TILING, WINOGRAD, NONFUSED = Algo
DIRECT_SUMS = (ALGO_0, ALGO_1)
FMA, DEFAULT = cudnnMathType_t.CUDNN_FMA_MATH, cudnnMathType_t.CUDNN_DEFAULT_MATH
# These are the configurations of table 13 that each algorithm takes with a 3 x 3 filter in NCHW.
TAKES = {
    ALGO_0: tuple(FLOATING), ALGO_1: tuple(FLOATING), FFT: ("PSEUDO_HALF", "FLOAT"), FFT_TILING: ("PSEUDO_HALF", "FLOAT"),
    WINOGRAD: ("PSEUDO_HALF", "FLOAT"), NONFUSED: ("TRUE_HALF", "PSEUDO_HALF", "PSEUDO_BFLOAT16", "FLOAT"),
}  # fmt: skip


def gradient(
    dx: tuple[int, ...] = (2, 4, 7, 6),
    w: tuple[int, ...] = (6, 4, 3, 3),
    *,
    configuration: str = "FLOAT",
    algo: Algo = ALGO_1,
    alpha: float = 1.0,
    beta: float = 0.0,
    formats: Any = NCHW,
    dx_layout: str | None = None,
    dy: tuple[int, ...] | None = None,
    **options: Any,
) -> ConvolutionBackwardData:
    """Return a gradient whose dy has the right size.

    formats: one format, or those of dx, w and dy. options: those of ``convolution_spec``.
    """
    data_type, _, compute_type, _ = FLOATING[configuration]
    spec = convolution_spec(len(dx) - 2, compute_type, **options)
    dx_format, w_format, dy_format = formats_of(formats)
    dx_spec = laid_out(data_type, dx, dx_layout) if dx_layout else TensorSpec.packed(data_type, dx, dx_format)
    dy_spec = TensorSpec.packed(data_type, dy or spec.output_dims(dx, w), dy_format)
    return ConvolutionBackwardData(spec, algo, 0, alpha, beta, FilterSpec(data_type, w_format, w), dy_spec, dx_spec)


@shows(*(f"{D}/c{n:02}" for n in (1, 2, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 21)), f"{SIZE}/c01", f"{SIZE}/c02", f"{SIZE}/c04",
       f"{SIZE}/c05", "cudnnConvolutionMode_t/c02", "cudnnSetConvolution2dDescriptor/c04")  # fmt: skip
@pytest.mark.parametrize("configuration", FLOATING)
@pytest.mark.parametrize("algo", list(Algo), ids=by_name)
def test_formula(run, refused, algo, configuration):
    operation = gradient(algo=algo, configuration=configuration, alpha=-1.75, beta=0.5)
    if configuration not in TAKES[algo]:
        refused(operation, NOT_SUPPORTED, f"{D}/c31")
        return
    run(operation)
    run(gradient((2, 5, 6, 5), (3, 5, 3, 3), algo=algo, configuration=configuration, mode=Mode.CUDNN_CONVOLUTION))
    # A dy of one output has the same layout in both formats.
    run(gradient((2, 4, 3, 3), (6, 4, 3, 3), algo=algo, configuration=configuration, padding=(0, 0)))


@shows(*(f"{D}/c{n:02}" for n in (11, 12, 13, 14, 15, 16)))
@pytest.mark.parametrize("dx_layout", LAYOUTS)
@pytest.mark.parametrize("algo", list(Algo), ids=by_name)
def test_layouts(run, refused, algo, dx_layout):
    """dx may have any layout but NCHW_VECT_C; the Fourier transforms take packed images. dy has gaps between images."""
    operation = gradient(algo=algo, dx_layout=dx_layout, beta=0.5)
    strides = operation.dy.strides
    operation = replace(operation, dy=replace(operation.dy, strides=(strides[0] + 5, *strides[1:])))
    if algo in (FFT, FFT_TILING) and not operation.dx.spatially_packed:
        refused(operation, NOT_SUPPORTED, f"{D}/c31")
    else:
        run(operation)
        if algo in DIRECT_SUMS:
            run(gradient(algo=algo, dx_layout=dx_layout, stride=(2, 3), beta=-0.5))


@shows(*(f"{D}/c{n:02}" for n in (17, 18, 19, 20)), "cudnnSetConvolutionNdDescriptor/c03")
@pytest.mark.parametrize("configuration", FLOATING)
@pytest.mark.parametrize("formats", [NCHW, NHWC], ids=by_name)
def test_3d(run, refused, formats, configuration):
    geometry: dict[str, Any] = {"dx": (2, 4, 4, 5, 3), "w": (4, 2, 2, 3, 2), "padding": (1, 0, 1), "groups": 2,
                                "configuration": configuration, "formats": formats}  # fmt: skip
    strides: dict[str, Any] = {"stride": (1, 2, 2)}
    dilated = {"dilation": (2, 1, 1), **strides}
    taken = {
        NCHW: {ALGO_0: (configuration != "TRUE_HALF", dilated), ALGO_1: (True, strides),
               FFT_TILING: (configuration in ("PSEUDO_HALF", "FLOAT", "DOUBLE"), {})},
        NHWC: {ALGO_1: (configuration != "DOUBLE", dilated)},
    }[formats]  # fmt: skip
    for algo in Algo:
        served, options = taken.get(algo, (False, {}))
        operation = gradient(algo=algo, **geometry, **options, beta=1.0)
        if served:
            run(operation)
            run(gradient(algo=algo, **geometry, **options, mode=Mode.CUDNN_CONVOLUTION))
        else:
            refused(operation, NOT_SUPPORTED, f"{D}/c31")
    if formats == NCHW:
        refused(gradient(**geometry, dilation=(2, 1, 1)), NOT_SUPPORTED, f"{D}/c31")


OUTSIDE: dict[str, tuple[Algo, dict[str, Any], dict[str, Any]]] = {
    # Each row has the algorithm, what it takes, and what it does not take.
    "fft dilation": (FFT, {}, {"dilation": (2, 1)}),
    "fft stride": (FFT, {}, {"stride": (2, 1)}),
    "fft padding": (FFT, {"padding": (2, 2)}, {"padding": (3, 2)}),
    "fft size": (FFT, {"dx": (1, 1, 3, 254), "w": (1, 1, 3, 3)}, {"dx": (1, 1, 3, 255), "w": (1, 1, 3, 3)}),
    "tiling filter": (FFT_TILING, {"dx": (1, 1, 32, 33), "w": (1, 1, 32, 32), "padding": (0, 0)},
                      {"dx": (1, 1, 33, 33), "w": (1, 1, 33, 32), "padding": (0, 0)}),
    "tiling filter in one dimension": (FFT_TILING, {"dx": (1, 1, 2, 260), "w": (1, 1, 1, 256), "padding": (0, 0)},
                                       {"dx": (1, 1, 2, 260), "w": (1, 1, 1, 257), "padding": (0, 0)}),
    "tiling stride": (FFT_TILING, {"stride": (2, 2)}, {"stride": (3, 1)}),
    "tiling odd strides": (FFT_TILING, {"stride": (2, 1), "w": (6, 4, 4, 5), "dx": (2, 4, 9, 8)}, {"stride": (1, 3)}),
    "tiling stride in one dimension": (FFT_TILING, {"w": (6, 4, 3, 1), "padding": (1, 0)},
                                       {"w": (6, 4, 3, 1), "padding": (1, 0), "stride": (2, 1)}),
    "tiling double": (FFT_TILING, {"configuration": "DOUBLE", "w": (6, 4, 1, 3), "padding": (0, 1)}, {"configuration": "DOUBLE"}),
    "winograd filter": (WINOGRAD, {"padding": (4, 0)}, {"w": (6, 4, 3, 2)}),
    "winograd stride": (WINOGRAD, {"padding": (0, 0)}, {"stride": (1, 2)}),
    "nonfused filter": (NONFUSED, {"w": (6, 4, 5, 5), "padding": (2, 6)}, {"w": (6, 4, 3, 5)}),
    "nonfused dilation": (NONFUSED, {"padding": (3, 0)}, {"dilation": (1, 2)}),
    "nonfused true half": (NONFUSED, {"configuration": "TRUE_HALF"}, {"configuration": "TRUE_HALF", "w": (6, 4, 5, 5)}),
    "tiling 3-D filter": (FFT_TILING, {"dx": (1, 1, 16, 2, 3), "w": (1, 1, 16, 2, 2), "padding": (0, 0, 0)},
                          {"dx": (1, 1, 17, 2, 3), "w": (1, 1, 17, 2, 2), "padding": (0, 0, 0)}),
    "tiling 3-D padding": (FFT_TILING, {"dx": (1, 1, 4, 4, 4), "w": (1, 1, 2, 3, 3), "padding": (1, 2, 2)},
                           {"dx": (1, 1, 4, 4, 4), "w": (1, 1, 2, 3, 3), "padding": (2, 2, 2)}),
}  # fmt: skip


@shows(f"{D}/c31", f"{SIZE}/c04", f"{SIZE}/c08", *(f"{D}/c{n:02}" for n in (13, 14, 15, 16, 19)))
@pytest.mark.parametrize("limit", OUTSIDE)
def test_limits_of_the_tables(caller, run, refused, refuses, limit):
    algo, inside, outside = OUTSIDE[limit]
    run(gradient(algo=algo, **inside))
    operation = gradient(algo=algo, **outside)
    refused(operation, NOT_SUPPORTED, f"{D}/c31")
    query = caller.cudnn.cudnnGetConvolutionBackwardDataWorkspaceSize
    refuses(NOT_SUPPORTED, f"{D}/c31", query, caller.handle, *described(caller, operation), algo)


@shows(f"{D}/c11", f"{D}/c12", f"{D}/c13", f"{D}/c15", f"{D}/c17")
@pytest.mark.parametrize("algo", list(Algo), ids=by_name)
def test_repeated_calls_are_equal_bit_by_bit(subject, run, algo):
    """Every algorithm gives the same bits here, ALGO_0 too (docs/errata.md, D213)."""
    if algo == ALGO_0 and not subject.cites_clauses:
        pytest.skip("the document calls its results non-deterministic")
    first, second = (run(gradient((2, 8, 8, 8), (16, 8, 3, 3), algo=algo)).after["dx"] for _ in range(2))
    assert np.array_equal(first, second)


@shows(f"{D}/c01")
def test_it_is_the_adjoint_of_the_forward_convolution(caller):
    """<conv(x, w), dy> equals <x, dx>, by two calls of the subject, exactly in small whole numbers."""
    for options in (
        {},
        {"stride": (2, 3), "dilation": (2, 1), "padding": (2, 0)},
        {"mode": Mode.CUDNN_CONVOLUTION, "w": (6, 4, 2, 3)},
    ):
        is_the_adjoint(caller, gradient(**options), DIRECT_SUMS)


TRANSFORMED: list[tuple[Algo, dict[str, Any]]] = [
    (FFT, {"padding": (2, 0)}),
    (FFT_TILING, {"dx": (2, 4, 40, 70), "w": (6, 4, 5, 4)}),
    (FFT_TILING, {"dx": (2, 4, 19, 34), "w": (6, 4, 5, 4), "stride": (2, 2)}),
    (WINOGRAD, {"dx": (2, 4, 11, 9)}),
    (NONFUSED, {"dx": (2, 4, 11, 9)}),
    (NONFUSED, {"dx": (2, 4, 11, 9), "w": (6, 4, 5, 5), "padding": (3, 1)}),
]


@shows(f"{D}/c01", *(f"{D}/c{n}" for n in range(13, 17)))
@pytest.mark.parametrize("algo, options", TRANSFORMED, ids=by_name)
def test_transforms_beside_direct_sums(caller, algo, options):
    for more in ({}, {"mode": Mode.CUDNN_CONVOLUTION, "beta": 1.0}):
        beside_direct_sums(caller, gradient(**options, algo=algo, **more), ALGO_0)
    _, depth, *taps = options.get("w", (6, 4, 3, 3))
    grouped = {**options, "w": (6, depth // 2, *taps)}
    beside_direct_sums(caller, gradient(**grouped, algo=algo, groups=2), ALGO_0)


@shows(f"{D}/c26", f"{SIZE}/c07")
@pytest.mark.parametrize("operand", ["w", "dy", "dx"])
@pytest.mark.parametrize("data_type", [HALF, DOUBLE, BFLOAT16, INT8, INT32], ids=by_name)
def test_data_types_must_agree(caller, refused, refuses, data_type, operand):
    base = gradient()
    changed = replace(base, **{operand: replace(getattr(base, operand), data_type=data_type)})
    refused(changed, BAD_PARAM, f"{D}/c26")
    query = caller.cudnn.cudnnGetConvolutionBackwardDataWorkspaceSize
    query(caller.handle, *described(caller, base), ALGO_1)
    refuses(BAD_PARAM, f"{SIZE}/c07", query, caller.handle, *described(caller, changed), ALGO_1)


@shows(f"{D}/c03", f"{SIZE}/c01", f"{SIZE}/c02")
@pytest.mark.parametrize("algo", list(Algo), ids=by_name)
def test_workspace(subject, caller, run, refuses, algo):
    """The reported size is enough; less, or NULL, is refused before anything is written."""
    operation = sized(caller, gradient((2, 8, 9, 8), (8, 8, 3, 3), algo=algo))
    run(operation)
    refuses_a_small_workspace(subject, caller, refuses, operation, missing=f"{D}/c03", small=f"{D}/c03")


@shows(f"{D}/c03")
@pytest.mark.parametrize("start", [1, 8])
@pytest.mark.parametrize("algo", [algo for algo in Algo if algo != ALGO_0], ids=by_name)
def test_workspaces_begin_anywhere(subject, caller, algo, start):
    """The reported size is enough at any address, no byte outside it is written, and the result has the same bits."""
    for configuration, math_type in (("FLOAT", FMA), ("PSEUDO_HALF", DEFAULT)):
        operation = sized(
            caller, gradient((1, 20, 5, 5), (24, 20, 3, 3), configuration=configuration, algo=algo, math_type=math_type)
        )
        takes_a_workspace_anywhere(subject, caller, operation, start)
