"""Plain changes of layout on the device (the host side of transform/transpose.cuh): what is contiguous along one dimension
becomes contiguous along another.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_uint
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ..primitives.geometry import FastDivmod

DIMENSIONS = 8  # as in transform/transpose.cuh

PACK_BYTES, SHORT_PACK_BYTES = 16, 8
CACHED_BYTES = 32 << 20  # read and written, that stay in the cache
# Squares: bits of a warp's threads across and along, of a block's; of these shapes the first of which there are enough blocks
Shapes = tuple[tuple[tuple[int, int], int], ...]
SQUARES: Shapes = ((3, 2), 7), ((3, 2), 6)
SQUARES_CACHED: Shapes = (((2, 3), 6),)
# Packs of 8 bytes where the destination's rows are whole sectors, and where not: those had better be written in long runs
SQUARES_SHORT: Shapes = ((2, 3), 8), ((2, 3), 7), ((2, 3), 6)
SQUARES_SHORT_PIECES: Shapes = ((1, 4), 8), ((1, 4), 7), ((2, 3), 6)
LEAST_SHORT = 32  # of the extents of what moves in those
LOG_SQUARES = 4  # most of a tile across, where there are enough along
ENOUGH_TILES = 8  # of a multiprocessor

LOG_BLOCK, LOG_WARP = 8, 5  # threads of a block of elements, of a warp
TILE_BYTES = 8192  # about the most that goes through shared memory: what a block's threads have in flight at once
NARROW = (16, 8)  # of its shorter side: the most of which there are enough blocks
SIDES = (*range(20, 64), *range(64, 257, 32))  # at most, of other tiles: shorter ones would not move in whole sectors
LEAST_JOINED, MOST_JOINED, RUN = 33, 128, 4096  # elements of rows that make up a run of memory, of the run
SECTOR_BYTES = 32
WORD_BYTES = 4  # of a bank of shared memory
BLOCK_COST = 512  # of starting a block, in elements


class _Dimension(ctypes.Structure):
    _fields_ = [("extent", FastDivmod), ("source", c_int), ("destination", c_int)]


class TurnArgument(ctypes.Structure):
    _fields_ = [
        ("across", c_uint),
        ("along", c_uint),
        ("source_along", c_int),
        ("destination_across", c_int),
        ("source_base", c_int),
        ("destination_base", c_int),
        ("tiles_across", FastDivmod),
        ("tiles_along", FastDivmod),
        ("tile_across", c_uint),
        ("tile_along", c_uint),
        ("log_across", c_uint),
        ("log_along", c_uint),
        ("in_across", FastDivmod),
        ("in_along", FastDivmod),
        ("joined_in", c_int),
        ("joined_out", c_int),
        ("pitch", c_uint),
        ("rank", c_int),
        ("dimension", _Dimension * DIMENSIONS),
    ]


class Turned(NamedTuple):
    """A kernel, whether its threads turn squares, its argument, its grid, the threads and the shared memory of a block."""

    kernel: str
    squares: bool
    argument: TurnArgument
    tiles: int
    threads: int
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
    widths = PACK_BYTES // source_bytes, PACK_BYTES // destination_bytes
    squares = walk.aligned("source", across, widths[0]) and walk.aligned("destination", along, widths[1])
    if squares and not (same_type and source_bytes in (2, 4)):
        return None
    outer = prod(step.extent for step in others)
    extents = across.extent, along.extent
    cached = prod(extents) * outer * 2 * source_bytes <= CACHED_BYTES
    width = SHORT_PACK_BYTES // source_bytes
    shorter = same_type and source_bytes == 2 and not squares and min(extents) >= LEAST_SHORT
    shorter = shorter and walk.aligned("source", across, width) and walk.aligned("destination", along, width)
    if shorter:
        squares, widths = True, (width, width)
    argument = TurnArgument(
        across=across.extent, along=along.extent,
        source_along=along.source, destination_across=across.destination,
        source_base=walk.source_base, destination_base=walk.destination_base, rank=len(others),
    )  # fmt: skip
    for d, step in enumerate(others):
        argument.dimension[d] = _Dimension(FastDivmod.of(step.extent), step.source, step.destination)
    if squares:
        counts = [-(-extent // widths[0]) for extent in extents]
        shapes = SQUARES_CACHED if cached else SQUARES
        if shorter:
            shapes = SQUARES_SHORT_PIECES if along.extent * destination_bytes % SECTOR_BYTES else SQUARES_SHORT
        for lanes, log_threads in shapes:
            sides = _log_squares(counts[0], counts[1], lanes, log_threads)
            tiles = [-(-count >> log) for count, log in zip(counts, sides, strict=True)]
            if prod(tiles) * outer >= ENOUGH_TILES * multiprocessors:
                break
        threads, shared_bytes = 1 << log_threads, 0
    else:
        for narrow in NARROW:
            sides = _narrow_sides(*extents, narrow, TILE_BYTES // source_bytes, widths)
            if prod(-(-extent // side) for extent, side in zip(extents, sides, strict=True)) * outer >= multiprocessors:
                break
        runs = _packs(walk, "source", across, along, sides, widths[0]) and _packs(
            walk, "destination", along, across, sides[::-1], widths[1]
        )
        if not runs:
            # Rows of whole sectors leave no pieces of them behind.
            pieces = along.extent * destination_bytes % SECTOR_BYTES != 0
            joined = along.source == across.extent, pieces and across.destination == along.extent
            sides = _sides(extents, outer, joined, source_bytes, multiprocessors)
            # Rows that follow each other in shared memory as they do in the source would fall into a few of its banks.
            odd = sides[0] * source_bytes % (2 * WORD_BYTES) != 0
            short = LEAST_JOINED <= min(extents) <= MOST_JOINED
            argument.joined_in = short and joined[0] and sides[0] == across.extent and odd
            argument.joined_out = short and joined[1] and sides[1] == along.extent
        tiles = [-(-extent // side) for extent, side in zip(extents, sides, strict=True)]
        argument.in_across, argument.in_along = map(FastDivmod.of, sides)
        lanes = _lanes(*sides)[0], _lanes(*sides[::-1])[0]
        argument.pitch = sides[0] if argument.joined_in else sides[0] | 1 if runs else _pitch(sides[0], source_bytes)
        threads, shared_bytes = 1 << LOG_BLOCK, argument.pitch * sides[1] * source_bytes + 2 * PACK_BYTES
    argument.tile_across, argument.tile_along = sides
    argument.log_across, argument.log_along = lanes
    argument.tiles_across, argument.tiles_along = map(FastDivmod.of, tiles)
    if squares:
        kernel = f"{'short_' if shorter else ''}packs{'' if moves else '_blend'}"
    else:
        kernel = "runs" if runs else "joined" if argument.joined_in or argument.joined_out else "elements"
    return Turned(f"transform_turn_{kernel}", squares, argument, prod(tiles) * outer, threads, shared_bytes)


def _packs(walk: Any, side: str, row: Any, rows: Any, tile: Sequence[int], width: int) -> bool:
    """Whether tiles of elements are whole packs on a side: row by row, or, where rows follow each other in memory and in
    the tile, all together.

    row, rows: the axis that is contiguous there and the other one. tile: its extents along them.
    """
    if walk.aligned(side, row, width):
        return row.extent % width == 0 and tile[0] % width == 0
    steps = [getattr(step, side) for step in walk.steps if step is not row and step is not rows]
    joined = getattr(row, side) == 1 and getattr(rows, side) == row.extent == tile[0]
    together = all(step % width == 0 for step in (_base(walk, side), *steps, rows.extent * row.extent))
    return joined and together and tile[0] * tile[1] % width == 0


def _base(walk: Any, side: str) -> int:
    """Where the walk begins on a side, in elements."""
    return int(walk.source_base if side == "source" else walk.destination_base)


def _log_squares(across: int, along: int, lanes: tuple[int, int], log_threads: int) -> tuple[int, int]:
    """The logarithms of a tile's sides, of as many squares as a block has threads."""
    need_across, need_along = ((count - 1).bit_length() for count in (across, along))
    log_across = min(LOG_SQUARES, log_threads - lanes[1], max(lanes[0], need_across))
    log_along = log_threads - log_across
    if need_along < log_along:
        log_along = max(lanes[1], need_along)
    return log_threads - log_along, log_along


