"""Compute the gradients of inputs and states with a product and a kernel for each step of each layer (gradient.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..gemm.matrix import ABSENT, Matrix
from ..plans import SCRATCH, Launch
from ..primitives.geometry import Grid
from ..solver import Solver
from . import dropout, inputs
from .problem import THREADS, RNNProblem, tiles

SOURCE = "rnn/gradient.cu"
OPERANDS = (
    "dy", "hx", "dhy", "cx", "dcy", "weightSpace", "dx", "dhx", "dcx", "workSpace", "reserveSpace",
)  # fmt: skip


class GradientSolver(Solver[RNNProblem]):
    """Serve every network, from the last layer and step to the first."""

    name = "rnn.gradient"

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, steps, batch = problem.network, problem.steps, problem.batch
        found = inputs.prepared(problem)
        states, cells, outputs = (
            (-(-batch * size // THREADS), n.directions, 1) for size in (n.projected + n.hidden, n.hidden, n.projected)
        )
        for layer in reversed(range(n.layers)):
            found.append(self._launch(problem, "start", layer, 0, states))
            parts = 0
            for step in range(steps):
                if n.is_projected:
                    found.append(self._launch(problem, "output", layer, step, outputs, parts))
                    projections = tiles(n.hidden, batch, n.directions)
                    found.append(self._launch(problem, "project", layer, step, projections))
                found.append(self._launch(problem, "cell", layer, step, cells, parts))
                products, parts = _products(problem, layer, step)
                found += products
            if problem.operation.dhx is not None or problem.operation.dcx is not None:
                found.append(self._launch(problem, "finish", layer, steps, states, parts))
            found += inputs.gradients(problem, layer)
            found += dropout.gradient(problem, layer)
        return found

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, step: int, grid: Grid, parts: int = 0) -> Launch:
        dx, operands = problem.operation.dx, (*OPERANDS, SCRATCH if parts else ABSENT)
        fields = (*problem.fill(dx), ("clip", problem.clip), *problem.described(layer, dx), ("step", c_int(step)))
        return problem.launch(SOURCE, f"rnn_gradient_{kernel}", operands, grid, *fields, ("parts", c_int(parts)))


def _products(problem: RNNProblem, layer: int, step: int) -> tuple[list[Launch], int]:
    """Return the launches that multiply the gate gradients of a step by the recurrent matrices, and the number of
    split-K parts.
    """
    n, batch, size = problem.network, problem.batch, inputs.element_bytes(problem)
    last, row = problem.steps - 1, problem.kept_gates * n.hidden
    start, distance = problem.weights(layer, "recurrent")
    found, first, parts = list[Launch](), 0, 0
    for slot, gates in problem.recurrent_slots:
        gradients = inputs.gate_gradients(problem, layer, slot)
        a = gradients._replace(
            offset=gradients.offset + (last - step) * batch * row * size, segment=0,
            outer=gradients.outer + (2 * step - last) * batch * row,
        )  # fmt: skip
        b = Matrix("weightSpace", (start + first * n.hidden * n.projected) * size, 1, n.projected, distance)
        launches, more = inputs.multiply_in_parts(problem, (batch, n.projected, gates * n.hidden), a, b, parts)
        found, parts, first = [*found, *launches], parts + more, first + gates
    return found, parts
