"""Recurrent networks forward: a kernel for each step of each layer (recurrence.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..plans import Launch
from ..primitives.geometry import Grid
from ..solver import Solver
from . import dropout
from .problem import THREADS, RNNProblem, tiles

SOURCE = "rnn/recurrence.cu"
OPERANDS = ("x", "hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")
CELLS = 16  # sequences and hidden units of a block of a step


class RecurrenceSolver(Solver[RNNProblem]):
    """Every network: input products of all steps at a time, then step by step."""

    name = "rnn.recurrence"

    def serves(self, problem: RNNProblem) -> bool:
        return True

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, steps, batch = problem.network, problem.steps, problem.batch
        found = problem.lengths(SOURCE, "rnn_recurrence")
        cells = (-(-n.hidden // CELLS), -(-batch // CELLS), n.directions)
        states = (-(-batch * (n.projected + n.hidden) // THREADS), n.directions, 1)
        for layer in range(n.layers):
            if layer:
                found += dropout.drawn(problem, layer - 1)
            found.append(self._launch(problem, "start", layer, 0, states))
            products = tiles(n.gates * n.hidden, steps * batch, n.directions)
            found.append(self._launch(problem, "product", layer, 0, products))
            for step in range(steps):
                found.append(self._launch(problem, "step", layer, step, cells))
                if n.is_projected:
                    projections = tiles(n.projected, batch, n.directions)
                    found.append(self._launch(problem, "project", layer, step, projections))
            if problem.operation.hy is not None or problem.operation.cy is not None:
                found.append(self._launch(problem, "finish", layer, 0, states))
        return [*found, *dropout.advanced(problem)]

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, step: int, grid: Grid) -> Launch:
        y = problem.operation.y
        fields = (*problem.fill(y), ("clip", problem.clip), *problem.described(layer, y), ("step", c_int(step)))
        return problem.launch(SOURCE, f"rnn_recurrence_{kernel}", OPERANDS, grid, *fields)
