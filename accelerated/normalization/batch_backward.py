"""Batch normalization backward (batch_backward.cu)."""

from __future__ import annotations

from ..plans import Launch, pointers
from ..solver import Solver
from .batch import BatchProblem

SOURCE, KERNEL = "normalization/batch_backward.cu", "normalization_batch_backward"
THREADS = 256  # of a block, at most: more have too few registers each
OPERANDS = ("x", "dy", "dz", "dx", "scale", "bias", "savedMean", "savedInvVariance", "dScale", "dBias")


class BackwardProblem(BatchProblem):
    """A backward call."""

    tensors = ("x", "dy", "dz", "dx")


class BackwardSolver(Solver[BackwardProblem]):
    """Tensors of any layout, element by element."""

    name = "normalization.batch_backward"
    packed = False

    def serves(self, problem: BackwardProblem) -> bool:
        return True

    def launches(self, problem: BackwardProblem) -> list[Launch]:
        operation = problem.operation
        division = problem.division(self.packed, THREADS)
        cluster = problem.clusters(division)
        mask = "reserveSpace" if operation.dz is not None else ""  # else a null pointer
        cached, shared_bytes = problem.cached(division, cluster, 2)
        fields = [
            *pointers(len(OPERANDS) + 1),
            *problem.numbers(
                alpha=operation.alphaDataDiff,
                beta=operation.betaDataDiff,
                parameter_alpha=operation.alphaParamDiff,
                parameter_beta=operation.betaParamDiff,
                epsilon=operation.epsilon,
            ),
        ]
        return [
            problem.launch(
                SOURCE,
                KERNEL,
                division,
                cluster,
                fields,
                (*OPERANDS, mask),
                cluster,
                cached,
                shared_bytes,
                THREADS=str(THREADS),
            )
        ]


class PackedBackwardSolver(BackwardSolver):
    """Tensors whose positions, or whose statistics, are neighbours: packs of up to 16 bytes."""

    name = "normalization.batch_backward_packed"
    packed = True

    def serves(self, problem: BackwardProblem) -> bool:
        return problem.aligned and problem.vector is not None

    def alignment(self, problem: BackwardProblem) -> dict[str, int]:
        return dict.fromkeys(("x", "dy", "dz", "dx", "reserveSpace"), 16)
