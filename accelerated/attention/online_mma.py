"""The core of attention forward on tensor cores (online_mma.cu)."""

from __future__ import annotations

from ctypes import c_longlong
from typing import NamedTuple

from dualdnn.api.operations.specs import HALF

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod
from .online import heads
from .problem import BEAM, AttentionProblem

SOURCE = "attention/online_mma.cu"
ROWS, WARPGROUP = 64, 128  # queries and threads of a warpgroup
SWIZZLE_BYTES = 1024  # to whose multiple the tiles are aligned


class Tile(NamedTuple):
    """What a block computes: ``warpgroups`` of 64 queries, ``keys`` at a time; blocks that share a multiprocessor."""

    keys: int
    warpgroups: int
    blocks: int


TILES = {64: Tile(64, 2, 2), 128: Tile(128, 2, 1)}  # by the elements of a vector, zeros behind those that exist


def padded_size(problem: AttentionProblem) -> int:
    """Return the elements of a vector in a tile; 0 where there is no kernel for as many."""
    size = max(problem.attn.query_size, problem.attn.value_size)
    return next((padded for padded in TILES if size <= padded), 0)


def serves(problem: AttentionProblem) -> bool:
    """Return whether tensor cores can compute the core."""
    return problem.attn.data_type == HALF and padded_size(problem) > 0


def core(problem: AttentionProblem) -> Launch:
    """Return the launch that computes what the heads make of the values."""
    operands, described = heads(problem)
    size = padded_size(problem)
    tile = TILES[size]
    queries = tile.warpgroups * ROWS
    tiles = -(-problem.windows // queries)
    counts = (tiles, problem.attn.heads, problem.q.dims[BEAM])
    offsets = problem.regions.offsets
    arguments = structure(
        *pointers(4),
        ("heads", described),
        ("result_offset", c_longlong(offsets["heads"])),
        ("statistics_offset", c_longlong(offsets.get("statistics", -1))),
        *zip(("tiles", "head_count", "beam_count"), map(FastDivmod.of, counts), strict=True),
    )
    definitions = definitions_of(problem, SIZE=size, KEYS=tile.keys, WARPGROUPS=tile.warpgroups, BLOCKS=tile.blocks)
    function = problem.device.function(SOURCE, "attention_online_mma", definitions)
    shared_bytes = (queries + 4 * tile.keys) * size * 2 + SWIZZLE_BYTES
    grid = (tiles * problem.attn.heads * problem.operation.extents.q_sequences, 1, 1)
    return Launch(
        function, arguments, (*operands, problem.space), grid, (tile.warpgroups * WARPGROUP, 1, 1), shared_bytes
    )


def definitions_of(problem: AttentionProblem, **sizes: int) -> tuple[tuple[str, str], ...]:
    """Return the definitions of a kernel on tensor cores."""
    given = {name: str(size) for name, size in sizes.items()}
    return type_definitions(problem.attn.data_type, problem.operation, TILE=str(problem.tile), **given)
