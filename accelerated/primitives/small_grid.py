"""Small tensors that no 16-byte pack moves, indexed by the dimensions of a launch (the host side of
primitives/small_grid.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from .geometry import THREADS, Grid, merge_dimensions

RANK = 4  # dimensions: two of a block's threads and two of blocks
MAX_ITEMS = 4  # elements of a thread, whose reads are in flight together
MAX_BLOCKS = 264  # of 256 threads, so that all of them run at once


@cache
def _small_grid_type(operands: int) -> type[ctypes.Structure]:
    class SmallGrid(ctypes.Structure):
        _fields_ = [
            ("block_rows", ctypes.c_uint),
            ("rows", ctypes.c_uint),
            ("items", ctypes.c_uint),
            ("item_distance", ctypes.c_uint),
            ("item_extent", ctypes.c_uint),
            ("step", ctypes.c_uint * RANK * operands),
        ]

    return SmallGrid


class SmallGridLaunch(NamedTuple):
    """The ``SmallGrid<N>`` argument, the grid and the block of a launch."""

    layout: Any
    grid: Grid
    block: Grid


def small_grid(dims: Sequence[int], strides: Sequence[Sequence[int]]) -> SmallGridLaunch | None:
    """Return the launch that indexes tensors of ``dims`` with the given strides in elements, the output's last: threads
    along the two fastest dimensions, blocks along those and two more, the elements of a thread along the third. Return
    None where there are more dimensions than RANK, rows longer than a block, or more elements than MAX_BLOCKS take."""
    extents, steps = merge_dimensions(dims, strides)
    missing = RANK - len(extents)
    if missing < 0 or extents[-1] > THREADS:
        return None
    outer, across, rows, row = [1] * missing + [*extents]
    parts = -(-rows // (THREADS // row))
    block_rows = -(-rows // parts)
    items = next((i for i in range(1, MAX_ITEMS + 1) if parts * -(-across // i) * outer <= MAX_BLOCKS), None)
    if items is None:
        return None
    item_distance = -(-across // items)
    value: Any = _small_grid_type(len(steps))()
    value.block_rows, value.rows, value.items, value.item_distance, value.item_extent = (
        block_rows,
        rows,
        -(-across // item_distance),
        item_distance,
        across,
    )
    for operand, step in zip(value.step, steps, strict=True):
        operand[:] = [0] * missing + [*step]
    return SmallGridLaunch(value, (parts, item_distance, outer), (row, block_rows, 1))
