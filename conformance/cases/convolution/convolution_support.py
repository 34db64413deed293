"""Holds cases of tables 17 to 22: each row works, and its nearest neighbours outside the table are refused."""

from __future__ import annotations

from typing import Any

import pytest
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.operations.specs import FLOAT, NCHW, NCHW_VECT_C, NHWC
from dualdnn.api.status import NOT_SUPPORTED
from dualdnn.conformance.calls import described, sized
from dualdnn.conformance.marks import shows

from .convolution import (
    FFT,
    FFT_TILING,
    FLOATING,
    GEMM,
    IMPLICIT,
    NONFUSED,
    PRECOMP,
    VECTORISED,
    WINOGRAD,
    by_name,
    convolution,
)

F = "cudnnConvolutionForward"
QUERY = "cudnnGetConvolutionForwardWorkspaceSize"
SMALL: dict[str, Any] = {"x": (2, 3, 8, 9), "w": (4, 3, 3, 3)}
SMALL_3D: dict[str, Any] = {"x": (2, 3, 4, 5, 4), "w": (4, 3, 3, 2, 3)}
BY_4: dict[str, Any] = {"x": (2, 8, 5, 4), "w": (4, 8, 3, 3)}
BY_32: dict[str, Any] = {"x": (1, 32, 4, 4), "w": (32, 32, 3, 3), "configuration": "INT8x32", "formats": NCHW_VECT_C}

# Each algorithm has the data types of its row in table 18.
TYPES_2D = {
    IMPLICIT: tuple(FLOATING),
    PRECOMP: tuple(FLOATING),
    GEMM: ("PSEUDO_HALF", "FLOAT", "DOUBLE"),
    FFT: ("PSEUDO_HALF", "FLOAT"),
    FFT_TILING: ("PSEUDO_HALF", "FLOAT"),
    WINOGRAD: ("PSEUDO_HALF", "FLOAT"),
    NONFUSED: ("TRUE_HALF", "PSEUDO_HALF", "PSEUDO_BFLOAT16", "FLOAT"),
}


