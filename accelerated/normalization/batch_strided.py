"""Plans batch normalization of tensors of generic layouts (batch_strided.cu)."""

from __future__ import annotations

from ..plans import Launch
from ..solver import Solver
from .batch import IN_FLIGHT, BatchProblem

SOURCE = "normalization/batch_strided.cu"
THREADS = 512  # threads per block forward, limited by registers
GRADIENT_THREADS = 256  # threads per block backward, limited by registers
MAX_BLOCKS = 65535  # CUDA's limit on the second dimension of a grid


class BatchStridedSolver(Solver[BatchProblem]):
    """Serve tensors of generic layouts, element by element."""

    name = "normalization.batch_strided"

    def launches(self, problem: BatchProblem) -> list[Launch]:
        threads = GRADIENT_THREADS if problem.is_gradient else THREADS
        division = problem.division(threads)
        blocks = cluster = problem.clusters(division)
        cached, shared_bytes = problem.cached(division, cluster, 2 if problem.is_gradient else 1)
        kernel = "backward" if problem.is_gradient else "training"
        if problem.is_inference:
            blocks = min(MAX_BLOCKS, -(-division.positions // (division.rows * IN_FLIGHT)))
            kernel, cluster, cached, shared_bytes = "inference", 1, 0, 0
        return [
            problem.launch(
                SOURCE, f"normalization_batch_strided_{kernel}", [("division", problem.layout(division, cached))],
                (division.blocks_across, blocks, 1), division.block, shared_bytes,
                CLUSTER_BLOCKS=cluster, THREADS=threads,
            )
        ]  # fmt: skip
