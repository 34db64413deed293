"""Plans batch normalization of packed tensors in NCHW (batch_nchw.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_uint
from math import gcd
from typing import Any

from ..plans import Launch, fields_of, structure
from ..primitives.cluster import has_clusters
from ..primitives.geometry import BUSY_BLOCKS, VECTOR_BYTES, FastDivmod, Grid, blocks
from ..runtime.device import bytes_to_spread
from .batch import BatchProblem, BatchVectorsSolver

SOURCE = "normalization/batch_nchw.cu"
VECTORS = 4  # vectors per thread in inference of large tensors
THREADS = 256  # threads per block
MORE_THREADS = 512  # threads per block that has many vectors or all of an SM's shared memory
CLUSTERS = (1, 2, 4, 8)  # blocks per cluster
BUSY_SHARE = 0.9  # share of SMs that have a block; from it on, clusters cost more than they gain
MIN_VECTORS = 2  # vectors per thread
LONG_VECTORS = 12  # vectors per thread from which blocks get MORE_THREADS
RESERVED_BYTES = 2048  # shared memory reserved per block
HELD_THREADS = (256, 512, 1024)  # threads per block with a channel in registers
HELD_AIM = 2  # vectors per thread above which a block gets more threads
MAX_HELD = 16  # vectors in the registers of a thread
HELD_BYTES = 128  # bytes in the registers of a thread, upper bound
HELD_FEW_VECTORS = 1024  # vectors per channel, upper bound if channels are few


def launch_of(
    problem: BatchProblem, kernel: str, fields: Sequence[tuple[str, Any]], grid: Grid, threads: int = THREADS,
    shared_bytes: int = 0, **definitions: int,
) -> Launch:  # fmt: skip
    defined = {"VECTORS": 1, "HELD": 1, "CLUSTER_BLOCKS": 1, **definitions}
    name = f"normalization_batch_nchw_{kernel}"
    return problem.launch(SOURCE, name, fields, grid, (threads, 1, 1), shared_bytes, THREADS=threads, **defined)


def serves_planes(problem: BatchProblem) -> bool:
    """Return whether tensors are in NCHW and aligned. Calls with a fused activation are NHWC."""
    return problem.aligned and problem.plane is not None and problem.operation.activation is None


def planes_of(problem: BatchProblem, width: int, cached: int) -> ctypes.Structure:
    """Return the ``Planes`` of the kernels."""
    images, channels = problem.x.dims[:2]
    plane = problem.plane or 1
    return structure(
        *fields_of(c_uint, images=images, channels=channels, plane=plane, cached=cached),
        ("vectors", FastDivmod.of(plane // width)),
        ("count", problem.number(problem.count)),
    )


class BatchNchwSolver(BatchVectorsSolver):
    """Serve NCHW where a channel's plane has at least one vector."""

    name = "normalization.batch_nchw"

    def serves(self, problem: BatchProblem) -> bool:
        return serves_planes(problem) and (problem.plane or 0) >= problem.width

    def launches(self, problem: BatchProblem) -> list[Launch]:
        assert problem.plane is not None
        definitions = {"VECTOR_WIDTH": problem.width, "STRADDLES": int(problem.plane % problem.width > 0)}
        if problem.is_inference:
            return [self._inference(problem, definitions)]
        return [self._one_channel(problem, definitions)]

    def _inference(self, problem: BatchProblem, definitions: dict[str, int]) -> Launch:
        vectors = -(-problem.x.count // problem.width)
        busy = THREADS * BUSY_BLOCKS * problem.device.multiprocessors
        of_thread = VECTORS if vectors >= VECTORS * busy else 1
        fields = [
            ("elements", c_uint(problem.x.count)),
            *fields_of(FastDivmod.of, plane=problem.plane or 1, channels=problem.x.dims[1]),
        ]
        return launch_of(
            problem, "inference", fields, (blocks(vectors, THREADS * of_thread)), VECTORS=of_thread, **definitions
        )

    def _bytes_of_vectors(self, problem: BatchProblem) -> int:
        """Return the bytes of one vector of all tensors that a block keeps: of x, for gradients also of dy."""
        return VECTOR_BYTES * (2 if problem.is_gradient else 1)

    def _one_channel(self, problem: BatchProblem, definitions: dict[str, int]) -> Launch:
        plane, width = problem.plane or 1, problem.width
        images, channels = problem.x.dims[:2]
        vectors, of_vector = images * (plane // width), self._bytes_of_vectors(problem)
        room = problem.device.shared_bytes_per_block
        half = room // 2 - RESERVED_BYTES
        cluster = 1
        for cluster in CLUSTERS if has_clusters(problem.device) else (1,):
            busy = channels * cluster >= BUSY_SHARE * problem.device.multiprocessors
            few = vectors < 2 * cluster * THREADS * MIN_VECTORS
            if -(-vectors // cluster) * of_vector <= half and (busy or few):
                break
        fits = -(-vectors // cluster) * of_vector <= half
        alone = channels * cluster <= problem.device.multiprocessors  # whether each block has its own SM
        longer = vectors >= LONG_VECTORS * cluster * THREADS and (alone or not problem.is_gradient)
        threads = MORE_THREADS if longer or not fits else THREADS
        most = (half if fits else room - RESERVED_BYTES) // (of_vector * threads)
        cached = min(most, -(-vectors // (cluster * threads)))
        planes = planes_of(problem, width, cached)
        return launch_of(
            problem, "backward" if problem.is_gradient else "training", [("planes", planes)], (channels, cluster, 1),
            threads, cached * of_vector * threads, CLUSTER_BLOCKS=cluster, **definitions,
        )  # fmt: skip


class BatchNchwInRegistersSolver(BatchVectorsSolver):
    """Serve small channels, which a block holds in registers."""

    name = "normalization.batch_nchw_in_registers"

    def serves(self, problem: BatchProblem) -> bool:
        return serves_planes(problem) and self._threads(problem) is not None

    def applies(self, problem: BatchProblem) -> bool:
        if not self.serves(problem):
            return False
        # There must be a channel for almost every SM, or channels must be small.
        busy = problem.x.dims[1] >= BUSY_SHARE * problem.device.multiprocessors
        return busy or self._vectors(problem) <= HELD_FEW_VECTORS

    @staticmethod
    def _width(problem: BatchProblem) -> int:
        """Return the elements per vector, which divide a plane."""
        return gcd(problem.plane or 1, problem.width)

    def _vectors(self, problem: BatchProblem) -> int:
        """Return the vectors per channel."""
        return problem.count // self._width(problem)

    def _threads(self, problem: BatchProblem) -> int | None:
        """Return the threads per block, or None where their registers cannot hold a channel."""
        bytes_of_vector = self._width(problem) * problem.x.scalar_bytes
        if problem.is_inference or self._width(problem) == 1:
            return None
        vectors = self._vectors(problem)
        most = min(MAX_HELD, HELD_BYTES // (bytes_of_vector * (2 if problem.is_gradient else 1)))
        return next(
            (n for n in HELD_THREADS if -(-vectors // n) <= (min(HELD_AIM, most) if n < HELD_THREADS[-1] else most)),
            None,
        )

    def launches(self, problem: BatchProblem) -> list[Launch]:
        threads, width = self._threads(problem), self._width(problem)
        assert threads is not None
        return [
            launch_of(
                problem,
                "backward_in_registers" if problem.is_gradient else "training_in_registers",
                [("planes", planes_of(problem, width, 0))],
                (problem.x.dims[1], 1, 1),
                threads,
                bytes_to_spread(problem.device, problem.x.dims[1]),
                HELD=-(-self._vectors(problem) // threads),
                VECTOR_WIDTH=width,
                STRADDLES=0,
            )
        ]
