"""The gradients of inputs and states of recurrent networks, all steps of a layer in one cooperative launch
(persistent_backward.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from ..plans import Launch, pointers, structure
from ..solver import Solver
from . import dropout, inputs, persistent
from .persistent import Division
from .problem import THREADS, RNNProblem

SOURCE = "rnn/persistent_backward.cu"
OPERANDS = ("dy", "hx", "dhy", "cx", "dcy", "weightSpace", "dhx", "dcx", "workSpace", "reserveSpace")


class PersistentBackwardSolver(Solver[RNNProblem]):
    """Recurrent matrices on chip, where the multiprocessors have room for those of a layer."""

    name = "rnn.persistent_backward"

    def serves(self, problem: RNNProblem) -> bool:
        return persistent.can_serve(problem) and self._division(problem) is not None

    def applies(self, problem: RNNProblem) -> bool:
        return self.serves(problem) and persistent.runs_together(problem, self._division(problem))

    def alignment(self, problem: RNNProblem) -> Mapping[str, int]:
        return {"workSpace": 16, "reserveSpace": 16}

    def estimated_seconds(self, problem: RNNProblem) -> float:
        made = self._division(problem)
        return persistent.seconds(problem, made) if made else super().estimated_seconds(problem)

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n = problem.network
        found = inputs.lengths(problem)
        exchanged = n.directions * problem.steps * problem.batch * n.gates * n.hidden
        for layer in reversed(range(n.layers)):
            found.append(inputs.fill(problem, "workSpace", problem.work()["products"], exchanged))
            found.append(self._steps(problem, layer))
            found += inputs.gradients(problem, layer)
            found += dropout.gradient(problem, layer)
        return found

    def _division(self, problem: RNNProblem) -> Division | None:
        return persistent.division(problem, 1, problem.network.gates)

    def _steps(self, problem: RNNProblem, layer: int) -> Launch:
        made = self._division(problem)
        assert made is not None
        dx = problem.operation.dx
        arguments = structure(
            *pointers(len(OPERANDS)), ("clip", problem.clip), *problem.described(layer, dx), *made.fields
        )
        function = problem.device.function(SOURCE, "rnn_persistent_backward", made.definitions(problem))
        shape = persistent.grid(problem, made), (THREADS, 1, 1), made.shared_bytes
        return Launch(function, arguments, OPERANDS, *shape, cooperative=True)
