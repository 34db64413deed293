"""Softmax of few lines of single elements, each in the registers of a cluster's blocks (kernels/softmax_scattered.cu)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from .clusters import CLUSTERS, has_clusters
from .softmax_walk import WARP, Problem, ceiling

EACH = (4, 2)  # elements of a thread, as in the kernel
LEAST_LINE = 1024  # elements; a block or some lanes serve shorter ones
MOST_THREADS = 512  # of a block
GATHERING_BYTES = 16


class Scattered(NamedTuple):
    """``blocks`` of a cluster, ``each`` elements of one of their ``threads``."""

    blocks: int
    each: int
    threads: int

    @property
    def parts(self) -> int:
        """Statistics in shared memory."""
        return WARP + self.blocks


def scattered_of(problem: Problem, device: Any) -> Iterator[Scattered]:
    """Those that hold a line and run at once, the one that takes least time first."""
    for blocks in CLUSTERS if has_clusters(device) else (1,):
        for each in EACH:
            threads = ceiling(ceiling(problem.length, blocks * each), WARP) * WARP
            if threads <= MOST_THREADS and problem.lines * blocks <= 2 * device.multiprocessors:
                yield Scattered(blocks, each, threads)
