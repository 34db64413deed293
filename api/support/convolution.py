"""Hold tables 17 to 22 (5.2.10) and 16 (5.2.9): the data types, formats and shapes that each forward algorithm
supports.

docs/errata.md (D222 to D231) decides the cells that the source lost or merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from ..enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDataType_t,
    cudnnTensorFormat_t,
)
from ..operations import ConvolutionBiasActivationForward, ConvolutionSpec, FilterSpec, TensorSpec
from ..operations.specs import (
    BFLOAT16,
    DOUBLE,
    FLOAT,
    HALF,
    INT8,
    INT32,
    NCHW,
    NCHW_VECT_C,
    NHWC,
    UINT8,
    INT8x4,
    INT8x32,
    UINT8x4,
)

IMPLICIT_GEMM = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
IMPLICIT_PRECOMP_GEMM = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
GEMM = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_GEMM
DIRECT = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_DIRECT
FFT = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_FFT
FFT_TILING = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING
WINOGRAD = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
WINOGRAD_NONFUSED = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED

POSITIONS = 2**31  # positions of a padded input along one dimension, the exclusive limit (docs/errata.md, D670)

# These algorithms have a CUDNN_TENSOR_OP_MATH variant in addition to the default one (docs/errata.md, D241).
TENSOR_OP_ALGORITHMS = (IMPLICIT_PRECOMP_GEMM, WINOGRAD_NONFUSED)


@dataclass(frozen=True)
class Configuration:
    """Hold a row of table 17 and, if listed, of table 16; bias is None if only the plain convolution exists."""

    name: str
    x: cudnnDataType_t
    w: cudnnDataType_t
    compute: cudnnDataType_t
    y: cudnnDataType_t
    bias: cudnnDataType_t | None


TRUE_HALF = Configuration("TRUE_HALF_CONFIG", HALF, HALF, HALF, HALF, None)
PSEUDO_HALF = Configuration("PSEUDO_HALF_CONFIG", HALF, HALF, FLOAT, HALF, HALF)
PSEUDO_BFLOAT16 = Configuration("PSEUDO_BFLOAT16_CONFIG", BFLOAT16, BFLOAT16, FLOAT, BFLOAT16, BFLOAT16)
FLOAT_CONFIG = Configuration("FLOAT_CONFIG", FLOAT, FLOAT, FLOAT, FLOAT, FLOAT)
DOUBLE_CONFIG = Configuration("DOUBLE_CONFIG", DOUBLE, DOUBLE, DOUBLE, DOUBLE, DOUBLE)
INT8_CONFIG = Configuration("INT8_CONFIG", INT8, INT8, INT32, INT8, FLOAT)
INT8_EXT = Configuration("INT8_EXT_CONFIG", INT8, INT8, INT32, FLOAT, FLOAT)
INT8x4_CONFIG = Configuration("INT8x4_CONFIG", INT8x4, INT8x4, INT32, INT8x4, FLOAT)
INT8x4_EXT = Configuration("INT8x4_EXT_CONFIG", INT8x4, INT8x4, INT32, FLOAT, FLOAT)
UINT8_CONFIG = Configuration("UINT8_CONFIG", UINT8, INT8, INT32, INT8, FLOAT)
UINT8x4_CONFIG = Configuration("UINT8x4_CONFIG", UINT8x4, INT8x4, INT32, INT8x4, FLOAT)
UINT8_EXT = Configuration("UINT8_EXT_CONFIG", UINT8, INT8, INT32, FLOAT, FLOAT)
UINT8x4_EXT = Configuration("UINT8x4_EXT_CONFIG", UINT8x4, INT8x4, INT32, FLOAT, FLOAT)
INT8x32_CONFIG = Configuration("INT8x32_CONFIG", INT8x32, INT8x32, INT32, INT8x32, FLOAT)

CONFIGURATIONS = (
    TRUE_HALF, PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG, DOUBLE_CONFIG, INT8_CONFIG, INT8_EXT, INT8x4_CONFIG,
    INT8x4_EXT, UINT8_CONFIG, UINT8x4_CONFIG, UINT8_EXT, UINT8x4_EXT, INT8x32_CONFIG,
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Hold the descriptors that the tables are looked up with."""

    convolution: ConvolutionSpec
    x: TensorSpec
    w: FilterSpec
    y: TensorSpec

    @property
    def configuration(self) -> Configuration | None:
        """Return the row of table 17 with these data types."""
        types = (self.x.data_type, self.w.data_type, self.convolution.compute_type, self.y.data_type)
        return next((c for c in CONFIGURATIONS if (c.x, c.w, c.compute, c.y) == types), None)

    @property
    def types_are_listed(self) -> bool:
        """Return whether a row of table 17 has these tensor types, with any compute type."""
        types = (self.x.data_type, self.w.data_type, self.y.data_type)
        return any((c.x, c.w, c.y) == types for c in CONFIGURATIONS)


