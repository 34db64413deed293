"""Describe forward convolutions (5.2.9, 5.2.10) to their solvers: the problem, and the base of all solvers."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo
from dualdnn.api.enumerations import cudnnDataType_t, cudnnMathType_t
from dualdnn.api.operations import ConvolutionSpec, allows_tf32
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF

from ..plans import Plan, WorkspacePlan, type_definitions, with_alignment
from ..runtime.device import reaches
from ..solver import Problem, Solver
from .implicit_gemm.product import Product, ProductKernel
from .implicit_gemm.products import preferred_kernel
from .problem import (
    MAX_OFFSET,
    VECTOR_BYTES,
    WORD,
    Convolution,
    ConvolutionStruct,
    EpilogueStruct,
    Rates,
    channels_last,
    epilogue,
    images_in_reach,
    in_words,
    mark_vectors,
    operand_names,
    operation_product,
    rounded_up,
)

IMPLICIT_GEMM = Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
IMPLICIT_PRECOMP_GEMM = Algo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
IMPLICIT = (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM)
TENSOR_CORE_CAPABILITY = 80  # the first compute capability whose tensor cores multiply TF32, half and bfloat16


def may_use_tensor_cores(convolution: ConvolutionSpec, data_type: cudnnDataType_t, device: Any) -> bool:
    """Return whether data type and math type let tensor cores multiply, and the device has them."""
    if not reaches(device, TENSOR_CORE_CAPABILITY):
        return False
    if data_type == FLOAT:
        return allows_tf32(convolution)
    return convolution.math_type != cudnnMathType_t.CUDNN_FMA_MATH and data_type in (HALF, BFLOAT16)


class ConvolutionProblem(Problem):
    """Describe one forward convolution.

    ``farthest``: elements of x to which a kernel may count from the first of its launch. ``filter_row``: stride between
    filters in elements, where w has gaps between them.
    """

    operation: Convolution

    def __init__(
        self, operation: Convolution, device: Any, aligned: bool = True, farthest: int = MAX_OFFSET, filter_row: int = 0
    ) -> None:
        super().__init__(operation, device, aligned)
        self.farthest, self.groups, self.filter_row = farthest, operation.convolution.group_count, filter_row

    def alike(self, operation: Convolution) -> ConvolutionProblem:
        return ConvolutionProblem(operation, self.device, True, self.farthest, self.filter_row)

    @cached_property
    def epilogue(self) -> EpilogueStruct:
        return epilogue(self.operation)

    @cached_property
    def definitions(self) -> tuple[tuple[str, str], ...]:
        """Return ELEMENT and COMPUTE of the kernels' modules, and RESULT where sums of 16-bit elements are kept
        unrounded.
        """
        o = self.operation
        kept = {"RESULT": "float"} if o.x.data_type in (HALF, BFLOAT16) and o.y.data_type == FLOAT else {}
        return type_definitions(o.x.scalar_type, o, **kept)

    @cached_property
    def tensor_cores(self) -> bool:
        """Return whether data type and math type let tensor cores multiply, and the device has them."""
        return may_use_tensor_cores(self.operation.convolution, self.operation.x.data_type, self.device)

    @cached_property
    def described(self) -> tuple[ConvolutionStruct, bool]:
        """Return the implicit GEMM, and whether it counts in words of four 8-bit channels."""
        value, element_bytes = operation_product(self.operation), self.operation.x.scalar_bytes
        value.w_row = self.filter_row or value.w_row
        words = element_bytes == 1 and in_words(value, self.groups)
        return mark_vectors(value, self.groups, WORD if words else element_bytes), words

    @property
    def value(self) -> ConvolutionStruct:
        return self.described[0]

    def product(
        self, value: ConvolutionStruct, x: str = "x", w: str = "w", y: str = "y",
        offsets: tuple[int, int, int] = (0, 0, 0),
        **options: Any,
    ) -> Product:  # fmt: skip
        """Return a product that computes the convolution.

        ``x``, ``w``, ``y``: operands that contain them, ``offsets`` bytes into each. ``options``: fields of Product.
        """
        o = self.operation
        names = (x, w, *(y if name == "y" else name for name in operand_names(o)))
        reordered = o.w.dims[0] // 32 if o.filter_is_reordered else 0
        return Product(
            self.device, self.definitions, value, self.groups, names, offsets, self.epilogue, self.tensor_cores,
            float_result=o.y.data_type == FLOAT, reordered_filters=reordered, **options,
        )  # fmt: skip

    def implicit_products(self, **options: Any) -> tuple[Product, ...]:
        """Return the implicit GEMM in enough launches for 32 bits to count to every element of x.

        Tensors with vectors of channels have up to 2**36 elements.
        """
        value, words = self.described
        unit_bytes = WORD if words else self.operation.x.scalar_bytes
        return tuple(
            self.product(part, offsets=(unit_bytes * first, 0, 0), words=words, **options)
            for part, first in images_in_reach(value, self.farthest)
        )

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """Return the implicit GEMM of x and w in place."""
        return self.implicit_products()

    @cached_property
    def kernel(self) -> ProductKernel:
        """Return the preferred kernel of the implicit GEMM."""
        return preferred_kernel(self.products[0])

    @cached_property
    def in_one_launch(self) -> bool:
        """Return whether 32-bit offsets reach every element of x and of y."""
        x, y = self.operation.x, self.operation.y
        return max(x.span * x.vector_length, y.span * y.vector_length) <= self.farthest

    @cached_property
    def memory_seconds(self) -> float:
        """Return the seconds in which x, w and y pass through the memory once."""
        o = self.operation
        return float(o.x.nbytes + o.w.nbytes + o.y.nbytes) / Rates.BANDWIDTH

    @cached_property
    def operations(self) -> float:
        """Return the operations of the direct sum, including the unused ones of partial tiles."""
        filters = self.operation.w.dims[0] // self.groups
        filled = rounded_up(filters, 16 if filters <= 16 else 64)
        y = self.operation.y.dims
        return 2.0 * filled * self.groups * self.operation.terms * (prod(y) // y[1])

    def product_seconds(self, kernel: ProductKernel) -> float:
        """Return the approximate seconds of the implicit GEMM with a kernel, without its launch."""
        computing = sum(max(kernel.computing_seconds(p), kernel.gathering_seconds(p)) for p in self.products)
        return max(self.memory_seconds, self.writing_seconds, computing)

    @property
    def writing_seconds(self) -> float:
        """Return the seconds in which products write results of 16 bits where vectors do not fill a pixel, or 0."""
        y = self.operation.y
        odd = channels_last(y) and y.scalar_bytes == 2 and y.dims[1] * y.scalar_bytes % VECTOR_BYTES
        return prod(y.dims) / Rates.ODD_RESULTS if odd else 0.0


class ConvolutionSolver(Solver[ConvolutionProblem]):
    """Serve documented algorithms."""

    algorithms: tuple[Algo, ...] = ()

    def serves(self, problem: ConvolutionProblem) -> bool:
        return problem.operation.algo in self.algorithms and self.can_launch(problem)

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        """Return whether the launches can serve a problem of these algorithms."""
        return True

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        """Return the bytes of workspace from its first 16-byte boundary."""
        return 0

    def workspace_bytes(self, problem: ConvolutionProblem) -> int:
        """Return the bytes of workspace, with padding because the caller's memory may have any alignment."""
        return with_alignment(self.used_bytes(problem))

    def plan(self, problem: ConvolutionProblem) -> Plan:
        return WorkspacePlan(problem.operation, self.launches(problem), self.name)
