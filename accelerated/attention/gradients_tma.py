"""The core of attention's gradients on Hopper's tensor cores, fed by TMA (gradients_tma.cu)."""

from __future__ import annotations

from ctypes import c_longlong
from typing import NamedTuple

from ..plans import Launch, pointers
from ..primitives.tma import TmaLaunch
from . import gradients_mma, online_tma
from .gradients import of_input
from .gradients_mma import factors
from .online import describe
from .online_mma import ROWS, SWIZZLE_BYTES, WARPGROUP, definitions_of, padded_size, parts
from .online_tma import FACTOR_BYTES, Located, divide, padded
from .problem import BEAM, INPUTS, TIME, AttentionProblem

SOURCE = "attention/gradients_tma.cu"
OTHERS = 64  # as in the kernels
COUNTER_BYTES = 4
MAPS = (*online_tma.MAPS, "dout_map")


class Tile(NamedTuple):
    """Warpgroups of 64 queries or keys of a block, stages of tiles of the others, items whose own vectors have room."""

    warpgroups: int
    stages: int
    owns: int


# By the elements of a vector: of the queries' kernel, of the keys'
TILES = {64: (Tile(2, 4, 2), Tile(2, 4, 2)), 128: (Tile(2, 4, 1), Tile(2, 2, 2))}
LONG_STEPS, LONG_TILES = 2048, {64: Tile(3, 4, 2)}  # from so many queries or keys on
FLOAT_TILES = {64: (Tile(2, 4, 1), Tile(2, 2, 2))}  # in two parts


def serves(problem: AttentionProblem) -> bool:
    """Return whether TMA can load the vectors, and tensor cores multiply them."""
    if not online_tma.serves(problem) or not gradients_mma.serves(problem):
        return False
    return online_tma.are_possible(problem, (problem.q, problem.k, problem.k, problem.q), factors(problem).vectors)


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute the gradients of the projected queries, keys and values."""
    extents, attn, size, device = problem.operation.extents, problem.attn, padded_size(problem), problem.device
    given, count = factors(problem), parts(problem)
    located = Located.of(problem, MAPS, (problem.q, problem.k, problem.k, problem.q), given.vectors)
    origins = {name: of_input(problem, name) for name in INPUTS}
    *found, of_queries, of_keys = gradients_mma.core(problem)

    def launch(result: str, tile: Tile, steps: int, beams: int, sequences: int, counter: int, other: Launch) -> Launch:
        if count == 1 and steps >= LONG_STEPS:
            tile = LONG_TILES.get(size, tile)
        rows = tile.warpgroups * ROWS
        tiles = -(-steps // rows)
        items = tiles * attn.heads * sequences
        arguments = padded([
            *pointers(8),
            *located.fields,
            ("heads", describe(problem, given.vectors[:3])),
            ("gradients", given.vectors[3]),
            ("products_offset", c_longlong(problem.gradients.offsets["products"])),
            ("result_offset", c_longlong(origins[result][1])),
            ("values_offset", c_longlong(origins["values"][1])),
            ("counter_offset", c_longlong(problem.regions.offsets["counters"] + counter * COUNTER_BYTES)),
            ("division", divide(tiles, attn.heads, beams, items)),
        ])  # fmt: skip
        definitions = definitions_of(problem, SIZE=size, WARPGROUPS=tile.warpgroups, STAGES=tile.stages, OWNS=tile.owns)
        kernel = f"attention_gradients_tma_{result}"
        shared_bytes = 2 * count * (tile.owns * rows + tile.stages * OTHERS) * size * FACTOR_BYTES + SWIZZLE_BYTES
        operands = (*given.operands, problem.space, "workSpace", origins[result][0], origins["values"][0])
        grid, block = (min(items, device.multiprocessors), 1, 1), ((tile.warpgroups + 1) * WARPGROUP, 1, 1)
        made = Launch(device.function(SOURCE, kernel, definitions), arguments, operands, grid, block, shared_bytes)
        return TmaLaunch(device, (SOURCE, definitions), kernel, made, tuple(located.placed(arguments)), other)

    tiles = (TILES if count == 1 else FLOAT_TILES)[size]
    keys = (problem.k.dims[TIME], problem.k.dims[BEAM], extents.k_sequences)
    return [
        *found,
        launch("queries", tiles[0], extents.q_steps, problem.q.dims[BEAM], extents.q_sequences, 0, of_queries),
        launch("keys", tiles[1], *keys, 1, of_keys),
    ]
