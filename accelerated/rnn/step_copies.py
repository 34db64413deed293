"""Copy the factors of each step's product to scratch memory, for networks that run step by step."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int, c_longlong
from typing import Any, NamedTuple

from dualdnn.api.operations.backend import RUN

from ..gemm import parts
from ..gemm.matrix import ABSENT, MAX_SPLITS, Matrix, MatrixProduct
from ..gemm.matrix_tma import COPY_BYTES_PER_SECOND, COPY_SECONDS
from ..gemm.problem import Product
from ..plans import ELEMENTS, SCRATCH, Launch, structure, workspace_aligned
from ..primitives.tma import ALIGNMENT, has_wgmma
from ..reproducible import level_of
from . import inputs
from .problem import RNNProblem


class StepCopies(NamedTuple):
    """Locate a layer's factors for the products of its steps.

    ``weights`` are the recurrent matrices of all directions, in place or copied once for each call. ``pitch`` is the
    number of elements between two sequences of the vectors that the cells copy, or 0 where products read the vectors in
    place. ``begin`` and ``end`` are bytes of the scratch memory before and after the vectors. ``launches`` copy the
    matrices.
    """

    problem: RNNProblem
    weights: Matrix
    pitch: int = 0
    begin: int = 0
    end: int = 0
    launches: tuple[Launch, ...] = ()

    @classmethod
    def of(
        cls,
        problem: RNNProblem,
        weights: Matrix,
        dims: tuple[int, int],
        buffers: int,
        in_place: Sequence[MatrixProduct | None],
        most: int = MAX_SPLITS,
        step_products: int = 1,
    ) -> StepCopies:
        """Return copies that TMA can read where they save time, or no copies.

        ``dims``: rows of the matrices, and elements of the vectors. ``buffers``: copies of the vectors, which steps use
        in turn. ``in_place``: products of some steps without copies, of which a step has ``step_products``. ``most``:
        parts per product.
        """
        products = [product for product in in_place if product is not None]
        reads_by_tma = has_wgmma(problem.device) and level_of(problem.device) == RUN
        if not products or not reads_by_tma or not inputs.uses_tensor_cores(problem):
            return cls(problem, weights)
        (rows, columns), size = dims, inputs.element_bytes(problem)
        copied, begin, launches, seconds = weights, 0, tuple[Launch, ...](), 0.0
        if any(n * size % ALIGNMENT for n in (weights.stride, weights.outer)) or weights.offset % ALIGNMENT:
            copied, begin, launch = _copied(problem, weights, rows, columns)
            launches, seconds = (launch,), COPY_SECONDS + 2 * begin / COPY_BYTES_PER_SECOND
        pitch = -(-columns * size // ALIGNMENT) * ALIGNMENT // size
        nbytes = workspace_aligned(buffers * problem.network.directions * problem.batch * pitch * size)
        found = cls(problem, copied, pitch, begin, begin + nbytes, launches)
        product = inputs.product_in_parts(
            problem, (problem.batch, rows, columns), found.vectors(0), copied, most=most, start=found.end
        )
        usual = sum(each.estimated_seconds for each in products) / len(products) * step_products
        saved = problem.steps * (usual - product.estimated_seconds) - seconds
        return found if saves(saved) else cls(problem, weights)

    def vectors(self, buffer: int) -> Matrix:
        """Return the copied vectors of a step."""
        n = self.problem.batch * self.pitch
        offset = buffer * self.problem.network.directions * n * inputs.element_bytes(self.problem)
        return Matrix(SCRATCH, self.begin + offset, self.pitch, 1, n)

    @property
    def fields(self) -> tuple[tuple[str, Any], ...]:
        """Return the field of the kernels' arguments."""
        vectors = c_longlong(self.begin if self.pitch else -1)
        located = structure(("sums", c_longlong(self.end)), ("vectors", vectors), ("pitch", c_int(self.pitch)))
        return (("copies", located),)


def saves(seconds: float) -> bool:
    """Return whether a call that takes this many seconds is worth copies."""
    return seconds > 0


def _copied(problem: RNNProblem, matrix: Matrix, rows: int, columns: int) -> tuple[Matrix, int, Launch]:
    """Return a K-major copy of matrices with rows that TMA can read, its bytes, and its launch.

    The copy is at the start of the scratch memory, and has all directions.
    """
    size, directions = inputs.element_bytes(problem), problem.network.directions
    pitch = -(-columns * size // ALIGNMENT) * ALIGNMENT // size
    copy = Matrix(SCRATCH, 0, pitch, 1, rows * pitch)
    element = ELEMENTS[problem.data.data_type]
    product = Product(problem.device, rows, rows, columns, matrix, matrix, copy, element, element)
    operands = (matrix.operand, ABSENT, ABSENT, ABSENT, SCRATCH)
    launch = parts.copy(product, 0, operands, 0, pitch, matrix.outer, directions)
    nbytes = workspace_aligned(directions * rows * pitch * size)
    launch.scratch_bytes = nbytes
    return copy, nbytes, launch
