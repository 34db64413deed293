"""Batch normalization backward of any layout (batch_backward.cu)."""

from __future__ import annotations

from ..plans import Launch
from ..solver import Solver
from .batch import BatchProblem

SOURCE, KERNEL = "normalization/batch_backward.cu", "normalization_batch_backward"
THREADS = 256  # of a block, at most: more have too few registers each


class BackwardSolver(Solver[BatchProblem]):
    """Tensors of any layout, element by element."""

    name = "normalization.batch_backward"

    def serves(self, problem: BatchProblem) -> bool:
        return problem.is_gradient

    def launches(self, problem: BatchProblem) -> list[Launch]:
        division = problem.division(THREADS)
        cluster = problem.clusters(division)
        cached, shared_bytes = problem.cached(division, cluster, 2)
        return [
            problem.launch(
                SOURCE,
                KERNEL,
                [("division", problem.layout(division, cached))],
                (division.blocks_across, cluster, 1),
                division.block,
                shared_bytes,
                CLUSTER_BLOCKS=cluster,
                THREADS=THREADS,
            )
        ]
