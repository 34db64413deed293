"""The gradients of the weights of recurrent networks: products over all vectors (gemm/matrix.cu,
weight_gradient.cu)."""

from __future__ import annotations

from ..gemm.matrix import Matrix
from ..plans import ELEMENTS, Launch
from ..primitives.geometry import Grid
from ..solver import Solver
from . import inputs
from .problem import THREADS, RNNProblem, tiles

SOURCE = "rnn/weight_gradient.cu"
OPERANDS = ("x", "hx", "dweightSpace", "workSpace", "reserveSpace")
COLUMNS, BIAS_THREADS = 32, 1024  # biases of a block, as in the kernel; their threads


class WeightGradientSolver(Solver[RNNProblem]):
    """Every network: of each layer a product for each kind of matrix, a sum for the biases."""

    name = "rnn.weight_gradient"

    def serves(self, problem: RNNProblem) -> bool:
        return True

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n = problem.network
        found = inputs.prepared(problem)
        for layer in range(n.layers):
            if layer or not n.skips_input:
                where, gathered = inputs.taken(problem, layer)
                width = n.input_width(layer)
                found += gathered
                found += _product(
                    problem, layer, "input", 0, 0, n.gates, Matrix(where.operand, where.offset, 1, width), width
                )
            found += self._recurrent(problem, layer)
            if n.is_projected:
                found.append(self._launch(problem, "project", layer, tiles(n.hidden, n.projected, n.directions)))
            if n.has_input_bias or n.has_recurrent_bias:
                rows = problem.kept_gates * n.hidden
                found.append(self._launch(problem, "bias", layer, (-(-rows // COLUMNS), n.directions, 1), BIAS_THREADS))
        return found

    def _recurrent(self, problem: RNNProblem, layer: int) -> list[Launch]:
        """Return the launches of the gradients of the recurrent matrices of a layer."""
        n, vectors = problem.network, problem.steps * problem.batch
        blocks = -(-n.directions * vectors // inputs.VECTORS)
        found = [inputs.launch(problem, "previous", layer, blocks, "x", "hx")]
        offset = problem.passed(layer)["output"] * inputs.number_bytes(problem)
        before, first = Matrix("workSpace", offset, 1, n.projected, vectors * n.projected), 0
        for slot, gates in problem.recurrent_slots:
            found += _product(problem, layer, "recurrent", first, slot, gates, before, n.projected)
            first += gates
        return found

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, grid: Grid, threads: int = THREADS) -> Launch:
        fields = problem.described(layer, problem.data)
        return problem.launch(SOURCE, f"rnn_weight_gradient_{kernel}", OPERANDS, grid, *fields, threads=threads)


def _product(
    problem: RNNProblem, layer: int, kind: str, first: int, slot: int, gates: int, factor: Matrix, columns: int
) -> list[Launch]:
    """Return the launches that add to matrices of some gates the gradients of these times vectors, over all vectors.

    slot: of the first of these gates' gradients. factor: the vectors of ``columns`` elements; a column is one of them.
    """
    n = problem.network
    start, distance = problem.weights(layer, kind)
    gradients = inputs.gate_gradients(problem, layer, slot)._replace(segment=0).transposed
    offset = (start + first * n.hidden * columns) * inputs.element_bytes(problem)
    result = Matrix("dweightSpace", offset, columns, 1, distance)
    dims = gates * n.hidden, columns, problem.steps * problem.batch
    more = {"batches": (n.directions, 1), "beta": 1.0}
    return inputs.multiply(problem, dims, gradients, factor, result, ELEMENTS[problem.data.data_type], **more)
