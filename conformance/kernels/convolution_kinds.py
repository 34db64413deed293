"""List small convolutions of every kind in the support tables: data types, algorithms, formats, math types, groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from dualdnn.api.cudnn.convolution.forward import IM2COL_TYPES
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
    cudnnTensorFormat_t,
)
from dualdnn.api.operations import (
    ActivationSpec,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    Im2Col,
    Operation,
    ReorderFilter,
    ReorderFilterAndBias,
    TensorSpec,
)
from dualdnn.api.operations.specs import FLOAT, NCHW, NCHW_VECT_C, NHWC, INT8x32, vector_length
from dualdnn.api.support.convolution import (
    CONFIGURATIONS,
    IMPLICIT_GEMM,
    IMPLICIT_PRECOMP_GEMM,
    Configuration,
    Problem,
    unsupported,
)
from dualdnn.api.support.convolution_gradients import data_unsupported, filter_unsupported

FEW = 3
IMAGES = 2
CHANNELS = 32  # one vector of the widest type
FILTERS = 64
SIZE = 6  # rows and columns
RELU = ActivationSpec(
    cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0
)  # fmt: skip
MATH_TYPES = (cudnnMathType_t.CUDNN_DEFAULT_MATH, cudnnMathType_t.CUDNN_FMA_MATH)


def _problem(
    kind: Configuration, tensor_format: cudnnTensorFormat_t, math_type: cudnnMathType_t, taps: tuple[int, ...], groups: int
) -> Problem:  # fmt: skip
    rank = len(taps)
    spec = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, kind.compute, tuple(t // 2 for t in taps), (1,) * rank,
        (1,) * rank, groups, math_type, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    x = TensorSpec.packed(kind.x, (IMAGES, CHANNELS, *(SIZE,) * rank), tensor_format)
    w = FilterSpec(kind.w, tensor_format, (CHANNELS if groups > 1 else FILTERS, CHANNELS // groups, *taps))
    y_format = NCHW if tensor_format == NCHW_VECT_C and vector_length(kind.y) == 1 else tensor_format
    return Problem(spec, x, w, TensorSpec.packed(kind.y, spec.output_dims(x.dims, w.dims), y_format))


def problems() -> Iterator[Problem]:
    """Yield every combination, whether the tables support it or not."""
    for kind in CONFIGURATIONS:
        plain = vector_length(kind.x) == 1
        formats = (NCHW, NHWC) if plain else (NCHW_VECT_C,)
        grouped = (1, CHANNELS) if plain else (1,)
        windows = [(size,) * rank for rank in (2, 3) for size in (1, 3)]
        for combination in product(formats, MATH_TYPES, windows, grouped):
            yield _problem(kind, *combination)


def convolutions() -> Iterator[ConvolutionForward | ConvolutionBiasActivationForward]:
    """Yield the supported convolutions, plain and with bias and ReLU, without a workspace."""
    for problem in problems():
        for algorithm in cudnnConvolutionFwdAlgo_t:
            if unsupported(problem, algorithm) is None:
                yield from _with_algorithm(problem, algorithm)


def _with_algorithm(
    problem: Problem, algorithm: cudnnConvolutionFwdAlgo_t
) -> Iterator[ConvolutionForward | ConvolutionBiasActivationForward]:
    c, x, w, y, kind = problem.convolution, problem.x, problem.w, problem.y, problem.configuration
    yield ConvolutionForward(c, algorithm, 0, 1.0, 0.0, x, w, y)
    if kind is None or kind.bias is None:
        return
    bias = TensorSpec.packed(kind.bias, (1, y.dims[1], *(1,) * c.rank))
    fused = ConvolutionBiasActivationForward(c, RELU, algorithm, 0, 1.0, 1.0, x, w, y, bias, y)
    yield fused
    if w.data_type == INT8x32:
        yield replace(fused, convolution=replace(c, reorder_type=cudnnReorderType_t.CUDNN_NO_REORDER))


def small_convolutions() -> Iterator[ConvolutionForward | ConvolutionBiasActivationForward]:
    """Yield convolutions with few channels and few products, which have their own kernels."""
    for kind in CONFIGURATIONS:
        if vector_length(kind.x) == 1:
            for tensor_format in (NCHW, NHWC):
                problem = _problem(kind, tensor_format, cudnnMathType_t.CUDNN_DEFAULT_MATH, (1, 1), 1)
                x = TensorSpec.packed(kind.x, (1, FEW, *problem.x.dims[2:]), tensor_format)
                w = FilterSpec(kind.w, tensor_format, (FEW, FEW, 1, 1))
                y = TensorSpec.packed(kind.y, problem.convolution.output_dims(x.dims, w.dims), tensor_format)
                few = replace(problem, x=x, w=w, y=y)
                for algorithm in (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM):
                    if unsupported(few, algorithm) is None:
                        yield from _with_algorithm(few, algorithm)


def gradients() -> Iterator[ConvolutionBackwardData | ConvolutionBackwardFilter]:
    """Yield the supported gradients, without a workspace."""
    for problem in problems():
        for kind in cudnnConvolutionBwdFilterAlgo_t:
            if filter_unsupported(problem, kind) is None:
                yield ConvolutionBackwardFilter(problem.convolution, kind, 0, 1.0, 0.0, problem.x, problem.y, problem.w)
        for algorithm in cudnnConvolutionBwdDataAlgo_t:
            if data_unsupported(problem, algorithm) is None:
                yield ConvolutionBackwardData(
                    problem.convolution, algorithm, 0, 1.0, 0.0, problem.w, problem.y, problem.x
                )
        if problem.x.data_type == FLOAT and problem.w.dims[1:] == (CHANNELS, 1, 1):
            # Planes that are no multiple of 16 bytes have a kernel of their own.
            x, y = (TensorSpec.packed(FLOAT, (*t.dims[:2], SIZE - 1, SIZE - 1)) for t in (problem.x, problem.y))
            algorithm_1 = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
            yield ConvolutionBackwardFilter(problem.convolution, algorithm_1, 0, 1.0, 0.0, x, y, problem.w)


def filters_and_matrices() -> Iterator[Operation]:
    """Yield the operations that prepare convolutions: reordered filters and biases, and the explicit matrix."""
    w = FilterSpec(INT8x32, NCHW_VECT_C, (FILTERS, CHANNELS, 3, 3))
    bias = TensorSpec.packed(FLOAT, (1, FILTERS, 1, 1))
    yield ReorderFilter(cudnnReorderType_t.CUDNN_DEFAULT_REORDER, w, w)
    yield ReorderFilterAndBias(cudnnReorderType_t.CUDNN_DEFAULT_REORDER, w, w, bias, bias)
    for problem in problems():
        x, w, c = problem.x, problem.w, problem.convolution
        if x.data_type in IM2COL_TYPES and x.rank == 4 and c.group_count == 1:
            rows, terms = problem.y.count // problem.y.dims[1], w.tensor.count // w.dims[0]
            yield Im2Col(c, w, x, TensorSpec(x.data_type, (rows, terms), (terms, 1)))