def facts(problem: Problem, algorithm: IntEnum) -> dict[str, Any]:
    """Return the facts by which served.json says that a release of cuDNN supports a problem outside the tables.

    They are empty for positions beyond 32 bits, which no release supports.
    """
    if beyond_positions(problem.convolution, problem.x, "x"):
        return {}
    configuration = problem.configuration
    return {
        "algorithm": algorithm.name,
        "spatial": problem.convolution.rank,
        "filter_format": problem.w.format.name,
        "configuration": configuration and configuration.name,
    }


Rule = tuple[str, Callable[[Problem], bool]]
Layout = tuple[str, Callable[[TensorSpec], bool]]


def packed_inside(order: Callable[[int], tuple[int, ...]]) -> Callable[[TensorSpec], bool]:
    """Return a predicate: whether the dimensions in ``order(rank)``, outermost first, are the innermost in memory and
    packed."""

    def fits(tensor: TensorSpec) -> bool:
        step = 1
        for dimension in reversed(order(tensor.rank)):
            if tensor.dims[dimension] > 1 and tensor.strides[dimension] != step:
                return False
            step *= tensor.dims[dimension]
        return tensor.vector_length == 1

    return fits


def spatial_axes(rank: int) -> tuple[int, ...]:
    return tuple(range(2, rank))


ANY_LAYOUT: Layout = ("any format except NCHW_VECT_C", lambda t: t.vector_length == 1)
VECTORISED: Layout = ("NCHW_VECT_C", lambda t: t.vector_length > 1)
# The EXT configurations have a plain FLOAT output, which vectorised formats cannot hold (docs/errata.md, D225).
VECTORISED_OR_FLOAT: Layout = (
    "NCHW_VECT_C, or NCHW CHW-packed where it is FLOAT",
    lambda t: t.vector_length > 1 or (t.data_type == FLOAT and packed_inside(lambda r: (1, *spatial_axes(r)))(t)),
)
NCHW_SPATIALLY_PACKED: Layout = ("NCHW with packed spatial dimensions", packed_inside(spatial_axes))
NHWC_FULLY_PACKED: Layout = ("NHWC fully packed", packed_inside(lambda r: (0, *spatial_axes(r), 1)))
NHWC_PACKED: Layout = (
    "NHWC with packed spatial dimensions and channels",
    packed_inside(lambda r: (*spatial_axes(r), 1)),
)
NHWC_OR_NCHW_PACKED: Layout = (
    "NHWC with packed spatial dimensions and channels, or NCHW with packed channels and spatial dimensions",
    lambda t: NHWC_PACKED[1](t) or packed_inside(lambda r: (1, *spatial_axes(r)))(t),
)

NO_DILATION: Rule = ("dilation 1 in all dimensions", lambda p: max(p.convolution.dilation) == 1)
STRIDE_1: Rule = ("stride 1 in all dimensions", lambda p: max(p.convolution.stride) == 1)
PADDING_BELOW_FILTER: Rule = (
    "filter sizes greater than the padding",
    lambda p: all(size > padding for size, padding in zip(p.w.dims[2:], p.convolution.padding, strict=True)),
)
PADDED_INPUT_UP_TO_256: Rule = (
    "input sizes with padding of 256 or less",
    lambda p: all(i + 2 * q <= 256 for i, q in zip(p.x.dims[2:], p.convolution.padding, strict=True)),
)
TILED_FILTER: Rule = (
    "filter sizes of 32 or less, 256 where one of them is 1",
    lambda p: max(p.w.dims[2:]) <= (256 if 1 in p.w.dims[2:] else 32),
)
TILED_STRIDE: Rule = (
    "stride 1 where a filter size is 1, else 1 or 2",
    lambda p: max(p.convolution.stride) <= (1 if 1 in p.w.dims[2:] else 2),
)
DOUBLE_NEEDS_1D: Rule = (
    "with DOUBLE_CONFIG, a filter size of 1",
    lambda p: p.configuration is not DOUBLE_CONFIG or 1 in p.w.dims[2:],
)
FILTER_UP_TO_16: Rule = ("filter sizes of 16 or less", lambda p: max(p.w.dims[2:]) <= 16)
FILTER_3: Rule = ("a filter of 3 x 3", lambda p: p.w.dims[2:] == (3, 3))
FILTER_3_OR_5: Rule = (
    "a filter of 3 x 3, or 5 x 5 except with TRUE_HALF_CONFIG",
    lambda p: p.w.dims[2:] == (3, 3) or (p.w.dims[2:] == (5, 5) and p.configuration is not TRUE_HALF),
)
CHANNELS_BY_4: Rule = ("input channels in multiples of 4", lambda p: p.x.dims[1] % 4 == 0)
FILTERS_BY_4: Rule = (
    "output channels in multiples of 4 unless the output is FLOAT",
    lambda p: p.y.dims[1] % 4 == 0 or p.configuration in (INT8_EXT, UINT8_EXT),
)


