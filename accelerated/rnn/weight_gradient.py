"""The gradients of the weights of recurrent networks: products over all vectors (gemm/matrix.cu,
weight_gradient.cu)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    """Every network: for each kind of matrix a product of all layers that lie alike in memory, a sum for the biases."""

    name = "rnn.weight_gradient"

    def serves(self, problem: RNNProblem) -> bool:
        return True

    def launches(self, problem: RNNProblem) -> list[Launch]:
        problem, n = problem.apart(), problem.network
        found = inputs.prepared(problem)
        factors = {}
        for layer in range(1 if n.skips_input else 0, n.layers):
            where, gathered = inputs.taken(problem, layer)
            factors[layer] = Matrix(where.operand, where.offset, 1, n.input_width(layer))
            found += gathered
        found += _products(problem, "input", 0, 0, n.gates, factors)
        found += self._recurrent(problem)
        for layer in range(n.layers):
            if n.is_projected:
                found.append(self._launch(problem, "project", layer, tiles(n.hidden, n.projected, n.directions)))
            if n.has_input_bias or n.has_recurrent_bias:
                rows = problem.kept_gates * n.hidden
                found.append(self._launch(problem, "bias", layer, (-(-rows // COLUMNS), n.directions, 1), BIAS_THREADS))
        return found

    def _recurrent(self, problem: RNNProblem) -> list[Launch]:
        """Return the launches of the gradients of the recurrent matrices; what cells put out before lies, in the work
        space, where x has been."""
        n, vectors, number = problem.network, problem.steps * problem.batch, inputs.number_bytes(problem)
        blocks, layers = -(-n.directions * vectors // inputs.VECTORS), range(n.layers)
        found = [inputs.launch(problem, "previous", layer, blocks, "x", "hx") for layer in layers]
        factors = {
            layer: Matrix("workSpace", problem.passed(layer)["output"] * number, 1, n.projected, vectors * n.projected)
            for layer in layers
        }
        first = 0
        for slot, gates in problem.recurrent_slots:
            found += _products(problem, "recurrent", first, slot, gates, factors)
            first += gates
        return found

    def _launch(self, problem: RNNProblem, kernel: str, layer: int, grid: Grid, threads: int = THREADS) -> Launch:
        fields = problem.described(layer, problem.data)
        return problem.launch(SOURCE, f"rnn_weight_gradient_{kernel}", OPERANDS, grid, *fields, threads=threads)


def _products(
    problem: RNNProblem, kind: str, first: int, slot: int, gates: int, factors: Mapping[int, Matrix]
) -> list[Launch]:
    """Return the launches that add to matrices of some gates the gradients of these times vectors, over all vectors.

    slot: of the first of these gates' gradients. factors: by layer, the vectors; a column is one of them.
    """
    n, size, found = problem.network, inputs.element_bytes(problem), []
    operands = {}
    for layer, factor in factors.items():
        start, distance = problem.weights(layer, kind)
        gradients = inputs.gate_gradients(problem, layer, slot)._replace(segment=0).transposed
        offset = (start + first * n.hidden * factor.column) * size
        operands[layer] = gradients, factor, Matrix("dweightSpace", offset, factor.column, 1, distance)
    for layers, strides in _alike(operands, n.directions):
        gradients, factor, result = operands[layers[0]]
        batches = (n.directions, 1)
        if len(layers) > 1:
            batches = (len(layers), 1)
            gradients, factor, result = (
                matrix._replace(outer=stride // size)
                for matrix, stride in zip((gradients, factor, result), strides, strict=True)
            )
        dims = gates * n.hidden, factor.column, problem.steps * problem.batch
        more = {"batches": batches, "beta": 1.0}
        found += inputs.multiply(problem, dims, gradients, factor, result, ELEMENTS[problem.data.data_type], **more)
    return found


def _alike(operands: Mapping[int, Sequence[Matrix]], directions: int) -> Iterator[tuple[list[int], tuple[int, ...]]]:
    """Yield layers that follow each other and whose matrices are equally far apart, of one direction, with these
    distances in bytes."""

    def distances(layer: int, other: int) -> tuple[int, ...] | None:
        pairs = [*zip(operands[layer], operands[other], strict=True)]
        alike = all(a._replace(offset=0) == b._replace(offset=0) for a, b in pairs)
        return tuple(b.offset - a.offset for a, b in pairs) if alike and directions == 1 else None

    layers: list[int] = []
    strides: tuple[int, ...] = ()
    for layer in operands:
        wanted = distances(layers[-1], layer) if layers else None
        if wanted is not None and (len(layers) == 1 or wanted == strides):
            layers, strides = [*layers, layer], wanted
            continue
        if layers:
            yield layers, strides
        layers, strides = [layer], ()
    if layers:
        yield layers, strides