def _narrow_sides(across: int, along: int, narrow: int, elements: int, widths: tuple[int, int]) -> tuple[int, int]:
    """The sides of a tile of about so many elements: the shorter extent, or so much of it, and whole packs of the other."""
    if along <= across:
        return _part(across, max(1, elements // min(along, narrow)), widths[0]), min(along, narrow)
    return min(across, narrow), _part(along, max(1, elements // min(across, narrow)), widths[1])


def _part(extent: int, most: int, width: int) -> int:
    """The extent in as few equal parts as have at most so many elements, rounded to whole packs."""
    part = -(-extent // -(-extent // most))
    return min(extent, -(-part // width) * width)


def _sides(
    extents: tuple[int, int], outer: int, joined: tuple[bool, bool], element_bytes: int, multiprocessors: int
) -> tuple[int, int]:
    """The sides of a tile for which the busiest multiprocessor has least to do. Where short rows follow each other in
    memory a tile is a run of them, which leaves no pieces of sectors behind.

    joined: of either side, whether rows follow each other.
    """

    def parts(extent: int) -> list[int]:
        return sorted({-(-extent // -(-extent // side)) for side in SIDES})

    def cost(tile: tuple[int, int]) -> int:
        blocks = -(-extents[0] // tile[0]) * -(-extents[1] // tile[1]) * outer
        return -(-blocks // multiprocessors) * (_lanes(*tile)[1] + _lanes(*tile[::-1])[1] + BLOCK_COST)

    narrow = min(range(2), key=lambda side: extents[side])
    if joined[narrow] and LEAST_JOINED <= extents[narrow] <= MOST_JOINED:
        wide, most = extents[1 - narrow], max(1, RUN // extents[narrow])
        least = -(-wide // most)
        lengths = sorted({-(-wide // count) for count in range(least, 2 * least + 1)})
        tiles = [(extents[0], length) if narrow == 0 else (length, extents[1]) for length in lengths]
        return min(tiles, key=cost)
    most = TILE_BYTES // element_bytes
    return min((tile for tile in product(parts(extents[0]), parts(extents[1])) if prod(tile) <= most), key=cost)


def _pitch(elements: int, element_bytes: int) -> int:
    """Of rows in shared memory: an odd number of words, so that a column lies in all banks."""
    words = -(-elements * element_bytes // WORD_BYTES) | 1
    return words * WORD_BYTES // element_bytes if element_bytes <= WORD_BYTES else elements | 1


def _lanes(run: int, rows: int) -> tuple[int, int]:
    """The logarithm of the threads side by side along a run, a warp or less, the block's other threads on other rows, and
    for how many elements its threads take turns then.
    """
    log = min(LOG_WARP, (run - 1).bit_length())
    groups = 1 << LOG_BLOCK - log
    return log, (-(-run >> log) << log) * -(-rows // groups) * groups
