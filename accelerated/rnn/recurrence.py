"""Recurrent networks forward: a product and a kernel for each step of each layer (recurrence.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..gemm.matrix import Matrix
from ..plans import COMPUTES, Launch
from ..primitives.geometry import Grid
from ..solver import Solver
from . import dropout, inputs
from .problem import THREADS, RNNProblem, tiles

SOURCE = "rnn/recurrence.cu"
OPERANDS = ("x", "hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")


class RecurrenceSolver(Solver[RNNProblem]):
    """Every network: input products of all steps at a time, then step by step."""

    name = "rnn.recurrence"

    def serves(self, problem: RNNProblem) -> bool:
        return True

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
                found += _products(problem, layer, step)
                found.append(self._launch(problem, "cell", layer, step, cells))
                if n.is_projected:
                    projections = tiles(n.projected, batch, n.directions)
                    found.append(self._launch(problem, "project", layer, step, projections))
            if problem.operation.hy is not None or problem.operation.cy is not None:
                found.append(self._launch(problem, "finish", layer, 0, states))
        return [*found, *dropout.advanced(problem)]

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, step: int, grid: Grid) -> Launch:
        y = problem.operation.y
        multiplies = step > 0 or problem.operation.hx is not None
        fields = (*problem.fill(y), ("clip", problem.clip), *problem.described(layer, y), ("step", c_int(step)))
        operands = (SOURCE, f"rnn_recurrence_{kernel}", OPERANDS, grid)
        return problem.launch(*operands, *fields, ("multiplies", c_int(multiplies)))


def _products(problem: RNNProblem, layer: int, step: int) -> list[Launch]:
    """Return the launches that multiply what the cells of a layer put out before by the recurrent matrices, and add
    that to the products of their inputs; of a GRU what its reset gate multiplies lies apart."""
    n, batch, size = problem.network, problem.batch, inputs.element_bytes(problem)
    number, vectors = inputs.number_bytes(problem), problem.steps * problem.batch
    last, wide, rows = problem.steps - 1, n.directions * n.projected, n.gates * n.hidden
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
        return []
    start, distance = problem.weights(layer, "recurrent")
    matrix = Matrix("weightSpace", start * size, n.projected, 1, distance)
    regions, compute = problem.work(), COMPUTES[problem.operation.compute_type]
    sums = Matrix(
        "workSpace", (regions["products"] + step * batch * rows) * number, rows, 1,
        (vectors + (last - 2 * step) * batch) * rows,
    )  # fmt: skip
    added = problem.added_gates * n.hidden
    dims, batches = (batch, added, n.projected), (n.directions, 1)
    found = inputs.multiply(problem, dims, before, matrix, sums, compute, batches=batches, beta=1.0, splits=1)
    if added < rows:
        apart = Matrix("workSpace", regions["before"] * number, n.hidden, 1, batch * n.hidden)
        matrix = matrix._replace(offset=matrix.offset + added * n.projected * size)
        dims = batch, rows - added, n.projected
        found += inputs.multiply(problem, dims, before, matrix, apart, compute, batches=batches, splits=1)
    return found
