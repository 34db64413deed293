"""Softmax of small tensors, agreed on once (softmax/small_rows.cu, softmax_small_columns.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..primitives.geometry import FastDivmod, merge_dimensions
from .problem import SHORT_LINE, WARP, Walk, ceiling, power_of_two

# Lines: elements or packs of a thread, as in the kernel, by elements of a pack, in order of preference; the shortest line, in elements:
# a block or some lanes serve shorter ones
EACH = {1: (8, 4, 2), 2: (1, 2, 4), 4: (2, 4), 8: (1, 2, 4)}
LEAST_LINE = 1024
MOST_THREADS = 512  # of a block
FEW_VALUES = 32  # of a thread, with which two such blocks find registers
EXCHANGE_BYTES = 16
RANK = 4  # dimensions
# Columns: elements of a thread, threads of a block, fewest of a line, fewest lines side by side; most elements of a multiprocessor, and
# blocks, as in primitives/dependent_launch.cuh: of more, the next kernel is not let in before they read
COLUMN_EACH: tuple[int, ...] = (4, 8)
COLUMN_THREADS, LEAST_GROUPS, LEAST_ACROSS, COLUMN_ELEMENTS, COLUMN_BLOCKS = 128, 8, 8, 2048, 264


@cache
def _places_type(operands: int) -> type[ctypes.Structure]:
    class Places(ctypes.Structure):
        _fields_ = [
            ("count", ctypes.c_uint),
            ("items", ctypes.c_uint),
            ("apart", ctypes.c_uint),
            ("limit", ctypes.c_uint),
            ("item_step", ctypes.c_int * operands),
            ("extent", FastDivmod * (RANK - 1)),
            ("step", ctypes.c_int * RANK * operands),
        ]

    return Places


def places_of(extents: Sequence[int], steps: Sequence[Sequence[int]], d: int, each: int) -> Any:
    """The kernels' ``Places``: of every ``each`` positions of dimension ``d`` one, the others ``apart`` from each other. extents: of
    merged dimensions, the slowest first; steps: elements, for every operand."""
    apart = ceiling(extents[d], each)
    # That dimension comes last.
    order = [*reversed([i for i in range(len(extents)) if i != d])]
    value: Any = _places_type(len(steps))()
    value.count = apart * prod(extents[i] for i in order)
    value.items, value.apart, value.limit = ceiling(extents[d], apart), apart, extents[d]
    for place in range(RANK - 1):
        value.extent[place] = FastDivmod.of(extents[order[place]] if place < len(order) else 1)
    for operand, step in enumerate(steps):
        value.item_step[operand] = apart * step[d]
        value.step[operand][:] = [*(step[i] for i in order), *[0] * (RANK - 1 - len(order)), step[d]]
    return value


def lines_at(dims: Sequence[int], strides: Sequence[Sequence[int]]) -> Any | None:
    """Where lines begin; None where they have more dimensions than the kernels know."""
    extents, steps = merge_dimensions(dims, strides)
    return places_of(extents, steps, 0, 1) if len(extents) <= RANK else None


class Lines(NamedTuple):
    """``blocks`` of a cluster, ``each`` packs of one of their ``threads``, one step apart. along: the first of every thread."""

    blocks: int
    each: int
    threads: int
    along: Any

    @property
    def parts(self) -> int:
        """Statistics in shared memory: of as many warps as a cluster may have, so that each lane of a warp has as many."""
        return ceiling(self.blocks * MOST_THREADS // WARP, WARP) * WARP


def lines_of(
    dims: Sequence[int], strides: Sequence[Sequence[int]], lines: int, device: Any, packs: Sequence[int], values: int
) -> Iterator[Lines]:
    """Those that hold a line and run at once, the one that takes least time first. dims: packs along a line; strides: elements,
    for every operand; packs: of a thread, each of so many values."""
    for blocks in CLUSTER_SIZES if has_clusters(device) else (1,):
        for each in packs:
            along = min(_splits(dims, strides, each), key=lambda along: along.count, default=None)
            if along is None:
                continue
            threads = ceiling(ceiling(along.count, blocks), WARP) * WARP
            beside = 2 if each * values <= FEW_VALUES else 1  # blocks of a multiprocessor
            if threads <= MOST_THREADS and lines * blocks <= beside * device.multiprocessors:
                yield Lines(blocks, each, threads, along)


def _splits(dims: Sequence[int], strides: Sequence[Sequence[int]], each: int) -> Iterator[Any]:
    """A line whose threads have packs along one of the dimensions: the outermost first."""
    extents, steps = merge_dimensions(dims, strides)
    if len(extents) <= RANK:
        yield from (places_of(extents, steps, d, each) for d in range(len(extents)))


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
