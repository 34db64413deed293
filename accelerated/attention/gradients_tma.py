"""Plan the core of attention's gradients on Hopper's tensor cores, fed by TMA (gradients_tma.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from typing import NamedTuple

from ..plans import Launch, fields_of, pointers, structure
from ..primitives.geometry import blocks
from ..primitives.tma import TmaLaunch, mapped_structure
from . import online_tma, tma_items
from .gradients import of_heads, of_input
from .online import describe
from .problem import BEAM, INPUTS, TIME, AttentionProblem
from .split import Parts
from .tma_items import FACTOR_BYTES, ROWS, SWIZZLE_BYTES, WARPGROUP, Located, definitions_of, divide, padded_size, parts

SOURCE = "attention/gradients_tma.cu"
OTHERS = 64  # vectors per tile, as in the kernels
COUNTER_BYTES = 4
LANES = 8  # lanes per query and head
MAPS = (*online_tma.MAPS, "dout_map")


class Tile(NamedTuple):
    """Name the warpgroups of 64 queries or keys per block, the stages of the other tiles, and the items whose own
    vectors fit.
    """

    warpgroups: int
    stages: int
    owns: int


# The keys are the elements of a vector; the values are the tiles of the queries' kernel and of the keys' kernel. The
# kernel of values has the latter tile, too.
TILES = {
    64: (Tile(2, 4, 2), Tile(2, 4, 2)),
    128: (Tile(2, 4, 1), Tile(2, 2, 2)),
    192: (Tile(2, 3, 1), Tile(2, 3, 1)),
    256: (Tile(2, 2, 1), Tile(2, 2, 1)),
}
LONG_STEPS = 2048  # queries or keys from which LONG_TILES serve
LONG_TILES = {64: Tile(3, 4, 2)}  # tiles by the elements of a vector
# A float is split in two.
FLOAT_TILES = {
    64: (Tile(2, 4, 1), Tile(2, 2, 2)),
    128: (Tile(2, 2, 1), Tile(2, 2, 1)),
    192: (Tile(1, 1, 1), Tile(1, 1, 1)),
    256: (Tile(1, 1, 1), Tile(1, 1, 1)),
}
MAX_FACTORS = 128  # factors per vector, at most, whose keys and values share a kernel
WHOLE_FACTORS = 384  # factors per vector, at most, whose tile beside the stages is loaded whole; else its halves are


def serves(problem: AttentionProblem) -> bool:
    """Return whether TMA and tensor cores serve the vectors and the incoming gradients."""
    return tma_items.serves(problem, [of_heads(problem)])


def _tiles(problem: AttentionProblem) -> dict[int, tuple[Tile, Tile]]:
    return TILES if parts(problem) == 1 else FLOAT_TILES


def _tile(problem: AttentionProblem, tile: Tile, steps: int, sequences: int) -> Tile:
    """Return the tile for so many queries or keys, of which ``tile`` is the usual one."""
    if tma_items.fits_at_once(problem, steps, sequences):
        return tile._replace(warpgroups=1)
    is_long = parts(problem) == 1 and steps >= LONG_STEPS
    return LONG_TILES.get(padded_size(problem), tile) if is_long else tile


def factors(problem: AttentionProblem) -> Parts:
    """Return queries, keys, values and incoming gradients as TMA can load them."""
    return tma_items.factors(problem, [of_heads(problem)])


def core(problem: AttentionProblem) -> list[Launch]:
    """Return the launches that compute the gradients of the projected queries, keys and values."""
    extents, attn, size, device = problem.operation.extents, problem.attn, padded_size(problem), problem.device
    given, count, offsets = factors(problem), parts(problem), problem.regions.offsets
    products_offset = ("products_offset", c_longlong(problem.gradients.offsets["products"]))
    located = Located.of(problem, MAPS, given)
    origins = {name: of_input(problem, name) for name in INPUTS}
    is_split = size * count > MAX_FACTORS
    sides = ((extents.q_steps, extents.q_sequences), (problem.k.dims[TIME], extents.k_sequences))
    of_queries, of_keys = (_tile(problem, tile, *side) for tile, side in zip(_tiles(problem)[size], sides, strict=True))

    def function(kernel: str, tile: Tile) -> tuple[str, tuple[tuple[str, str], ...]]:
        definitions = definitions_of(problem, WARPGROUPS=tile.warpgroups, STAGES=tile.stages, OWNS=tile.owns)
        return f"attention_gradients_tma_{kernel}", definitions

    def products() -> Launch:
        operand, vectors = of_heads(problem)
        pairs = extents.q_vectors * attn.heads
        arguments = structure(
            *pointers(3),
            ("gradients", vectors),
            *fields_of(c_longlong, heads_offset=offsets["heads"], statistics_offset=offsets["statistics"]),
            products_offset,
            ("pairs", c_int(pairs)),
        )
        return Launch(
            device.function(SOURCE, *function("products", of_queries)),
            arguments,
            (operand, problem.space, "workSpace"),
            blocks(pairs * LANES),
        )

    def launch(result: str, tile: Tile, steps: int, beams: int, sequences: int, counter: int) -> Launch:
        rows = tile.warpgroups * ROWS
        tiles = -(-steps // rows)
        items = tiles * attn.heads * sequences
        arguments = mapped_structure(
            *pointers(8),
            *located.fields,
            ("heads", describe(problem, given.vectors[:3])),
            ("gradients", given.vectors[3]),
            products_offset,
            *fields_of(c_longlong, result_offset=origins[result][1], values_offset=origins["values"][1]),
            ("counter_offset", c_longlong(offsets["counters"] + counter * COUNTER_BYTES)),
            ("division", divide(tiles, attn.heads, beams, items)),
        )
        kernel, definitions = function(result, tile)
        of_items, of_stages = (1 if result == "values" else 2) * tile.owns * rows, 2 * tile.stages * OTHERS
        if is_split:
            of_stages = tile.stages * OTHERS + (OTHERS if size * count <= WHOLE_FACTORS else OTHERS // 2)
        shared_bytes = count * (of_items + of_stages) * size * FACTOR_BYTES + SWIZZLE_BYTES
        operands = (*given.operands, problem.space, "workSpace", origins[result][0], origins["values"][0])
        grid, block = (min(items, device.multiprocessors), 1, 1), ((tile.warpgroups + 1) * WARPGROUP, 1, 1)
        made = Launch(device.function(SOURCE, kernel, definitions), arguments, operands, grid, block, shared_bytes)
        return TmaLaunch(device, (SOURCE, definitions), kernel, made, tuple(located.placed(arguments)), None)

    keys = (problem.k.dims[TIME], problem.k.dims[BEAM], extents.k_sequences)
    return [
        *given.launches(problem),
        products(),
        launch("queries", of_queries, extents.q_steps, problem.q.dims[BEAM], extents.q_sequences, 0),
        launch("keys", of_keys, *keys, 1),
        *([launch("values", of_keys, *keys, 2)] if is_split else []),
    ]
