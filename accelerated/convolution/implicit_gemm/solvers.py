"""Serve the implicit GEMM of x and w in place, by one product kernel."""

from __future__ import annotations

from ...plans import Launch
from ...reproducible import Order
from ..forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from ..problem import Rates
from .product import ProductKernel


class ImplicitGemm(ConvolutionSolver):
    """Serve with one kernel of matrix products, which locates each of K as it goes. It takes one launch, but for very
    large tensors.
    """

    algorithms = IMPLICIT

    def __init__(self, kernel: ProductKernel) -> None:
        self.kernel, self.name = kernel, kernel.name

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        return all(self.kernel.serves(product) for product in problem.products)

    def applies(self, problem: ConvolutionProblem) -> bool:
        return problem.operation.algo in IMPLICIT and problem.kernel is self.kernel and self.can_launch(problem)

    def summation_order(self, problem: ConvolutionProblem) -> Order:
        return self.kernel.summation_order(problem.products[0])

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        return Rates.LAUNCH + problem.product_seconds(self.kernel)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        return [self.kernel.launch(product) for product in problem.products]
