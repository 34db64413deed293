"""Compute recurrent networks forward with a product and a kernel for each step of each layer (recurrence.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..gemm.matrix import ABSENT, Matrix
from ..plans import SCRATCH, Launch
from ..primitives.geometry import Grid
from ..solver import Solver
from . import dropout, inputs
from .problem import THREADS, RNNProblem, tiles

SOURCE = "rnn/recurrence.cu"
MAX_PARTS = 8  # parts per product; each thread reads them for all gates of its cells
OPERANDS = ("x", "hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")


class RecurrenceSolver(Solver[RNNProblem]):
    """Serve every network: one product for the inputs of all steps, then step by step."""

    name = "rnn.recurrence"

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, steps, batch = problem.network, problem.steps, problem.batch
        found = inputs.prepared(problem)
        cells = (-(-batch * n.hidden // THREADS), n.directions, 1)
        states = (-(-batch * (n.projected + n.hidden) // THREADS), n.directions, 1)
        for layer in range(n.layers):
            if layer:
                found += dropout.drawn(problem, layer - 1)
            found += inputs.products(problem, layer)
            found.append(self._launch(problem, "start", layer, 0, states))
            for step in range(steps):
                products, parts = _products(problem, layer, step)
                found += [*products, self._launch(problem, "cell", layer, step, cells, parts)]
                if n.is_projected:
                    projections = tiles(n.projected, batch, n.directions)
                    found.append(self._launch(problem, "project", layer, step, projections))
            if problem.operation.hy is not None or problem.operation.cy is not None:
                found.append(self._launch(problem, "finish", layer, 0, states))
        return [*found, *dropout.advanced(problem)]

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, step: int, grid: Grid, parts: int = 0) -> Launch:
        y = problem.operation.y
        fields = (*problem.fill(y), ("clip", problem.clip), *problem.described(layer, y), ("step", c_int(step)))
        operands = (SOURCE, f"rnn_recurrence_{kernel}", (*OPERANDS, SCRATCH if parts else ABSENT), grid)
        return problem.launch(*operands, *fields, ("parts", c_int(parts)))


def _products(problem: RNNProblem, layer: int, step: int) -> tuple[list[Launch], int]:
    """Return the launches that multiply the previous outputs of a layer's cells by the recurrent matrices, and the
    number of split-K parts.
    """
    n, batch, size = problem.network, problem.batch, inputs.element_bytes(problem)
    last, wide = problem.steps - 1, n.directions * n.projected
    if step:
        where = problem.outputs(layer)
        before = Matrix(
            where.operand, where.offset + (step - 1) * batch * wide * size, wide, 1,
            (last - 2 * (step - 1)) * batch * wide + n.projected,
        )  # fmt: skip
    elif problem.operation.hx is not None:
        start = layer * n.directions * batch * n.projected
        before = Matrix("hx", start * size, n.projected, 1, batch * n.projected)
    else:
        return [], 0
    start, distance = problem.weights(layer, "recurrent")
    matrix = Matrix("weightSpace", start * size, n.projected, 1, distance)
    dims = batch, n.gates * n.hidden, n.projected
    return inputs.multiply_in_parts(problem, dims, before, matrix, most=MAX_PARTS)
