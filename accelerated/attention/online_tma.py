"""The core of attention forward on Hopper's tensor cores, fed by TMA (online_tma.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int, c_longlong, c_ubyte
from typing import Any, NamedTuple

from dualdnn.api.operations import SeqDataSpec
from dualdnn.api.operations.specs import FLOAT

from ..plans import ELEMENTS, Launch, pointers, structure
from ..primitives.geometry import FastDivmod
from ..primitives.tma import MAP_BYTES, TiledMap, TmaLaunch
from . import online_mma
from .online import describe
from .online_mma import FEW_QUERIES, ROWS, SWIZZLE_BYTES, WARPGROUP, definitions_of, padded_size
from .problem import BATCH, BEAM, INPUTS, TIME, AttentionProblem, Vectors, vector_strides

SOURCE = "attention/online_tma.cu"
LEAST_ARCHITECTURE = 90
ARGUMENT_ALIGNMENT = 64
BOX = 64  # elements of a row of 128 bytes, and vectors
ALIGNMENT = 16  # bytes, of what TMA reads


class Tile(NamedTuple):
    """What a block computes at a time: ``warpgroups`` of 64 queries, ``keys`` at a time, ``stages`` of them."""

    keys: int
    warpgroups: int
    stages: int
    turns: int = 0
    own: int = 0


# By the elements of a vector, zeros behind those that exist
TILES = {64: Tile(128, 3, 2), 128: Tile(128, 2, 2)}


def serves(problem: AttentionProblem) -> bool:
    """Return whether TMA can load the vectors, and tensor cores multiply them as they are."""
    device = problem.device
    if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
        return False
    if not online_mma.serves(problem) or problem.attn.data_type == FLOAT or problem.step is not None:
        return False
    return are_possible(maps(problem))


def applies(problem: AttentionProblem) -> bool:
    """Return whether there are enough queries."""
    return serves(problem) and problem.aligned and problem.windows > FEW_QUERIES


def are_possible(wanted: Sequence[TiledMap]) -> bool:
    """Return whether TMA reads vectors and nothing behind them."""
    return all(map_.is_possible and map_.extent[0] * map_.element_bytes % ALIGNMENT == 0 for map_ in wanted)


def divide(tiles: int, heads: int, beams: int, items: int) -> Any:
    """Return the division of the work into items (tma_items.cuh)."""
    counts = map(FastDivmod.of, (tiles, heads, beams))
    return structure(*zip(("tiles", "heads", "beams"), counts, strict=True), ("items", c_int(items)))


def vector_map(data: SeqDataSpec, vectors: Vectors, heads: int) -> TiledMap:
    """Return the map of vectors by (element, time-step, head, beam, batch), in boxes of 64 elements of 64 time-steps."""
    nbytes = data.tensor.scalar_bytes
    apart = [stride * vectors.vector * nbytes for stride in vector_strides(data)]
    extent = (vectors.size, data.dims[TIME], heads if vectors.head else 1, data.dims[BEAM], data.dims[BATCH])
    strides = (apart[TIME], vectors.head * nbytes, apart[BEAM], apart[BATCH])
    # The distance of what there is one of must be possible, too
    used = tuple(stride if count > 1 else ALIGNMENT for stride, count in zip(strides, extent[1:], strict=True))
    return TiledMap(ELEMENTS[data.data_type], extent, used, (BOX, BOX, 1, 1, 1))


def maps(problem: AttentionProblem) -> list[TiledMap]:
    """Return the maps of queries, keys and values."""
    data = (problem.q, problem.k, problem.k)
    return [vector_map(of, problem.vectors(name)[1], problem.attn.heads) for of, name in zip(data, INPUTS, strict=True)]


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launch that computes what the heads make of the values."""
    found = [problem.vectors(name) for name in INPUTS]
    operands, vectors = zip(*found, strict=True)
    size, offsets, device = padded_size(problem), problem.regions.offsets, problem.device
    tile = TILES[size]
    result, result_offset = problem.result
    queries = tile.warpgroups * ROWS
    tiles = -(-problem.windows // queries)
    items = tiles * problem.attn.heads * problem.operation.extents.q_sequences
    names = ("q_map", "k_map", "v_map")
    fields = [
        *pointers(5),
        ("reserved", (c_longlong * 3)()),
        *((name, (c_ubyte * MAP_BYTES)()) for name in names),
        ("heads", describe(problem, vectors)),
        ("result_offset", c_longlong(result_offset)),
        ("statistics_offset", c_longlong(offsets.get("statistics", -1))),
        ("counter_offset", c_longlong(offsets["counters"])),
        ("division", divide(tiles, problem.attn.heads, problem.q.dims[BEAM], items)),
    ]
    size_bytes = ctypes.sizeof(structure(*fields))
    arguments: Any = structure(*fields, ("padding", (c_ubyte * (-size_bytes % ARGUMENT_ALIGNMENT))()))
    definitions = definitions_of(
        problem,
        SIZE=size,
        KEYS=tile.keys,
        WARPGROUPS=tile.warpgroups,
        STAGES=tile.stages,
        TURNS=tile.turns,
        OWN_IN_REGISTERS=tile.own,
    )
    shared_bytes = 2 * (queries + tile.stages * tile.keys) * size * 2 + SWIZZLE_BYTES
    grid, block = (min(items, device.multiprocessors), 1, 1), ((tile.warpgroups + 1) * WARPGROUP, 1, 1)
    launch = Launch(
        device.function(SOURCE, "attention_online_tma", definitions), arguments, (*operands, problem.space, result), grid,
        block, shared_bytes,
    )  # fmt: skip
    located = tuple(
        (getattr(type(arguments), name).offset, i, described.offset, map_)
        for i, (name, described, map_) in enumerate(zip(names, vectors, maps(problem), strict=True))
    )
    (fallback,) = online_mma.core(problem)
    return [TmaLaunch(device, (SOURCE, definitions), "attention_online_tma", launch, located, fallback)]
