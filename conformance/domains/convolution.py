"""Draw convolutions and their gradients, each from a row of the algorithm tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.cudnn.convolution.forward import IM2COL_TYPES, REORDERED_CHANNELS
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    ConvolutionBackwardBias,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT, NCHW, NCHW_VECT_C, NHWC, INT8x32, vector_length
from dualdnn.api.support import convolution as tables
from dualdnn.api.support import convolution_gradients as gradients
from dualdnn.api.support.convolution import FLOATING, Problem, Row

from .pieces import ALPHAS, BETAS, Drawn, Source, fitted, need

OPERATIONS = (
    ConvolutionForward,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBackwardBias,
    ConvolutionBiasActivationForward,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
)
RELU, IDENTITY = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY
KINDS = ("normal", "positive", "ties")
MAX_PRODUCTS = 8_000_000  # products of a convolution; the emulated device computes them one by one
MAX_FEW_PRODUCTS = 2_000_000  # products of a convolution outside of the profile of large tensors
MAX_FILTER = 60_000  # elements
MAX_TRANSFORMED = 150_000  # elements of x, y and filters padded to x; the emulated device transforms 12,000 a second
TILED = (8, 16, 32, 64)  # channel counts that vectors and tiles divide
FEW = (2, 4, 8)  # channels of a group
STRIDED = (tables.ANY_LAYOUT,)


class Direction(NamedTuple):
    """Describe a direction.

    rows: its support tables. refused: why an algorithm does not take a problem. made: makes the operation of (problem,
    algorithm, alpha, beta).
    """

    rows: Sequence[Row]
    refused: Callable[[Problem, Any], str | None]
    made: Callable[[Problem, Any, float, float], Any]


DIRECTIONS = (
    Direction(
        tables.ROWS,
        tables.unsupported,
        lambda p, algo, alpha, beta: ConvolutionForward(p.convolution, algo, 0, alpha, beta, p.x, p.w, p.y),
    ),
    Direction(
        gradients.DATA_ROWS,
        gradients.data_unsupported,
        lambda p, algo, alpha, beta: ConvolutionBackwardData(p.convolution, algo, 0, alpha, beta, p.w, p.y, p.x),
    ),
    Direction(
        gradients.FILTER_ROWS,
        gradients.filter_unsupported,
        lambda p, algo, alpha, beta: ConvolutionBackwardFilter(p.convolution, algo, 0, alpha, beta, p.x, p.y, p.w),
    ),
)


def draw(source: Source) -> Drawn:
    """Draw a convolution, a gradient, the gradient of a bias, or another order of an image or a filter."""
    if source.chance(8):
        return bias_gradient(source)
    if source.chance(4):
        return reordered(source)
    direction, depthwise = source.pick(DIRECTIONS), source.chance(20)
    row = source.pick([row for row in direction.rows if not depthwise or is_direct(row)])
    algorithm, configuration = source.pick(row.algorithms), source.pick(row.configurations)
    need(not depthwise or vector_length(configuration.x) == 1)
    problem = described(source, row, configuration, depthwise)
    need(direction.refused(problem, algorithm) is None)
    need("FFT" not in algorithm.name or transformed(problem) <= MAX_TRANSFORMED)
    if direction is DIRECTIONS[0] and source.chance(55):
        if configuration.bias is not None and source.chance(75):
            return activated(source, problem, algorithm, configuration.bias)
        if problem.convolution.group_count == 1:
            return unrolled(source, problem)
    return Drawn((direction.made(problem, algorithm, *source.blend()),), source.inputs(KINDS, ("infinite",)))


def activated(source: Source, problem: Problem, algorithm: Any, of_bias: cudnnDataType_t) -> Drawn:
    """Return the convolution with z, a bias and an activation; z may be y."""
    convolution, x, w, y = problem.convolution, problem.x, problem.w, problem.y
    precomputed = algorithm == cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
    mode = IDENTITY if precomputed and source.chance(50) else RELU
    activation = ActivationSpec(mode, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0)
    bias = TensorSpec.packed(of_bias, (1, w.dims[0], *(1 for _ in y.dims[2:])))
    factors = source.pick(ALPHAS), source.pick(BETAS)
    operation = ConvolutionBiasActivationForward(convolution, activation, algorithm, 0, *factors, x, w, y, bias, y)
    aliases = (("y", "z"),) if source.chance(30) else ()
    return Drawn((operation,), source.inputs(KINDS, ("infinite",)), aliases=aliases)


def unrolled(source: Source, problem: Problem) -> Drawn:
    """Return the matrix of the image of a convolution with one group."""
    x, w, y = problem.x, problem.w, problem.y
    shape = y.dims[0] * prod(y.dims[2:]), x.dims[1] * prod(w.dims[2:])
    need(x.rank == 4 and {x.data_type, w.data_type} <= {*IM2COL_TYPES})
    need(prod(shape) <= MAX_FILTER)
    return Drawn(
        (Im2Col(problem.convolution, w, x, TensorSpec(x.data_type, shape, (shape[1], 1))),), source.inputs(KINDS)
    )


def reordered(source: Source) -> Drawn:
    """Draw a filter of vectors of 32 channels in the order of CUDNN_NO_REORDER, alone or with its bias."""
    filters, channels = (REORDERED_CHANNELS * source.integer(1, 3) for _ in range(2))
    w = FilterSpec(INT8x32, NCHW_VECT_C, (filters, channels, source.integer(1, 3), source.integer(1, 3)))
    order, bias = source.pick(tuple(cudnnReorderType_t)), TensorSpec.packed(FLOAT, (1, filters, 1, 1))
    alone = source.chance(50)
    return Drawn(
        (ReorderFilter(order, w, w) if alone else ReorderFilterAndBias(order, w, w, bias, bias),), source.inputs()
    )


def transformed(problem: Problem) -> int:
    """Return the elements that a Fourier transform of x, y and each channel of the filters reads."""
    plane = prod(problem.x.dims[2:])
    return problem.x.count + problem.y.count + prod(problem.w.dims[:2]) * plane


def is_direct(row: Row) -> bool:
    """Return whether an algorithm of a row for images has kernels for convolutions with one filter per channel."""
    return row.spatial == 2 and any(re.search("IMPLICIT|ALGO_[01]$", algorithm.name) for algorithm in row.algorithms)


def described(source: Source, row: Row, configuration: Any, depthwise: bool = False) -> Problem:
    """Draw the descriptors of a convolution that mostly satisfies the rules of the row."""
    convolution, x_dims, w_dims = geometry(source, row, configuration, depthwise)
    y_dims = convolution.output_dims(x_dims, w_dims)
    need(min(y_dims) >= 1)
    need(prod(y_dims) * prod(w_dims[1:]) <= (MAX_PRODUCTS if source.profile.name == "large" else MAX_FEW_PRODUCTS))
    x = operand(source, configuration.x, x_dims, row.x)
    y = operand(source, configuration.y, y_dims, row.y)
    return Problem(convolution, x, FilterSpec(configuration.w, row.filter_format, w_dims), y)


def geometry(
    source: Source, row: Row, configuration: Any, depthwise: bool = False
) -> tuple[ConvolutionSpec, tuple[int, ...], tuple[int, ...]]:
    """Draw (the convolution, dimensions of x, dimensions of w) that mostly satisfy the rules of the row."""
    rank, rules = row.spatial, row.rules
    usual = depthwise or source.chance(30)  # The window is square, and kernels are compiled for it.
    size = (source.pick((3, 5, 7)),) * rank if usual else tuple(source.pick((1, 2, 3, 3, 5, 7)) for _ in range(rank))
    if tables.FILTER_3 in rules or tables.FILTER_3_OR_5 in rules:
        size = (source.pick((3, 5)) if tables.FILTER_3_OR_5 in rules else 3,) * rank
    one = (1,) * rank
    steps = (source.pick((1, 1, 2)),) * rank if usual else tuple(source.pick((1, 1, 2, 3)) for _ in range(rank))
    stride = one if tables.STRIDE_1 in rules else steps
    dilation = one if tables.NO_DILATION in rules or usual else tuple(source.pick((1, 1, 2, 3)) for _ in range(rank))
    least = 1 if tables.PADDING_BELOW_FILTER in rules else 0
    padding = tuple(source.integer(0, max(0, extent - least)) for extent in size)
    if tables.STRIDE_1 not in rules and source.chance(6):  # Patches of x do not overlap.
        stride, dilation, padding = size, one, (0,) * rank
    spatial = fitted(tuple(source.extent() + extent for extent in size), source.profile.most // 8)
    if source.profile.extremes:
        spatial = tuple(source.extent() for _ in size)
        stride = stride if tables.STRIDE_1 in rules else tuple(source.large(50) for _ in size)
        dilation = dilation if tables.NO_DILATION in rules else tuple(source.large(30) for _ in size)
        axes = zip(spatial, size, stride, dilation, strict=True)
        padding = tuple(reaching(source, *axis) for axis in axes)
    multiple = max(
        vector_length(configuration.x), vector_length(configuration.y), 4 if tables.CHANNELS_BY_4 in rules else 1
    )
    groups = source.pick((1, 1, 1, 2, 3))
    each, filters = (multiple * source.pick((1, 2, 3, source.pick(TILED), source.integer(1, 33))) for _ in range(2))
    if multiple == 1 and (depthwise or source.chance(15)):  # This is a depthwise convolution.
        groups, each, filters = source.channels(), 1, source.pick((1, 1, 2))
    elif multiple == 1 and source.chance(20):  # Vectors divide groups of few channels together.
        groups, each, filters = source.pick((4, 8, 16)), source.pick(FEW), source.pick(FEW)
    elif multiple == 1 and source.chance(10):  # The image has few channels.
        groups, each, filters = 1, source.integer(1, 8), source.pick(TILED)
    x_dims = (source.integer(1, 3), groups * each, *spatial)
    w_dims = (groups * filters, each, *size)
    need(each * prod(size) * w_dims[0] <= MAX_FILTER)
    mode, math = source.pick(tuple(cudnnConvolutionMode_t)), source.pick(tuple(cudnnMathType_t))
    reorder = cudnnReorderType_t.CUDNN_DEFAULT_REORDER
    return (
        ConvolutionSpec(mode, configuration.compute, padding, stride, dilation, groups, math, reorder),
        x_dims,
        w_dims,
    )


def reaching(source: Source, extent: int, taps: int, stride: int, dilation: int) -> int:
    """Draw a padding such that a tap of one of the first outputs is inside the image."""
    tap = source.integer(0, 3) * stride + source.integer(0, taps - 1) * dilation
    padding = max(0, tap - source.integer(0, extent - 1))
    need(extent + 2 * padding < tables.POSITIONS and (extent + 2 * padding - (taps - 1) * dilation - 1) // stride < 8)
    return padding


def operand(source: Source, data_type: Any, dims: tuple[int, ...], layout: tuple[str, Any]) -> TensorSpec:
    """Draw a tensor that the row accepts: in any layout if allowed, else without gaps."""
    if vector_length(data_type) > 1:
        need(dims[1] % vector_length(data_type) == 0)
        return TensorSpec.packed(data_type, dims, NCHW_VECT_C)
    if layout in STRIDED:
        return source.tensor(data_type, dims)
    fitting = [found for f in (NCHW, NHWC) if layout[1](found := TensorSpec.packed(data_type, dims, f))]
    need(bool(fitting))
    return source.pick(fitting)


def bias_gradient(source: Source) -> Drawn:
    """Draw the sum of a gradient over images and positions."""
    data_type = source.pick(tuple(dict.fromkeys(configuration.y for configuration in FLOATING)))
    dims = source.dims(source.pick((4, 5)))
    db = TensorSpec.packed(data_type, (1, dims[1], *(1 for _ in dims[2:])))
    return Drawn((ConvolutionBackwardBias(*source.blend(), source.tensor(data_type, dims), db),), source.inputs(KINDS))
