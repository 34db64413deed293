"""Softmax of few lines of single elements, each in the registers of a cluster's blocks (kernels/softmax_scattered.cu)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .clusters import CLUSTERS, has_clusters
from .geometry import geometry, merged
from .softmax_walk import WARP, ceiling

EACH = (4, 2)  # elements of a thread, as in the kernel
LEAST_LINE = 1024  # elements; a block or some lanes serve shorter ones
MOST_THREADS = 512  # of a block
GATHERING_BYTES = 16
ALL = 2**31 - 1


class Scattered(NamedTuple):
    """``blocks`` of a cluster, ``each`` elements of one of their ``threads``, one step apart. along: as the kernel walks what
    threads have first."""

    blocks: int
    each: int
    threads: int
    along: Any

    @property
    def parts(self) -> int:
        """Statistics in shared memory."""
        return WARP + self.blocks


def scattered_of(dims: Sequence[int], strides: Sequence[Sequence[int]], lines: int, device: Any) -> Iterator[Scattered]:
    """Those that hold a line and run at once, the one that takes least time first. dims, strides: along a line."""
    for blocks in CLUSTERS if has_clusters(device) else (1,):
        for each in EACH:
            along = min(_splits(dims, strides, each), key=lambda along: along.packs, default=None)
            if along is None:
                continue
            threads = ceiling(ceiling(along.packs, blocks), WARP) * WARP
            if threads <= MOST_THREADS and lines * blocks <= 2 * device.multiprocessors:
                yield Scattered(blocks, each, threads, along)


def _splits(dims: Sequence[int], strides: Sequence[Sequence[int]], each: int) -> Iterator[Any]:
    """A line whose threads have elements along one of the dimensions: the outermost first."""
    extents, steps = merged(dims, strides)
    for d, extent in enumerate(extents):
        apart = ceiling(extent, each)
        rest = [*extents[:d], apart, *extents[d + 1 :]]
        left = [i for i, e in enumerate(rest) if e > 1] or [d]
        value = geometry([rest[i] for i in left], [[step[i] for i in left] for step in steps], 1)
        value.items, value.apart = ceiling(extent, apart), apart
        # Of a dimension that is all in a thread everything exists.
        value.limit, value.split = (extent, len(left) - 2 - left.index(d)) if apart > 1 else (ALL, -1)
        for operand, step in enumerate(steps):
            value.item_stride[operand] = apart * step[d]
        if value.outer_rank == len(left) - 1:
            yield value
