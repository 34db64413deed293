"""Batch normalization forward of any layout: inference and training (batch_forward.cu)."""

from __future__ import annotations

from ..plans import Launch
from ..solver import Solver
from .batch import IN_FLIGHT, BatchProblem

SOURCE = "normalization/batch_forward.cu"
THREADS = 512  # of a block, at most
MOST_BLOCKS = 65535  # in the second dimension of a grid


class ForwardSolver(Solver[BatchProblem]):
    """Tensors of any layout, element by element."""

    name = "normalization.batch_forward"

    def serves(self, problem: BatchProblem) -> bool:
        return not problem.is_gradient

    def launches(self, problem: BatchProblem) -> list[Launch]:
        division = problem.division(THREADS)
        if problem.is_inference:
            blocks = min(MOST_BLOCKS, -(-division.positions // (division.rows * IN_FLIGHT)))
            kernel, cluster, cached, shared_bytes = "inference", 1, 0, 0
        else:
            blocks = cluster = problem.clusters(division)
            kernel = "training"
            cached, shared_bytes = problem.cached(division, cluster, 1)
        return [
            problem.launch(
                SOURCE,
                f"normalization_batch_forward_{kernel}",
                [("division", problem.layout(division, cached))],
                (division.blocks_across, blocks, 1),
                division.block,
                shared_bytes,
                CLUSTER_BLOCKS=cluster,
                THREADS=THREADS,
            )
        ]
