"""Hold tables 12 to 15 (5.2.8) and 36 to 39 (6.2.2): the data types, formats and shapes that each gradient algorithm
supports.

A gradient's problem is that of its forward convolution: x describes the input or its gradient, and y describes dy.
"""

from __future__ import annotations

from ..enumerations import cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t
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
    Rule,
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
(
    FILTER_ALGO_0,
    FILTER_ALGO_1,
    FILTER_FFT,
    FILTER_ALGO_3,
    FILTER_WINOGRAD,
    FILTER_WINOGRAD_NONFUSED,
    FILTER_FFT_TILING,
) = cudnnConvolutionBwdFilterAlgo_t

# These algorithms have a CUDNN_TENSOR_OP_MATH variant in addition to the default one (docs/errata.md, D241, D291).
DATA_TENSOR_OP_ALGORITHMS = (DATA_ALGO_1, DATA_WINOGRAD_NONFUSED)
FILTER_TENSOR_OP_ALGORITHMS = (FILTER_ALGO_1, FILTER_WINOGRAD_NONFUSED)
# Sections 5.1.3.8 and 5.1.3.9 call these algorithms non-deterministic (docs/errata.md, D213, D275).
DATA_UNORDERED_ALGORITHMS = (DATA_ALGO_0,)
FILTER_UNORDERED_ALGORITHMS = (FILTER_ALGO_0, FILTER_ALGO_3)

NCHW_PACKED: Layout = (
    "NCHW with packed channels and spatial dimensions",
    packed_inside(lambda r: (1, *spatial_axes(r))),
)
FULLY_PACKED: Layout = ("NCHW fully packed", packed_inside(lambda r: (0, 1, *spatial_axes(r))))
ROWS_OF_UP_TO_256: Rule = (
    "a height or width of 1 in xDesc and dyDesc and the other of dyDesc 256 or less",
    lambda p: any(p.x.dims[d] == p.y.dims[d] == 1 and p.y.dims[5 - d] <= 256 for d in (2, 3)),
)
WITHOUT_TRUE_HALF = (PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG, DOUBLE_CONFIG)
WITHOUT_DOUBLE = (TRUE_HALF, PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG)

_D = "cudnnConvolutionBackwardData"
DATA_ROWS = (
    # These rows are table 12: 2-D, filter NHWC.
    Row(f"{_D}/c10", 2, (DATA_ALGO_0, DATA_ALGO_1), NHWC, NHWC_PACKED, NHWC_PACKED, WITHOUT_DOUBLE),
    # These rows are table 13: 2-D, filter NCHW.
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
    # These rows are table 14: 3-D, filter NCHW.
    Row(f"{_D}/c17", 3, (DATA_ALGO_0,), NCHW, ANY_LAYOUT, NCHW_PACKED,
        (PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG, DOUBLE_CONFIG)),
    Row(f"{_D}/c18", 3, (DATA_ALGO_1,), NCHW, NCHW_PACKED, NCHW_PACKED, FLOATING, (NO_DILATION,)),
    Row(f"{_D}/c19", 3, (DATA_FFT_TILING,), NCHW, NCHW_SPATIALLY_PACKED, NCHW_PACKED,
        (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG), (NO_DILATION, FILTER_UP_TO_16, STRIDE_1, PADDING_BELOW_FILTER)),
    # These rows are table 15: 3-D, filter NHWC.
    Row(f"{_D}/c20", 3, (DATA_ALGO_1,), NHWC, NHWC_PACKED, NHWC_PACKED, WITHOUT_DOUBLE),
)  # fmt: skip


def data_unsupported(problem: Problem, algorithm: cudnnConvolutionBwdDataAlgo_t) -> str | None:
    """Return why no row of tables 12 to 15 covers this problem with this algorithm, or None if a row does."""
    return violation(problem, algorithm, DATA_ROWS, ("dxDesc", "wDesc", "dyDesc"))


_F = "cudnnConvolutionBackwardFilter"
# The column with the heading dyDesc applies to dy, and dxDesc to x (docs/errata.md, D274).
FILTER_ROWS = (
    # These rows are table 36: 2-D, filter NHWC.
    Row(f"{_F}/c13", 2, (FILTER_ALGO_0, FILTER_ALGO_1), NHWC, NHWC_PACKED, ANY_LAYOUT, (PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG)),
    # These rows are table 37: 2-D, filter NCHW.
    Row(f"{_F}/c14", 2, (FILTER_ALGO_0,), NCHW, NCHW_PACKED, ANY_LAYOUT, WITHOUT_TRUE_HALF),
    Row(f"{_F}/c15", 2, (FILTER_ALGO_1,), NCHW, NCHW_PACKED, ANY_LAYOUT, WITHOUT_TRUE_HALF),
    Row(f"{_F}/c16", 2, (FILTER_FFT,), NCHW, NCHW_PACKED, NCHW_PACKED, (PSEUDO_HALF, FLOAT_CONFIG),
        (NO_DILATION, PADDED_INPUT_UP_TO_256, STRIDE_1, PADDING_BELOW_FILTER)),
    Row(f"{_F}/c17", 2, (FILTER_ALGO_3,), NCHW, NCHW_PACKED, ANY_LAYOUT, (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG), (NO_DILATION,)),
    Row(f"{_F}/c18", 2, (FILTER_WINOGRAD_NONFUSED,), NCHW, NCHW_PACKED, ANY_LAYOUT, WITHOUT_DOUBLE,
        (NO_DILATION, STRIDE_1, FILTER_3_OR_5)),
    Row(f"{_F}/c19", 2, (FILTER_FFT_TILING,), NCHW, NCHW_PACKED, NCHW_PACKED, (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG),
        (NO_DILATION, ROWS_OF_UP_TO_256, STRIDE_1, PADDING_BELOW_FILTER)),
    # These rows are table 38: 3-D, filter NCHW.
    Row(f"{_F}/c20", 3, (FILTER_ALGO_0,), NCHW, NCHW_PACKED, ANY_LAYOUT, WITHOUT_TRUE_HALF),
    Row(f"{_F}/c21", 3, (FILTER_ALGO_3,), NCHW, FULLY_PACKED, FULLY_PACKED, (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG)),
    # These rows are table 39: 3-D, filter NHWC.
    Row(f"{_F}/c22", 3, (FILTER_ALGO_1,), NHWC, NHWC_PACKED, NHWC_PACKED, WITHOUT_DOUBLE),
)  # fmt: skip


def filter_unsupported(problem: Problem, algorithm: cudnnConvolutionBwdFilterAlgo_t) -> str | None:
    """Return why no row of tables 36 to 39 covers this problem with this algorithm, or None if a row does."""
    return violation(problem, algorithm, FILTER_ROWS, ("xDesc", "dwDesc", "dyDesc"))
