"""Softmax of long lines and columns by all multiprocessors together (softmax/persistent.cu, softmax_whole_stream.cu,
softmax_held_columns.cu, softmax_whole_columns.cu)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..primitives.cluster import has_clusters
from .problem import (
    BLOCK_BYTES,
    LEAST_ROW_BYTES,
    LONG_COLUMN,
    PACK_BYTES,
    ROW_BYTES,
    WARP,
    Problem,
    Walk,
    ceiling,
    power_of_two,
)

# As in softmax/persistent.cuh
STREAM_PACKS, MOST_BLOCKS, MOST_COLUMNS = 2, 192, 64
OPEN = {False: 16, True: 4}  # bundles in flight through a block: of lines, of columns
AHEAD, FEWER_AHEAD = 4, {False: 2, True: 3}  # tiles in flight; fewer where that leaves time for blocks to agree
QUEUE = 4  # tiles of float lines that registers hold where shared memory lacks some; with halves that took longer
STREAM_HELPERS = 4  # warps, of whole packs as many with a queue and one more without
LEAST_ROUNDS = 2  # of bundles of a group: one alone is read, then written
FIELDS = ("across", "part", "steps", "ahead", "delay", "workers", "passing")
STREAM_WARPS = (16, 12, 8)  # of workers, in order of preference
LEAST_STREAM_LINE = 300 * 1000  # bytes of all inputs; clusters serve shorter lines as well, unless there are many
# Of all inputs, a multiprocessor: many lines; long lines by inputs; of halves with two inputs
MANY_STREAM_BYTES, LEAST_STREAM_BYTES, LEAST_STREAM_HALVES = 700 * 1024, (120 * 1024, 180 * 1024), 384 * 1024
AGREEMENT_BYTES = 96 * 1024  # that a multiprocessor reads while blocks agree
LEAST_STREAM_LINES = (120 * 1024, 256 * 1024)  # of lines, by inputs
# Of whole packs, by inputs: bytes of a line, of a multiprocessor
LEAST_WHOLE_STREAMS = ((192 * 1000, 48 * 1000), (250 * 1000, 190 * 1000))
# Measured costs of a bundle beside its tiles, in bytes: lines that start anywhere, lines at whole packs, columns
LINE_BYTES = (16 * 1024, 8 * 1024, 32 * 1024)
MISSING = 0.2  # of a tile, where shared memory lacks some for reading on while blocks agree, and for each of these
# As in softmax/persistent_resident_strided.cu
HELD_THREADS, GROUP_PACKS, MOST_HELD_GROUPS, REGISTER_GROUPS, MOST_ROUNDS = 512, 4, 6, 2, 64
# Streams of whole packs
WHOLE_WORKERS, MOST_TILES, WHOLE_QUEUE = 512, 48, 6
# Bytes that a block reads while blocks agree, of groups of few blocks, and of more, which are served less evenly, and bytes that
# are in flight to it: by inputs, in order of preference, of those that fit; of tensors that the cache keeps
FIRST_LEAD, KEPT_LEAD, LAST_LEAD = (
    (80 << 10, 104 << 10, 48 << 10),
    (80 << 10, 80 << 10, 16 << 10),
    (64 << 10, 64 << 10, 32 << 10),
)
LEADS = {
    1: (FIRST_LEAD, (64 << 10, 80 << 10, 48 << 10), LAST_LEAD),
    2: (FIRST_LEAD, (64 << 10, 64 << 10, 48 << 10), LAST_LEAD),
}
# Of floats with one input, where registers hold tiles: preferred to all but the first of these. 4 to 5 % less of 55 us
QUEUE_LEAD = (80 << 10, 128 << 10, 64 << 10)
SMALL_GROUP = 16
# Columns whose rows follow each other, as in softmax/persistent_tma_strided.cu: bundles in flight, warps that do not work, by inputs
OPEN_BUNDLES, COLUMN_HELPERS = 8, (7, 4)
COLUMN_WORKERS, COLUMN_PACKS = 256, 4  # threads that work; packs of a tile that each has
COLUMN_BARRIERS = 2 * MOST_TILES + 2 + 3 * OPEN_BUNDLES
# Of them: bytes in flight to a block, that it reads while blocks agree; tiles of floats that registers hold, by inputs
COLUMN_AHEAD, COLUMN_LEAD, COLUMN_QUEUE = 40 << 10, 64 << 10, (3, 7)
COLUMN_SPARE = 1  # where shared memory is full: places that are free before they are needed
FEWEST_TILES = 4  # of a block, of all bundles, where registers hold some; fewer are held columns
FEW_BUNDLES = 4  # of tensors that the cache keeps: more agreements take up to 12 % longer than columns that are held
ALONE_BYTES = 24 * 1024  # that a block reads while it agrees with itself
WHOLE_LINE_BYTES = 8 * 1024  # measured cost of a line beside its tiles
STAYING_BYTES = 64 << 20  # read and written: fewer stay in the cache
# Of what is written so much stays, as the next kernel reads it, unless it is more than the second number. Of larger results all
# pass: where others are read next, what stays costs 1 to 6 %. (Where the next kernel does read them, it takes 4 to 12 % less if
# half of them, of 50 to 80 MB, stay.)
STAYING_RESULTS, MOST_RESULTS = 24 << 20, 48 << 20


def has_copy_engine(device: Any) -> bool:
    return has_clusters(device) or device.kind == "emulated"


def is_streamed(walk: Walk, problem: Problem, scalar_bytes: int, device: Any, whole: bool) -> bool:
    """Whether lines are so long, equally far apart and so many that a stream was measured to take less time. whole: lines of
    whole packs."""
    line_bytes = problem.length * problem.pack_bytes * problem.inputs
    share = problem.lines * line_bytes // device.multiprocessors
    if walk.columns:
        return walk.wide and problem.length >= LONG_COLUMN and share >= LEAST_STREAM_BYTES[problem.inputs - 1]
    gradients_of_halves = problem.inputs == 2 and scalar_bytes == 2
    least, shorter = LEAST_STREAM_LINES[problem.inputs - 1], LEAST_STREAM_LINE
    if whole and not gradients_of_halves:
        shorter, least = LEAST_WHOLE_STREAMS[problem.inputs - 1]
    if line_bytes <= shorter:
        least = MANY_STREAM_BYTES
    elif gradients_of_halves:
        least = LEAST_STREAM_HALVES
    return walk.wide and walk.lines.outer_rank == 0 and line_bytes > BLOCK_BYTES and share >= least


@dataclass(frozen=True)
class Stream:
    """blocks: of a group. across: packs of lines side by side. part: packs of a line in a tile, of which a block takes so
    many steps; tiles: that shared memory holds; ahead: of them in flight; queue: tiles that registers hold. delay: steps
    between the statistic and the result of a tile."""

    blocks: int
    warps: int
    across: int
    part: int
    steps: int
    tiles: int
    ahead: int
    queue: int
    delay: int
    shared_bytes: int


def stream_of(
    problem: Problem, device: Any, statistic_bytes: int, line_bytes: int, width: int = 0, queues: bool = False
) -> Stream | None:
    """The way that takes least time, counted in bytes that a block reads. width: lines of a pack of lines, 0: of a line.
    line_bytes: what a bundle costs beside its tiles. queues: registers may hold tiles."""
    across = min(2 * ROW_BYTES // PACK_BYTES, MOST_COLUMNS // width, power_of_two(problem.lines)) if width else 1
    bundles, columns = ceiling(problem.lines, across), across * width or 1
    unit = 1 if width else 8  # packs: 128 bytes
    if device.multiprocessors > MOST_BLOCKS:
        return None
    for warps in STREAM_WARPS:
        best: tuple[float, Stream] | None = None
        workers = warps * WARP
        tile_bytes = workers * STREAM_PACKS * PACK_BYTES
        parts = workers // max(across, WARP) if width else workers
        opened = OPEN[width > 0]
        exchange = (2 * parts + opened) * columns * statistic_bytes + (3 * opened + 4) * 8
        tiles = (device.shared_bytes_per_block - exchange) // tile_bytes
        for blocks in range(1, device.multiprocessors + 1):
            length = problem.length + (width == 0)  # a line may start within a pack
            steps = ceiling(length * across * problem.inputs, blocks * workers * STREAM_PACKS)
            part = ceiling(length, unit * blocks * steps) * unit
            wanted = steps + ceiling(AGREEMENT_BYTES, tile_bytes)
            missing, ahead, queue = max(wanted + AHEAD - tiles, 0), AHEAD, 0
            if missing:
                ahead, queue = FEWER_AHEAD[queues], QUEUE if queues else 0
                missing = max(wanted + ahead - tiles - queue, 0)
            delay = min(wanted, tiles + queue - ahead, opened * steps - 2)
            if delay < max(steps, queue):
                continue
            rounds = max(ceiling(bundles, device.multiprocessors // blocks), LEAST_ROUNDS)
            lacking = MISSING * (missing + 1) if missing else 0
            part_bytes = part * across * problem.inputs * PACK_BYTES
            # A tile takes its time however full it is; of equally many, the least full.
            time = rounds * ((steps + lacking) * tile_bytes + part_bytes / 8 + line_bytes) + delay * tile_bytes
            if best is None or time < best[0]:
                shared_bytes = tiles * tile_bytes + exchange
                best = time, Stream(blocks, warps, across, part, steps, tiles, ahead, queue, delay, shared_bytes)
        if best:
            return best[1]
    return None


@dataclass(frozen=True)
class HeldColumns:
    """blocks: of a group. across: packs of lines side by side. part: rows of a block. kept: groups in shared memory."""

    blocks: int
    across: int
    part: int
    kept: int
    shared_bytes: int


def held_columns_of(problem: Problem, walk: Walk, device: Any, statistic_bytes: int, width: int) -> HeldColumns | None:
    """In as few rounds as the multiprocessors can hold, by as many of them as that leaves each bundle."""
    lines = problem.lines
    across = min(ROW_BYTES // PACK_BYTES, MOST_COLUMNS // width, lines & -lines)
    if device.multiprocessors > MOST_BLOCKS or walk.lines.row % width or across * PACK_BYTES < LEAST_ROW_BYTES:
        return None
    bundles, group_bytes = lines // across, HELD_THREADS * GROUP_PACKS * PACK_BYTES
    exchange = (HELD_THREADS // WARP + 1) * across * width * statistic_bytes + 16
    most = min((device.shared_bytes_per_block - exchange) // group_bytes, MOST_HELD_GROUPS)
    for rounds in range(ceiling(bundles, device.multiprocessors), MOST_ROUNDS + 1):
        blocks = device.multiprocessors // ceiling(bundles, rounds)
        part = ceiling(problem.length, blocks)
        groups = ceiling(part * across * problem.inputs, HELD_THREADS * GROUP_PACKS)
        if groups <= most + REGISTER_GROUPS:
            kept = max(groups - REGISTER_GROUPS, 0)
            return HeldColumns(blocks, across, part, kept, kept * group_bytes + exchange)
    return None


@dataclass(frozen=True)
class WholeColumns:
    """across: packs of a row. part: rows of a tile, of which a block has so many steps of every bundle; tiles: that shared
    memory holds; ahead: of them in flight. delay: tiles between the statistic and the result of one."""

    across: int
    part: int
    steps: int
    tiles: int
    ahead: int
    delay: int
    shared_bytes: int


def whole_columns_of(
    problem: Problem, walk: Walk, device: Any, statistic_bytes: int, width: int, queue: int
) -> WholeColumns | None:
    """All multiprocessors share every bundle. queue: tiles that registers hold."""
    positions, blocks, inputs = walk.lines.row, device.multiprocessors, problem.inputs
    across = positions // width
    dense = all(stride == positions for stride in walk.along.row_stride[:inputs])
    if not dense or positions > MOST_COLUMNS or positions % width or across & (across - 1) or blocks > MOST_BLOCKS:
        return None
    bundles = problem.lines // across
    steps = ceiling(problem.length * across * inputs, blocks * COLUMN_WORKERS * COLUMN_PACKS)
    part = ceiling(problem.length, blocks * steps)
    if (steps - 1) * blocks * part >= problem.length or bundles > OPEN_BUNDLES * MOST_ROUNDS:
        return None
    exchange = PACK_BYTES + ceiling(8 * COLUMN_BARRIERS + 4 * (1 + OPEN_BUNDLES), PACK_BYTES) * PACK_BYTES
    # gradients have no maxima: warps hand over sums alone
    exchange += (COLUMN_WORKERS // WARP // inputs + OPEN_BUNDLES) * positions * statistic_bytes
    tile_bytes, every = part * across * inputs * PACK_BYTES, bundles * steps
    room = (device.shared_bytes_per_block - exchange) // tile_bytes
    tiles = min(room, MOST_TILES, every)
    if bundles > OPEN_BUNDLES:  # nothing of a bundle is left when the next one comes to its place
        tiles = min(tiles, (OPEN_BUNDLES - 1) * steps - queue - 1)
    ahead = min(ceiling(COLUMN_AHEAD, tile_bytes), ceiling(tiles, 2))
    spare = COLUMN_SPARE if tiles == room else 0
    most = min(tiles + queue - ahead - spare, OPEN_BUNDLES * steps - 2, every)
    delay = max(every, queue) if tiles == every else most
    if ahead < 1 or every < min(queue, FEWEST_TILES):
        return None
    if delay < max(queue, min(steps + ceiling(COLUMN_LEAD, tile_bytes), every)):
        return None
    return WholeColumns(across, part, steps, tiles, ahead, delay, tiles * tile_bytes + exchange)


@dataclass(frozen=True)
class WholeStream:
    """blocks: of a group. part: packs of a line in a tile, of which a block takes so many steps; tiles: that shared memory
    holds; ahead: of them in flight. delay: steps between the statistic and the result of a tile."""

    blocks: int
    part: int
    steps: int
    tiles: int
    ahead: int
    delay: int
    shared_bytes: int


def whole_stream_of(
    problem: Problem, device: Any, statistic_bytes: int, lead: tuple[int, int, int] = FIRST_LEAD, queue: int = 0
) -> WholeStream | None:
    """The way on which the block that has most to do has least, of those that leave time for blocks to agree. queue: tiles that
    registers hold."""
    if device.multiprocessors > MOST_BLOCKS:
        return None
    exchange = (2 * WHOLE_WORKERS // WARP + OPEN[False]) * statistic_bytes + (3 * OPEN[False] + 4 + 2 * MOST_TILES) * 8
    most = WHOLE_WORKERS * STREAM_PACKS // problem.inputs
    best: tuple[float, WholeStream] | None = None
    for blocks in range(1, device.multiprocessors + 1):
        steps = ceiling(problem.length, blocks * most)
        part = ceiling(problem.length, WARP * blocks * steps) * WARP
        tile_bytes = part * problem.inputs * PACK_BYTES
        tiles = min((device.shared_bytes_per_block - exchange) // tile_bytes, MOST_TILES)
        ahead = max(ceiling(lead[2], tile_bytes), 2)
        agreement = lead[blocks > SMALL_GROUP] if blocks > 1 else ALONE_BYTES
        delay = min(steps + ceiling(agreement, tile_bytes), OPEN[False] * steps - 2)
        if delay + ahead > tiles + queue or delay < queue:
            continue
        rounds = ceiling(problem.lines, device.multiprocessors // blocks)
        time = rounds * (steps * tile_bytes + WHOLE_LINE_BYTES)
        if best is None or time < best[0]:
            best = time, WholeStream(blocks, part, steps, tiles, ahead, delay, tiles * tile_bytes + exchange)
    return best[1] if best else None


def leads_of(inputs: int, stays: bool, queues: bool) -> list[tuple[tuple[int, int, int], int]]:
    """Leads and tiles that registers hold, in order of preference. stays: the cache keeps all. queues: registers may hold tiles."""
    first, *others = LEADS[inputs]
    ways = [(KEPT_LEAD if stays else first, 0)]
    if queues and inputs == 1:
        ways.append((QUEUE_LEAD, WHOLE_QUEUE))
    ways += [(lead, 0) for lead in others]
    return ways + [(lead, WHOLE_QUEUE) for lead in others if queues]


def staying(output_bytes: int) -> int:
    """Sixteenths of the results that the cache keeps."""
    return min(16 * STAYING_RESULTS // output_bytes, 16) if output_bytes <= MOST_RESULTS else 0
