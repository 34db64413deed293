"""Small tensors that no pack moves, walked by the dimensions of a launch (the host side of SmallGrid in primitives/elementwise.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from .geometry import THREADS, Grid, merged

RANK = 4  # dimensions: rows and columns of a block's threads and two of blocks
MOST_ITEMS = 4  # elements of a thread, as the kernel reads them together
MOST_BLOCKS = 264  # of 256 threads: more would be in each other's way


@cache
def _small_grid_type(operands: int) -> type[ctypes.Structure]:
    class SmallGrid(ctypes.Structure):
        _fields_ = [
            ("down", ctypes.c_uint),
            ("rows", ctypes.c_uint),
            ("items", ctypes.c_uint),
            ("apart", ctypes.c_uint),
            ("limit", ctypes.c_uint),
            ("step", ctypes.c_uint * RANK * operands),
        ]

    return SmallGrid


class SmallGridLaunch(NamedTuple):
    """The argument, the grid and the block of a launch."""

    layout: Any
    grid: Grid
    block: Grid


def small_grid(dims: Sequence[int], strides: Sequence[Sequence[int]]) -> SmallGridLaunch | None:
    """Threads along the two fastest dimensions, blocks along those and two more; a thread's elements lie along the third. None of
    what has more dimensions, longer rows, or too many elements."""
    return of_extents(*merged(dims, strides))


def of_extents(
    extents: Sequence[int], steps: Sequence[Sequence[int]], most_items: int = MOST_ITEMS
) -> SmallGridLaunch | None:
    """Of dimensions that are merged, the slowest first, with the steps of every operand."""
    missing = RANK - len(extents)
    if missing < 0 or extents[-1] > THREADS:
        return None
    outer, across, rows, row = [1] * missing + [*extents]
    parts = -(-rows // (THREADS // row))
    down = -(-rows // parts)
    items = next((i for i in range(1, most_items + 1) if parts * -(-across // i) * outer <= MOST_BLOCKS), None)
    if items is None:
        return None
    apart = -(-across // items)
    value: Any = _small_grid_type(len(steps))()
    value.down, value.rows, value.items, value.apart, value.limit = down, rows, -(-across // apart), apart, across
    for operand, step in zip(value.step, steps, strict=True):
        operand[:] = [0] * missing + [*step]
    return SmallGridLaunch(value, (parts, apart, outer), (row, down, 1))
