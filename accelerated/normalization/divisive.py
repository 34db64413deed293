"""Plans divisive normalization with generic strides (divisive.cu)."""

from __future__ import annotations

from ..plans import Launch
from ..reproducible import Order
from ..solver import Solver
from .problem import DivisiveProblem

THREADS = 128  # threads per block
SOURCE = "normalization/divisive.cu"


class DivisiveSolver(Solver[DivisiveProblem]):
    """Serve generic strides, also in place; each thread reads the window around one element."""

    name = "normalization.divisive"
    fixed_order = Order("fma", (name,))

    def apart(self, problem: DivisiveProblem) -> tuple[tuple[str, str], ...]:
        return (("x", "y"),) if problem.forward and problem.aligned else ()

    def launches(self, problem: DivisiveProblem) -> list[Launch]:
        kernels = ["terms", "backward"]
        if problem.forward:
            kernels = ["forward"] if problem.aligned else ["factor", "scale"]
        return [problem.launch(SOURCE, f"normalization_divisive_{kernel}", THREADS) for kernel in kernels]
