"""Compute the gradients of the weights of recurrent networks: products over all vectors (gemm/matrix.cu,
weight_gradient.cu).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import c_int, c_longlong

from ..gemm.matrix import Matrix, MatrixProduct
from ..plans import ELEMENTS, SCRATCH, Launch, workspace_aligned
from ..reproducible import Order, order_of_batch
from ..solver import Solver
from . import inputs
from .problem import THREADS, RNNProblem, stacked, tiles

SOURCE = "rnn/weight_gradient.cu"
OPERANDS = ("x", "hx", "dweightSpace", "workSpace", "reserveSpace", SCRATCH)
COLUMNS = 32  # biases per block, as in the kernel
BLOCK = 1024  # threads per block
VECTORS = BLOCK // 32  # vectors per block; each warp copies one
LAYERS = 8  # per launch, as in the kernel
COPIED_BYTES_PER_SECOND = 1.2e12

Factors = Mapping[int, Matrix]  # The keys are layers; each column of a value is a vector.
Operands = tuple[Matrix, Matrix, Matrix]


class WeightGradientSolver(Solver[RNNProblem]):
    """Serve every network: one product for each kind of matrix of all layers with equal layouts, or for both kinds, and
    a sum for the biases.
    """

    name = "rnn.weight_gradient"

    def summation_order(self, problem: RNNProblem) -> Order | None:
        return order_of_batch(self, problem.operation)

    def launches(self, problem: RNNProblem) -> list[Launch]:
        n, factors, gathered = problem.network, {}, list[Launch]()
        for layer in range(1 if n.skips_input else 0, n.layers):
            where, launches = inputs.taken(problem, layer)
            factors[layer] = Matrix(where.operand, where.offset, 1, n.input_width(layer))
            gathered += launches
        of_layer = n.directions * problem.steps * problem.batch * n.projected * inputs.element_bytes(problem)
        with_inputs, previous = False, _copied(problem, 0, of_layer)
        products = _products(problem, "input", (0, 0, n.gates), factors)
        products += [made for group in _groups(problem) for made in _products(problem, "recurrent", group, previous)]
        if n.directions == 1 and not n.is_projected and not n.skips_input and n.input_width(0) == n.hidden:
            together = _of_both_kinds(problem, *(_copied(problem, start, 2 * of_layer) for start in (0, of_layer)))
            copied = n.layers * of_layer / COPIED_BYTES_PER_SECOND
            if _seconds(together) + copied < _seconds(products):
                with_inputs, of_layer, products, gathered = True, 2 * of_layer, together, []
        found = [] if inputs.is_plain(problem) else [*inputs.prepared(problem), *gathered]
        found += _biases_and_copies(problem, of_layer, with_inputs)
        found[-1].scratch_bytes = copies = workspace_aligned(n.layers * of_layer)
        return found + [launch for product in products for launch in product.launches_in_scratch(copies)]


def _seconds(products: Iterable[MatrixProduct]) -> float:
    return sum(product.estimated_seconds for product in products)


def _biases_and_copies(problem: RNNProblem, of_layer: int, with_inputs: bool) -> list[Launch]:
    """Return all launches but the products; they include the projections. ``of_layer`` counts the bytes of a layer's
    copied vectors.
    """
    n, found = problem.network, list[Launch]()
    columns = problem.kept_gates * n.hidden if n.has_input_bias or n.has_recurrent_bias else 0
    bias_blocks = -(-columns // COLUMNS)
    blocks = bias_blocks * n.directions - (-(n.directions + with_inputs) * problem.steps * problem.batch // VECTORS)
    for first in range(0, n.layers, LAYERS):
        layers = range(first, min(first + LAYERS, n.layers))
        fields = (
            ("layers", stacked([problem.layer(layer) for layer in layers], LAYERS)),
            ("regions", stacked([problem.regions(layer) for layer in layers], LAYERS)),
            ("shape", problem.shape(problem.data)),
            ("copies_of_layer", c_longlong(of_layer)),
            *((name, c_int(value)) for name, value in (
                ("plain", inputs.is_plain(problem)), ("with_inputs", with_inputs), ("bias_blocks", bias_blocks)
            )),
        )  # fmt: skip
        grids = {"biases": ((blocks, len(layers), 1), BLOCK)}
        if n.is_projected:
            grids["project"] = tiles(n.hidden, n.projected, n.directions * len(layers)), THREADS
        for kernel, (grid, threads) in grids.items():
            entry = f"rnn_weight_gradient_{kernel}"
            found.append(problem.launch(SOURCE, entry, OPERANDS, grid, *fields, threads=threads))
    return found


def _groups(problem: RNNProblem) -> Iterator[tuple[int, int, int]]:
    """Yield the first gate of matrices that share slots, the slot of their recurrent gradients, and the number of
    gates.
    """
    first = 0
    for slot, gates in problem.recurrent_slots:
        yield first, slot, gates
        first += gates


def _copied(problem: RNNProblem, start: int, of_layer: int) -> Factors:
    """Return the copied vectors of each layer. The vectors of another direction follow."""
    n, of_direction = problem.network, problem.steps * problem.batch * problem.network.projected
    starts = (start + layer * of_layer for layer in range(n.layers))
    return {layer: Matrix(SCRATCH, start, 1, n.projected, of_direction) for layer, start in enumerate(starts)}


def _of_both_kinds(problem: RNNProblem, of_inputs: Factors, previous: Factors) -> list[MatrixProduct]:
    """Return the products of vectors with one layout for both kinds of matrices and all layers. The faster choice
    decides whether both kinds share a product.
    """
    found = list[MatrixProduct]()
    for first, slot, gates in _groups(problem):
        base = _operands(problem, "input", first, first, 0, of_inputs)
        other = _operands(problem, "recurrent", first, slot, 0, previous)
        layers = problem.network.layers
        behind = _operands(problem, "input", first, first, min(1, layers - 1), of_inputs)
        both = _apart(problem, _apart(problem, base, other, is_inner=True), behind)
        apart = [
            *_products(problem, "input", (first, first, gates), of_inputs),
            *_products(problem, "recurrent", (first, slot, gates), previous),
        ]
        found += min([_product(problem, gates, both, (layers, 2))], apart, key=_seconds)
    return found


def _products(problem: RNNProblem, kind: str, group: tuple[int, int, int], factors: Factors) -> list[MatrixProduct]:
    """Return the products for one kind of matrices. A product covers layers with equal distances, both directions of a
    layer, or all of these, whichever takes less time.
    """
    (first, slot, gates), directions, found = group, problem.network.directions, list[MatrixProduct]()
    for run in _runs(problem, [_operands(problem, kind, first, slot, layer, factors) for layer in factors]):
        together = _apart(problem, run[0], run[1]) if len(run) > 1 else run[0]
        if directions == 1 or len(run) == 1:
            found.append(_product(problem, gates, together, (max(len(run), directions), 1)))
            continue
        inner = (matrix.outer for matrix in run[0])
        a, b, c = (matrix._replace(inner=step) for matrix, step in zip(together, inner, strict=True))
        apart = [_product(problem, gates, operands, (directions, 1)) for operands in run]
        found += min([_product(problem, gates, (a, b, c), (len(run), directions))], apart, key=_seconds)
    return found


def _runs(problem: RNNProblem, layers: Sequence[Operands]) -> list[list[Operands]]:
    """Return consecutive layers whose matrices have the same operands and equal distances."""
    runs: list[list[Operands]] = []
    for operands in layers:
        run = runs[-1] if runs else []
        pairs = list(zip(run[-1], operands, strict=True)) if run else []
        alike = bool(run) and all(before._replace(offset=0) == after._replace(offset=0) for before, after in pairs)
        if alike and (len(run) == 1 or _steps(problem, run[0], run[1]) == _steps(problem, run[-1], operands)):
            run.append(operands)
        else:
            runs.append([operands])
    return runs


def _steps(problem: RNNProblem, base: Operands, other: Operands) -> tuple[int, ...]:
    """Return the distances between matrices, in elements."""
    size = inputs.element_bytes(problem)
    return tuple((b.offset - a.offset) // size for a, b in zip(base, other, strict=True))


def _operands(problem: RNNProblem, kind: str, first: int, slot: int, layer: int, factors: Factors) -> Operands:
    """Return the gradients of a layer's gates from a slot on, its vectors, and its matrices from a gate on."""
    (start, distance), factor = problem.weights(layer, kind), factors[layer]
    gradients = inputs.gate_gradients(problem, layer, slot)._replace(segment=0).transposed
    offset = (start + first * problem.network.hidden * factor.column) * inputs.element_bytes(problem)
    return gradients, factor, Matrix("dweightSpace", offset, factor.column, 1, distance)


def _apart(problem: RNNProblem, base: Operands, other: Operands, is_inner: bool = False) -> Operands:
    """Return matrices with outer or inner batches, whose strides are equal."""
    pairs = zip(base, _steps(problem, base, other), strict=True)
    a, b, c = (matrix._replace(inner=step) if is_inner else matrix._replace(outer=step) for matrix, step in pairs)
    return a, b, c


def _product(problem: RNNProblem, gates: int, operands: Operands, batches: tuple[int, int]) -> MatrixProduct:
    """Return the product that adds the gradients of some gates, times all vectors, to their matrices."""
    dims = gates * problem.network.hidden, operands[1].column, problem.steps * problem.batch
    element = ELEMENTS[problem.data.data_type]
    return inputs.product_of(problem, dims, *operands, element, adds_vectors=True, batches=batches, beta=1.0)
