"""Compute the gradients of inputs and states with a product and a kernel for each step of each layer (gradient.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from functools import partial

from ..gemm.matrix import ABSENT, Matrix, MatrixProduct
from ..plans import SCRATCH, Launch
from ..primitives.geometry import Grid
from ..reproducible import Order
from ..solver import Solver
from . import dropout, inputs
from .problem import THREADS, RNNProblem, tiles
from .step_copies import StepCopies

SOURCE = "rnn/gradient.cu"
OPERANDS = (
    "dy", "hx", "dhy", "cx", "dcy", "weightSpace", "dx", "dhx", "dcx", "workSpace", "reserveSpace",
)  # fmt: skip


class GradientSolver(Solver[RNNProblem]):
    """Serve every network, from the last layer and step to the first."""

    name = "rnn.gradient"

    def summation_order(self, problem: RNNProblem) -> Order:
        return Order(self.name, (inputs.uses_tensor_cores(problem),))

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, steps, batch = problem.network, problem.steps, problem.batch
        found = inputs.prepared(problem)
        states, cells, outputs = (
            (-(-batch * size // THREADS), n.directions, 1) for size in (n.projected + n.hidden, n.hidden, n.projected)
        )
        for layer in reversed(range(n.layers)):
            copies = _copies(problem, layer)
            found += [*copies.launches, self._launch(problem, copies, "start", layer, 0, states)]
            parts = 0
            for step in range(steps):
                if n.is_projected:
                    found.append(self._launch(problem, copies, "output", layer, step, outputs, parts))
                    projections = tiles(n.hidden, batch, n.directions)
                    found.append(self._launch(problem, copies, "project", layer, step, projections))
                found.append(self._launch(problem, copies, "cell", layer, step, cells, parts))
                parts = 0
                for product in _products(problem, copies, layer, step):
                    launches, more = product(parts).launches_in_parts()
                    found, parts = [*found, *launches], parts + more
            if problem.operation.dhx is not None or problem.operation.dcx is not None:
                found.append(self._launch(problem, copies, "finish", layer, steps, states, parts))
            found += inputs.gradients(problem, layer)
            found += dropout.gradient(problem, layer)
        return found

    def _launch(
        self, problem: RNNProblem, copies: StepCopies, kernel: str, layer: int, step: int, grid: Grid, parts: int = 0
    ) -> Launch:
        dx, operands = problem.operation.dx, (*OPERANDS, SCRATCH if parts or copies.pitch else ABSENT)
        fields = (*problem.fill(dx), ("clip", problem.clip), *problem.described(layer, dx), ("step", c_int(step)))
        made = problem.launch(
            SOURCE, f"rnn_gradient_{kernel}", operands, grid, *fields, ("parts", c_int(parts)), *copies.fields
        )
        made.scratch_bytes = copies.end
        return made


def _copies(problem: RNNProblem, layer: int) -> StepCopies:
    """Return the copies for the products of a layer's steps. One product then serves all gates of a GRU."""
    n = problem.network
    start, distance = problem.weights(layer, "recurrent")
    weights = Matrix("weightSpace", start * inputs.element_bytes(problem), 1, n.projected, distance)
    in_place = [product(0) for product in _products(problem, StepCopies(problem, weights), layer, 0)]
    return StepCopies.of(problem, weights, (n.projected, n.gates * n.hidden), 1, in_place, step_products=len(in_place))


def _products(problem: RNNProblem, copies: StepCopies, layer: int, step: int) -> list[Callable[[int], MatrixProduct]]:
    """Return the products of a step's gate gradients with the recurrent matrices, each by the number of parts before
    its own.
    """
    n, batch, size = problem.network, problem.batch, inputs.element_bytes(problem)
    if copies.pitch:
        dims, weights = (batch, n.projected, n.gates * n.hidden), copies.weights
        return [partial(inputs.product_in_parts, problem, dims, copies.vectors(0), weights, start=copies.end)]
    last, row = problem.steps - 1, problem.kept_gates * n.hidden
    found, first = list[Callable[[int], MatrixProduct]](), 0
    for slot, gates in problem.recurrent_slots:
        gradients = inputs.gate_gradients(problem, layer, slot)
        a = gradients._replace(
            offset=gradients.offset + (last - step) * batch * row * size, segment=0,
            outer=gradients.outer + (2 * step - last) * batch * row,
        )  # fmt: skip
        b = copies.weights._replace(offset=copies.weights.offset + first * n.hidden * n.projected * size)
        dims = batch, n.projected, gates * n.hidden
        found.append(partial(inputs.product_in_parts, problem, dims, a, b))
        first += gates
    return found
