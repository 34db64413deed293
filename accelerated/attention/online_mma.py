"""The core of attention forward on tensor cores (online_mma.cu)."""

from __future__ import annotations

from ctypes import c_longlong
from typing import NamedTuple

from dualdnn.api.operations.attention import allows_tensor_cores
from dualdnn.api.operations.specs import FLOAT

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod
from . import split
from .online import describe
from .problem import BEAM, INPUTS, AttentionProblem

SOURCE = "attention/online_mma.cu"
ROWS, WARPGROUP = 64, 128  # queries and threads of a warpgroup
SWIZZLE_BYTES = 1024  # to whose multiple the tiles are aligned


class Tile(NamedTuple):
    """What a block computes: ``warpgroups`` of 64 queries, ``keys`` at a time; blocks that share a multiprocessor."""

    keys: int
    warpgroups: int
    blocks: int


# By the elements of a vector, zeros behind those that exist
TILES = {64: Tile(64, 2, 2), 128: Tile(64, 3, 1)}
FLOAT_TILES = {64: Tile(64, 2, 1), 128: Tile(64, 2, 1)}  # in two parts
FEW_QUERIES = 64  # for one warpgroup


def padded_size(problem: AttentionProblem) -> int:
    """Return the elements of a vector in a tile; 0 where there is no kernel for as many."""
    size = max(problem.attn.query_size, problem.attn.value_size)
    return next((padded for padded in TILES if size <= padded), 0)


def parts(problem: AttentionProblem) -> int:
    """Return the factors of tensor cores that an element is."""
    return 2 if problem.attn.data_type == FLOAT else 1


def serves(problem: AttentionProblem) -> bool:
    """Return whether tensor cores can compute the core."""
    return allows_tensor_cores(problem.attn) and padded_size(problem) > 0


def factors(problem: AttentionProblem) -> split.Parts:
    """Return queries, keys and values as tensor cores multiply them."""
    extents = problem.operation.extents
    counts = (extents.q_vectors, extents.k_vectors, extents.k_vectors)
    return split.factors(problem, [(*problem.vectors(name), n) for name, n in zip(INPUTS, counts, strict=True)])


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute what the heads make of the values."""
    extents, given = problem.operation.extents, factors(problem)
    size = padded_size(problem)
    tile = (TILES if parts(problem) == 1 else FLOAT_TILES)[size]
    if problem.windows <= FEW_QUERIES:
        tile = Tile(64, 1, 1)
    queries = tile.warpgroups * ROWS
    tiles = -(-problem.windows // queries)
    offsets = problem.regions.offsets
    result, result_offset = problem.result
    arguments = structure(
        *pointers(5),
        ("heads", describe(problem, given.vectors)),
        ("result_offset", c_longlong(result_offset)),
        ("statistics_offset", c_longlong(offsets.get("statistics", -1))),
        *zip(
            ("tiles", "head_count", "beam_count"),
            map(FastDivmod.of, (tiles, problem.attn.heads, problem.q.dims[BEAM])),
            strict=True,
        ),
    )
    definitions = definitions_of(problem, SIZE=size, KEYS=tile.keys, WARPGROUPS=tile.warpgroups, BLOCKS=tile.blocks)
    function = problem.device.function(SOURCE, "attention_online_mma", definitions)
    shared_bytes = parts(problem) * (queries + 4 * tile.keys) * size * 2 + SWIZZLE_BYTES
    grid, block = (tiles * problem.attn.heads * extents.q_sequences, 1, 1), (tile.warpgroups * WARPGROUP, 1, 1)
    operands = (*given.operands, problem.space, result)
    return [*given.launches(problem), Launch(function, arguments, operands, grid, block, shared_bytes)]


def definitions_of(problem: AttentionProblem, **sizes: int) -> tuple[tuple[str, str], ...]:
    """Return the definitions of a kernel on tensor cores."""
    given = {name: str(size) for name, size in sizes.items()}
    return type_definitions(problem.attn.data_type, problem.operation, TILE=str(problem.tile), **given)
