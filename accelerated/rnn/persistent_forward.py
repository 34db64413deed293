"""Recurrent networks forward, all steps of a layer in one cooperative launch (persistent_forward.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from ..plans import Launch
from ..solver import Solver
from . import dropout, inputs, persistent
from .persistent import Division
from .problem import RNNProblem

SOURCE = "rnn/persistent_forward.cu"
OPERANDS = ("hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")


class PersistentForwardSolver(Solver[RNNProblem]):
    """Recurrent matrices on chip, where the multiprocessors have room for those of a layer."""

    name = "rnn.persistent_forward"

    def serves(self, problem: RNNProblem) -> bool:
        return persistent.can_serve(problem) and bool(self._divisions(problem))

    def applies(self, problem: RNNProblem) -> bool:
        return self.serves(problem) and persistent.runs_together(problem, self._divisions(problem)[0])

    def alignment(self, problem: RNNProblem) -> Mapping[str, int]:
        return {"workSpace": 16, "reserveSpace": 16}

    def estimated_seconds(self, problem: RNNProblem) -> float:
        possible = self._divisions(problem)
        return persistent.seconds(problem, possible[0]) if possible else super().estimated_seconds(problem)

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n = problem.network
        found = inputs.prepared(problem, self._exchanged(problem, 0))
        for layer in range(n.layers):
            if layer:
                found += dropout.drawn(problem, layer - 1)
            found += inputs.products(problem, layer)
            if layer:
                found.append(inputs.fill(problem, self._exchanged(problem, layer)))
            found.append(self._steps(problem, layer))
        return [*found, *dropout.advanced(problem)]

    @staticmethod
    def _exchanged(problem: RNNProblem, layer: int) -> inputs.Filled:
        """Return what the layer puts out, which its blocks exchange."""
        where = problem.outputs(layer)
        elements = problem.steps * problem.batch * problem.network.output_size
        return inputs.Filled(where.operand, where.offset // inputs.number_bytes(problem), elements)

    def _divisions(self, problem: RNNProblem) -> list[Division]:
        return persistent.divisions(problem, problem.network.gates, 1)

    def _steps(self, problem: RNNProblem, layer: int) -> Launch:
        y = problem.operation.y
        fields = *problem.fill(y), ("clip", problem.clip), *problem.described(layer, y)
        return persistent.launch(
            problem, self._divisions(problem), (SOURCE, "rnn_persistent_forward"), OPERANDS, *fields
        )
