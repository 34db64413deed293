"""Plans changes of layout that transpose: the dimension that is contiguous differs between source and destination
(transform/transpose.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_uint
from itertools import product
from math import prod
from typing import Any, NamedTuple

from ..plans import Launch
from ..primitives.geometry import L2_RESIDENT_BYTES, FastDivmod
from ..runtime.arguments import declared
from .problem import VECTOR_BYTES, TransformProblem, Walk, WalkSolver

SOURCE = "transform/transpose.cu"
KERNELS = "transform_transpose"

DIMENSIONS = 8  # dimensions that are not transposed
SHORT_VECTOR_BYTES = 8  # bytes per short vector
# A shape of vector squares gives log2 of a warp's threads across and along, and log2 of a block's threads. The first
# shape that yields enough blocks is used.
Shapes = tuple[tuple[tuple[int, int], int], ...]
SQUARES: Shapes = ((3, 2), 7), ((3, 2), 6)
SQUARES_RESIDENT: Shapes = (((2, 3), 6),)
# These shapes serve vectors of 8 bytes. The PARTIAL ones write long runs, for rows that do not fill full sectors.
SQUARES_SHORT: Shapes = ((2, 3), 8), ((2, 3), 7), ((2, 3), 6)
SQUARES_SHORT_PARTIAL: Shapes = ((1, 4), 8), ((1, 4), 7), ((2, 3), 6)
MIN_TILED = 8  # shorter extent for tiles of single elements, lower bound
MIN_SHORT = 32  # shorter extent for vectors of 8 bytes, lower bound
LOG_SQUARES = 4  # log2 of a tile's squares across, upper bound unless few are along
ENOUGH_TILES = 8  # tiles per SM

LOG_BLOCK = 8  # log2 of threads per block, for tiles in shared memory
LOG_WARP = 5  # log2 of threads per warp
TILE_BYTES = 8192  # bytes per tile in shared memory, which a block has in flight at once
NARROW = (16, 8)  # elements of a tile's shorter side, in order of preference
# These are the candidates for the sides of other tiles; shorter rows would leave partial sectors.
SIDES = (*range(20, 64), *range(64, 257, 32))  # elements per side, upper bound
MIN_CONTIGUOUS = 33  # elements per row of a contiguous tile
MAX_CONTIGUOUS = 128  # elements per row of a contiguous tile
RUN = 4096  # elements per contiguous tile, upper bound
SECTOR_BYTES = 32  # bytes per L2 sector
WORD_BYTES = 4  # bytes per word of a shared memory bank
BLOCK_COST = 512  # cost of starting a block, in elements


class _Dimension(ctypes.Structure):
    _fields_ = [("extent", FastDivmod), ("source", c_int), ("destination", c_int)]


class TransposeArgument(ctypes.Structure):
    _fields_ = [
        *declared(c_uint, "across along"),
        *declared(c_int, "source_along destination_across source_base destination_base"),
        *declared(FastDivmod, "tiles_across tiles_along"),
        *declared(c_uint, "tile_across tile_along log_across log_along"),
        *declared(FastDivmod, "in_across in_along"),
        *declared(c_int, "contiguous_in contiguous_out"),
        ("pitch", c_uint),
        ("rank", c_int),
        ("dimension", _Dimension * DIMENSIONS),
    ]


class Transpose(NamedTuple):
    """Hold a kernel, its argument, the tiles (one per block), and the threads and shared memory bytes per block."""

    kernel: str
    argument: TransposeArgument
    tiles: int
    threads: int
    shared_bytes: int


class TransposeSolver(WalkSolver):
    """Serve walks without checks, with squares of vectors in registers or tiles in shared memory."""

    name = "transform.transpose"

    def carries(self, problem: TransformProblem, walk: Walk) -> bool:
        return walk.transposes and not walk.checked and transpose_of(problem, walk) is not None

    def prefers(self, problem: TransformProblem, walk: Walk) -> bool:
        """Return whether the kernel carries out the walk. Narrow tiles of single elements are left to other solvers."""
        found = transpose_of(problem, walk) if self.carries(problem, walk) else None
        if found is None or found.kernel != f"{KERNELS}_elements":
            return found is not None
        return min(found.argument.across, found.argument.along) >= MIN_TILED

    def walk_launch(self, problem: TransformProblem, walk: Walk) -> Launch:
        found = transpose_of(problem, walk)
        assert found is not None
        fields = [*problem.scalars(), ("move", c_int(problem.moves)), ("transpose", found.argument)]
        grid, block = (found.tiles, 1, 1), (found.threads, 1, 1)
        return problem.launch((SOURCE, found.kernel), fields, grid, block, found.shared_bytes)


def transpose_of(problem: TransformProblem, walk: Walk) -> Transpose | None:
    """Return the transpose of a walk without checks, or None where neither side is contiguous."""
    if id(walk) not in problem.transposes:
        problem.transposes[id(walk)] = _transpose(problem, walk)
    return problem.transposes[id(walk)]


def _transpose(problem: TransformProblem, walk: Walk) -> Transpose | None:
    source_bytes, destination_bytes = problem.element_bytes
    same_type, moves, multiprocessors = problem.same_type, problem.moves, problem.device.multiprocessors
    across, along = min(walk.steps, key=lambda step: step.source), walk.steps[0]
    others = [step for step in walk.steps if step is not across and step is not along]
    if across.source != 1 or along.destination != 1:
        return None
    widths = VECTOR_BYTES // source_bytes, VECTOR_BYTES // destination_bytes
    in_registers = same_type and source_bytes in (2, 4)
    in_registers = in_registers and walk.aligned("source", across, widths[0])
    in_registers = in_registers and walk.aligned("destination", along, widths[1])
    outer = prod(step.extent for step in others)
    extents = across.extent, along.extent
    resident = prod(extents) * outer * 2 * source_bytes <= L2_RESIDENT_BYTES
    width = SHORT_VECTOR_BYTES // source_bytes
    shorter = same_type and source_bytes == 2 and not in_registers and min(extents) >= MIN_SHORT
    shorter = shorter and walk.aligned("source", across, width) and walk.aligned("destination", along, width)
    if shorter:
        in_registers, widths = True, (width, width)
    argument = TransposeArgument(
        across=across.extent, along=along.extent,
        source_along=along.source, destination_across=across.destination,
        source_base=walk.source_base, destination_base=walk.destination_base, rank=len(others),
    )  # fmt: skip
    for d, step in enumerate(others):
        argument.dimension[d] = _Dimension(FastDivmod.of(step.extent), step.source, step.destination)
    if in_registers:
        counts = [-(-extent // widths[0]) for extent in extents]
        shapes = SQUARES_RESIDENT if resident else SQUARES
        if shorter:
            shapes = SQUARES_SHORT_PARTIAL if along.extent * destination_bytes % SECTOR_BYTES else SQUARES_SHORT
        for log_warp_threads, log_threads in shapes:
            sides = _log_squares(counts[0], counts[1], log_warp_threads, log_threads)
            tiles = [-(-count >> log) for count, log in zip(counts, sides, strict=True)]
            if prod(tiles) * outer >= ENOUGH_TILES * multiprocessors:
                break
        threads, shared_bytes = 1 << log_threads, 0
    else:
        for narrow in NARROW:
            sides = _narrow_sides(*extents, narrow, TILE_BYTES // source_bytes, widths)
            if prod(-(-extent // side) for extent, side in zip(extents, sides, strict=True)) * outer >= multiprocessors:
                break
        packed = _vectors(walk, "source", across, along, sides, widths[0]) and _vectors(
            walk, "destination", along, across, sides[::-1], widths[1]
        )
        if not packed:
            # Rows of full sectors are never written in part.
            partial = along.extent * destination_bytes % SECTOR_BYTES != 0
            contiguous = along.source == across.extent, partial and across.destination == along.extent
            sides = _sides(extents, outer, contiguous, source_bytes, multiprocessors)
            # Rows of an even number of words would cause bank conflicts in shared memory.
            odd = sides[0] * source_bytes % (2 * WORD_BYTES) != 0
            short = MIN_CONTIGUOUS <= min(extents) <= MAX_CONTIGUOUS
            argument.contiguous_in = short and contiguous[0] and sides[0] == across.extent and odd
            argument.contiguous_out = short and contiguous[1] and sides[1] == along.extent
        tiles = [-(-extent // side) for extent, side in zip(extents, sides, strict=True)]
        argument.in_across, argument.in_along = map(FastDivmod.of, sides)
        log_warp_threads = _row_threads(*sides)[0], _row_threads(*sides[::-1])[0]
        argument.pitch = (
            sides[0] if argument.contiguous_in else sides[0] | 1 if packed else _pitch(sides[0], source_bytes)
        )
        threads, shared_bytes = 1 << LOG_BLOCK, argument.pitch * sides[1] * source_bytes + 2 * VECTOR_BYTES
    argument.tile_across, argument.tile_along = sides
    argument.log_across, argument.log_along = log_warp_threads
    argument.tiles_across, argument.tiles_along = map(FastDivmod.of, tiles)
    if in_registers:
        kernel = f"{'short_' if shorter else ''}vectors{'' if moves else '_blend'}"
    else:
        contiguous_tiles = argument.contiguous_in or argument.contiguous_out
        kernel = "shared_vectors" if packed else "contiguous" if contiguous_tiles else "elements"
    return Transpose(f"{KERNELS}_{kernel}", argument, prod(tiles) * outer, threads, shared_bytes)


def _vectors(walk: Any, side: str, row: Any, rows: Any, tile: Sequence[int], width: int) -> bool:
    """Return whether tiles consist of vectors of ``width`` elements on a side. They may be within rows, or span rows
    that are contiguous in memory and in the tile.

    row, rows: the contiguous axis on that side and the other one. tile: its extents along them.
    """
    if walk.aligned(side, row, width):
        return row.extent % width == 0 and tile[0] % width == 0
    steps = [getattr(step, side) for step in walk.steps if step is not row and step is not rows]
    contiguous = getattr(rows, side) == row.extent == tile[0]
    together = all(step % width == 0 for step in (_base(walk, side), *steps, rows.extent * row.extent))
    return contiguous and together and tile[0] * tile[1] % width == 0


def _base(walk: Any, side: str) -> int:
    """Return the offset of the walk's origin on a side, in elements."""
    return int(walk.source_base if side == "source" else walk.destination_base)


