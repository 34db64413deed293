"""The core of attention forward on Hopper's tensor cores, fed by TMA (online_tma.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from ctypes import c_int, c_longlong, c_ubyte
from typing import Any, NamedTuple

from dualdnn.api.operations import SeqDataSpec
from dualdnn.api.operations.specs import FLOAT

from ..plans import ELEMENTS, Launch, pointers, structure
from ..primitives.geometry import FastDivmod
from ..primitives.tma import ALIGNMENT, MAP_BYTES, TensorMap, TiledMap, TmaLaunch
from . import online_mma
from .online import describe
from .online_mma import FEW_QUERIES, ROWS, SWIZZLE_BYTES, WARPGROUP, definitions_of, factors, padded_size, parts
from .problem import BATCH, BEAM, TIME, AttentionProblem, Vectors, vector_strides

SOURCE, KERNEL = "attention/online_tma.cu", "attention_online_tma"
LEAST_ARCHITECTURE = 90
ARGUMENT_ALIGNMENT = 64
BOX = 64  # elements of a row of 128 bytes, and vectors
FACTOR_BYTES = 2
MAPS = ("q_map", "k_map", "v_map")


class Tile(NamedTuple):
    """What a block computes at a time: ``warpgroups`` of 64 queries, ``keys`` at a time, ``stages`` of them."""

    keys: int
    warpgroups: int
    stages: int


# By the elements of a vector, zeros behind those that exist
TILES = {64: Tile(128, 3, 3), 128: Tile(128, 2, 2)}
FLOAT_TILES = {64: Tile(128, 2, 2), 128: Tile(64, 2, 2)}  # in two parts
# Of vectors of up to 64 elements: where three warpgroups have many rows too many, or up to so many queries whose
# windows cut tiles
TWO_WARPGROUPS, MOST_ROWS, SHORT_WINDOWS = Tile(128, 2, 3), 1.2, 2048


def serves(problem: AttentionProblem) -> bool:
    """Return whether TMA can load the vectors, and tensor cores multiply them."""
    device = problem.device
    if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
        return False
    if not online_mma.serves(problem) or problem.step is not None:
        return False
    return are_possible(problem, (problem.q, problem.k, problem.k), factors(problem).vectors)


def applies(problem: AttentionProblem) -> bool:
    """Return whether there are enough queries."""
    return serves(problem) and problem.aligned and problem.windows > FEW_QUERIES


def are_possible(problem: AttentionProblem, data: Sequence[SeqDataSpec], vectors: Sequence[Vectors]) -> bool:
    """Return whether TMA reads vectors and nothing behind them."""
    maps = [vector_map(problem, of, described) for of, described in zip(data, vectors, strict=True)]
    return all(map_.is_possible and map_.extent[0] * map_.element_bytes % ALIGNMENT == 0 for map_ in maps)


def vector_map(problem: AttentionProblem, data: SeqDataSpec, vectors: Vectors) -> TiledMap:
    """Return the map of factors by (element, time-step, head, beam, batch), in boxes of 64 elements of 64
    time-steps."""
    apart = [stride * vectors.vector * FACTOR_BYTES for stride in vector_strides(data)]
    heads = problem.attn.heads if vectors.head else 1
    extent = (vectors.size, data.dims[TIME], heads, data.dims[BEAM], data.dims[BATCH])
    strides = (apart[TIME], vectors.head * FACTOR_BYTES, apart[BEAM], apart[BATCH])
    # The distance of what there is one of must be possible, too
    used = tuple(stride if count > 1 else ALIGNMENT for stride, count in zip(strides, extent[1:], strict=True))
    element = "bfloat16" if data.data_type == FLOAT else ELEMENTS[data.data_type]
    return TiledMap(element, extent, used, (BOX, BOX, 1, 1, 1))


class Located(NamedTuple):
    """The maps of a launch's vectors: fields of its arguments, and what a TmaLaunch needs to fill them."""

    fields: list[tuple[str, Any]]
    maps: list[tuple[str, int, int, int, TensorMap]]  # field, byte in it, operand, byte of the operand, map

    @classmethod
    def of(
        cls, problem: AttentionProblem, names: Sequence[str], data: Sequence[SeqDataSpec], vectors: Sequence[Vectors]
    ) -> Located:
        """Return a map for each part of the vectors of each operand, the launch's first ones."""
        count = parts(problem)
        located = cls([(name, (c_ubyte * (MAP_BYTES * count))()) for name in names], [])
        for operand, (name, of, described) in enumerate(zip(names, data, vectors, strict=True)):
            wanted = vector_map(problem, of, described)
            for part in range(count):
                at = described.offset + part * described.lower
                located.maps.append((name, part * MAP_BYTES, operand, at, wanted))
        return located

    def placed(self, arguments: Any) -> Iterator[tuple[int, int, int, TensorMap]]:
        """Yield the maps with their bytes in the arguments."""
        for name, byte, operand, offset, wanted in self.maps:
            yield getattr(type(arguments), name).offset + byte, operand, offset, wanted


