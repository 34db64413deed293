"""Softmax on the device (kernels/softmax.cu, softmax_registers.cu, softmax_stream.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int, c_uint
from dataclasses import dataclass
from typing import Any

from dualdnn.api.enumerations import cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward
from dualdnn.api.operations.specs import FLOAT, SCALAR_BYTES, TensorSpec

from .clusters import CLUSTERS, has_clusters
from .geometry import geometry
from .plans import AlignedPlan, Launch, Plan, factors, implements, pointers, structure, type_definitions

# As in kernels/softmax.cu
PACK_BYTES = 16
HELD = {True: 2, False: 8}  # packs of a group: wide, narrow
DEPTH = 4  # groups on their way to a thread
SHORT = 8  # most elements of a lane in a tile
MORE, LEAST_LANES = 10, 8  # of one input more, where the lanes are that many
SHORT_LINE = 4  # elements of a line in a tile, or of a column, of which a thread has all

MOST_ELEMENTS = 8  # of a lane in registers, where they are no packs
LEAST_REGISTER_LINE = 97  # elements from which lines of single elements stay in registers; shorter ones make tiles,
LEAST_REGISTER_BYTES = 4  # and so do smaller elements
SMALLEST_COPY = 4  # bytes that go to shared memory past the registers

# As in kernels/softmax_registers.cu
REGISTER_PACKS = 4  # of a thread
MOST_REGISTER_PACKS = (4, 2)  # of a lane, by inputs, of lines for which a warp suffices
COLUMN_PACKS = 8  # of a thread, where columns are many
NARROW_PACKS = (16, 12, 10, 8)  # single elements of a thread
LONGEST_NARROW = {False: 128, True: 256}  # positions; of elements of fewer than four bytes
REGISTER_THREADS, MOST_REGISTER_THREADS = 128, 256
RESIDENT = 1024  # threads of a multiprocessor
# Threads that a tensor has, with four packs each, of those that fit the device
FEW_COLUMNS, FEW_LINES, MANY_LINES = 0.25, 1, 3

WARP = 32
LANES_THREADS = 128
TILE_THREADS = 256
# Tiles of pairs: bytes of all inputs, elements of a lane, and of the shortest line
PAIR_TILE_BYTES, PER_LINE_LANE, LEAST_PAIR_LINE = 8800, 80, 33
BLOCK_THREADS = (128, 512)  # fewest and most
CLUSTER_THREADS = 256  # most of a cluster's block where all run at once
COLUMNS_THREADS, FEW_SHARES = 256, 8  # half as many threads where so few or fewer share a column
PER_LANE = 8  # packs of a short line that a lane should take
PER_THREAD = {True: 4, False: 8}  # of a longer line, a thread: wide, narrow
ROW_BYTES, LEAST_ROW_BYTES = 128, 32  # of a row that a block over columns takes
LONG_COLUMN = 1024  # positions from which on a cluster shares a column
TILE_BYTES = {False: 16 * 1024, True: 20 * 1024}  # of all inputs; of two of at least 4 bytes an element
TILE_BLOCKS = (6, 8)  # of a multiprocessor, by inputs: all tiles at once, where they fit
RESERVED_BYTES = 1024  # of a block's shared memory
SHORT_TILE_BYTES = 24 * 1024
BUSY_THREADS = 4 * 128  # of a multiprocessor, from which on lines need no more lanes
BLOCK_BYTES = 64 * 1024  # of a line that one block takes: several blocks of a multiprocessor overlap reads and writes

# As in kernels/softmax_stream.cu
STREAM_PACKS, MOST_BLOCKS, MOST_COLUMNS = 2, 192, 64
OPEN = {False: 16, True: 4}  # bundles on their way through a block: of lines, of columns
AHEAD, FEWER_AHEAD = 4, {False: 2, True: 3}  # tiles on their way; fewer where that leaves time for blocks to agree
QUEUE = 4  # tiles of float lines that registers hold where shared memory lacks some; with halves that took longer
STREAM_HELPERS = 4  # warps, of whole packs as many with a queue and one more without
LEAST_ROUNDS = 2  # of bundles of a group: one alone is read, then written
STREAM_FIELDS = ("across", "part", "steps", "ahead", "delay", "workers", "passing")
STREAM_WARPS = (16, 12, 8)  # of workers, in order of preference
LEAST_STREAM_LINE = 300 * 1000  # bytes of all inputs; clusters serve shorter lines as well, unless there are many
# Of all inputs, a multiprocessor: many lines; long lines by inputs; of halves with two inputs
MANY_STREAM_BYTES, LEAST_STREAM_BYTES, LEAST_STREAM_HALVES = 700 * 1024, (120 * 1024, 180 * 1024), 384 * 1024
AGREEMENT_BYTES = 96 * 1024  # that a multiprocessor reads while blocks agree
LEAST_STREAM_LINES = (120 * 1024, 256 * 1024)  # of lines, by inputs
# Of whole packs, by inputs: bytes of a line, of a multiprocessor
LEAST_WHOLE_STREAMS = ((192 * 1000, 48 * 1000), (600 * 1000, 190 * 1000))
# Measured costs of a bundle beside its tiles, in bytes: lines that start anywhere, lines at whole packs, columns
LINE_BYTES = (16 * 1024, 8 * 1024, 32 * 1024)
MISSING = 0.2  # of a tile, where shared memory lacks some for reading on while blocks agree, and for each of these
# As in kernels/softmax_columns.cuh
HELD_THREADS, GROUP_PACKS, MOST_HELD_GROUPS, REGISTER_GROUPS, MOST_ROUNDS = 512, 4, 6, 2, 64
# Streams of whole packs
WHOLE_WORKERS, MOST_TILES, WHOLE_QUEUE = 512, 48, 6
# Bytes that a block reads while blocks agree, of groups of few blocks, and of more, which are served less evenly, and bytes that
# are on their way to it: by inputs, in order of preference, of those that fit; of tensors that the cache keeps
FIRST_LEAD, KEPT_LEAD, LAST_LEAD = (
    (80 << 10, 104 << 10, 48 << 10),
    (80 << 10, 80 << 10, 16 << 10),
    (64 << 10, 64 << 10, 32 << 10),
)
LEADS = {
    1: (FIRST_LEAD, (64 << 10, 80 << 10, 48 << 10), LAST_LEAD),
    2: (FIRST_LEAD, (64 << 10, 64 << 10, 48 << 10), LAST_LEAD),
}
SMALL_GROUP = 16
ALONE_BYTES = 24 * 1024  # that a block reads while it agrees with itself
WHOLE_LINE_BYTES = 8 * 1024  # measured cost of a line beside its tiles
STAYING_BYTES = 64 << 20  # read and written: fewer stay in the cache
# Of what is written so much stays, as the next kernel reads it, unless it is more than the second number. Of larger results all
# pass: what would stay was found to be gone before it is read or written again, and took up to 3 % longer.
STAYING_RESULTS, MOST_RESULTS = 24 << 20, 48 << 20
# Read and written: between these the cache gives up first what columns, and clusters forward, have read; the results stay for who
# reads them next. Of less all stays, of more nothing that the next kernel needs.
PASSED_BYTES = (60 << 20, 160 << 20)

# Lines in the registers of a block: threads, values of a thread, and lines that clusters of blocks share
MOST_BLOCK_THREADS, BLOCK_VALUE_BYTES, CLUSTER_LINES = 800, 128, 16


@dataclass(frozen=True)
class Problem:
    """lines: packs of lines, or single lines. length: packs of a line (of a pack of lines: positions)."""

    lines: int
    length: int
    wide: bool
    pack_bytes: int
    inputs: int


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


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()


def _ceil(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)


def _has_copy_engine(device: Any) -> bool:
    return has_clusters(device) or device.kind == "emulated"


def _lanes(problem: Problem, device: Any, per_lane: int) -> int:
    """Up to a warp for each line, as few lanes as keep the device busy."""
    length = problem.length
    size = _power_of_two(_ceil(length, per_lane))
    if problem.wide:
        size = max(size, min(_power_of_two(length), 4))  # 64 neighbouring bytes, where a line has them
    while size < WARP and size < length and problem.lines * size < device.multiprocessors * BUSY_THREADS:
        size *= 2
    return size


def _lanes_team(problem: Problem, device: Any) -> Team:
    length, size = problem.length, _lanes(problem, device, PER_LANE)
    grid = _ceil(problem.lines * size, LANES_THREADS)
    return Team("lines", LANES_THREADS, grid, size, _ceil(length, size * HELD[problem.wide]), 0)


def _line_team(problem: Problem, device: Any, blocks: int) -> Team:
    """Single lines: a few lanes, a block or a cluster each. blocks: of a cluster."""
    length, each = problem.length, PER_THREAD[problem.wide]
    if length <= WARP * each:
        return _lanes_team(problem, device)
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
    threads = max(min(_power_of_two(_ceil(length, blocks * each)), most), BLOCK_THREADS[0])
    groups = _ceil(length, threads * blocks * HELD[problem.wide])
    parts = threads // WARP + (blocks if clustered else 0)
    return Team(
        "lines_cluster" if clustered else "lines", threads, problem.lines * blocks, threads, groups, parts, blocks
    )


def _block_team(problem: Problem, device: Any, pack_values_bytes: int) -> Team | None:
    """Lines that the registers of a block hold, if all blocks run at once. Of few lines a cluster takes each."""
    most = BLOCK_VALUE_BYTES // pack_values_bytes // problem.inputs
    if problem.lines > max(device.multiprocessors, CLUSTER_LINES) or problem.length > most * MOST_BLOCK_THREADS:
        return None
    blocks = CLUSTERS[0] if problem.lines <= CLUSTER_LINES and has_clusters(device) else 1
    each = _ceil(problem.length, blocks)
    packs = _power_of_two(_ceil(each, MOST_BLOCK_THREADS))
    threads = _ceil(each, WARP * packs) * WARP
    kind = "block_cluster" if blocks > 1 else "block"
    return Team(kind, threads, problem.lines * blocks, threads, packs, 2 * WARP, blocks)


def _column_team(problem: Problem, device: Any, width: int, blocks: int) -> Team:
    """Packs of lines: the threads of a block stand side by side over neighbouring packs and share their length."""
    clustered = problem.length >= LONG_COLUMN
    blocks = blocks if clustered else 1
    length, each = _ceil(problem.length, blocks), 2 * PER_THREAD[problem.wide]
    shares = _power_of_two(_ceil(length, each))
    most = COLUMNS_THREADS // 2 if problem.wide and 1 < shares <= FEW_SHARES else COLUMNS_THREADS
    across = max(ROW_BYTES // problem.pack_bytes, most // shares)
    across = min(across, most // 4 if length > each else most, _power_of_two(problem.lines))
    busy = device.multiprocessors * 3 // 4 if clustered else 2 * device.multiprocessors
    while across * problem.pack_bytes > LEAST_ROW_BYTES and _ceil(problem.lines, across) * blocks < busy:
        across //= 2
    if _ceil(problem.lines, across) * blocks < busy:
        each = HELD[problem.wide]
    shares = max(min(_power_of_two(_ceil(length, each)), most // across), _ceil(WARP, across))
    threads = across * shares
    groups = _ceil(problem.length, shares * blocks * HELD[problem.wide])
    parts = (threads // max(across, WARP) + (blocks if clustered else 0)) * across * (width if problem.wide else 1)
    kind = "columns_cluster" if clustered else "columns"
    return Team(kind, threads, _ceil(problem.lines, across) * blocks, across, groups, parts, blocks)


def _tile(lines: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> tuple[int, int]:
    """Lanes of a line, and lines of a tile."""
    lanes = _power_of_two(_ceil(length, SHORT))
    if inputs == 1 and lanes > LEAST_LANES and length <= MORE * lanes // 2:
        lanes //= 2
    at_once, line_bytes = TILE_THREADS // lanes, length * scalar_bytes * inputs
    blocks = TILE_BLOCKS[inputs - 1]
    share = _ceil(lines, blocks * device.multiprocessors * at_once) * at_once
    room = device.shared_bytes_per_block // blocks - RESERVED_BYTES
    if lines >= 4 * device.multiprocessors * at_once and share * line_bytes <= room:
        return lanes, share
    tile_bytes = TILE_BYTES[inputs == 2 and scalar_bytes >= 4]
    rounds = min(tile_bytes // (at_once * line_bytes), _ceil(lines, at_once) // (4 * device.multiprocessors))
    return lanes, at_once * max(rounds, 1)


def _pair_tile(length: int, inputs: int) -> tuple[int, int]:
    """Lanes of a line, and lines of a tile, of elements of two bytes."""
    lanes = _power_of_two(_ceil(length, PER_LINE_LANE))
    warps = min(PAIR_TILE_BYTES // (WARP * length * 2 * inputs), TILE_THREADS // WARP // lanes)
    return lanes, WARP * max(warps, 1)


def _short_tile(lines: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> int:
    """Lines of a tile of which a thread takes packs at a time."""
    at_once = TILE_THREADS * PACK_BYTES // scalar_bytes
    rounds = min(
        SHORT_TILE_BYTES // (at_once * length * scalar_bytes * inputs),
        _ceil(lines, at_once) // (4 * device.multiprocessors),
    )
    return at_once * max(rounds, 1)


@dataclass(frozen=True)
class Registers:
    """kind: lines or columns. team: lanes of a line, or packs of lines side by side. packs: of a thread."""

    kind: str
    team: int
    packs: int
    threads: int
    grid: int
    parts: int  # statistics in shared memory


def _registers(walk: Walk, scalar_bytes: int, inputs: int, device: Any) -> Registers | None:
    """Packs in registers: lines for which a warp suffices; columns of a few positions, or so few that no other way fills
    the device."""
    if not (walk.wide and walk.aligned and walk.along.outer_rank == 0):
        return None
    lines, length = walk.lines.packs, walk.along.packs
    filled = lines * length / REGISTER_PACKS / (device.multiprocessors * RESIDENT)
    if walk.columns:
        if walk.along.row <= SHORT_LINE:
            threads = REGISTER_THREADS if scalar_bytes >= 4 else MOST_REGISTER_THREADS
            return Registers("columns", threads, walk.along.row, threads, _ceil(lines, threads), 0)
        few = filled <= FEW_COLUMNS
        packs = REGISTER_PACKS if few else COLUMN_PACKS
        shares = _power_of_two(_ceil(length, packs))
        if shares * ROW_BYTES // PACK_BYTES > MOST_REGISTER_THREADS or (inputs == 2 and not few):
            return None
        pack_bytes = walk.lines.width * scalar_bytes
        threads = max(WARP, 2 * shares) if few else max(REGISTER_THREADS, shares * ROW_BYTES // pack_bytes)
        threads = min(threads, MOST_REGISTER_THREADS)
        team = threads // shares
        parts = threads // max(team, WARP) * team * walk.lines.width
        return Registers("columns", team, packs, threads, _ceil(lines, team), parts)
    if length > WARP * MOST_REGISTER_PACKS[inputs - 1] or walk.along.row % walk.along.width:
        return None
    # Where blocks come one after the other, more of them at a time; where all of them run at once, fewer.
    packs = REGISTER_PACKS if FEW_LINES < filled <= MANY_LINES else 1 if inputs == 2 and filled > MANY_LINES else 2
    packs = max(packs, _power_of_two(_ceil(length, WARP)))
    team = _power_of_two(_ceil(length, packs))
    return Registers("lines", team, packs, REGISTER_THREADS, _ceil(lines * team, REGISTER_THREADS), 0)


def _narrow_registers(walk: Walk, scalar_bytes: int, device: Any) -> Registers | None:
    """Columns of single elements in registers."""
    length, lines = walk.along.row, walk.lines.packs
    if not walk.columns or walk.wide or walk.along.outer_rank or scalar_bytes > SMALLEST_COPY:
        return None
    if not SHORT_LINE < length <= LONGEST_NARROW[scalar_bytes < SMALLEST_COPY]:
        return None

    def threads_of_column(packs: int) -> int:
        return _power_of_two(_ceil(length, packs))

    packs, threads = min(NARROW_PACKS, key=lambda packs: packs * threads_of_column(packs)), MOST_REGISTER_THREADS
    if lines * threads_of_column(packs) < device.multiprocessors * BUSY_THREADS:
        packs, threads = NARROW_PACKS[-1], REGISTER_THREADS
    team = threads // threads_of_column(packs)
    parts = threads // max(team, WARP) * team
    return Registers("columns", team, packs, threads, _ceil(lines, team), parts)


@dataclass(frozen=True)
class Stream:
    """blocks: of a group. across: packs of lines side by side. part: packs of a line in a tile, of which a block takes so
    many steps; tiles: that shared memory holds; ahead: of them on their way; queue: tiles that registers hold. delay: steps
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


