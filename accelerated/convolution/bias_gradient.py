"""Compute gradients of the bias (6.2.1), the sums of dy, by the kernels of reductions. The call has no workspace, so
partial sums are in scratch memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualdnn.api.operations import ConvolutionBackwardBias

from .. import solver
from ..plans import SCRATCH, Launch
from ..reduce_tensor.generic import AnyTensor
from ..reduce_tensor.problem import ReduceProblem, ReduceSolver
from ..reduce_tensor.small import Small
from ..reproducible import Order, order_of_batch

MAX_SMALL_BYTES = 16 << 20  # bytes of dy in NCHW, up to which summing in one step takes half as long as in parts
NAMES = {"A": "dy", "C": "db", "workspace": SCRATCH}  # names of a reduction's operands in the call


class BiasProblem(solver.Problem):
    """Describe a gradient of the bias and the reduction that computes it."""

    def __init__(self, operation: ConvolutionBackwardBias, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.sums = ReduceProblem(operation.as_reduction, device, aligned)

    def order_by(self, solver: solver.Solver[Any]) -> Order | None:
        return order_of_batch(solver, self.operation)


class BiasGradient(solver.Solver[BiasProblem]):
    """Compute the sums by one solver of reductions."""

    def __init__(self, sums: ReduceSolver) -> None:
        self.sums, self.asks_device = sums, sums.asks_device
        self.name = f"convolution.bias_gradient_{sums.name.split('.')[1]}"

    def serves(self, problem: BiasProblem) -> bool:
        return (isinstance(self.sums, AnyTensor) or problem.sums.operation.length > 1) and self.sums.serves(
            problem.sums
        )

    def applies(self, problem: BiasProblem) -> bool:
        if not self.serves(problem):
            return False
        small = isinstance(self.sums, Small) and problem.sums.rows and problem.operation.dy.nbytes <= MAX_SMALL_BYTES
        return small or self.sums.applies(problem.sums)

    def launches(self, problem: BiasProblem) -> list[Launch]:
        launches = list(self.sums.launches(problem.sums))
        for launch in launches:
            launch.operands = tuple(NAMES.get(name, name) for name in launch.operands)
            launch.scratch_bytes = problem.sums.workspace_bytes
        return launches

    def alignment(self, problem: BiasProblem) -> Mapping[str, int]:
        return {NAMES[name]: nbytes for name, nbytes in self.sums.alignment(problem.sums).items()}


BIAS_GRADIENTS = tuple(map(BiasGradient, (Small(), AnyTensor())))