@dataclass(frozen=True)
class Row:
    """Hold one row of tables 18 to 22. spatial: the number of spatial dimensions. clause: the row's clause."""

    clause: str
    spatial: int
    algorithms: tuple[IntEnum, ...]
    filter_format: cudnnTensorFormat_t
    x: Layout
    y: Layout
    configurations: tuple[Configuration, ...]
    rules: tuple[Rule, ...] = ()

    def violated(self, problem: Problem, names: tuple[str, str, str]) -> str | None:
        """Return the first requirement of the row that the problem violates, or None. names: the arguments that
        describe x, w and y."""
        configuration = problem.configuration
        if configuration not in self.configurations:
            return f"one of {', '.join(c.name for c in self.configurations)}"
        for name, tensor, (text, fits) in ((names[0], problem.x, self.x), (names[2], problem.y, self.y)):
            if not fits(tensor):
                return f"{name} in {text}"
        return next((text for text, holds in self.rules if not holds(problem)), None)


_F = "cudnnConvolutionForward"
GEMMS = (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM)
FLOATING = (TRUE_HALF, PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG, DOUBLE_CONFIG)

ROWS = (
    # These rows are table 18: 2-D, filter NCHW.
    Row(f"{_F}/c24", 2, (IMPLICIT_GEMM,), NCHW, ANY_LAYOUT, ANY_LAYOUT, FLOATING),
    Row(f"{_F}/c25", 2, (IMPLICIT_PRECOMP_GEMM,), NCHW, ANY_LAYOUT, ANY_LAYOUT, FLOATING, (NO_DILATION,)),
    Row(f"{_F}/c26", 2, (GEMM,), NCHW, ANY_LAYOUT, ANY_LAYOUT, (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG), (NO_DILATION,)),
    Row(f"{_F}/c27", 2, (FFT,), NCHW, NCHW_SPATIALLY_PACKED, NCHW_SPATIALLY_PACKED, (PSEUDO_HALF, FLOAT_CONFIG),
        (NO_DILATION, PADDED_INPUT_UP_TO_256, STRIDE_1, PADDING_BELOW_FILTER)),
    Row(f"{_F}/c28", 2, (FFT_TILING,), NCHW, NCHW_SPATIALLY_PACKED, NCHW_SPATIALLY_PACKED,
        (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG),
        (DOUBLE_NEEDS_1D, NO_DILATION, TILED_FILTER, TILED_STRIDE, PADDING_BELOW_FILTER)),
    Row(f"{_F}/c29", 2, (WINOGRAD,), NCHW, ANY_LAYOUT, ANY_LAYOUT, (PSEUDO_HALF, FLOAT_CONFIG),
        (NO_DILATION, STRIDE_1, FILTER_3)),
    Row(f"{_F}/c30", 2, (WINOGRAD_NONFUSED,), NCHW, ANY_LAYOUT, ANY_LAYOUT,
        (TRUE_HALF, PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG), (NO_DILATION, STRIDE_1, FILTER_3_OR_5)),
    # These rows are table 19: 2-D, filter NCHW_VECT_C.
    Row(f"{_F}/c33", 2, GEMMS, NCHW_VECT_C, VECTORISED, VECTORISED_OR_FLOAT,
        (INT8x4_CONFIG, UINT8x4_CONFIG, INT8x4_EXT, UINT8x4_EXT), (NO_DILATION,)),
    Row(f"{_F}/c34", 2, (IMPLICIT_PRECOMP_GEMM,), NCHW_VECT_C, VECTORISED, VECTORISED, (INT8x32_CONFIG,), (NO_DILATION,)),
    # These rows are table 20: 2-D, filter NHWC.
    Row(f"{_F}/c36", 2, GEMMS, NHWC, NHWC_FULLY_PACKED, NHWC_FULLY_PACKED,
        (INT8_CONFIG, INT8_EXT, UINT8_CONFIG, UINT8_EXT), (NO_DILATION, CHANNELS_BY_4, FILTERS_BY_4)),
    Row(f"{_F}/c37", 2, GEMMS, NHWC, NHWC_PACKED, NHWC_OR_NCHW_PACKED, FLOATING),
    # These rows are table 21: 3-D, filter NCHW.
    Row(f"{_F}/c39", 3, GEMMS, NCHW, ANY_LAYOUT, ANY_LAYOUT, (PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG, DOUBLE_CONFIG)),
    Row(f"{_F}/c41", 3, (FFT_TILING,), NCHW, NCHW_SPATIALLY_PACKED, NCHW_SPATIALLY_PACKED,
        (PSEUDO_HALF, FLOAT_CONFIG, DOUBLE_CONFIG), (NO_DILATION, FILTER_UP_TO_16, STRIDE_1, PADDING_BELOW_FILTER)),
    # These rows are table 22: 3-D, filter NHWC.
    Row(f"{_F}/c43", 3, (IMPLICIT_PRECOMP_GEMM,), NHWC, NHWC_PACKED, NHWC_PACKED,
        (PSEUDO_HALF, PSEUDO_BFLOAT16, FLOAT_CONFIG)),
)  # fmt: skip


