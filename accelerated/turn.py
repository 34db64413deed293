"""Plain changes of layout on the device (the host side of kernels/turn.cuh): what is contiguous along one dimension
becomes contiguous along another.
"""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint
from math import prod
from typing import Any, NamedTuple

from .geometry import Divisor

# As in kernels/turn.cuh
DIMENSIONS = 8
LOG_THREADS = 8
LOG_LANES = (3, 2)  # bits of a warp's threads across and along

PACK_BYTES = 16
LOG_SQUARES = 4  # most of a tile across, where there are enough along
NARROW = 16  # an extent that tiles hold as a whole
LEAST_SIDE = 16  # of other tiles
TILE_ELEMENTS = (2048, 1024, 512)  # at most what a block's threads have on their way at once
ENOUGH_TILES = 8  # of a multiprocessor


class _Dimension(ctypes.Structure):
    _fields_ = [("extent", Divisor), ("source", c_int), ("destination", c_int)]


class TurnArgument(ctypes.Structure):
    _fields_ = [
        ("across", c_uint),
        ("along", c_uint),
        ("source_along", c_int),
        ("destination_across", c_int),
        ("source_base", c_int),
        ("destination_base", c_int),
        ("tiles_across", Divisor),
        ("tiles_along", Divisor),
        ("tile_across", c_uint),
        ("tile_along", c_uint),
        ("in_across", Divisor),
        ("in_along", Divisor),
        ("rank", c_int),
        ("dimension", _Dimension * DIMENSIONS),
    ]


class Turned(NamedTuple):
    """A kernel, its argument, its grid and the shared memory of a block."""

    kernel: str
    argument: TurnArgument
    tiles: int
    shared_bytes: int


def turned(
    walk: Any, source_bytes: int, destination_bytes: int, *, same_type: bool, moves: bool, multiprocessors: int
) -> Turned | None:
    """The turn that carries out a walk without checks; None where a kernel for all walks has to.

    walk: transform.Walk. source_bytes, destination_bytes: of an element. moves: elements are stored as they are.
    """
    across, along = min(walk.steps, key=lambda step: step.source), walk.steps[0]
    others = [step for step in walk.steps if step is not across and step is not along]
    if across.source != 1 or along.destination != 1 or len(others) > DIMENSIONS:
        return None
    packs_in = walk.aligned("source", across, PACK_BYTES // source_bytes)
    packs_out = walk.aligned("destination", along, PACK_BYTES // destination_bytes)
    squares = packs_in and packs_out
    if squares and not (same_type and source_bytes in (2, 4)):
        return None
    argument = TurnArgument(
        across=across.extent, along=along.extent,
        source_along=along.source, destination_across=across.destination,
        source_base=walk.source_base, destination_base=walk.destination_base, rank=len(others),
    )  # fmt: skip
    for d, step in enumerate(others):
        argument.dimension[d] = _Dimension(Divisor.of(step.extent), step.source, step.destination)
    outer = prod(step.extent for step in others)
    if squares:
        side = PACK_BYTES // source_bytes
        counts = [-(-step.extent // side) for step in (across, along)]
        logs = _log_squares(*counts)
        tiles = [-(-count >> log) for count, log in zip(counts, logs, strict=True)]
        shared_bytes = 0
    else:
        for elements in TILE_ELEMENTS:
            logs = _sides(across.extent, along.extent, elements)
            tiles = [-(-step.extent // side) for step, side in zip((across, along), logs, strict=True)]
            if prod(tiles) * outer >= ENOUGH_TILES * multiprocessors:
                break
        argument.in_across, argument.in_along = map(Divisor.of, logs)
        shared_bytes = (logs[0] | 1) * logs[1] * source_bytes
    argument.tile_across, argument.tile_along = logs
    argument.tiles_across, argument.tiles_along = map(Divisor.of, tiles)
    kernel = "packs" if squares and moves else "packs_blend" if squares else "elements"
    return Turned(f"transform_turn_{kernel}", argument, prod(tiles) * outer, shared_bytes)


def _log_squares(across: int, along: int) -> tuple[int, int]:
    """The logarithms of a tile's sides, of as many squares as a block has threads."""
    need_across, need_along = ((count - 1).bit_length() for count in (across, along))
    log_across = min(LOG_SQUARES, max(LOG_LANES[0], need_across))
    log_along = LOG_THREADS - log_across
    if need_along < log_along:
        log_along = max(LOG_LANES[1], need_along)
    return LOG_THREADS - log_along, log_along


def _sides(across: int, along: int, elements: int) -> tuple[int, int]:
    """The sides of a tile of at most about so many elements: narrow extents whole, others in equal parts, as few tiles
    as possible, the squarest of those."""
    if along <= NARROW:
        return _part(across, elements // along), along
    if across <= NARROW:
        return across, _part(along, elements // across)
    sides = {_part(along, side) for side in range(LEAST_SIDE, elements // LEAST_SIDE + 1)}
    choices = [(_part(across, elements // side), side) for side in sorted(sides)]
    return min(choices, key=lambda tile: (-(-across // tile[0]) * -(-along // tile[1]), abs(tile[0] - tile[1])))


def _part(extent: int, most: int) -> int:
    return -(-extent // -(-extent // most))
