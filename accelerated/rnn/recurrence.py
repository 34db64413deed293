"""Compute recurrent networks forward with a product and a kernel for each step of each layer (recurrence.cu)."""

from __future__ import annotations

from ctypes import c_int

from ..gemm.matrix import ABSENT, Matrix, MatrixProduct
from ..plans import SCRATCH, Launch
from ..primitives.geometry import Grid
from ..reproducible import Order
from ..solver import Solver
from . import dropout, inputs
from .problem import THREADS, RNNProblem, tiles
from .step_copies import StepCopies

SOURCE = "rnn/recurrence.cu"
MAX_PARTS = 8  # parts per product; each thread reads them for all gates of its cells
OPERANDS = ("x", "hx", "cx", "weightSpace", "y", "hy", "cy", "workSpace", "reserveSpace")


class RecurrenceSolver(Solver[RNNProblem]):
    """Serve every network: one product for the inputs of all steps, then step by step."""

    name = "rnn.recurrence"

    def summation_order(self, problem: RNNProblem) -> Order:
        return Order(self.name, (inputs.uses_tensor_cores(problem),))

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, steps, batch = problem.network, problem.steps, problem.batch
        found = inputs.prepared(problem)
        cells = (-(-batch * n.hidden // THREADS), n.directions, 1)
        states = (-(-batch * (n.projected + n.hidden) // THREADS), n.directions, 1)
        for layer in range(n.layers):
            if layer:
                found += dropout.drawn(problem, layer - 1)
            found += inputs.products(problem, layer)
            copies = _copies(problem, layer)
            found += copies.launches
            found.append(self._launch(problem, copies, "start", layer, 0, states))
            for step in range(steps):
                product = _product(problem, copies, layer, step)
                products, parts = product.launches_in_parts() if product else ([], 0)
                found += [*products, self._launch(problem, copies, "cell", layer, step, cells, parts)]
                if n.is_projected:
                    projections = tiles(n.projected, batch, n.directions)
                    found.append(self._launch(problem, copies, "project", layer, step, projections))
            if problem.operation.hy is not None or problem.operation.cy is not None:
                found.append(self._launch(problem, copies, "finish", layer, 0, states))
        return [*found, *dropout.advanced(problem)]

    def _launch(
        self, problem: RNNProblem, copies: StepCopies, kernel: str, layer: int, step: int, grid: Grid, parts: int = 0
    ) -> Launch:
        y = problem.operation.y
        fields = (*problem.fill(y), ("clip", problem.clip), *problem.described(layer, y), ("step", c_int(step)))
        operands = (*OPERANDS, SCRATCH if parts or copies.pitch else ABSENT)
        made = problem.launch(
            SOURCE, f"rnn_recurrence_{kernel}", operands, grid, *fields, ("parts", c_int(parts)), *copies.fields
        )
        made.scratch_bytes = copies.end
        return made


def _copies(problem: RNNProblem, layer: int) -> StepCopies:
    """Return the copies for the products of a layer's steps."""
    n = problem.network
    start, distance = problem.weights(layer, "recurrent")
    weights = Matrix("weightSpace", start * inputs.element_bytes(problem), n.projected, 1, distance)
    # The states of two directions lie apart by fewer and fewer steps. Half of the products have a negative stride.
    steps = {1, problem.steps - 1} - {0}
    products = [_product(problem, StepCopies(problem, weights), layer, step) for step in steps]
    return StepCopies.of(problem, weights, (n.gates * n.hidden, n.projected), 2, products, MAX_PARTS)


def _product(problem: RNNProblem, copies: StepCopies, layer: int, step: int) -> MatrixProduct | None:
    """Return the product of the previous outputs of a layer's cells with the recurrent matrices."""
    n, batch, size = problem.network, problem.batch, inputs.element_bytes(problem)
    last, wide = problem.steps - 1, n.directions * n.projected
    if step == 0 and problem.operation.hx is None:
        return None
    if copies.pitch:
        before = copies.vectors(step % 2)
    elif step:
        where = problem.outputs(layer)
        before = Matrix(
            where.operand, where.offset + (step - 1) * batch * wide * size, wide, 1,
            (last - 2 * (step - 1)) * batch * wide + n.projected,
        )  # fmt: skip
    else:
        start = layer * n.directions * batch * n.projected
        before = Matrix("hx", start * size, n.projected, 1, batch * n.projected)
    dims = batch, n.gates * n.hidden, n.projected
    return inputs.product_in_parts(problem, dims, before, copies.weights, most=MAX_PARTS, start=copies.end)
