"""Projections of vectors and their gradients (product.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from typing import NamedTuple

from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind

from ..plans import Launch, factors, pointers, structure, type_definitions
from .gradients import of_input
from .problem import BIASES, WEIGHTS, AttentionProblem, Rows

SOURCE = "attention/product.cu"
SIDE = 64  # rows and columns of a block's tile, as in the kernel
ABSENT = ""  # names no operand: a null pointer


class Matrix(NamedTuple):
    """A factor or the result: its operand, the byte it begins at, elements from one row and one column to the next."""

    operand: str
    offset: int
    row: int
    column: int


def multiply(
    problem: AttentionProblem, use: str, a: Matrix, b: Matrix, c: Matrix, dims: tuple[int, int, int], rows: Rows,
    bias: tuple[str, int] = (ABSENT, 0), addend: str = ABSENT, beta: float = 0.0, is_of_keys: bool = False,
) -> Launch:  # fmt: skip
    """Return the launch of C = A B + bias + addend + beta C. dims: rows and columns of C, terms of a sum. rows: the
    vectors that are rows of A and C, or for the use "weights" the terms."""
    m, n, k = dims
    arguments = structure(
        *pointers(6),
        *((name, c_longlong(value)) for name, value in
          zip(("a_offset", "b_offset", "bias_offset", "c_offset"), (a.offset, b.offset, bias[1], c.offset), strict=True)),
        ("m", c_int(m)), ("n", c_int(n)), ("k", c_int(k)),
        ("a_row", c_int(a.row)), ("a_column", c_int(a.column)), ("b_row", c_int(b.row)), ("b_column", c_int(b.column)),
        ("c_row", c_int(c.row)), ("c_column", c_int(c.column)),
        *factors(problem.operation, beta=beta),
        ("is_of_keys", c_int(is_of_keys)),
        ("schedule", problem.schedule),
        ("rows", rows),
    )  # fmt: skip
    definitions = type_definitions(problem.attn.data_type, problem.operation)
    function = problem.device.function(SOURCE, f"attention_product_{use}", definitions)
    operands = (a.operand, b.operand, bias[0], addend, problem.space, c.operand)
    return Launch(function, arguments, operands, (-(-m // SIDE) * -(-n // SIDE), 1, 1))


def projections(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that project the inputs into the space."""
    found = []
    for name, kind in WEIGHTS.items():
        if kind not in problem.weights:
            continue
        projected, size = problem.attn.heads * problem.sizes[name], problem.inputs[name].dims[-1]
        bias = (ABSENT, 0)
        if BIASES[name] in problem.weights:
            bias = ("weights", problem.weight_offset(BIASES[name]))
        rows = problem.rows[name]
        found.append(
            multiply(
                problem,
                "inputs",
                Matrix(name, 0, size, 1),
                Matrix("weights", problem.weight_offset(kind), projected, 1),
                Matrix(problem.space, problem.regions.offsets[name], projected, 1),
                (rows.count, projected, size),
                rows,
                bias,
            )
        )
    return found


def output_projection(problem: AttentionProblem) -> Launch:
    """Return the launch that projects what all heads make into the output, and adds residuals."""
    attn, rows = problem.attn, problem.rows["queries"]
    joined, size = attn.heads * attn.value_size, attn.o_projected
    bias = (ABSENT, 0)
    if Kind.CUDNN_MH_ATTN_O_BIASES in problem.weights:
        bias = ("weights", problem.weight_offset(Kind.CUDNN_MH_ATTN_O_BIASES))
    return multiply(
        problem, "outputs", Matrix(problem.space, problem.regions.offsets["heads"], joined, 1),
        Matrix("weights", problem.weight_offset(Kind.CUDNN_MH_ATTN_O_WEIGHTS), size, 1), Matrix("out", 0, size, 1),
        (rows.count, size, joined), rows, bias, "residuals",
    )  # fmt: skip


def gradient_of_heads(problem: AttentionProblem) -> Launch:
    """Return the launch that multiplies the incoming gradients by the output projection."""
    attn, rows = problem.attn, problem.rows["queries"]
    joined, size = attn.heads * attn.value_size, attn.o_projected
    offset = problem.weight_offset(Kind.CUDNN_MH_ATTN_O_WEIGHTS)
    result = Matrix("workSpace", problem.gradients.offsets["d_heads"], joined, 1)
    factors = Matrix("dout", 0, size, 1), Matrix("weights", offset, 1, size)
    return multiply(problem, "inputs", *factors, result, (rows.count, joined, size), rows)


def gradient_of_input(problem: AttentionProblem, name: str) -> Launch:
    """Return the launch that multiplies the gradients of projected vectors by the weights."""
    rows, size = problem.rows[name], problem.inputs[name].dims[-1]
    projected = problem.attn.heads * problem.sizes[name]
    operand, offset = of_input(problem, name)
    weights = Matrix("weights", problem.weight_offset(WEIGHTS[name]), 1, projected)
    factors = Matrix(operand, offset, projected, 1), weights
    result, dims = Matrix(f"d{name}", 0, size, 1), (rows.count, size, projected)
    return multiply(problem, "outputs", *factors, result, dims, rows, is_of_keys=name != "queries")


def gradients_of_weights(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that sum the products of vectors and gradients into the gradients of the weights."""
    attn, beta = problem.attn, problem.operation.prior_factor
    found = []
    for name, kind in WEIGHTS.items():
        if kind not in problem.weights:
            continue
        rows, size = problem.rows[name], problem.inputs[name].dims[-1]
        projected = attn.heads * problem.sizes[name]
        operand, offset = of_input(problem, name)
        factors = Matrix(operand, offset, 1, projected), Matrix(name, 0, size, 1)
        result, dims = Matrix("dweights", problem.weight_offset(kind), 1, projected), (projected, size, rows.count)
        keys = name != "queries"
        found.append(multiply(problem, "weights", *factors, result, dims, rows, beta=beta, is_of_keys=keys))
    if attn.o_projected:
        rows, size, joined = problem.rows["queries"], attn.o_projected, attn.heads * attn.value_size
        factors = Matrix(problem.space, problem.regions.offsets["heads"], 1, joined), Matrix("dout", 0, size, 1)
        result = Matrix("dweights", problem.weight_offset(Kind.CUDNN_MH_ATTN_O_WEIGHTS), size, 1)
        found.append(multiply(problem, "weights", *factors, result, (joined, size, rows.count), rows, beta=beta))
    return found
