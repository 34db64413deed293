"""Plan the projections of vectors and their gradients as products of matrices (accelerated/gemm)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnMultiHeadAttnWeightKind_t as Kind
from dualdnn.api.operations import SeqDataSpec
from dualdnn.api.operations.attention import allows_tensor_cores
from dualdnn.api.operations.backend import RUN

from ..gemm.matrix import ABSENT, MAX_SCRATCH, Matrix, MatrixProduct
from ..plans import COMPUTES, ELEMENTS, SCRATCH, Launch, workspace_aligned
from ..reproducible import level_of
from .collect import Collection, collect
from .gradients import of_input
from .problem import BIASES, INPUTS, TIME, WEIGHTS, AttentionProblem, vector_strides


class VectorRows(NamedTuple):
    """Describe the vectors of a call as rows of matrices: ``batches`` of ``rows`` vectors, and their strides in
    vectors.
    """

    first: int
    rows: int
    stride: int
    batches: int
    batch_stride: int

    @classmethod
    def of(cls, data: SeqDataSpec, step: int | None) -> VectorRows:
        """Return all vectors in memory, or only one time-step's."""
        strides = vector_strides(data)
        steps = {} if step is None else {TIME: 1}
        parts: list[tuple[int, int]] = []
        for axis in map(int, data.axes[:3]):
            extent, stride = steps.get(axis, data.dims[axis]), strides[axis]
            if parts and parts[-1][1] == extent * stride:
                parts[-1] = parts[-1][0] * extent, stride
            elif extent > 1:
                parts.append((extent, stride))
        outer, inner = ([(1, 0), (1, 1), *parts])[-2:] if len(parts) != 1 else [(1, 0), parts[0]]
        return cls((step or 0) * strides[TIME], inner[0], inner[1], outer[0], outer[1])

    def matrix(self, operand: str, offset: int, size: int, element_bytes: int) -> Matrix:
        """Return the matrix whose rows are these vectors of ``size`` elements in an operand."""
        first = offset + self.first * size * element_bytes
        return Matrix(operand, first, self.stride * size, 1, self.batch_stride * size)


def multiply(
    problem: AttentionProblem, dims: tuple[int, int, int], a: Matrix, b: Matrix, c: Matrix,
    bias: tuple[str, int] = (ABSENT, 0), beta: float = 0.0, batches: int = 1, *,
    in_order: bool = False,
) -> MatrixProduct:  # fmt: skip
    """Return the product C = A B^T + bias + beta C."""
    element = ELEMENTS[problem.attn.data_type]
    return MatrixProduct(
        problem.device, *dims, a, b, c, element, element, COMPUTES[problem.operation.compute_type],
        allows_tensor_cores(problem.attn), bias, (batches, 1), beta=beta, max_workspace=MAX_SCRATCH, in_order=in_order,
    )  # fmt: skip


def _of_vectors(problem: AttentionProblem, *operands: Any, **options: Any) -> MatrixProduct:
    """Return a product whose rows are vectors. Above level RUN no vector decides how another one's sums are divided."""
    return multiply(problem, *operands, in_order=level_of(problem.device) != RUN, **options)


class Projection(NamedTuple):
    """Locate the weights of a projection: ``size`` rows of ``projected`` elements, of all heads, from a byte of the
    weight buffer.
    """

    offset: int
    size: int
    projected: int

    @classmethod
    def of_input(cls, problem: AttentionProblem, name: str) -> Projection:
        projected = problem.attn.heads * problem.sizes[name]
        return cls(problem.weight_offset(WEIGHTS[name]), problem.inputs[name].dims[-1], projected)

    @classmethod
    def of_output(cls, problem: AttentionProblem) -> Projection:
        attn = problem.attn
        offset = problem.weight_offset(Kind.CUDNN_MH_ATTN_O_WEIGHTS)
        return cls(offset, attn.heads * attn.value_size, attn.o_projected)

    def matrix(self, operand: str = "weights") -> Matrix:
        return Matrix(operand, self.offset, self.projected, 1)


def _bias(problem: AttentionProblem, kind: Kind) -> tuple[str, int]:
    return ("weights", problem.weight_offset(kind)) if kind in problem.weights else (ABSENT, 0)


def _rows(problem: AttentionProblem, name: str) -> VectorRows:
    return VectorRows.of(problem.inputs[name], problem.step if name == "queries" else None)


def projections(problem: AttentionProblem) -> list[MatrixProduct]:
    """Return the products that project the inputs into the space."""
    found: list[MatrixProduct] = []
    for name in INPUTS:
        if WEIGHTS[name] not in problem.weights:
            continue
        rows, weights, nbytes = _rows(problem, name), Projection.of_input(problem, name), problem.element_bytes
        found.append(_of_vectors(
            problem, (rows.rows, weights.projected, weights.size), rows.matrix(name, 0, weights.size, nbytes),
            weights.matrix().transposed,
            rows.matrix(problem.space, problem.regions.offsets[name], weights.projected, nbytes),
            _bias(problem, BIASES[name]), batches=rows.batches,
        ))  # fmt: skip
    return found