def padded(fields: Sequence[tuple[str, Any]]) -> Any:
    """Return the arguments of a kernel that has maps among them."""
    size = ctypes.sizeof(structure(*fields))
    return structure(*fields, ("padding", (c_ubyte * (-size % ARGUMENT_ALIGNMENT))()))


def divide(tiles: int, heads: int, beams: int, items: int) -> Any:
    """Return the division of the work into items (tma_items.cuh)."""
    counts = map(FastDivmod.of, (tiles, heads, beams))
    return structure(*zip(("tiles", "heads", "beams"), counts, strict=True), ("items", c_int(items)))


def _tile(problem: AttentionProblem) -> Tile:
    size, o = padded_size(problem), problem.operation
    if parts(problem) > 1:
        return FLOAT_TILES[size]
    tile = TILES[size]
    if tile.warpgroups < 3:
        return tile
    rows = tile.warpgroups * ROWS
    are_cut = len({*o.lo_win_idx}) > 1 or len({*o.hi_win_idx}) > 1
    is_short = are_cut and problem.windows <= SHORT_WINDOWS
    return TWO_WARPGROUPS if is_short or -(-problem.windows // rows) * rows > MOST_ROWS * problem.windows else tile


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute what the heads make of the values."""
    given, count = factors(problem), parts(problem)
    size, offsets, device = padded_size(problem), problem.regions.offsets, problem.device
    tile = _tile(problem)
    result, result_offset = problem.result
    queries = tile.warpgroups * ROWS
    tiles = -(-problem.windows // queries)
    items = tiles * problem.attn.heads * problem.operation.extents.q_sequences
    located = Located.of(problem, MAPS, (problem.q, problem.k, problem.k), given.vectors)
    arguments = padded([
        *pointers(5),
        ("reserved", (c_longlong * 3)()),
        *located.fields,
        ("heads", describe(problem, given.vectors)),
        ("result_offset", c_longlong(result_offset)),
        ("statistics_offset", c_longlong(offsets.get("statistics", -1))),
        ("counter_offset", c_longlong(offsets["counters"])),
        ("division", divide(tiles, problem.attn.heads, problem.q.dims[BEAM], items)),
    ])  # fmt: skip
    definitions = definitions_of(problem, SIZE=size, KEYS=tile.keys, WARPGROUPS=tile.warpgroups, STAGES=tile.stages)
    rows = queries + 2 * tile.stages * tile.keys + (queries if count == 1 else 0)  # results of parts pass by
    shared_bytes = count * rows * size * FACTOR_BYTES + SWIZZLE_BYTES
    launch = Launch(
        device.function(SOURCE, KERNEL, definitions), arguments, (*given.operands, problem.space, result),
        (min(items, device.multiprocessors), 1, 1), ((tile.warpgroups + 1) * WARPGROUP, 1, 1), shared_bytes,
    )  # fmt: skip
    *before, fallback = online_mma.core(problem)
    maps = tuple(located.placed(arguments))
    return [*before, TmaLaunch(device, (SOURCE, definitions), KERNEL, launch, maps, fallback)]
