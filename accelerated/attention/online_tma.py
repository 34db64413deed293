"""Plan the core of attention forward on Hopper's tensor cores, fed by TMA (online_tma.cu)."""

from __future__ import annotations

from ctypes import c_longlong
from typing import NamedTuple

from ..gemm.problem import ABSENT
from ..plans import Launch, fields_of, pointers
from ..primitives.tma import TmaLaunch, mapped_structure
from . import tma_items
from .online import describe
from .problem import BEAM, AttentionProblem
from .tma_items import (
    FACTOR_BYTES,
    ROWS,
    SWIZZLE_BYTES,
    WARPGROUP,
    Located,
    definitions_of,
    divide,
    factors,
    padded_size,
    parts,
)

SOURCE = "attention/online_tma.cu"
KERNEL = "attention_online_tma"
MAPS = ("q_map", "k_map", "v_map")


class Tile(NamedTuple):
    """Describe the work of a block at a time: ``warpgroups`` of 64 queries, tiles of ``keys``, and ``stages`` of
    tiles.
    """

    keys: int
    warpgroups: int
    stages: int


# These map the elements of a vector, padded with zeros, to its tile.
TILES = {64: Tile(128, 3, 3), 128: Tile(128, 2, 2), 192: Tile(64, 2, 3), 256: Tile(64, 2, 2)}
# A float is split in two.
FLOAT_TILES = {64: Tile(128, 2, 2), 128: Tile(64, 2, 2), 192: Tile(64, 2, 1), 256: Tile(64, 1, 1)}
APART_SIZE = 128  # elements of a vector; up to it, results have shared memory of their own
# Three warpgroups are too many where they add more than MAX_ROWS, or windows cut tiles of up to SHORT_WINDOWS queries.
TWO_WARPGROUPS = Tile(128, 2, 3)  # tile for vectors of up to 64 elements
MAX_ROWS = 1.2  # ratio of the rows of all tiles to the queries
SHORT_WINDOWS = 2048  # queries


def _tile(problem: AttentionProblem) -> Tile:
    size, o = padded_size(problem), problem.operation
    tile = (TILES if parts(problem) == 1 else FLOAT_TILES)[size]
    if problem.windows <= ROWS or tma_items.fits_at_once(problem, problem.windows, o.extents.q_sequences):
        return tile._replace(warpgroups=1)
    if tile.warpgroups < 3:
        return tile
    rows = tile.warpgroups * ROWS
    are_cut = len({*o.lo_win_idx}) > 1 or len({*o.hi_win_idx}) > 1
    is_short = are_cut and problem.windows <= SHORT_WINDOWS
    return TWO_WARPGROUPS if is_short or -(-problem.windows // rows) * rows > MAX_ROWS * problem.windows else tile


def is_output(problem: AttentionProblem) -> bool:
    """Return whether the heads' outputs are the call's output, and nothing is added to them."""
    return not problem.attn.o_projected and problem.operation.residuals is None


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute the heads' outputs."""
    given, count = factors(problem), parts(problem)
    size, offsets, device = padded_size(problem), problem.regions.offsets, problem.device
    tile = _tile(problem)
    result, result_offset = problem.result
    out = "out" if is_output(problem) and result != "out" else ABSENT
    queries = tile.warpgroups * ROWS
    tiles = -(-problem.windows // queries)
    items = tiles * problem.attn.heads * problem.operation.extents.q_sequences
    located = Located.of(problem, MAPS, given)
    arguments = mapped_structure(
        *pointers(6),
        ("reserved", (c_longlong * 2)()),
        *located.fields,
        ("heads", describe(problem, given.vectors)),
        *fields_of(c_longlong, result_offset=result_offset, statistics_offset=offsets.get("statistics", -1)),
        ("counter_offset", c_longlong(offsets["counters"])),
        ("division", divide(tiles, problem.attn.heads, problem.q.dims[BEAM], items)),
    )
    definitions = definitions_of(problem, KEYS=tile.keys, WARPGROUPS=tile.warpgroups, STAGES=tile.stages)
    results = queries if count == 1 and size <= APART_SIZE else 0
    rows = queries + 2 * tile.stages * tile.keys + results
    shared_bytes = count * rows * size * FACTOR_BYTES + SWIZZLE_BYTES
    launch = Launch(
        device.function(SOURCE, KERNEL, definitions), arguments, (*given.operands, problem.space, result, out),
        (min(items, device.multiprocessors), 1, 1), ((tile.warpgroups + 1) * WARPGROUP, 1, 1), shared_bytes,
    )  # fmt: skip
    maps = tuple(located.placed(arguments))
    return [*given.launches(problem), TmaLaunch(device, (SOURCE, definitions), KERNEL, launch, maps, None)]
