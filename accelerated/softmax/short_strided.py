"""Softmax over strided rows of a few single elements, of which a thread has all (softmax/short_strided.cu)."""

from __future__ import annotations

from ..plans import Launch
from .problem import SHORT_ROW, SoftmaxProblem, SoftmaxSolver, ceiling

BLOCK_THREADS = 128


class ShortStrided(SoftmaxSolver):
    """Strided rows that are no packs; packs of such rows are served by softmax.register_resident."""

    name = "softmax.short_strided"

    def serves(self, problem: SoftmaxProblem) -> bool:
        layout = problem.element_layout
        return layout.strided and layout.along.outer_rank == 0 and layout.along.row <= SHORT_ROW

    def applies(self, problem: SoftmaxProblem) -> bool:
        return not problem.layout.vector and self.serves(problem)

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        return [
            problem.launch(
                "softmax/short_strided.cu",
                f"softmax_short_strided_{problem.direction}",
                threads=BLOCK_THREADS,
                grid=ceiling(problem.element_layout.rows.packs, BLOCK_THREADS),
                kept=problem.length,
                team=1,
                layout=problem.element_layout,
            )
        ]
