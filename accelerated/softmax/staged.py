"""Softmax by lanes, blocks and clusters that share lines, and by tiles of short lines (softmax/staged.cu)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..primitives.cluster import CLUSTER_SIZES
from .problem import (
    BLOCK_BYTES,
    BUSY_THREADS,
    LEAST_ROW_BYTES,
    LONG_COLUMN,
    PACK_BYTES,
    ROW_BYTES,
    WARP,
    Problem,
    ceiling,
    power_of_two,
)

# As in softmax/staged.cu
HELD = {True: 2, False: 8}  # packs of a group: wide, narrow
DEPTH = 4  # groups in flight to a thread
SHORT = 8  # most elements of a lane in a tile
MORE, LEAST_LANES = (10, 9), 8  # more, by inputs, where the lanes are that many
LANES_THREADS = 128
TILE_THREADS = 256
# Tiles of pairs: bytes of all inputs, elements of a lane, and of the shortest line
PAIR_TILE_BYTES, PER_LINE_LANE, LEAST_PAIR_LINE = 8800, 80, 33
BLOCK_THREADS = (128, 512)  # fewest and most
CLUSTER_THREADS = 256  # most of a cluster's block where all run at once
COLUMNS_THREADS, FEW_SHARES = 256, 8  # half as many threads where so few or fewer share a column
PER_LANE = 8  # packs of a short line that a lane should take
PER_THREAD = {True: 4, False: 8}  # of a longer line, a thread: wide, narrow
TILE_BYTES = {False: 16 * 1024, True: 20 * 1024}  # of all inputs; of two of at least 4 bytes an element
TILE_BLOCKS = 6  # of a multiprocessor: all tiles at once, where they fit
RESERVED_BYTES = 1024  # of a block's shared memory
SHORT_TILE_BYTES = 24 * 1024

# Lines in the registers of a block: threads, values of a thread; of clusters that follow each other
MOST_BLOCK_THREADS, BLOCK_VALUE_BYTES, MANY_THREADS = 800, 128, 512


@dataclass(frozen=True)
class Team:
    """How threads share the lines. size: threads of a block that share a line, or packs of lines side by side."""

    kind: str
    threads: int
    grid: int
    size: int
    groups: int  # that a thread takes
    parts: int  # statistics in shared memory
    cluster: int = 1  # blocks that share a line


def lanes_of(problem: Problem, device: Any, per_lane: int) -> int:
    """Up to a warp for each line, as few lanes as keep the device busy."""
    length = problem.length
    size = power_of_two(ceiling(length, per_lane))
    if problem.wide:
        size = max(size, min(power_of_two(length), 4))  # 64 neighbouring bytes, where a line has them
    while size < WARP and size < length and problem.lines * size < device.multiprocessors * BUSY_THREADS:
        size *= 2
    return size


def lanes_team(problem: Problem, device: Any) -> Team:
    length, size = problem.length, lanes_of(problem, device, PER_LANE)
    grid = ceiling(problem.lines * size, LANES_THREADS)
    return Team("lines", LANES_THREADS, grid, size, ceiling(length, size * HELD[problem.wide]), 0)


def line_team(problem: Problem, device: Any, blocks: int) -> Team:
    """Single lines: a few lanes, a block or a cluster each. blocks: of a cluster."""
    length, each = problem.length, PER_THREAD[problem.wide]
    if length <= WARP * each:
        return lanes_team(problem, device)
    idle = problem.lines < 2 * device.multiprocessors and length >= blocks * BLOCK_THREADS[0] * each // 4
    line_bytes = length * problem.pack_bytes * problem.inputs
    clustered = line_bytes > BLOCK_BYTES or (idle and blocks > 1)
    if not clustered:
        blocks = 1
    elif problem.lines >= device.multiprocessors and BLOCK_BYTES < line_bytes <= 2 * BLOCK_BYTES:
        blocks = min(blocks, 2)
    short = line_bytes <= blocks * device.shared_bytes_per_block  # a cluster keeps it
    at_once = clustered and short and problem.lines * blocks <= 2 * device.multiprocessors
    instructions = not problem.wide and problem.inputs == 2 and problem.pack_bytes >= 4  # limit it, not memory
    most = CLUSTER_THREADS if at_once and not instructions else BLOCK_THREADS[1]
    ring = DEPTH * HELD[problem.wide] * problem.inputs * problem.pack_bytes  # the least that a thread keeps
    while most * ring > device.shared_bytes_per_block * 7 // 8:
        most //= 2
    threads = max(min(power_of_two(ceiling(length, blocks * each)), most), BLOCK_THREADS[0])
    groups = ceiling(length, threads * blocks * HELD[problem.wide])
    parts = threads // WARP + (blocks if clustered else 0)
    return Team(
        "lines_cluster" if clustered else "lines", threads, problem.lines * blocks, threads, groups, parts, blocks
    )


def block_team(problem: Problem, device: Any, pack_values_bytes: int) -> Team | None:
    """Lines that the registers of a block hold, if all blocks run at once."""
    most = BLOCK_VALUE_BYTES // pack_values_bytes // problem.inputs
    if problem.lines > device.multiprocessors or problem.length > most * MOST_BLOCK_THREADS:
        return None
    packs = power_of_two(ceiling(problem.length, MOST_BLOCK_THREADS))
    threads = ceiling(problem.length, WARP * packs) * WARP
    return Team("block", threads, problem.lines, threads, packs, WARP)


def many_team(problem: Problem, device: Any, pack_values_bytes: int) -> Team | None:
    """Lines of the registers of a cluster, of one input, more of them than run at once."""
    packs = BLOCK_VALUE_BYTES // pack_values_bytes
    blocks = power_of_two(ceiling(problem.length, MANY_THREADS * packs))
    if problem.inputs > 1 or problem.lines <= device.multiprocessors or not 2 <= blocks <= CLUSTER_SIZES[0]:
        return None
    threads = ceiling(ceiling(problem.length, blocks), WARP * packs) * WARP
    return Team("many_cluster", threads, problem.lines * blocks, threads, packs, 2 * WARP, blocks)


def column_team(problem: Problem, device: Any, width: int, blocks: int) -> Team:
    """Packs of lines: the threads of a block stand side by side over neighbouring packs and share their length."""
    clustered = problem.length >= LONG_COLUMN
    blocks = blocks if clustered else 1
    length, each = ceiling(problem.length, blocks), 2 * PER_THREAD[problem.wide]
    shares = power_of_two(ceiling(length, each))
    most = COLUMNS_THREADS // 2 if problem.wide and 1 < shares <= FEW_SHARES else COLUMNS_THREADS
    across = max(ROW_BYTES // problem.pack_bytes, most // shares)
    across = min(across, most // 4 if length > each else most, power_of_two(problem.lines))
    busy = device.multiprocessors * 3 // 4 if clustered else 2 * device.multiprocessors
    while across * problem.pack_bytes > LEAST_ROW_BYTES and ceiling(problem.lines, across) * blocks < busy:
        across //= 2
    if ceiling(problem.lines, across) * blocks < busy:
        each = HELD[problem.wide]
    shares = max(min(power_of_two(ceiling(length, each)), most // across), ceiling(WARP, across))
    threads = across * shares
    groups = ceiling(problem.length, shares * blocks * HELD[problem.wide])
    parts = (threads // max(across, WARP) + (blocks if clustered else 0)) * across * (width if problem.wide else 1)
    kind = "columns_cluster" if clustered else "columns"
    return Team(kind, threads, ceiling(problem.lines, across) * blocks, across, groups, parts, blocks)


def tile_of(lines: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> tuple[int, int]:
    """Lanes of a line, and lines of a tile."""
    lanes = power_of_two(ceiling(length, SHORT))
    if lanes > LEAST_LANES and length <= MORE[inputs - 1] * lanes // 2:
        lanes //= 2
    at_once, line_bytes = TILE_THREADS // lanes, length * scalar_bytes * inputs
    share = ceiling(lines, TILE_BLOCKS * device.multiprocessors * at_once) * at_once
    room = device.shared_bytes_per_block // TILE_BLOCKS - RESERVED_BYTES
    if lines >= 4 * device.multiprocessors * at_once and share * line_bytes <= room:
        return lanes, share
    tile_bytes = TILE_BYTES[inputs == 2 and scalar_bytes >= 4]
    rounds = min(tile_bytes // (at_once * line_bytes), ceiling(lines, at_once) // (4 * device.multiprocessors))
    return lanes, at_once * max(rounds, 1)


def pair_tile(length: int, inputs: int) -> tuple[int, int]:
    """Lanes of a line, and lines of a tile, of elements of two bytes."""
    lanes = power_of_two(ceiling(length, PER_LINE_LANE))
    warps = min(PAIR_TILE_BYTES // (WARP * length * 2 * inputs), TILE_THREADS // WARP // lanes)
    return lanes, WARP * max(warps, 1)


def short_tile(lines: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> int:
    """Lines of a tile of which a thread takes packs at a time."""
    at_once = TILE_THREADS * PACK_BYTES // scalar_bytes
    rounds = min(
        SHORT_TILE_BYTES // (at_once * length * scalar_bytes * inputs),
        ceiling(lines, at_once) // (4 * device.multiprocessors),
    )
    return at_once * max(rounds, 1)
