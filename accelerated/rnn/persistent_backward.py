"""The gradients of inputs and states of recurrent networks, all steps of a layer in one cooperative launch
(persistent_backward.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from ..plans import Launch
from ..solver import Solver
from . import dropout, inputs, persistent
from .persistent import Division
from .problem import RNNProblem

SOURCE = "rnn/persistent_backward.cu"
OPERANDS = ("dy", "hx", "dhy", "cx", "dcy", "weightSpace", "dhx", "dcx", "workSpace", "reserveSpace")


class PersistentBackwardSolver(Solver[RNNProblem]):
    """Recurrent matrices on chip, where the multiprocessors have room for those of a layer."""

    name = "rnn.persistent_backward"

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
        elements = n.directions * problem.steps * problem.batch * n.gates * n.hidden
        exchanged = inputs.Filled("workSpace", problem.work()["products"], elements)
        found = inputs.prepared(problem, exchanged)
        for layer in reversed(range(n.layers)):
            if layer < n.layers - 1:
                found.append(inputs.fill(problem, exchanged))
            found.append(self._steps(problem, layer))
            found += inputs.gradients(problem, layer)
            found += dropout.gradient(problem, layer)
        return found

    def _divisions(self, problem: RNNProblem) -> list[Division]:
        return persistent.divisions(problem, 1, problem.network.gates)

    def _steps(self, problem: RNNProblem, layer: int) -> Launch:
        fields = ("clip", problem.clip), *problem.described(layer, problem.operation.dx)
        return persistent.launch(
            problem, self._divisions(problem), (SOURCE, "rnn_persistent_backward"), OPERANDS, *fields
        )
