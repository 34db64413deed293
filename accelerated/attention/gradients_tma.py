"""The core of attention's gradients on Hopper's tensor cores, fed by TMA (gradients_tma.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_longlong, c_ubyte
from typing import Any, NamedTuple

from ..plans import Launch, pointers, structure
from ..primitives.geometry import FastDivmod
from ..primitives.tma import MAP_BYTES, TiledMap, TmaLaunch
from . import gradients_mma, online_tma
from .gradients import of_heads, of_input
from .online import describe
from .online_mma import ROWS, SWIZZLE_BYTES, WARPGROUP, definitions_of, padded_size
from .online_tma import ARGUMENT_ALIGNMENT, vector_map
from .problem import BEAM, INPUTS, TIME, AttentionProblem

SOURCE = "attention/gradients_tma.cu"
OTHERS = 64  # as in the kernels
COUNTER_BYTES = 4
MAPS = ("q_map", "k_map", "v_map", "dout_map")


class Tile(NamedTuple):
    """Warpgroups of 64 queries or keys of a block, stages of tiles of the others."""

    warpgroups: int
    stages: int
    turns: int = 0
    own: int = 0


# By the elements of a vector: of the queries' kernel, of the keys'
TILES = {64: (Tile(2, 4), Tile(2, 4)), 128: (Tile(2, 4), Tile(2, 4))}


def serves(problem: AttentionProblem) -> bool:
    """Return whether TMA can load the vectors, and tensor cores multiply them as they are."""
    return online_tma.serves(problem) and gradients_mma.serves(problem) and online_tma.are_possible(_maps(problem))


def _maps(problem: AttentionProblem) -> list[TiledMap]:
    heads = problem.attn.heads
    return [*online_tma.maps(problem), vector_map(problem.q, of_heads(problem)[1], heads)]


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute the gradients of the projected queries, keys and values."""
    extents, attn, size, device = problem.operation.extents, problem.attn, padded_size(problem), problem.device
    operands, vectors = zip(*(problem.vectors(name) for name in INPUTS), of_heads(problem), strict=True)
    origins = {name: of_input(problem, name) for name in INPUTS}
    products, *fallbacks = gradients_mma.core(problem)
    found: list[Launch] = [products]
    sides = (
        ("queries", extents.q_steps, problem.q.dims[BEAM], extents.q_sequences),
        ("keys", problem.k.dims[TIME], problem.k.dims[BEAM], extents.k_sequences),
    )
    for counter, ((result, steps, beams, sequences), tile, fallback) in enumerate(
        zip(sides, TILES[size], fallbacks, strict=True)
    ):
        rows = tile.warpgroups * ROWS
        tiles = -(-steps // rows)
        items = tiles * attn.heads * sequences
        fields = [
            *pointers(8),
            *((name, (c_ubyte * MAP_BYTES)()) for name in MAPS),
            ("heads", describe(problem, vectors[:3])),
            ("gradients", vectors[3]),
            ("products_offset", c_longlong(problem.gradients.offsets["products"])),
            ("result_offset", c_longlong(origins[result][1])),
            ("values_offset", c_longlong(origins["values"][1])),
            ("counter_offset", c_longlong(problem.regions.offsets["counters"] + COUNTER_BYTES * counter)),
            ("division", online_tma.divide(tiles, attn.heads, beams, items)),
        ]
        padding = -ctypes.sizeof(structure(*fields)) % ARGUMENT_ALIGNMENT
        arguments: Any = structure(*fields, ("padding", (c_ubyte * padding)()))
        definitions = definitions_of(
            problem,
            SIZE=size,
            WARPGROUPS=tile.warpgroups,
            STAGES=tile.stages,
            TURNS=tile.turns,
            OWN_IN_REGISTERS=tile.own,
        )
        kernel = f"attention_gradients_tma_{result}"
        shared_bytes = 2 * (rows + tile.stages * OTHERS) * size * problem.element_bytes + SWIZZLE_BYTES
        launch = Launch(
            device.function(SOURCE, kernel, definitions), arguments,
            (*operands, problem.space, "workSpace", origins[result][0], origins["values"][0]),
            (min(items, device.multiprocessors), 1, 1), ((tile.warpgroups + 1) * WARPGROUP, 1, 1), shared_bytes,
        )  # fmt: skip
        located = tuple(
            (getattr(type(arguments), name).offset, i, described.offset, map_)
            for i, (name, described, map_) in enumerate(zip(MAPS, vectors, _maps(problem), strict=True))
        )
        found.append(TmaLaunch(device, (SOURCE, definitions), kernel, launch, located, fallback))
    return found