def residuals(problem: AttentionProblem) -> list[Launch]:
    """Return the launch that stores the residuals, to which the output projection adds; none without residuals."""
    if problem.operation.residuals is None:
        return []
    size = Projection.of_output(problem).projected
    return [collect(problem, Collection(("residuals", 0), ("out", 0), 1, size, problem.rows["queries"]))]


def output_projection(problem: AttentionProblem) -> MatrixProduct:
    """Return the product that projects the outputs of all heads."""
    rows, weights, nbytes = _rows(problem, "queries"), Projection.of_output(problem), problem.element_bytes
    heads = rows.matrix(problem.space, problem.regions.offsets["heads"], weights.size, nbytes)
    return _of_vectors(
        problem, (rows.rows, weights.projected, weights.size), heads, weights.matrix().transposed,
        rows.matrix("out", 0, weights.projected, nbytes), _bias(problem, Kind.CUDNN_MH_ATTN_O_BIASES),
        beta=float(problem.operation.residuals is not None), batches=rows.batches,
    )  # fmt: skip


def gradient_of_heads(problem: AttentionProblem) -> MatrixProduct:
    """Return the product of the incoming gradients and the output projection."""
    rows, weights, nbytes = _rows(problem, "queries"), Projection.of_output(problem), problem.element_bytes
    return _of_vectors(
        problem, (rows.rows, weights.size, weights.projected), rows.matrix("dout", 0, weights.projected, nbytes),
        weights.matrix(), rows.matrix("workSpace", problem.gradients.offsets["d_heads"], weights.size, nbytes),
    )  # fmt: skip


def gradient_of_input(problem: AttentionProblem, name: str) -> MatrixProduct:
    """Return the product of the gradients of projected vectors and the weights. Padding becomes zeros."""
    rows, weights, nbytes = _rows(problem, name), Projection.of_input(problem, name), problem.element_bytes
    gradients = rows.matrix(*of_input(problem, name), weights.projected, nbytes)
    result = rows.matrix(f"d{name}", 0, weights.size, nbytes)
    return _of_vectors(problem, (rows.rows, weights.size, weights.projected), gradients, weights.matrix(), result)


def gradients_of_weights(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that sum the products of vectors and gradients into the gradients of the weights."""
    nbytes = problem.element_bytes
    factors: list[tuple[Projection, str, str, int]] = []  # weights, operand of the rows, operand of the other factor
    for name in INPUTS:
        if WEIGHTS[name] in problem.weights:
            factors.append((Projection.of_input(problem, name), name, *of_input(problem, name)))
    if problem.attn.o_projected:
        factors.append((Projection.of_output(problem), "dout", problem.space, problem.regions.offsets["heads"]))
    found: list[Launch] = []
    for weights, name, operand, offset in factors:
        of_output = name == "dout"
        rows = _rows(problem, "queries" if of_output else name)
        size = weights.projected if of_output else weights.size
        outer, workspace = rows.matrix(name, 0, size, nbytes), 0
        data = problem.inputs["queries" if of_output else name]
        if min(data.lengths) < data.dims[TIME]:
            # The other factor is zero for padding, but it must not meet an infinity or NaN that the caller left in its
            # rows.
            copied, workspace = _without_padding(problem, name, rows, size)
            found += copied
            outer = rows.matrix(SCRATCH, 0, size, nbytes)
        inner = rows.matrix(operand, offset, weights.size if of_output else weights.projected, nbytes)
        left, right = (inner, outer) if of_output else (outer, inner)
        dims = (weights.size, weights.projected, rows.rows)
        found += multiply(
            problem, dims, left.transposed, right.transposed, weights.matrix("dweights"),
            beta=problem.operation.prior_factor,
        ).launches_in_scratch(workspace)  # fmt: skip
    return found


def _without_padding(problem: AttentionProblem, name: str, rows: VectorRows, size: int) -> tuple[Sequence[Launch], int]:
    """Return the launch that copies vectors to the scratch memory, with zeros for padding, and the byte after them."""
    nbytes = workspace_aligned(rows.rows * size * problem.element_bytes)
    of_keys = name in ("keys", "values")
    vectors = problem.rows["queries" if name == "dout" else name]
    launch = collect(problem, Collection((name, 0), (SCRATCH, 0), 1, size, vectors, is_of_keys=of_keys))
    launch.scratch_bytes = nbytes
    return [launch], nbytes