def _stream(
    problem: Problem, device: Any, statistic_bytes: int, line_bytes: int, width: int = 0, queues: bool = False
) -> Stream | None:
    """The way that takes least time, counted in bytes that a block reads. width: lines of a pack of lines, 0: of a line.
    line_bytes: what a bundle costs beside its tiles. queues: registers may hold tiles."""
    across = min(2 * ROW_BYTES // PACK_BYTES, MOST_COLUMNS // width, _power_of_two(problem.lines)) if width else 1
    bundles, columns = _ceil(problem.lines, across), across * width or 1
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
            steps = _ceil(length * across * problem.inputs, blocks * workers * STREAM_PACKS)
            part = _ceil(length, unit * blocks * steps) * unit
            wanted = steps + _ceil(AGREEMENT_BYTES, tile_bytes)
            missing, ahead, queue = max(wanted + AHEAD - tiles, 0), AHEAD, 0
            if missing:
                ahead, queue = FEWER_AHEAD[queues], QUEUE if queues else 0
                missing = max(wanted + ahead - tiles - queue, 0)
            delay = min(wanted, tiles + queue - ahead, opened * steps - 2)
            if delay < max(steps, queue):
                continue
            rounds = max(_ceil(bundles, device.multiprocessors // blocks), LEAST_ROUNDS)
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


def _held_columns(problem: Problem, walk: Walk, device: Any, statistic_bytes: int, width: int) -> HeldColumns | None:
    """In as few rounds as the multiprocessors can hold, by as many of them as that leaves each bundle."""
    lines = problem.lines
    across = min(ROW_BYTES // PACK_BYTES, MOST_COLUMNS // width, lines & -lines)
    if device.multiprocessors > MOST_BLOCKS or walk.lines.row % width or across * PACK_BYTES < LEAST_ROW_BYTES:
        return None
    bundles, group_bytes = lines // across, HELD_THREADS * GROUP_PACKS * PACK_BYTES
    exchange = (HELD_THREADS // WARP + 1) * across * width * statistic_bytes + 16
    most = min((device.shared_bytes_per_block - exchange) // group_bytes, MOST_HELD_GROUPS)
    for rounds in range(_ceil(bundles, device.multiprocessors), MOST_ROUNDS + 1):
        blocks = device.multiprocessors // _ceil(bundles, rounds)
        part = _ceil(problem.length, blocks)
        groups = _ceil(part * across * problem.inputs, HELD_THREADS * GROUP_PACKS)
        if groups <= most + REGISTER_GROUPS:
            kept = max(groups - REGISTER_GROUPS, 0)
            return HeldColumns(blocks, across, part, kept, kept * group_bytes + exchange)
    return None


@dataclass(frozen=True)
class WholeStream:
    """blocks: of a group. part: packs of a line in a tile, of which a block takes so many steps; tiles: that shared memory
    holds; ahead: of them on their way. delay: steps between the statistic and the result of a tile."""

    blocks: int
    part: int
    steps: int
    tiles: int
    ahead: int
    delay: int
    shared_bytes: int


def _whole_stream(
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
        steps = _ceil(problem.length, blocks * most)
        part = _ceil(problem.length, WARP * blocks * steps) * WARP
        tile_bytes = part * problem.inputs * PACK_BYTES
        tiles = min((device.shared_bytes_per_block - exchange) // tile_bytes, MOST_TILES)
        ahead = max(_ceil(lead[2], tile_bytes), 2)
        agreement = lead[blocks > SMALL_GROUP] if blocks > 1 else ALONE_BYTES
        delay = min(steps + _ceil(agreement, tile_bytes), OPEN[False] * steps - 2)
        if delay + ahead > tiles + queue or delay < queue:
            continue
        rounds = _ceil(problem.lines, device.multiprocessors // blocks)
        time = rounds * (steps * tile_bytes + WHOLE_LINE_BYTES)
        if best is None or time < best[0]:
            best = time, WholeStream(blocks, part, steps, tiles, ahead, delay, tiles * tile_bytes + exchange)
    return best[1] if best else None


def _staying(output_bytes: int) -> int:
    """Sixteenths of the results that the cache keeps."""
    return min(16 * STAYING_RESULTS // output_bytes, 16) if output_bytes <= MOST_RESULTS else 0


@dataclass(frozen=True)
class Walk:
    """Lines and what is along them, as the kernels walk them, and whether lines follow each other without gaps."""

    lines: Any
    along: Any
    columns: bool
    wide: bool
    aligned: bool
    dense: bool


def _walk(operation: SoftmaxForward | SoftmaxBackward, specs: list[TensorSpec], width: int) -> Walk:
    output = specs[-1]
    instance = operation.mode == cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_INSTANCE
    along = tuple(range(1, output.rank)) if instance else (1,)
    others = tuple(d for d in range(output.rank) if d not in along)
    extended = [d for d in range(output.rank) if output.dims[d] > 1]
    innermost = min(extended, key=lambda d: output.strides[d], default=1)

    def layout(dimensions: Sequence[int], width: int) -> Any:
        dims = [output.dims[d] for d in dimensions]
        return geometry(dims, [[spec.strides[d] for d in dimensions] for spec in specs], width)

    line, position = layout(others, 1), layout(along, 1)
    simple = position.outer_rank == 0
    if innermost not in along:
        # Packs of neighbouring lines: every position at a multiple of 16 bytes, rows that fill at least half a pack.
        packs = layout(others, width)
        whole = packs.vectorised == (1 << len(specs)) - 1 and all(pitch % width == 0 for pitch in position.row_stride)
        wide = width > 1 and simple and whole and 2 * packs.row >= width
        return Walk(packs if wide else line, position, True, wide, wide, False)
    # Packs along a line: it starts equally far from a multiple of 16 bytes in every operand; if not at one, it is long.
    starts = [[spec.strides[d] % width for d in others if output.dims[d] > 1] for spec in specs]
    simple = simple and all(step == 1 for step in position.row_stride)
    aligned = not any(any(start) for start in starts)
    equal = all(start == starts[0] for start in starts)
    wide = width > 1 and simple and equal and (aligned or position.row >= 4 * width)
    follow = line.packs == 1 or all(step == position.row for step in line.row_stride)
    dense = simple and line.outer_rank == 0 and follow
    return Walk(line, layout(along, width) if wide else position, False, wide, wide and aligned, dense)


def _streams(walk: Walk, problem: Problem, scalar_bytes: int, device: Any, whole: bool) -> bool:
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


def _plan(operation: SoftmaxForward | SoftmaxBackward, device: Any, kernel: str, aligned: bool = True) -> Plan:
    """aligned: whether operands lie at whole packs; where a kernel needs that, the plan has another for other operands."""
    operands = operation.operands
    specs = [operation.tensor(name) for name in operands]
    inputs, scalar_bytes = len(specs) - 1, specs[-1].scalar_bytes
    width = 1 if scalar_bytes == 1 else PACK_BYTES // scalar_bytes
    walk = _walk(operation, specs, width)

    def launch(
        source: str,
        name: str,
        threads: int,
        grid: int,
        team: int,
        kept: int,
        shared_bytes: int,
        stream: Sequence[int] = (0,) * len(STREAM_FIELDS),
        of: Walk = walk,
        definitions: dict[str, int] | None = None,
    ) -> Launch:
        chosen = {name: str(value) for name, value in (definitions or {}).items()}
        types = type_definitions(specs[-1].scalar_type, operation, **chosen)
        function = device.function(source, f"{kernel}_{name}", types)
        arguments = structure(
            *pointers(len(operands)),
            *factors(operation, alpha=operation.alpha, beta=operation.beta),
            ("algorithm", c_int(operation.algorithm)),
            ("team", c_uint(team)),
            ("kept", c_uint(kept)),
            *((name, c_uint(value)) for name, value in zip(STREAM_FIELDS, stream, strict=True)),
            ("lines", of.lines),
            ("along", of.along),
        )
        return Launch(function, arguments, operands, (grid, 1, 1), (threads, 1, 1), shared_bytes, any(stream))

    statistic_bytes = 2 * SCALAR_BYTES[operation.compute_type]
    # Columns of halves: packs of four, where none of eight exist, or where threads have many, so that they stay in registers.
    ways = [(walk, _registers(walk, scalar_bytes, inputs, device))]
    if walk.columns and scalar_bytes == 2:
        narrower = _walk(operation, specs, width // 2)
        fours = _registers(narrower, scalar_bytes, inputs, device)
        ways.insert(0 if fours and fours.packs == COLUMN_PACKS else 1, (narrower, fours))
    ways.append((walk, _narrow_registers(walk, scalar_bytes, device)))
    for of, held in ways:
        if held:
            name, shared_bytes = f"{held.kind}_of_{held.packs}", held.parts * statistic_bytes
            pack_bytes = of.lines.width * scalar_bytes if held.kind == "columns" else PACK_BYTES
            smaller = {"PACK_BYTES": pack_bytes} if pack_bytes < PACK_BYTES else {}
            step = launch(
                "softmax_registers.cu",
                name,
                held.threads,
                held.grid,
                held.team,
                0,
                shared_bytes,
                of=of,
                definitions=smaller,
            )
            return Plan(operation, [step])

    lines, length = walk.lines.packs, walk.along.row
    simple = walk.along.outer_rank == 0
    long = length >= LEAST_REGISTER_LINE and (scalar_bytes >= LEAST_REGISTER_BYTES or not walk.dense)
    if not walk.columns and not (walk.wide and walk.aligned) and simple and long and length <= WARP * MOST_ELEMENTS:
        lanes = _lanes(Problem(lines, length, False, scalar_bytes, inputs), device, MOST_ELEMENTS)
        grid, each = _ceil(lines * lanes, LANES_THREADS), _ceil(length, lanes)
        return Plan(operation, [launch("softmax.cu", "narrow_registers", LANES_THREADS, grid, lanes, each, 0)])
    if walk.columns and not walk.wide and simple and length <= SHORT_LINE:
        grid = _ceil(lines, LANES_THREADS)
        return Plan(operation, [launch("softmax.cu", "narrow_short_columns", LANES_THREADS, grid, 1, length, 0)])

    if walk.dense and not walk.aligned and length <= SHORT * WARP:
        if length <= SHORT_LINE and scalar_bytes > 1:
            name, lanes, of_tile = "short_tile", 1, _short_tile(lines, length, inputs, scalar_bytes, device)
        elif length >= LEAST_PAIR_LINE and scalar_bytes == 2 and operation.compute_type == FLOAT:
            name, (lanes, of_tile) = "pair_tile", _pair_tile(length, inputs)
        else:
            name, (lanes, of_tile) = "tile", _tile(lines, length, inputs, scalar_bytes, device)
        tile_bytes = _ceil(of_tile * length * scalar_bytes, PACK_BYTES) * PACK_BYTES
        threads = of_tile * lanes if name == "pair_tile" else TILE_THREADS
        step = launch("softmax.cu", name, threads, _ceil(lines, of_tile), lanes, of_tile, tile_bytes * inputs)
        return Plan(operation, [step])

    def aligned_plan(step: Launch) -> Plan:
        places = dict.fromkeys(operands, PACK_BYTES)
        return AlignedPlan(operation, [step], places, lambda: _plan(operation, device, kernel, aligned=False))

    def clusters_of(blocks: int) -> dict[str, int]:
        return {"CLUSTER_BLOCKS": blocks} if blocks not in (1, CLUSTERS[0]) else {}

    whole_lines = aligned and not walk.columns and walk.aligned and length % width == 0 and _has_copy_engine(device)
    if whole_lines:
        problem = Problem(lines, length // width, True, PACK_BYTES, inputs)
        if team := _block_team(problem, device, width * SCALAR_BYTES[operation.compute_type]):
            step = launch(
                "softmax.cu",
                f"wide_{team.kind}",
                team.threads,
                team.grid,
                1,
                team.groups,
                team.parts * statistic_bytes,
                definitions=clusters_of(team.cluster),
            )
            return aligned_plan(step)
    packs = walk.along.packs
    if walk.wide and not walk.aligned:
        packs += 1  # a line that starts anywhere
    pack_bytes = PACK_BYTES if walk.wide else scalar_bytes
    problem = Problem(lines, packs, walk.wide, pack_bytes, inputs)
    moved = lines * walk.along.packs * pack_bytes * (inputs + 1)
    passing_definitions = {"PASSING": 1} if PASSED_BYTES[0] <= moved < PASSED_BYTES[1] else {}
    if _streams(walk, problem, scalar_bytes, device, whole_lines):
        line_bytes = LINE_BYTES[2 if walk.columns else walk.aligned]
        stays = moved <= STAYING_BYTES
        leads = LEADS[inputs]
        leads_and_queues = [(lead, 0) for lead in ((KEPT_LEAD, *leads[1:]) if stays else leads)]
        if specs[-1].scalar_type == FLOAT:
            leads_and_queues += [(lead, WHOLE_QUEUE) for lead in leads[1:]]
        for lead, queue in leads_and_queues if whole_lines and walk.lines.outer_rank == 0 else ():
            if whole := _whole_stream(problem, device, statistic_bytes, lead, queue):
                passing = 0 if stays else 1 | _staying(moved // (inputs + 1)) << 1
                numbers = (1, whole.part, whole.steps, whole.ahead, whole.delay, WHOLE_WORKERS, passing)
                step = launch(
                    "softmax_stream.cu",
                    "whole_stream",
                    WHOLE_WORKERS + (STREAM_HELPERS + (queue == 0)) * WARP,
                    device.multiprocessors,
                    whole.blocks,
                    whole.tiles,
                    whole.shared_bytes,
                    numbers,
                    definitions={"QUEUE_TILES": queue} if queue else {},
                )
                return aligned_plan(step)
        columns = _held_columns(problem, walk, device, statistic_bytes, width) if aligned and walk.columns else None
        if columns:
            step = launch(
                "softmax_stream.cu",
                "held_columns",
                HELD_THREADS,
                device.multiprocessors,
                columns.blocks,
                columns.kept,
                columns.shared_bytes,
                (columns.across, columns.part, *(0,) * (len(STREAM_FIELDS) - 2)),
                definitions=passing_definitions,
            )
            return aligned_plan(step)
        queues = not walk.columns and specs[-1].scalar_type == FLOAT
        way = _stream(problem, device, statistic_bytes, line_bytes, width if walk.columns else 0, queues)
        if way:
            name, workers = f"{'columns' if walk.columns else 'lines'}_stream", way.warps * WARP
            numbers = (way.across, way.part, way.steps, way.ahead, way.delay, workers, 0)
            threads = workers + STREAM_HELPERS * WARP
            definitions = {"QUEUE_TILES": way.queue} if way.queue else {}
            grid = device.multiprocessors
            step = launch(
                "softmax_stream.cu",
                name,
                threads,
                grid,
                way.blocks,
                way.tiles,
                way.shared_bytes,
                numbers,
                definitions=definitions,
            )
            return Plan(operation, [step])
    most = CLUSTERS[0] * device.shared_bytes_per_block  # of a line, by a cluster
    large = walk.columns or packs * pack_bytes * inputs > most or lines * CLUSTERS[0] < device.multiprocessors
    for blocks in reversed(CLUSTERS[: 1 + large]) if has_clusters(device) else (1,):
        team = _column_team(problem, device, width, blocks) if walk.columns else _line_team(problem, device, blocks)
        group_bytes = HELD[walk.wide] * inputs * team.threads * pack_bytes
        parts_bytes = team.parts * statistic_bytes
        kept = min(team.groups, (device.shared_bytes_per_block - parts_bytes) // group_bytes)
        name = f"{'wide' if walk.wide else 'narrow'}_{team.kind}"
        usual, passes = team.cluster <= CLUSTERS[0], name == "wide_lines_cluster" and inputs == 1
        step = launch(
            "softmax.cu",
            name,
            team.threads,
            team.grid,
            team.size,
            kept,
            kept * group_bytes + parts_bytes,
            definitions=clusters_of(team.cluster) | (passing_definitions if passes else {}),
        )
        if usual or step.function.holds_clusters(step.grid, step.block, step.shared_bytes):
            break
    return Plan(operation, [step])


@implements(SoftmaxForward)
def softmax_forward(operation: SoftmaxForward, device: Any) -> Plan:
    """One read and one write."""
    return _plan(operation, device, "softmax_forward")


@implements(SoftmaxBackward)
def softmax_backward(operation: SoftmaxBackward, device: Any) -> Plan:
    """One read of y and dy and one write."""
    return _plan(operation, device, "softmax_backward")
