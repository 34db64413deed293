"""Compute gradients with respect to the filter in TF32 by products of warps, whose operands stay in place
(convolution/filter_gradient/tf32_mma.cu).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from dualdnn.api.operations.specs import FLOAT

from .forward_convolution import FilterGradientProblem
from .tf32 import TF32_KERNELS, FilterGradientTf32, Tf32Kernel
from .tma import OF_BOTH, FilterGradientTma


@dataclass(frozen=True)
class MmaKernel(Tf32Kernel):
    """Describe a tile whose rows and columns both pass through registers."""

    source: ClassVar[str] = "convolution/filter_gradient/tf32_mma.cu"
    order: ClassVar[int] = OF_BOTH


MMA_KERNELS = (MmaKernel(8, 2, 5, 0.45),)


class FilterGradientTf32Mma(FilterGradientTma):
    """Serve ALGO_1 of float where the math type allows TF32, with x and dy in place and channels innermost.

    It is preferred where it takes less time than a copy and faster products.
    """

    data_types = (FLOAT,)
    kernels = MMA_KERNELS

    def applies(self, problem: FilterGradientProblem) -> bool:
        if not super().applies(problem):
            return False
        others = [FilterGradientTf32(kernel) for kernel in TF32_KERNELS]
        made = [solver.product(problem, solver.kernel) for solver in others]
        possible = [product for product in made if product.is_possible]
        least = min((product.seconds for product in possible), default=float("inf"))
        return self.product(problem, self.kernel).seconds < least