def unsupported(problem: Problem, algorithm: cudnnConvolutionFwdAlgo_t) -> str | None:
    """Return why no row of the tables covers this problem with this algorithm, or None if a row does."""
    if algorithm == DIRECT:
        return f"{DIRECT.name} is not implemented"
    return violation(problem, algorithm, ROWS, ("xDesc", "wDesc", "yDesc"))


def fused_unsupported(problem: Problem, fused: ConvolutionBiasActivationForward) -> str | None:
    """Return why table 16 does not cover this bias, or this algorithm for an identity, or None if it does."""
    configuration = problem.configuration
    if configuration is None or fused.bias.data_type != configuration.bias:
        return f"the bias is {fused.bias.data_type.name}, which is not fused with the types of the convolution"
    if fused.bias.strides[1] != 1:
        return f"the bias has strides {fused.bias.strides}, the second must be 1"
    if fused.activation.mode != cudnnActivationMode_t.CUDNN_ACTIVATION_RELU and fused.algo != IMPLICIT_PRECOMP_GEMM:
        return f"without a ReLU only {IMPLICIT_PRECOMP_GEMM.name} is fused"
    return None


def beyond_positions(convolution: ConvolutionSpec, x: TensorSpec, name: str) -> str | None:
    """Return a message if the positions of the padded input exceed 32 bits, else None. name: the argument that
    describes x."""
    padded = tuple(extent + 2 * padding for extent, padding in zip(x.dims[2:], convolution.padding, strict=True))
    if max(padded) < POSITIONS:
        return None
    return f"{name} with padding {convolution.padding} has {padded} positions, fewer than {POSITIONS} are supported"


def violation(problem: Problem, algorithm: IntEnum, all_rows: Sequence[Row], names: tuple[str, str, str]) -> str | None:
    """Return why no row covers this problem with this algorithm, or None if a row does. names: the arguments that
    describe x, w and y."""
    if reason := beyond_positions(problem.convolution, problem.x, names[0]):
        return reason
    spatial, filter_format, w_name = problem.convolution.rank, problem.w.format, names[1]
    rows = [
        r for r in all_rows if (r.spatial, r.filter_format) == (spatial, filter_format) and algorithm in r.algorithms
    ]
    if not rows:
        return f"{algorithm.name} takes no {spatial}-D convolution with {w_name} in {filter_format.name}"
    violations = [row.violated(problem, names) for row in rows]
    if None in violations:
        return None
    # If several rows apply, the row with these data types provides the message.
    told = next(
        (v for r, v in zip(rows, violations, strict=True) if problem.configuration in r.configurations), violations[0]
    )
    operands: tuple[TensorSpec | FilterSpec, ...] = (problem.x, problem.w, problem.y)
    described = tuple(zip(names, operands, strict=True))
    types = ", ".join(f"{name} {spec.data_type.name}" for name, spec in described)
    shown = ", ".join(f"{name} {spec}" for name, spec in described)
    return (
        f"{algorithm.name} with {w_name} in {filter_format.name} needs {told}; {types}: {problem.convolution}, {shown}"
    )
