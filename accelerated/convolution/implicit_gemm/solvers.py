"""The implicit GEMM of x and w as they lie, by one product kernel; and by those that read the offsets of all K from a
table."""

from __future__ import annotations

from ...plans import Launch
from ..forward import IMPLICIT, IMPLICIT_PRECOMP_GEMM, ConvolutionProblem, ConvolutionSolver
from ..problem import Rates
from .product import ProductKernel
from .products import READING_TABLES, kernel_of
from .simt import OFFSET_BYTES, offset_table_launch


class ImplicitGemm(ConvolutionSolver):
    """One kernel of matrix products, which finds where each of K is as it goes: one launch, but for very large
    tensors."""

    algorithms = IMPLICIT

    def __init__(self, kernel: ProductKernel) -> None:
        self.kernel, self.name = kernel, kernel.name

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        return all(self.kernel.serves(product) for product in problem.products)

    def applies(self, problem: ConvolutionProblem) -> bool:
        return problem.operation.algo in IMPLICIT and problem.kernel is self.kernel and self.can_launch(problem)

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        return Rates.LAUNCH + problem.product_seconds(self.kernel)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        return [self.kernel.launch(product) for product in problem.products]


class OffsetTable(ConvolutionSolver):
    """The table of the offsets of all K in the workspace, made once for a call instead of once for a block, and a
    product."""

    name = "convolution.offset_table"
    algorithms = (IMPLICIT_PRECOMP_GEMM,)

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        return any(kernel.serves(problem.products[0]) for kernel in READING_TABLES)

    def applies(self, problem: ConvolutionProblem) -> bool:
        return self.serves(problem) and problem.kernel.reads_table

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        return OFFSET_BYTES * problem.value.k

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        return 2 * Rates.LAUNCH + problem.product_seconds(kernel_of(problem.products[0], READING_TABLES))

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        products = problem.implicit_products(table=True)
        kernel = kernel_of(products[0], READING_TABLES)
        return [offset_table_launch(problem.product(problem.value)), *(kernel.launch(product) for product in products)]
