"""Batch normalization of packed tensors with contiguous planes (batch_planes.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_uint
from math import gcd
from typing import Any

from ..plans import Launch, structure
from ..primitives.cluster import has_clusters
from ..primitives.geometry import BUSY_BLOCKS, PACK_BYTES, FastDivmod, Grid, blocks
from ..solver import Solver
from .batch import BatchProblem

SOURCE = "normalization/batch_planes.cu"
PACKS = 4  # of a thread, inference, where there are many
THREADS, MORE_THREADS = 256, 512  # of a block; of one with many packs, or a multiprocessor's shared memory
CLUSTERS = (1, 2, 4, 8)  # blocks
BUSY_SHARE = 0.9  # of the multiprocessors that have a block: from there on clusters cost more than they gain
FEWEST_PACKS, LONG_PACKS = 2, 12  # of a thread; of one, from which on a block has more threads, forward
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
        definitions = {"PACK_WIDTH": problem.width, "STRADDLES": int(problem.plane % problem.width > 0)}
        if problem.is_inference:
            return [self._inference(problem, definitions)]
        if self._channels_of_block(problem) > 1:
            return [self._several_channels(problem, definitions)]
        return [self._one_channel(problem, definitions)]

    def _inference(self, problem: BatchProblem, definitions: dict[str, int]) -> Launch:
        packs = -(-problem.x.count // problem.width)
        busy = THREADS * BUSY_BLOCKS * problem.device.multiprocessors
        of_thread = PACKS if packs >= PACKS * busy else 1
        fields = [
            ("elements", c_uint(problem.x.count)),
            ("plane", FastDivmod.of(problem.plane or 1)),
            ("channels", FastDivmod.of(problem.x.dims[1])),
        ]
        return self._launch(
            problem, "inference", fields, (blocks(packs, THREADS * of_thread)), PACKS=of_thread, **definitions
        )

    @staticmethod
    def _launch(
        problem: BatchProblem, kernel: str, fields: Sequence[tuple[str, Any]], grid: Grid, threads: int = THREADS,
        shared_bytes: int = 0, **definitions: int,
    ) -> Launch:  # fmt: skip
        defined = {"PACKS": 1, "CLUSTER_BLOCKS": 1, **definitions}
        name = f"normalization_batch_planes_{kernel}"
        return problem.launch(SOURCE, name, fields, grid, (threads, 1, 1), shared_bytes, THREADS=threads, **defined)

    def _bytes_of_packs(self, problem: BatchProblem) -> int:
        """Return the bytes of a pack of each tensor that a block keeps."""
        return PACK_BYTES * (2 if problem.is_gradient else 1)

    def _channels_of_block(self, problem: BatchProblem) -> int:
        """Return the channels whose planes are made of packs together, where shared memory holds them, else 1."""
        assert problem.plane is not None
        images, channels = problem.x.dims[:2]
        group = problem.width // gcd(problem.plane, problem.width)
        packs = images * group * problem.plane // problem.width
        fits = packs * self._bytes_of_packs(problem) <= problem.device.shared_bytes_per_block // 2 - RESERVED_BYTES
        return group if fits and channels % group == 0 else 1

    def _several_channels(self, problem: BatchProblem, definitions: dict[str, int]) -> Launch:
        group, plane = self._channels_of_block(problem), problem.plane or 1
        images, channels = problem.x.dims[:2]
        packs = group * plane // problem.width
        fields = structure(
            ("images", c_uint(images)),
            ("channels", c_uint(channels)),
            ("group", c_uint(group)),
            ("packs", FastDivmod.of(packs)),
            ("plane", FastDivmod.of(plane)),
            ("count", problem.number(problem.count)),
        )
        kernel = f"{'backward' if problem.is_gradient else 'training'}_channels"
        return self._launch(
            problem, kernel, [("channels", fields)], (channels // group, 1, 1),
            shared_bytes=images * packs * self._bytes_of_packs(problem), **definitions,
        )  # fmt: skip

    def _one_channel(self, problem: BatchProblem, definitions: dict[str, int]) -> Launch:
        plane, width = problem.plane or 1, problem.width
        images, channels = problem.x.dims[:2]
        packs, of_pack = images * (plane // width), self._bytes_of_packs(problem)
        room = problem.device.shared_bytes_per_block
        half = room // 2 - RESERVED_BYTES
        cluster = 1
        for cluster in CLUSTERS if has_clusters(problem.device) else (1,):
            busy = channels * cluster >= BUSY_SHARE * problem.device.multiprocessors
            few = packs < 2 * cluster * THREADS * FEWEST_PACKS
            if -(-packs // cluster) * of_pack <= half and (busy or few):
                break
        fits = -(-packs // cluster) * of_pack <= half
        alone = channels * cluster <= problem.device.multiprocessors  # of more, a gradient has two that share one
        longer = packs >= LONG_PACKS * cluster * THREADS and (alone or not problem.is_gradient)
        threads = MORE_THREADS if longer or not fits else THREADS
        most = (half if fits else room - RESERVED_BYTES) // (of_pack * threads)
        cached = min(most, -(-packs // (cluster * threads)))
        planes = structure(
            ("images", c_uint(images)),
            ("channels", c_uint(channels)),
            ("plane", c_uint(plane)),
            ("cached", c_uint(cached)),
            ("packs", FastDivmod.of(plane // width)),
            ("count", problem.number(problem.count)),
        )
        return self._launch(
            problem, "backward" if problem.is_gradient else "training", [("planes", planes)], (channels, cluster, 1),
            threads, cached * of_pack * threads, CLUSTER_BLOCKS=cluster, **definitions,
        )  # fmt: skip