# No row of the tables lists these neighbours.
REFUSED = [
    (PRECOMP, "dilation", {**SMALL, "dilation": (2, 1)}),
    (GEMM, "dilation", {**SMALL, "dilation": (1, 2)}),
    (GEMM, "3-D", SMALL_3D),
    (GEMM, "NHWC filter", {**SMALL, "formats": NHWC}),
    (FFT, "dilation", {**SMALL, "dilation": (1, 2)}),
    (FFT, "padded input 257", {"x": (1, 1, 255, 4), "w": (1, 1, 3, 3)}),
    (FFT, "padded width 257", {"x": (1, 1, 4, 253), "w": (1, 1, 3, 3), "padding": (2, 2)}),
    (FFT, "stride", {**SMALL, "stride": (1, 2)}),
    (FFT, "padding of a filter's height", {**SMALL, "padding": (3, 1)}),
    (FFT, "padding of a filter's width", {**SMALL, "padding": (1, 3)}),
    (FFT, "3-D", SMALL_3D),
    (FFT, "x not HW-packed", {**SMALL, "x_layout": "gaps"}),
    (FFT, "y not HW-packed", {**SMALL, "y_layout": "gaps"}),
    (FFT, "NHWC", {**SMALL, "formats": (NHWC, NCHW, NCHW)}),
    (FFT_TILING, "dilation", {**SMALL, "dilation": (2, 1)}),
    (FFT_TILING, "filter 33", {"x": (1, 1, 35, 35), "w": (2, 1, 33, 2)}),
    (FFT_TILING, "filter 257", {"x": (1, 1, 2, 260), "w": (2, 1, 1, 257), "padding": (0, 1)}),
    (FFT_TILING, "stride 3", {**SMALL, "stride": (3, 1)}),
    (FFT_TILING, "stride 2 in 1-D", {"x": (2, 3, 8, 9), "w": (4, 3, 1, 5), "padding": (0, 2), "stride": (1, 2)}),
    (FFT_TILING, "padding of a filter's height", {**SMALL, "padding": (3, 1)}),
    (FFT_TILING, "padding of a filter's width", {**SMALL, "padding": (1, 3)}),
    (FFT_TILING, "DOUBLE in 2-D", {**SMALL, "configuration": "DOUBLE"}),
    (FFT_TILING, "y not HW-packed", {**SMALL, "y_layout": "odd"}),
    (FFT_TILING, "NHWC filter", {**SMALL, "formats": NHWC}),
    (FFT_TILING, "3-D filter 17", {"x": (1, 1, 17, 17, 17), "w": (1, 1, 16, 17, 16)}),
    (FFT_TILING, "3-D stride", {**SMALL_3D, "stride": (1, 2, 1)}),
    (FFT_TILING, "3-D dilation", {**SMALL_3D, "dilation": (1, 1, 2), "padding": (1, 1, 2)}),
    (FFT_TILING, "3-D padding", {**SMALL_3D, "padding": (3, 1, 1)}),
    (FFT_TILING, "3-D padding of a filter's width", {**SMALL_3D, "padding": (1, 1, 3)}),
    (FFT_TILING, "3-D BFLOAT16", {**SMALL_3D, "configuration": "PSEUDO_BFLOAT16"}),
    (FFT_TILING, "3-D x not DHW-packed", {**SMALL_3D, "x_layout": "gaps"}),
    (WINOGRAD, "dilation", {**SMALL, "dilation": (2, 1)}),
    (WINOGRAD, "stride", {**SMALL, "stride": (2, 1)}),
    (WINOGRAD, "5x5", {"x": (2, 3, 9, 8), "w": (4, 3, 5, 5)}),
    (WINOGRAD, "3x2", {**SMALL, "w": (4, 3, 3, 2)}),
    (WINOGRAD, "3-D", {"x": (1, 2, 4, 4, 4), "w": (2, 2, 3, 3, 3)}),
    (WINOGRAD, "NHWC filter", {**SMALL, "formats": NHWC}),
    (NONFUSED, "dilation", {**SMALL, "dilation": (1, 2)}),
    (NONFUSED, "stride", {**SMALL, "stride": (1, 2)}),
    (NONFUSED, "3x5", {"x": (2, 3, 9, 8), "w": (4, 3, 3, 5)}),
    (NONFUSED, "4x4", {"x": (2, 3, 9, 8), "w": (4, 3, 4, 4)}),
    (NONFUSED, "5x5 TRUE_HALF", {"x": (2, 3, 9, 8), "w": (4, 3, 5, 5), "configuration": "TRUE_HALF"}),
    (NONFUSED, "NHWC filter", {**SMALL, "formats": NHWC}),
    (IMPLICIT, "TRUE_HALF in 3-D", {**SMALL_3D, "configuration": "TRUE_HALF"}),
    (PRECOMP, "TRUE_HALF in 3-D", {**SMALL_3D, "configuration": "TRUE_HALF"}),
    (IMPLICIT, "3-D NHWC", {**SMALL_3D, "formats": NHWC}),
    (PRECOMP, "3-D NHWC DOUBLE", {**SMALL_3D, "formats": NHWC, "configuration": "DOUBLE"}),
    (PRECOMP, "3-D NHWC TRUE_HALF", {**SMALL_3D, "formats": NHWC, "configuration": "TRUE_HALF"}),
    (PRECOMP, "3-D NHWC to NCHW", {**SMALL_3D, "formats": (NHWC, NHWC, NCHW)}),
    (IMPLICIT, "NHWC filter, NCHW x", {**SMALL, "formats": (NCHW, NHWC, NHWC)}),
    (PRECOMP, "NHWC filter, x with gaps", {**SMALL, "formats": NHWC, "x_layout": "odd"}),
    (IMPLICIT, "NHWC filter, y with gaps", {**SMALL, "formats": NHWC, "y_layout": "gaps"}),
    (IMPLICIT, "INT8 dilation", {**BY_4, "configuration": "INT8", "formats": NHWC, "dilation": (2, 1)}),
    (IMPLICIT, "INT8 6 input channels", {"x": (2, 6, 5, 4), "w": (4, 6, 3, 3), "configuration": "INT8", "formats": NHWC}),
    (PRECOMP, "INT8_EXT 6 input channels", {"x": (2, 6, 5, 4), "w": (4, 6, 3, 3), "configuration": "INT8_EXT", "formats": NHWC}),
    (PRECOMP, "INT8 6 output channels", {**BY_4, "w": (6, 8, 3, 3), "configuration": "INT8", "formats": NHWC}),
    (IMPLICIT, "UINT8 6 output channels", {**BY_4, "w": (6, 8, 3, 3), "configuration": "UINT8", "formats": NHWC}),
    (IMPLICIT, "INT8 NCHW", {**BY_4, "configuration": "INT8"}),
    (IMPLICIT, "INT8_EXT to NCHW", {**BY_4, "configuration": "INT8_EXT", "formats": (NHWC, NHWC, NCHW)}),
    (IMPLICIT, "INT8 in 3-D", {"x": (1, 4, 4, 4, 4), "w": (4, 4, 3, 3, 3), "configuration": "INT8", "formats": NHWC}),
    (PRECOMP, "INT8x4 dilation", {**BY_4, "configuration": "INT8x4", "formats": NCHW_VECT_C, "dilation": (1, 2)}),
    (PRECOMP, "INT8x4_EXT with gaps in y", {**BY_4, "configuration": "INT8x4_EXT", "formats": NCHW_VECT_C, "y_layout": "gaps"}),
    (IMPLICIT, "INT8x32", BY_32),
    (PRECOMP, "INT8x32 dilation", {**BY_32, "dilation": (2, 1)}),
]  # fmt: skip


