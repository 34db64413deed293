"""Batch normalization forward: inference and training (batch_forward.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any

from dualdnn.api.operations.normalization.batch import NormalizationInference

from ..plans import Launch, pointers
from ..solver import Solver
from .batch import IN_FLIGHT, BatchProblem

SOURCE = "normalization/batch_forward.cu"
THREADS = 512  # of a block, at most
MOST_BLOCKS = 65535  # in the second dimension of a grid
OPERANDS = ("x", "z", "y", "scale", "bias")
GIVEN = ("mean", "variance", "savedMean", "savedInvVariance")
KEPT = ("runningMean", "runningVariance", "savedMean", "savedInvVariance")
NONE = ""  # a null pointer


class ForwardProblem(BatchProblem):
    """A forward call."""

    tensors = ("x", "z", "y")

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.trains = not isinstance(operation, NormalizationInference)


class ForwardSolver(Solver[ForwardProblem]):
    """Tensors of any layout, element by element."""

    name = "normalization.batch_forward"
    packed = False

    def serves(self, problem: ForwardProblem) -> bool:
        return True

    def launches(self, problem: ForwardProblem) -> list[Launch]:
        operation = problem.operation
        division = problem.division(self.packed, THREADS)
        activation = getattr(operation, "activation", None)
        count = problem.count
        fields = [
            *pointers(len(OPERANDS) + len(KEPT) + 1),
            *problem.numbers(
                alpha=operation.alpha,
                beta=operation.beta,
                epsilon=operation.epsilon,
                factor=getattr(operation, "exponentialAverageFactor", 0.0),
                unbiased=count / (count - 1) if count > 1 else float("nan"),
            ),
            ("rectify", c_int(activation is not None)),
            ("propagate", c_int(activation.relu_nan if activation is not None else 1)),
        ]
        threads = str(THREADS)
        mask = "reserveSpace" if operation.z is not None else NONE
        if not problem.trains:
            chunks = min(MOST_BLOCKS, -(-division.positions // (division.rows * IN_FLIGHT[self.packed])))
            kernel = "normalization_batch_forward_inference"
            return [
                problem.launch(SOURCE, kernel, division, 1, fields, (*OPERANDS, *GIVEN, mask), chunks, THREADS=threads)
            ]
        cluster = problem.clusters(division)
        cached, shared_bytes = problem.cached(division, cluster, 1)
        kernel = "normalization_batch_forward_training"
        return [
            problem.launch(
                SOURCE,
                kernel,
                division,
                cluster,
                fields,
                (*OPERANDS, *KEPT, mask),
                cluster,
                cached,
                shared_bytes,
                THREADS=threads,
            )
        ]


class PackedForwardSolver(ForwardSolver):
    """Tensors whose positions, or whose statistics, are neighbours: packs of up to 16 bytes."""

    name = "normalization.batch_forward_packed"
    packed = True

    def serves(self, problem: ForwardProblem) -> bool:
        return problem.aligned and problem.vector is not None

    def alignment(self, problem: ForwardProblem) -> dict[str, int]:
        return dict.fromkeys(("x", "z", "y", "reserveSpace"), 16)
