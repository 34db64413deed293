"""Plan convolutions with few multiply-adds (convolution/tiny.cu)."""

from __future__ import annotations

from ctypes import c_int
from math import prod

from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

from ..plans import Launch, fields_of, pointers, structure
from ..primitives.geometry import FastDivmod, blocks
from ..reproducible import Order
from .forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from .problem import MAX_OFFSET, Rates, lanes_of, operand_names, operation_product

SOURCE = "convolution/tiny.cu"
THREADS = 128
PRODUCTS_PER_SECOND = 3.5e11  # multiply-adds a second, measured on an H200 where the sums are long
RESIDENT = 2048  # threads per multiprocessor


class Tiny(ConvolutionSolver):
    """Serve with lanes of a warp that share the K of an output. It is preferred where the device has a thread for each
    product.
    """

    name = "convolution.tiny"
    algorithms = IMPLICIT

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        o = problem.operation
        threads = prod(o.y.dims) * lanes_of(o.terms)
        return o.x.data_type in (FLOAT, DOUBLE, HALF, BFLOAT16) and threads <= MAX_OFFSET and problem.in_one_launch

    def applies(self, problem: ConvolutionProblem) -> bool:
        return self.serves(problem) and self._products(problem) <= RESIDENT * problem.device.multiprocessors

    def _products(self, problem: ConvolutionProblem) -> int:
        return prod(problem.operation.y.dims) * problem.operation.terms

    def summation_order(self, problem: ConvolutionProblem) -> Order:
        return Order("fma", (problem.definitions, "tiny", lanes_of(problem.operation.terms)))

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        return Rates.LAUNCH + self._products(problem) / PRODUCTS_PER_SECOND

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        o, value, lanes = problem.operation, operation_product(problem.operation), lanes_of(problem.operation.terms)
        arguments = structure(
            *pointers(5),
            ("convolution", value),
            ("epilogue", problem.epilogue),
            *fields_of(FastDivmod.of, channels=value.n * problem.groups, filters=value.n),
            ("log_lanes", c_int(lanes.bit_length() - 1)),
        )
        function = problem.device.function(SOURCE, "convolution_tiny", problem.definitions)
        grid = blocks(prod(o.y.dims) * lanes, THREADS)
        return [Launch(function, arguments, ("x", "w", *operand_names(o)), grid, (THREADS, 1, 1))]
