"""Batch normalization of packed tensors with contiguous planes (batch_planes.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_uint

from ..plans import Launch, structure
from ..primitives.cluster import has_clusters
from ..primitives.geometry import FastDivmod
from ..solver import Solver
from .batch import BatchProblem

SOURCE = "normalization/batch_planes.cu"
READS = 4  # packs of a thread, inference; as in the kernel
THREADS, MORE_THREADS = 256, 512  # of a block; of one that has a multiprocessor's shared memory
CLUSTERS = (1, 2, 4, 8)  # blocks
BLOCKS_PER_MULTIPROCESSOR = 3  # that a launch should have
FEWEST_PACKS = 2  # of a thread
RESERVED_BYTES = 2048  # of shared memory, for each block


class BatchPlanesSolver(Solver[BatchProblem]):
    """Statistics of channels whose planes are contiguous and follow each other."""

    name = "normalization.batch_planes"

    def serves(self, problem: BatchProblem) -> bool:
        return problem.aligned and problem.plane is not None and problem.plane >= problem.width

    def alignment(self, problem: BatchProblem) -> Mapping[str, int]:
        return dict.fromkeys(problem.moved_tensors, 16)

    def launches(self, problem: BatchProblem) -> list[Launch]:
        assert problem.plane is not None
        x, width = problem.x, problem.width
        definitions = {"PACK_WIDTH": width, "STRADDLES": int(problem.plane % width > 0)}
        channels = x.dims[1]
        if problem.is_inference:
            packs = -(-x.count // width)
            return [
                problem.launch(
                    SOURCE,
                    "normalization_batch_planes_inference",
                    [
                        ("elements", c_uint(x.count)),
                        ("plane", FastDivmod.of(problem.plane)),
                        ("channels", FastDivmod.of(channels)),
                    ],
                    (-(-packs // (THREADS * READS)), 1, 1),
                    (THREADS, 1, 1),
                    THREADS=THREADS,
                    BLOCKS=1,
                    CLUSTER_BLOCKS=1,
                    **definitions,
                )
            ]
        tensors = 2 if problem.is_gradient else 1
        packs = x.dims[0] * (problem.plane // width)
        room = problem.device.shared_bytes_per_block
        half = room // 2 - RESERVED_BYTES
        cluster = 1
        for cluster in CLUSTERS if has_clusters(problem.device) else (1,):
            of_block = -(-packs // cluster) * 16 * tensors
            busy = channels * cluster >= BLOCKS_PER_MULTIPROCESSOR * problem.device.multiprocessors
            if of_block <= half and (busy or packs < 2 * cluster * THREADS * FEWEST_PACKS):
                break
        of_block = -(-packs // cluster) * 16 * tensors
        threads = MORE_THREADS if of_block > half else THREADS
        most = (room - RESERVED_BYTES if of_block > half else half) // (16 * tensors * threads)
        cached = min(most, -(-packs // (cluster * threads)))
        planes = structure(
            ("images", c_uint(x.dims[0])),
            ("channels", c_uint(channels)),
            ("plane", c_uint(problem.plane)),
            ("cached", c_uint(cached)),
            ("packs", FastDivmod.of(problem.plane // width)),
            ("count", problem.number(problem.count)),
        )
        return [
            problem.launch(
                SOURCE,
                f"normalization_batch_planes_{'backward' if problem.is_gradient else 'training'}",
                [("planes", planes)],
                (channels, cluster, 1),
                (threads, 1, 1),
                cached * 16 * tensors * threads,
                THREADS=threads,
                BLOCKS=1,
                CLUSTER_BLOCKS=cluster,
                **definitions,
            )
        ]
