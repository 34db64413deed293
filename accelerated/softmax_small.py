"""Softmax of small tensors, agreed on once (kernels/softmax_small_lines.cu, softmax_small_columns.cu)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .clusters import CLUSTERS, has_clusters
from .geometry import geometry, merged
from .softmax_walk import SHORT_LINE, WARP, Walk, ceiling, power_of_two

# Lines: elements or packs of a thread, as in the kernel, by elements of a pack, in order of preference; the shortest line, in elements:
# a block or some lanes serve shorter ones
EACH = {1: (4, 2), 2: (1, 2, 4), 4: (2, 4), 8: (1, 2, 4)}
LEAST_LINE = 1024
MOST_THREADS, BATCH = 512, 4  # of a block; statistics of a lane at a time
FEW_VALUES = 32  # of a thread, with which two such blocks find registers
EXCHANGE_BYTES = 16
ALL = 2**31 - 1
# Columns: elements of a thread, threads of a block, fewest of a line, fewest lines side by side; most elements of a multiprocessor, and
# blocks, as in kernels/launch.cuh: of more, the next kernel is not let in before they read
COLUMN_EACH: tuple[int, ...] = (4, 8)
COLUMN_THREADS, LEAST_GROUPS, LEAST_ACROSS, COLUMN_ELEMENTS, COLUMN_BLOCKS = 128, 8, 8, 2048, 264


class Lines(NamedTuple):
    """``blocks`` of a cluster, ``each`` packs of one of their ``threads``, one step apart. along: as the kernel walks what
    threads have first."""

    blocks: int
    each: int
    threads: int
    along: Any

    @property
    def parts(self) -> int:
        """Statistics in shared memory: of every warp, and so many more that each lane of a warp has as many."""
        return ceiling(self.blocks * self.threads // WARP, WARP * BATCH) * WARP * BATCH


def lines_of(
    dims: Sequence[int], strides: Sequence[Sequence[int]], lines: int, device: Any, packs: Sequence[int], values: int
) -> Iterator[Lines]:
    """Those that hold a line and run at once, the one that takes least time first. dims: packs along a line; strides: elements,
    for every operand; packs: of a thread, each of so many values."""
    for blocks in CLUSTERS if has_clusters(device) else (1,):
        for each in packs:
            along = min(_splits(dims, strides, each), key=lambda along: along.packs, default=None)
            if along is None:
                continue
            threads = ceiling(ceiling(along.packs, blocks), WARP) * WARP
            beside = 2 if each * values <= FEW_VALUES else 1  # blocks of a multiprocessor
            if threads <= MOST_THREADS and lines * blocks <= beside * device.multiprocessors:
                yield Lines(blocks, each, threads, along)


def _splits(dims: Sequence[int], strides: Sequence[Sequence[int]], each: int) -> Iterator[Any]:
    """A line whose threads have packs along one of the dimensions: the outermost first."""
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


class Columns(NamedTuple):
    """``across`` lines side by side, ``each`` elements of one of the ``threads`` of ``grid`` blocks."""

    across: int
    each: int
    threads: int
    grid: int


def columns_of(walk: Walk, device: Any) -> Columns | None:
    """Columns of which no multiprocessor has many."""
    length, lines = walk.along.row, walk.lines.packs
    if not walk.columns or walk.along.outer_rank or length <= SHORT_LINE:
        return None
    each = next((each for each in COLUMN_EACH if length <= each * LEAST_GROUPS), COLUMN_EACH[-1])
    groups = max(power_of_two(ceiling(length, each)), LEAST_GROUPS)
    across = max(COLUMN_THREADS // groups, LEAST_ACROSS)
    threads, grid = across * groups, ceiling(lines, across)
    if threads > MOST_THREADS or grid > COLUMN_BLOCKS or lines * length > COLUMN_ELEMENTS * device.multiprocessors:
        return None
    return Columns(across, each, threads, grid)