def named(entries: Any) -> list[Any]:
    return [pytest.param(algo, arguments, id=f"{algo.name[27:]} {what}") for algo, what, arguments in entries]


@pytest.fixture
def run(trial, caller):
    def go(operation, **options):
        return trial(sized(caller, operation), **options)

    return go


@shows("cudnnConvolutionForward/c24-c30 c33 c34 c36 c37 c39 c41 c43 c58", "cudnnDataType_t/c04",
       "cudnnGetConvolutionForwardWorkspaceSize/c04 c11")  # fmt: skip
@pytest.mark.parametrize("algo, arguments", named(REFUSED))
def test_neighbours_are_refused(caller, refused, refuses, algo, arguments):
    operation = convolution(algo=algo, **arguments)
    refused(operation, NOT_SUPPORTED, f"{F}/c58")
    query = caller.cudnn.cudnnGetConvolutionForwardWorkspaceSize
    refuses(NOT_SUPPORTED, f"{QUERY}/c11", query, caller.handle, *described(caller, operation), algo)


@shows(*(f"{F}/c{n:02}" for n in range(24, 31)))
@pytest.mark.parametrize("configuration", FLOATING)
@pytest.mark.parametrize("algo", TYPES_2D, ids=by_name)
def test_data_types_of_each_algorithm(run, refused, algo, configuration):
    operation = convolution(**SMALL, algo=algo, configuration=configuration)
    if configuration in TYPES_2D[algo]:
        run(operation)
    else:
        refused(operation, NOT_SUPPORTED, f"{F}/c58")


@shows(*(f"{F}/c{n:02}" for n in range(12, 21)), "cudnnDataType_t/c04")
@pytest.mark.parametrize("configuration", ["INT8", "INT8_EXT", "UINT8", "UINT8_EXT", *VECTORISED])
@pytest.mark.parametrize("algo", [algo for algo in Algo if algo > PRECOMP], ids=by_name)
def test_integers_have_two_algorithms(refused, algo, configuration):
    shapes = BY_32 if configuration == "INT8x32" else BY_4
    formats = NCHW_VECT_C if configuration in VECTORISED else NHWC
    if configuration in ("INT8x4_EXT", "UINT8x4_EXT"):
        formats = (NCHW_VECT_C, NCHW_VECT_C, NCHW)
    operation = convolution(**{**shapes, "configuration": configuration, "formats": formats}, algo=algo)
    refused(operation, NOT_SUPPORTED, f"{F}/c58")


@shows("cudnnConvolutionFwdAlgo_t/c05")
def test_tiling_needs_less_workspace_than_fft_for_large_images(caller):
    query = caller.cudnn.cudnnGetConvolutionForwardWorkspaceSize
    large = convolution((8, 16, 250, 250), (16, 16, 3, 3))
    assert large.x.data_type == FLOAT
    needed = {algo: query(caller.handle, *described(caller, large), algo) for algo in (FFT, FFT_TILING)}
    assert needed[FFT_TILING] < needed[FFT] or needed[FFT] == 0
