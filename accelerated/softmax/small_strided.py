"""Softmax over strided rows of small tensors, element by element, in the registers of blocks
(softmax/small_strided.cu)."""

from __future__ import annotations

from typing import NamedTuple

from ..plans import Launch
from .problem import SHORT_ROW, SoftmaxProblem, SoftmaxSolver, ceiling, power_of_two
from .small import MOST_THREADS, offsets_of, row_offsets

EACH = (4, 8)  # elements of a thread
BLOCK_THREADS, LEAST_SHARES, LEAST_ACROSS = (
    128,
    8,
    8,
)  # threads per block; threads that share a row, rows side by side, at least
# Elements per multiprocessor; blocks, as in primitives/dependent_launch.cuh: of more, dependents are not launched
# before they read
MOST_ELEMENTS, MOST_BLOCKS = 2048, 264


class Division(NamedTuple):
    """``across`` rows side by side, ``each`` elements of one of the ``threads`` of ``grid`` blocks."""

    across: int
    each: int
    threads: int
    grid: int


def division_of(length: int, rows: int) -> Division | None:
    """Return how blocks share strided rows of ``length`` elements, or None where a block does not hold them."""
    each = next((each for each in EACH if length <= each * LEAST_SHARES), EACH[-1])
    shares = max(power_of_two(ceiling(length, each)), LEAST_SHARES)
    across = max(BLOCK_THREADS // shares, LEAST_ACROSS)
    threads = across * shares
    return Division(across, each, threads, ceiling(rows, across)) if threads <= MOST_THREADS else None


class SmallStrided(SoftmaxSolver):
    """Strided rows of which no multiprocessor has many."""

    name = "softmax.small_strided"

    def serves(self, problem: SoftmaxProblem) -> bool:
        layout = problem.element_layout
        simple = layout.strided and layout.along.outer_rank == 0
        return simple and division_of(layout.along.row, layout.rows.packs) is not None

    def applies(self, problem: SoftmaxProblem) -> bool:
        layout = problem.element_layout
        length, rows = layout.along.row, layout.rows.packs
        small = length > SHORT_ROW and rows * length <= MOST_ELEMENTS * problem.device.multiprocessors
        division = division_of(length, rows)
        return small and division is not None and division.grid <= MOST_BLOCKS and self.serves(problem)

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        along = problem.element_layout.along
        division = division_of(along.row, problem.element_layout.rows.packs)
        assert division is not None
        shares = division.threads // division.across
        kind = "long_" * (shares > LEAST_SHARES)
        return [
            problem.small_launch(
                "softmax/small_strided.cu",
                f"softmax_small_strided_{problem.direction}_{kind}{division.each}",
                threads=division.threads,
                grid=division.grid,
                across=division.across,
                rows=row_offsets(problem),
                along=offsets_of([along.row], [[step] for step in along.row_stride], 0, ceiling(along.row, shares)),
                shared_bytes=division.threads * problem.state_bytes,
                definitions={"PACK_BYTES": problem.scalar_bytes},
            )
        ]
