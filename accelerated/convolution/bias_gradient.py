"""Compute gradients of the bias (6.2.1), the sums of dy, by the kernels of reductions. The call has no workspace, so
partial sums are in scratch memory.
"""

from __future__ import annotations

from typing import Any

from dualdnn.api.operations import ConvolutionBackwardBias

from .. import solver
from ..plans import SCRATCH, Launch
from ..reduce_tensor.generic import AnyTensor
from ..reduce_tensor.problem import ReduceProblem
from ..reproducible import Order, order_of_batch

NAMES = {"A": "dy", "C": "db", "workspace": SCRATCH}  # names of a reduction's operands in the call


class BiasProblem(solver.Problem):
    """Describe a gradient of the bias and the reduction that computes it."""

    def __init__(self, operation: ConvolutionBackwardBias, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.sums = ReduceProblem(operation.as_reduction, device, aligned)

    def order_by(self, solver: solver.Solver[Any]) -> Order | None:
        return order_of_batch(solver, self.operation)


class BiasGradient(solver.Solver[BiasProblem]):
    """Sum dy over all dimensions but the channels, for any strides."""

    name = "convolution.bias_gradient_generic"

    def launches(self, problem: BiasProblem) -> list[Launch]:
        launches = AnyTensor().launches(problem.sums)
        for launch in launches:
            launch.operands = tuple(NAMES.get(name, name) for name in launch.operands)
            launch.scratch_bytes = problem.sums.workspace_bytes
        return launches
