"""Walks that change the contiguous axis and pad, fold, or move the narrowest and widest types: tiles in shared memory
(transform/tiles.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint
from math import prod

from ..plans import Launch
from ..primitives.geometry import THREADS, FastDivmod
from .problem import Step, TransformProblem, Walk, WalkSolver

KERNEL = ("transform/tiles.cu", "transform_tiles")
TILE_BYTES = 16 * 1024
LOG_WARP = 5
ENOUGH_TILES = (
    24  # per multiprocessor: several times what it holds at once, so that the last ones keep all of them busy
)


class TilingArgument(ctypes.Structure):
    _fields_ = [
        ("across", FastDivmod),
        ("along", FastDivmod),
        ("log_across", c_uint),
        ("log_along", c_uint),
        ("log_rest", c_uint),
        ("packs_in", c_int),
        ("packs_out", c_int),
    ]


class TilesSolver(WalkSolver):
    """Walks whose source is contiguous along another axis than the destination, and which write every position."""

    name = "transform.tiles"

    def carries(self, problem: TransformProblem, walk: Walk) -> bool:
        return walk.transposes and not walk.destination_checked

    def walk_launch(self, problem: TransformProblem, walk: Walk) -> Launch:
        order, tiling, tiles = _tiling(walk, *problem.element_bytes, problem.device.multiprocessors)
        fields = [
            ("walk", walk.argument(order)),
            *problem.scalars(),
            ("tiling", tiling),
            ("move", c_int(problem.moves)),
        ]
        grid = (tiles, 1, 1)
        return problem.launch(
            KERNEL, fields, grid, shared_bytes=TILE_BYTES, TILE_BYTES=TILE_BYTES, TILE_THREADS=THREADS
        )


def _tiling(
    walk: Walk, source_bytes: int, destination_bytes: int, multiprocessors: int
) -> tuple[list[Step], TilingArgument, int]:
    """Return the axes in the order of the kernel (contiguous in the source, in the destination, others), the shape of its tiles and
    their number: the largest tiles of which there are enough."""
    across, along = min(walk.steps, key=lambda step: step.source), walk.steps[0]
    others = [step for step in walk.steps if step is not across and step is not along]
    packs_in = walk.aligned("source", across, 16 // source_bytes)
    packs_out = walk.aligned("destination", along, 16 // destination_bytes)
    least_across, least_along = ((16 // size).bit_length() - 1 for size in (source_bytes, destination_bytes))
    largest = (TILE_BYTES // source_bytes).bit_length() - 1
    for log_tile in range(largest, largest - 3, -1):
        log_across = _side(across.extent, least_across, log_tile // 2)
        log_along = _side(along.extent, least_along, log_tile - log_across)
        log_across = _side(across.extent, least_across, log_tile - log_along)
        log_rest = log_tile - log_across - log_along
        counts = [-(-across.extent // 2**log_across), -(-along.extent // 2**log_along)]
        tiles = prod(counts) * -(-prod(step.extent for step in others) // 2**log_rest)
        if tiles >= ENOUGH_TILES * multiprocessors:
            break
    shape = (log_across, log_along, log_rest, packs_in, packs_out)
    return [across, along, *others], TilingArgument(*(FastDivmod.of(count) for count in counts), *shape), tiles


def _side(extent: int, least: int, most: int) -> int:
    """Return the logarithm of a tile's side: long, but not so long that most of the last tile is empty."""
    longest = max(least, min((extent - 1).bit_length(), most))
    shortest = max(least, min(LOG_WARP, longest))
    return max(range(shortest, longest + 1), key=lambda log: (round(extent / (-(-extent >> log) << log), 1), log))
