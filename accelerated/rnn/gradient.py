"""The gradients of inputs and states of recurrent networks: two kernels for each step of each layer (gradient.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..plans import Launch
from ..primitives.geometry import Grid
from ..solver import Solver
from . import dropout
from .problem import THREADS, RNNProblem, tiles

SOURCE = "rnn/gradient.cu"
OPERANDS = (
    "dy", "hx", "dhy", "cx", "dcy", "weightSpace", "dx", "dhx", "dcx", "workSpace", "reserveSpace",
)  # fmt: skip


class GradientSolver(Solver[RNNProblem]):
    """Every network, from the last layer and step to the first."""

    name = "rnn.gradient"

    def serves(self, problem: RNNProblem) -> bool:
        return True

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, steps, batch = problem.network, problem.steps, problem.batch
        found = problem.lengths(SOURCE, "rnn_gradient")
        states, cells, outputs = (
            (-(-batch * size // THREADS), n.directions, 1) for size in (n.projected + n.hidden, n.hidden, n.projected)
        )
        for layer in reversed(range(n.layers)):
            found.append(self._launch(problem, "start", layer, 0, states))
            for step in range(steps):
                if n.is_projected:
                    found.append(self._launch(problem, "output", layer, step, outputs))
                    projections = tiles(n.hidden, batch, n.directions)
                    found.append(self._launch(problem, "project", layer, step, projections))
                found.append(self._launch(problem, "cell", layer, step, cells))
                found.append(self._launch(problem, "step", layer, step, tiles(n.projected, batch, n.directions)))
            inputs = tiles(n.input_width(layer), steps * batch, 1)
            found.append(self._launch(problem, "input", layer, 0, inputs))
            found += dropout.gradient(problem, layer)
            if problem.operation.dhx is not None or problem.operation.dcx is not None:
                found.append(self._launch(problem, "finish", layer, 0, states))
        return found

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, step: int, grid: Grid) -> Launch:
        dx = problem.operation.dx
        fields = (*problem.fill(dx), ("clip", problem.clip), *problem.described(layer, dx), ("step", c_int(step)))
        return problem.launch(SOURCE, f"rnn_gradient_{kernel}", OPERANDS, grid, *fields)
