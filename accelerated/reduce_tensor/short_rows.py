"""Reductions of rows of few packs that follow each other in memory (reduce_tensor/short_rows.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from ..plans import Launch
from .division import BLOCK, WARP
from .problem import OPERANDS, PACK_BYTES, ReduceProblem, ReduceSolver

READS = 8  # of a thread that are in flight together, as in the kernel


class ShortRows(ReduceSolver):
    """Short rows: neighbouring threads read neighbouring packs, whatever row they belong to."""

    name = "reduce_tensor.short_rows"

    def serves(self, problem: ReduceProblem) -> bool:
        """Return whether rows have a length that a warp shares."""
        if not (problem.aligned and problem.rows and problem.even):
            return False
        reduced, kept, _ = problem.walked
        follow = kept.outer_rank == 0 and bool(kept.row_stride[2] == reduced.row)
        return follow and reduced.packs <= WARP * READS

    def applies(self, problem: ReduceProblem) -> bool:
        return problem.rows and problem.division.lanes < WARP and self.serves(problem)

    def launches(self, problem: ReduceProblem) -> list[Launch]:
        lanes = self._lanes(problem)
        return [
            Launch(
                problem.function("reduce_tensor/short_rows.cu", "reduce_tensor_short_rows"),
                problem.arguments(problem.walked[1], lanes),
                OPERANDS,
                (-(-problem.operation.C.count // (BLOCK // lanes)), 1, 1),
                (BLOCK, 1, 1),
                self._shared_bytes(problem),
            )
        ]

    def alignment(self, problem: ReduceProblem) -> Mapping[str, int]:
        return {"A": PACK_BYTES}

    def _lanes(self, problem: ReduceProblem) -> int:
        """Return the threads that share a row."""
        return 1 << (-(-problem.walked[0].packs // READS) - 1).bit_length()

    def _shared_bytes(self, problem: ReduceProblem) -> int:
        """Return bytes of shared memory: a state of every pack of the rows of a block."""
        return problem.state_bytes * (BLOCK // self._lanes(problem)) * int(problem.walked[0].packs)
