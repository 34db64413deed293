"""Tables 12 to 15 (5.2.8): which data types, formats and shapes each algorithm of the data gradient takes.

The problem of a gradient is that of its forward convolution: x is described as the gradient dx, y as dy.
"""

from __future__ import annotations

from ..enumerations import cudnnConvolutionBwdDataAlgo_t
from ..operations.specs import NCHW, NHWC
from .convolution import (
    ANY_LAYOUT,
    DOUBLE_CONFIG,
    DOUBLE_NEEDS_1D,
    FILTER_3,
    FILTER_3_OR_5,
    FILTER_UP_TO_16,
    FLOAT_CONFIG,
    FLOATING,
    NCHW_SPATIALLY_PACKED,
    NHWC_PACKED,
    NO_DILATION,
    PADDED_INPUT_UP_TO_256,
    PADDING_BELOW_FILTER,
    PSEUDO_BFLOAT16,
    PSEUDO_HALF,
    STRIDE_1,
    TILED_FILTER,
    TILED_STRIDE,
    TRUE_HALF,
    Layout,
    Problem,
    Row,
    packed_inside,
    spatial_axes,
    violation,
)

(
    DATA_ALGO_0,
    DATA_ALGO_1,
    DATA_FFT,
    DATA_FFT_TILING,
    DATA_WINOGRAD,
    DATA_WINOGRAD_NONFUSED,
) = cudnnConvolutionBwdDataAlgo_t

NCHW_PACKED: Layout = (
    "NCHW with packed channels and spatial dimensions",
    packed_inside(lambda r: (1, *spatial_axes(r))),
)
WITHOUT_DOUBLE = (TRUE_HALF, PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG)

_D = "cudnnConvolutionBackwardData"
DATA_ROWS = (
    # Table 12: 2-D, filter NHWC
    Row(f"{_D}/c10", 2, (DATA_ALGO_0, DATA_ALGO_1), NHWC, NHWC_PACKED, NHWC_PACKED, WITHOUT_DOUBLE),
    # Table 13: 2-D, filter NCHW
    Row(f"{_D}/c11", 2, (DATA_ALGO_0,), NCHW, ANY_LAYOUT, NCHW_PACKED, FLOATING),
    Row(f"{_D}/c12", 2, (DATA_ALGO_1,), NCHW, ANY_LAYOUT, NCHW_PACKED, FLOATING),
    Row(f"{_D}/c13", 2, (DATA_FFT,), NCHW, NCHW_SPATIALLY_PACKED, NCHW_PACKED, (PSEUDO_HALF, FLOAT_CONFIG),
        (NO_DILATION, PADDED_INPUT_UP_TO_256, STRIDE_1, PADDING_BELOW_FILTER)),
    Row(f"{_D}/c14", 2, (DATA_FFT_TILING,), NCHW, NCHW_SPATIALLY_PACKED, NCHW_PACKED,
        (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG),
        (DOUBLE_NEEDS_1D, NO_DILATION, TILED_FILTER, TILED_STRIDE, PADDING_BELOW_FILTER)),
    Row(f"{_D}/c15", 2, (DATA_WINOGRAD,), NCHW, ANY_LAYOUT, NCHW_PACKED, (PSEUDO_HALF, FLOAT_CONFIG),
        (NO_DILATION, STRIDE_1, FILTER_3)),
    Row(f"{_D}/c16", 2, (DATA_WINOGRAD_NONFUSED,), NCHW, ANY_LAYOUT, NCHW_PACKED, WITHOUT_DOUBLE,
        (NO_DILATION, STRIDE_1, FILTER_3_OR_5)),
    # Table 14: 3-D, filter NCHW
    Row(f"{_D}/c17", 3, (DATA_ALGO_0,), NCHW, ANY_LAYOUT, NCHW_PACKED,
        (PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG, DOUBLE_CONFIG)),
    Row(f"{_D}/c18", 3, (DATA_ALGO_1,), NCHW, NCHW_PACKED, NCHW_PACKED, FLOATING, (NO_DILATION,)),
    Row(f"{_D}/c19", 3, (DATA_FFT_TILING,), NCHW, NCHW_SPATIALLY_PACKED, NCHW_PACKED,
        (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG), (NO_DILATION, FILTER_UP_TO_16, STRIDE_1, PADDING_BELOW_FILTER)),
    # Table 15: 3-D, filter NHWC
    Row(f"{_D}/c20", 3, (DATA_ALGO_1,), NHWC, NHWC_PACKED, NHWC_PACKED, WITHOUT_DOUBLE),
)  # fmt: skip


def data_unsupported(problem: Problem, algorithm: cudnnConvolutionBwdDataAlgo_t) -> str | None:
    """Why tables 12 to 15 do not have this problem for this algorithm; None where a row does."""
    return violation(problem, algorithm, DATA_ROWS, ("dxDesc", "wDesc", "dyDesc"))
