"""Plan the inputs of recurrent layers: vectors in the order (step, sequence), their products with the input matrices,
and the gradients of both (inputs.cu, gemm/matrix.cu).
"""

from __future__ import annotations

from ctypes import c_int, c_longlong
from dataclasses import replace
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnMathType_t, cudnnRNNDataLayout_t
from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.specs import DOUBLE, FLOAT, SCALAR_BYTES

from ..gemm.matrix import MAX_SCRATCH, MAX_SPLITS, Matrix, MatrixProduct
from ..plans import COMPUTES, ELEMENTS, SCRATCH, Launch
from ..reproducible import level_of
from .problem import LAYOUTS, LENGTHS, THREADS, Located, RNNProblem

SOURCE = "rnn/inputs.cu"
FILL_BLOCKS = 1024
VECTORS = 8  # vectors per block, as in the kernels
WORD_BYTES = 4


class Filled(NamedTuple):
    """Name the regions that get bits that no cell produces: the operand, the first number, the elements per region, and
    the stride between regions in values.
    """

    operand: str
    start: int
    elements: int
    regions: int = 1
    stride: int = 0


def prepared(problem: RNNProblem, filled: Filled | None = None) -> list[Launch]:
    """Return the launches that write the sequence lengths and the offset of each step's vectors, and fill regions."""
    parts = [(first, problem.data.lengths[first : first + LENGTHS]) for first in range(0, problem.batch, LENGTHS)]
    return [_prepared(problem, first, part, filled if part is parts[-1][1] else None) for first, part in parts]


def fill(problem: RNNProblem, filled: Filled) -> Launch:
    """Return the launch that fills elements with bits that no cell produces."""
    return _prepared(problem, 0, (), filled)


