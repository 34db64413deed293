"""The gradient of an activated batch normalisation: dz (gradient_sequence.cu), then that of the batch normalisation."""

from __future__ import annotations

from dualdnn.api.enumerations import cudnnBatchNormMode_t
from dualdnn.api.operations import BatchNormalizationBackward

from ..normalization.batch import BatchProblem
from ..plans import Launch, Plan, plan, pointers, structure, type_definitions
from ..solver import Problem, Solver
from .problem import THREADS, Walk
from .sequence import Part, SequencePlan

SOURCE = "fused_ops/gradient_sequence.cu"
OPERANDS = ("dy", "bitMask", "dz")
TENSORS = ("dy", "dz")


class GradientSequenceSolver(Solver[Problem]):
    """Pixels innermost, where all gradients are wanted and statistics were saved."""

    name = "fused_ops.gradient_sequence"

    @staticmethod
    def _normalization(problem: Problem) -> BatchNormalizationBackward | None:
        """Return the call of batch normalisation; None where it is none."""
        o = problem.operation
        if None in (o.savedMean, o.dx, o.dz, o.dScale, o.dBias):
            return None
        if any(spec.strides[1] != o.scale.strides[1] for spec in (o.dScale, o.dBias)):
            return None
        tensors = (o.x, o.dz, o.dx, o.scale, o.savedMean)
        mode = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
        return BatchNormalizationBackward(mode, 1.0, 0.0, 1.0, 0.0, *tensors, o.epsilon, o.savedMean)

    def serves(self, problem: Problem) -> bool:
        return self._normalization(problem) is not None and self._walk(problem).along == "pixels"

    def applies(self, problem: Problem) -> bool:
        """Planes, most of which batch normalisation reads once."""
        found = self._normalization(problem)
        return found is not None and BatchProblem(found, problem.device).plane is not None and self.serves(problem)

    def plan(self, problem: Problem) -> Plan:
        o, found = problem.operation, self._normalization(problem)
        assert found is not None
        parts = [
            Part(o, Plan(o, [self._masked(problem)])),
            Part(found, plan(found, problem.device), {"dy": "dz", "savedInvVariance": "savedInvStd"}),
        ]
        return SequencePlan(o, parts, self.name)

    @staticmethod
    def _walk(problem: Problem) -> Walk:
        """Return the walk over pixels, a word of the mask at a time."""
        o = problem.operation
        return Walk.of({name: getattr(o, name) for name in TENSORS}, problem.device, False, o.bitMask, writes_mask=True)

    def _masked(self, problem: Problem) -> Launch:
        """Return the launch that writes dz."""
        o, walk = problem.operation, self._walk(problem)
        arguments = structure(
            *pointers(len(OPERANDS)),
            ("pixels", walk.pixels),
            *((f"{name}_strides", walk.strides[name]) for name in TENSORS),
        )
        definitions = type_definitions(o.x.scalar_type, o, **walk.definitions(o.x.scalar_bytes))
        function = problem.device.function(SOURCE, "fused_ops_gradient_sequence", definitions)
        return Launch(function, arguments, OPERANDS, walk.grid, (THREADS, 1, 1))