def _log_squares(across: int, along: int, log_warp_threads: tuple[int, int], log_threads: int) -> tuple[int, int]:
    """Return log2 of a tile's sides, in squares; a block has one square per thread."""
    need_across, need_along = ((count - 1).bit_length() for count in (across, along))
    log_across = min(LOG_SQUARES, log_threads - log_warp_threads[1], max(log_warp_threads[0], need_across))
    log_along = log_threads - log_across
    if need_along < log_along:
        log_along = max(log_warp_threads[1], need_along)
    return log_threads - log_along, log_along


def _narrow_sides(across: int, along: int, narrow: int, elements: int, widths: tuple[int, int]) -> tuple[int, int]:
    """Return the sides of a tile of about ``elements`` elements. The shorter extent gets at most ``narrow`` elements,
    the other one full vectors."""
    if along <= across:
        return _part(across, max(1, elements // min(along, narrow)), widths[0]), min(along, narrow)
    return min(across, narrow), _part(along, max(1, elements // min(across, narrow)), widths[1])


def _part(extent: int, most: int, width: int) -> int:
    """Return the elements per part if the extent is split into the fewest equal parts of at most ``most`` elements.
    The result is rounded up to full vectors."""
    part = -(-extent // -(-extent // most))
    return min(extent, -(-part // width) * width)


def _sides(
    extents: tuple[int, int], outer: int, contiguous: tuple[bool, bool], element_bytes: int, multiprocessors: int
) -> tuple[int, int]:
    """Return the sides of the tile that gives the busiest SM the least work. Where short rows are contiguous in
    memory, a tile is a run of them, which leaves no partial sectors.

    contiguous: for source and destination, whether rows follow each other.
    """

    def parts(extent: int) -> list[int]:
        return sorted({-(-extent // -(-extent // side)) for side in SIDES})

    def cost(tile: tuple[int, int]) -> int:
        blocks = -(-extents[0] // tile[0]) * -(-extents[1] // tile[1]) * outer
        return -(-blocks // multiprocessors) * (_row_threads(*tile)[1] + _row_threads(*tile[::-1])[1] + BLOCK_COST)

    narrow = min(range(2), key=lambda side: extents[side])
    if contiguous[narrow] and MIN_CONTIGUOUS <= extents[narrow] <= MAX_CONTIGUOUS:
        wide, most = extents[1 - narrow], max(1, RUN // extents[narrow])
        least = -(-wide // most)
        lengths = sorted({-(-wide // count) for count in range(least, 2 * least + 1)})
        tiles = [(extents[0], length) if narrow == 0 else (length, extents[1]) for length in lengths]
        return min(tiles, key=cost)
    most = TILE_BYTES // element_bytes
    return min((tile for tile in product(parts(extents[0]), parts(extents[1])) if prod(tile) <= most), key=cost)


def _pitch(elements: int, element_bytes: int) -> int:
    """Return the pitch of rows in shared memory, in elements. It is an odd number of words, so a column touches all
    banks."""
    words = -(-elements * element_bytes // WORD_BYTES) | 1
    return words * WORD_BYTES // element_bytes if element_bytes <= WORD_BYTES else elements | 1


def _row_threads(run: int, rows: int) -> tuple[int, int]:
    """Return log2 of the neighbouring threads along a row of ``run`` elements, up to a warp; other threads take other
    rows. Also return how many elements the block covers, idle threads included."""
    log = min(LOG_WARP, (run - 1).bit_length())
    groups = 1 << LOG_BLOCK - log
    return log, (-(-run >> log) << log) * -(-rows // groups) * groups