def _prepared(problem: RNNProblem, first: int, lengths: tuple[int, ...], filled: Filled | None) -> Launch:
    number, element = number_bytes(problem), element_bytes(problem)
    words = -(-filled.elements * element // WORD_BYTES) if filled else 0
    regions = filled.regions if filled else 0
    blocks = max(-(-problem.steps // THREADS), min(FILL_BLOCKS, -(-words * regions // (4 * THREADS))))
    where, stride = (filled.start * number, filled.stride * number) if filled else (0, 0)
    fields = (
        *((name, c_longlong(value)) for name, value in (
            ("offsets", 0), ("start", where // WORD_BYTES), ("words", words), ("stride", stride // WORD_BYTES)
        )),
        *((name, c_int(value)) for name, value in (
            ("regions", regions), ("steps", problem.steps), ("batch", problem.batch), ("first", first),
            ("count", len(lengths)), ("layout", LAYOUTS[problem.data.layout]),
        )),
        ("length", (c_int * LENGTHS)(*lengths)),
    )  # fmt: skip
    operands = "workSpace", filled.operand if filled else ""
    return problem.launch(SOURCE, "rnn_inputs_prepare", operands, (blocks, 1, 1), *fields)


def is_plain(problem: RNNProblem) -> bool:
    """Return whether the container of x has a vector of every sequence for every step, in the order (step,
    sequence)."""
    batch_major = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
    ordered = problem.data.layout != batch_major or 1 in (problem.steps, problem.batch)
    return ordered and not problem.data.is_ragged


def uses_tensor_cores(problem: RNNProblem) -> bool:
    """Return whether tensor cores may multiply elements of the data type."""
    if problem.operation.compute_type == DOUBLE:
        return False
    return problem.data.data_type != FLOAT or problem.network.math_type != cudnnMathType_t.CUDNN_FMA_MATH


def number_bytes(problem: RNNProblem) -> int:
    """Return the bytes of a number of the work space and the reserve space."""
    return SCALAR_BYTES[problem.operation.compute_type]


def element_bytes(problem: RNNProblem) -> int:
    return SCALAR_BYTES[problem.data.data_type]


def launch(problem: RNNProblem, kernel: str, layer: int, blocks: int, data: str) -> Launch:
    """Return the launch of a kernel over vectors; ``data`` is the container."""
    fields = (*problem.fill(problem.data), *problem.described(layer, problem.data))
    operands = (data, "workSpace", "reserveSpace")
    return problem.launch(SOURCE, f"rnn_inputs_{kernel}", operands, (blocks, 1, 1), *fields)


def taken(problem: RNNProblem, layer: int) -> tuple[Located, list[Launch]]:
    """Return the location of a layer's input vectors in the order (step, sequence), and the launches that put them
    there.
    """
    size = number_bytes(problem)
    if layer:
        below = problem.below(layer)
        where = Located("reserveSpace", below) if below >= 0 else Located("workSpace", problem.passed(layer)["input"])
        return where._replace(offset=where.offset * size), []
    if is_plain(problem):
        return Located("x", 0), []
    gathered = launch(problem, "gather", layer, -(-problem.steps * problem.batch // VECTORS), "x")
    return Located("workSpace", problem.passed(layer)["input"] * size), [gathered]


def product_of(
    problem: RNNProblem,
    dims: tuple[int, int, int],
    a: Matrix,
    b: Matrix,
    c: Matrix,
    result: str,
    *,
    adds_vectors: bool = False,
    **more: Any,
) -> MatrixProduct:
    """Return a product of elements. Its scratch memory may be as large as the work space of the call.

    Above level RUN its instruction, too, depends on the types alone: TMA reads some steps' vectors and not others, by
    the number of sequences. ``adds_vectors`` says that its sums pass over all vectors, so that these may divide it.
    """
    if level_of(problem.device) != RUN and not adds_vectors:
        more |= {"in_order": True, "instruction": "mma"}
    room = max(MAX_SCRATCH, problem.work()["next"] * number_bytes(problem))
    return MatrixProduct(
        problem.device, *dims, a, b, c, ELEMENTS[problem.data.data_type], result,
        COMPUTES[problem.operation.compute_type], uses_tensor_cores(problem), max_workspace=room, **more,
    )  # fmt: skip


def product_of_vectors(problem: RNNProblem, *operands: Any, **more: Any) -> MatrixProduct:
    """Return a product with a row for each vector. Above level RUN the vectors do not decide its instruction."""
    made = product_of(problem, *operands, **more)
    if level_of(problem.device) == RUN:
        return made
    return made.in_order_for([problem.steps * each.batch for each in problem.representatives])


def product_in_parts(
    problem: RNNProblem, dims: tuple[int, int, int], a: Matrix, b: Matrix, first: int = 0, most: int = MAX_SPLITS,
    start: int = 0,
) -> MatrixProduct:  # fmt: skip
    """Return a product for all directions.

    The parts of its sums are in scratch memory from the byte ``start`` on, by part, direction and row. ``first`` is the
    number of parts before them, ``most`` the maximum number of parts.
    """
    m, columns, _ = dims
    directions, compute = problem.network.directions, COMPUTES[problem.operation.compute_type]
    nbytes = directions * m * columns * number_bytes(problem)
    c = Matrix(SCRATCH, start + first * nbytes, columns, 1, m * columns)
    product = product_of(problem, dims, a, b, c, compute, batches=(directions, 1))
    return replace(product, max_workspace=min(product.max_workspace, most * nbytes))


def products(problem: RNNProblem, layer: int) -> list[Launch]:
    """Return the launches that multiply all input vectors of a layer by the input matrices of all directions."""
    n, vectors, size = problem.network, problem.steps * problem.batch, element_bytes(problem)
    if n.skips_input and not layer:
        return [launch(problem, "skip", layer, vectors, "x")]
    where, found = taken(problem, layer)
    width, rows = n.input_width(layer), n.gates * n.hidden
    start, step = problem.weights(layer, "input")
    a = Matrix(where.operand, where.offset, width, 1)
    b = Matrix("weightSpace", start * size, width, 1, step)
    c = Matrix("workSpace", problem.work()["products"] * number_bytes(problem), rows, 1, vectors * rows)
    dims, compute = (vectors, rows, width), COMPUTES[problem.operation.compute_type]
    product = product_of_vectors(problem, dims, a, b, c, compute, batches=(n.directions, 1), splits=1)
    return [*found, *product.launches_in_scratch()]


def gradients(problem: RNNProblem, layer: int) -> list[Launch]:
    """Return the launches that multiply the gradients of all gates by the input matrices, summed over directions.

    They also clear the padding of the layer's input, which the product for the gradients of the matrices reads.
    """
    n, vectors, size = problem.network, problem.steps * problem.batch, element_bytes(problem)
    result = Located("workSpace", problem.passed(layer)["input"] * number_bytes(problem))
    scatters = not layer
    if n.skips_input and not layer:
        found = [launch(problem, "skip_gradient", layer, vectors, "dx")]
    else:
        if not layer and is_plain(problem):
            result, scatters = Located("dx", 0), False
        width, rows = n.input_width(layer), n.gates * n.hidden
        start, step = problem.weights(layer, "input")
        b = Matrix("weightSpace", start * size, 1, width, segment=step)
        c = Matrix(result.operand, result.offset, width, 1)
        element = ELEMENTS[problem.data.data_type]
        product = product_of_vectors(
            problem, (vectors, width, rows), gate_gradients(problem, layer), b, c, element, segments=n.directions
        )
        found = product.launches_in_scratch()
    clears = layer and n.directions > 1 and problem.data.is_ragged
    kernel = "scatter" if scatters else "clear" if clears else ""
    return [*found, launch(problem, kernel, layer, -(-vectors // VECTORS), "dx")] if kernel else found


def gate_gradients(problem: RNNProblem, layer: int, slot: int = 0) -> Matrix:
    """Return the gradients of a layer's gates from a slot on, one row per vector."""
    n, kept = problem.network, problem.kept(layer)
    size, elements = number_bytes(problem), number_bytes(problem) // element_bytes(problem)
    offset = kept["gradients"] * size + slot * n.hidden * element_bytes(problem)
    row = problem.kept_gates * n.hidden
    return Matrix("reserveSpace", offset, row, 1, kept["kept_step"] * elements, segment=kept["kept_step"] * elements)
