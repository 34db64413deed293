"""The gradient of an activated batch normalisation: dz, then the gradient of the batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dualdnn.api.enumerations import cudnnBatchNormMode_t
from dualdnn.api.operations import BatchNormalizationBackward

from ..plans import Plan, plan
from ..solver import Problem, Solver
from .gradient import GradientSolver
from .sequence import Part, SequencePlan

TWO_PASSES = GradientSolver()


class GradientSequenceSolver(Solver[Problem]):
    """Where all gradients are wanted, and statistics were saved."""

    name = "fused_ops.gradient_sequence"

    def serves(self, problem: Problem) -> bool:
        o = problem.operation
        if None in (o.savedMean, o.dx, o.dz, o.dScale, o.dBias):
            return False
        return all(spec.strides[1] == o.scale.strides[1] for spec in (o.dScale, o.dBias))

    def workspace_bytes(self, problem: Problem) -> int:
        # The fallback needs its own.
        return TWO_PASSES.workspace_bytes(problem)

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        return TWO_PASSES.alignment(problem)

    def plan(self, problem: Problem) -> Plan:
        o = problem.operation
        masked = replace(o, dx=None)
        mode = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
        tensors = (o.x, o.dz, o.dx, o.scale, o.savedMean)
        made = BatchNormalizationBackward(mode, 1.0, 0.0, 1.0, 0.0, *tensors, o.epsilon, o.savedMean)
        first = TWO_PASSES.last_pass(Problem(masked, problem.device, problem.aligned))
        where = {"dy": "dz", "savedInvVariance": "savedInvStd"}
        parts = [Part(masked, Plan(masked, [first])), Part(made, plan(made, problem.device), where)]
        return SequencePlan(o, parts, self.name)
