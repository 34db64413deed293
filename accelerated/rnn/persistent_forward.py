"""Recurrent networks forward, all steps of a layer in one cooperative launch (persistent_forward.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from ..plans import Launch, pointers, structure
from ..solver import Solver
from . import dropout, inputs, persistent
from .persistent import Division
from .problem import THREADS, RNNProblem

SOURCE = "rnn/persistent_forward.cu"
OPERANDS = ("hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")


class PersistentForwardSolver(Solver[RNNProblem]):
    """Recurrent matrices on chip, where the multiprocessors have room for those of a layer."""

    name = "rnn.persistent_forward"

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
        for layer in range(n.layers):
            if layer:
                found += dropout.drawn(problem, layer - 1)
            found += inputs.products(problem, layer)
            where = problem.outputs(layer)
            elements = problem.steps * problem.batch * n.output_size
            found.append(inputs.fill(problem, where.operand, where.offset // inputs.number_bytes(problem), elements))
            found.append(self._steps(problem, layer))
        return [*found, *dropout.advanced(problem)]

    def _division(self, problem: RNNProblem) -> Division | None:
        return persistent.division(problem, problem.network.gates, 1)

    def _steps(self, problem: RNNProblem, layer: int) -> Launch:
        made = self._division(problem)
        assert made is not None
        y = problem.operation.y
        arguments = structure(
            *pointers(len(OPERANDS)),
            *problem.fill(y),
            ("clip", problem.clip),
            *problem.described(layer, y),
            *made.fields,
        )
        function = problem.device.function(SOURCE, "rnn_persistent_forward", made.definitions(problem))
        shape = persistent.grid(problem, made), (THREADS, 1, 1), made.shared_bytes
        return Launch(function, arguments, OPERANDS, *shape, cooperative=True)
