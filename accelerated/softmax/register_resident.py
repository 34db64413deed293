"""Plans softmax with rows in the registers of a warp or a block (softmax/register_resident.cu)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..plans import Launch
from ..primitives.geometry import prefetching_blocks
from ..reproducible import Order
from ..solver import Solver
from .problem import (
    BUSY_THREADS,
    SEGMENT_BYTES,
    SHORT_ROW,
    VECTOR_BYTES,
    WARP,
    RowLayout,
    SoftmaxProblem,
    ceiling,
    power_of_two,
)

# softmax/register_resident.cu is compiled for these numbers.
REGISTER_VECTORS = 4  # vectors per thread
MAX_ROW_VECTORS = (4, 2)  # vectors per lane where a warp has a row, for one and two inputs
STRIDED_VECTORS = 8  # vectors per thread for many strided rows
MIN_VECTORS = 2  # minimum vectors per thread that has a full strided row
ELEMENTS = (16, 12, 10, 8)  # elements per thread, for longer rows without vectors
MAX_ROW_ELEMENTS = {False: 128, True: 256}  # elements per strided row; the key: below 4 bytes per element
BLOCK_THREADS = 128  # threads per block
MAX_BLOCK_THREADS = 256  # threads per block, upper bound
RESIDENT_THREADS = 1024  # resident threads per SM
# These limits divide the threads that a tensor needs, with four vectors each, by the resident threads of the device.
FEW_STRIDED = 0.25  # ratio of threads, for strided rows
FEW_ROWS = 1  # ratio of threads, for rows
MANY_ROWS = 3  # ratio of threads, for rows
LARGE_BLOCKS = 8  # blocks of BLOCK_THREADS per SM from which resident blocks of twice the size are faster
MAX_ELEMENT_BYTES = 4  # bytes per single element


@dataclass(frozen=True)
class Division:
    """Hold the division of rows among threads.

    strided: whether the rows are strided. team: threads that share a row, or vectors of strided rows per block.
    vectors: vectors per thread.
    """

    strided: bool
    team: int
    vectors: int
    threads: int
    grid: int
    states: int  # online-softmax states in shared memory


def vectors_in_registers(
    layout: RowLayout, scalar_bytes: int, inputs: int, device: Any, preferred: bool = True, many: int = 0
) -> Division | None:
    """Return the division for rows that a warp holds, or for strided rows that are short or few.

    Return None for other rows. preferred: also return None where another solver is faster.
    many: the number of rows that decides about divisions, by default all.
    """
    if not layout.aligned:
        return None
    rows, length = layout.rows.vectors, layout.along.vectors
    many = many or rows
    filled = many * length / REGISTER_VECTORS / (device.multiprocessors * RESIDENT_THREADS)
    if layout.strided:
        if layout.along.row <= SHORT_ROW:
            threads = BLOCK_THREADS if scalar_bytes >= 4 else MAX_BLOCK_THREADS
            return Division(True, threads, max(layout.along.row, MIN_VECTORS), threads, ceiling(rows, threads), 0)
        few = filled <= FEW_STRIDED
        if inputs == 2 and not few:
            if preferred:
                return None
            few = True
        vectors = REGISTER_VECTORS if few else STRIDED_VECTORS
        shares = power_of_two(ceiling(length, vectors))
        if shares * SEGMENT_BYTES // VECTOR_BYTES > MAX_BLOCK_THREADS:
            return None
        vector_bytes = layout.rows.width * scalar_bytes
        threads = max(WARP, 2 * shares) if few else max(BLOCK_THREADS, shares * SEGMENT_BYTES // vector_bytes)
        threads = min(threads, MAX_BLOCK_THREADS)
        team = threads // shares
        states = threads // max(team, WARP) * team * layout.rows.width
        return Division(True, team, vectors, threads, ceiling(rows, team), states)
    if length > WARP * MAX_ROW_VECTORS[inputs - 1] or layout.along.row % layout.along.width:
        return None
    # If blocks run in several waves, more of them should be resident; if all are resident, fewer are better.
    vectors = REGISTER_VECTORS if FEW_ROWS < filled <= MANY_ROWS else 1 if inputs == 2 and filled > MANY_ROWS else 2
    vectors = max(vectors, power_of_two(ceiling(length, WARP)))
    team = power_of_two(ceiling(length, vectors))
    at_once = filled <= FEW_ROWS and many * team >= LARGE_BLOCKS * BLOCK_THREADS * device.multiprocessors
    threads = MAX_BLOCK_THREADS if vectors == 1 or at_once else BLOCK_THREADS
    return Division(False, team, vectors, threads, ceiling(rows * team, threads), 0)


def elements_in_registers(layout: RowLayout, scalar_bytes: int, device: Any, many: int = 0) -> Division | None:
    """Return the division of strided rows into single elements; None where threads cannot hold them.

    many: the number of rows that decides about divisions, by default all.
    """
    length, rows = layout.along.row, layout.rows.vectors
    many = many or rows
    if not layout.strided or layout.vector or layout.along.outer_rank:
        return None
    if length <= SHORT_ROW:
        return Division(True, BLOCK_THREADS, max(length, MIN_VECTORS), BLOCK_THREADS, ceiling(rows, BLOCK_THREADS), 0)
    if scalar_bytes > MAX_ELEMENT_BYTES or length > MAX_ROW_ELEMENTS[scalar_bytes < MAX_ELEMENT_BYTES]:
        return None

    def shares(vectors: int) -> int:
        return power_of_two(ceiling(length, vectors))

    vectors, threads = min(ELEMENTS, key=lambda vectors: vectors * shares(vectors)), MAX_BLOCK_THREADS
    if many * shares(vectors) < device.multiprocessors * BUSY_THREADS:
        vectors, threads = ELEMENTS[-1], BLOCK_THREADS
    team = threads // shares(vectors)
    states = threads // max(team, WARP) * team
    return Division(True, team, vectors, threads, ceiling(rows, team), states)


class RegisterResident(Solver[SoftmaxProblem]):
    """Serve short rows, and strided rows with few positions."""

    name = "softmax.register_resident"

    def serves(self, problem: SoftmaxProblem) -> bool:
        return self._found(problem, preferred=False) is not None

    def applies(self, problem: SoftmaxProblem) -> bool:
        return self._found(problem, preferred=True) is not None

    def summation_order(self, problem: SoftmaxProblem) -> Order | None:
        """Return how many threads share a row, and how many vectors each has."""
        found = self._found(problem, preferred=True) or self._found(problem, preferred=False)
        if found is None:
            return None
        layout, division = found
        shares = division.threads // division.team if division.strided else division.team
        return Order("fma", (self.name, division.strided, shares, division.vectors, layout.along.width))

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        found = self._found(problem, preferred=True) or self._found(problem, preferred=False)
        assert found is not None
        layout, division = found
        vector_bytes = layout.rows.width * problem.scalar_bytes if division.strided else VECTOR_BYTES
        lines = "strided" if division.strided else "rows"
        return [
            problem.launch(
                "softmax/register_resident.cu",
                f"softmax_register_resident_{problem.direction}_{lines}_{division.vectors}",
                threads=division.threads,
                grid=division.grid,
                team=division.team,
                kept=prefetching_blocks(problem.moved_bytes) if division.strided else 0,
                shared_bytes=division.states * problem.state_bytes,
                layout=layout,
                definitions={"VECTOR_BYTES": vector_bytes} if vector_bytes < VECTOR_BYTES else {},
            )
        ]

    def _found(self, problem: SoftmaxProblem, preferred: bool) -> tuple[RowLayout, Division] | None:
        """Return a division and its layout, or None."""

        def vectors(layout: RowLayout, many: int) -> Division | None:
            return vectors_in_registers(layout, problem.scalar_bytes, problem.inputs, problem.device, preferred, many)

        layout, canonical = problem.layout, problem.canonical
        tried = [(layout, vectors(layout, canonical.layout.rows.vectors))]
        if layout.strided and problem.scalar_bytes == 2:
            # Vectors of four 16-bit elements serve where vectors of eight do not exist or would exceed the registers.
            four = vectors(problem.half_vector_layout, canonical.half_vector_layout.rows.vectors)
            tried.insert(0 if four and four.vectors == STRIDED_VECTORS else 1, (problem.half_vector_layout, four))
        tried.append((layout, elements_in_registers(layout, problem.scalar_bytes, problem.device, canonical.rows)))
        return next(((layout, division) for layout, division in tried if division), None)
