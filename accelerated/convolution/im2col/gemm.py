"""Serve GEMM: the im2col buffer slice by slice in the workspace, and the product of each slice with the filter."""

from __future__ import annotations

from math import prod

from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo

from ...plans import Launch
from ...reproducible import Order
from ..forward import ConvolutionProblem, ConvolutionSolver
from ..implicit_gemm.products import kernel_of, product_launch
from ..implicit_gemm.simt import im2col_launch
from ..problem import (
    AXES,
    VECTOR_BYTES,
    Convolution,
    ConvolutionStruct,
    Matrices,
    Rates,
    describe,
    mark_vectors,
    matrix_product,
    operation_product,
    rounded_up,
    slice_bytes,
    with_result,
)

BUFFER_BYTES = 2**26  # bytes per slice of the im2col buffer
MAX_TILE = 128  # pixels; a slice is a multiple of it


class Im2ColGemm(ConvolutionSolver):
    """Multiply the im2col buffer, or slices of it where it is large, by the filter."""

    name = "convolution.im2col_gemm"
    algorithms = (Algo.CUDNN_CONVOLUTION_FWD_ALGO_GEMM,)

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        return _slice_pixels(problem) * problem.groups * _row(problem.operation) * problem.operation.x.scalar_bytes

    def summation_order(self, problem: ConvolutionProblem) -> Order:
        o = problem.operation
        source = describe(o.convolution, o.x, o.w, o.y.dims)
        product = problem.product(_slice_product(o, source, _row(o)), "workSpace")
        return kernel_of(product).summation_order(product)

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        o = problem.operation
        rows = prod(o.y.dims) // o.y.dims[1] * problem.groups
        buffer_bytes = rows * o.terms * o.x.scalar_bytes
        source = describe(o.convolution, o.x, o.w, o.y.dims)
        product = problem.product(_slice_product(o, source, _row(o)), "workSpace")
        computing = kernel_of(product).computing_seconds(product)
        return 2 * Rates.LAUNCH + 2 * buffer_bytes / Rates.BANDWIDTH + max(problem.memory_seconds, computing)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        o, groups = problem.operation, problem.groups
        row, pixels, width = _row(o), _slice_pixels(problem), VECTOR_BYTES // o.x.scalar_bytes
        launches = []
        total = problem.value.m
        for first in range(0, total, pixels):
            source = describe(o.convolution, o.x, o.w, o.y.dims)
            source.first_m, source.m = first, min(pixels, total - first)
            buffer = im2col_launch(problem.device, problem.definitions, source, groups, row, width, ("x", "workSpace"))
            product = problem.product(_slice_product(o, source, row), "workSpace")
            launches += [buffer, product_launch(product)]
        return launches


def _row(operation: Convolution) -> int:
    """Return the elements per row of the im2col buffer: its K, padded to 16 bytes."""
    return rounded_up(operation.terms, VECTOR_BYTES // operation.x.scalar_bytes)


def _slice_pixels(problem: ConvolutionProblem) -> int:
    """Return the rows of the im2col buffer that the workspace has at a time."""
    row_bytes = problem.groups * _row(problem.operation) * problem.operation.x.scalar_bytes
    fitting = slice_bytes(BUFFER_BYTES, problem.device) // row_bytes // MAX_TILE * MAX_TILE
    return min(problem.value.m, max(MAX_TILE, fitting))


def _slice_product(o: Convolution, source: ConvolutionStruct, row: int) -> ConvolutionStruct:
    """Return the product of a slice with the filter, which writes the output pixels of ``source``."""
    groups = o.convolution.group_count
    value = matrix_product(source.m, source.n, source.k, Matrices(groups * row, 1, row), Matrices(0, 0, 0))
    with_result(value, o.y)
    # A slice may begin and end inside an image. So the question is asked for the pixels of all images.
    value.y_rises = operation_product(o).y_rises
    value.first_m, value.y_n = source.first_m, source.n
    value.x_origin = -source.first_m * groups * row
    step = groups * row
    for d in reversed(range(AXES)):
        value.output[d] = source.output[d]
        value.x_pixel[d + 1] = step
        step *= source.output[d].divisor
    value.x_pixel[0] = step
    mark_vectors(value, groups, o.x.scalar_bytes)
    value.x_vectors = True  # The rows of the buffer are padded with zeros to full vectors.
    return value
