"""Recurrent networks forward: a kernel for each step of each layer (recurrence.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..plans import Launch, pointers, structure
from ..primitives.geometry import Grid
from ..solver import Solver
from .problem import THREADS, RNNProblem

SOURCE = "rnn/recurrence.cu"
OPERANDS = ("x", "hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")
TILE = 64  # rows and columns of a block of the product, as in the kernel
CELLS = 16  # sequences and hidden units of a block of a step


class RecurrenceSolver(Solver[RNNProblem]):
    """Every network: input products of all steps at a time, then step by step."""

    name = "rnn.recurrence"

    def serves(self, problem: RNNProblem) -> bool:
        return True

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, steps, batch = problem.network, problem.steps, problem.batch
        vectors, states = steps * batch, batch * (n.projected + n.hidden)
        found = problem.lengths(SOURCE, "rnn_recurrence")
        cells = (-(-n.hidden // CELLS), -(-batch // CELLS), n.directions)
        projections = (-(-n.projected // TILE), -(-batch // TILE), n.directions)
        everything = (-(-states // THREADS), n.directions, 1)
        for layer in range(n.layers):
            found.append(self._launch(problem, "start", layer, 0, everything))
            products = (-(-n.gates * n.hidden // TILE), -(-vectors // TILE), n.directions)
            found.append(self._launch(problem, "product", layer, 0, products))
            for step in range(steps):
                found.append(self._launch(problem, "step", layer, step, cells))
                if n.is_projected:
                    found.append(self._launch(problem, "project", layer, step, projections))
            if problem.operation.hy is not None or problem.operation.cy is not None:
                found.append(self._launch(problem, "finish", layer, 0, everything))
        return found

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, step: int, grid: Grid) -> Launch:
        arguments = structure(
            *pointers(len(OPERANDS)),
            *problem.fill(problem.operation.y),
            ("clip", problem.clip),
            ("layer", problem.layer(layer)),
            ("regions", problem.regions(layer)),
            ("shape", problem.shape(problem.operation.y)),
            ("step", c_int(step)),
        )
        function = problem.device.function(SOURCE, f"rnn_recurrence_{kernel}", problem.definitions)
        return Launch(function, arguments, OPERANDS, grid, (THREADS, 1, 1))
