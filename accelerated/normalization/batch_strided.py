"""Plans batch normalization of tensors of any layout (batch_strided.cu)."""

from __future__ import annotations

from ..plans import Launch
from ..solver import Solver
from .batch import IN_FLIGHT, BatchProblem

SOURCE = "normalization/batch_strided.cu"
THREADS, GRADIENT_THREADS = 512, 256  # maximum of threads per block, forward and backward (limited by registers)
MOST_BLOCKS = 65535  # maximum of the grid's second dimension


class BatchStridedSolver(Solver[BatchProblem]):
    """Serve tensors of any layout, element by element."""

    name = "normalization.batch_strided"

    def launches(self, problem: BatchProblem) -> list[Launch]:
        threads = GRADIENT_THREADS if problem.is_gradient else THREADS
        division = problem.division(threads)
        blocks = cluster = problem.clusters(division)
        cached, shared_bytes = problem.cached(division, cluster, 2 if problem.is_gradient else 1)
        kernel = "backward" if problem.is_gradient else "training"
        if problem.is_inference:
            blocks = min(MOST_BLOCKS, -(-division.positions // (division.rows * IN_FLIGHT)))
            kernel, cluster, cached, shared_bytes = "inference", 1, 0, 0
        return [
            problem.launch(
                SOURCE, f"normalization_batch_strided_{kernel}", [("division", problem.layout(division, cached))],
                (division.blocks_across, blocks, 1), division.block, shared_bytes,
                CLUSTER_BLOCKS=cluster, THREADS=threads,
            )
        ]  # fmt: skip
