"""Softmax of short rows that follow each other without gaps, many of them in a tile in shared memory
(softmax/row_tiles.cu)."""

from __future__ import annotations

from typing import Any

from ..plans import Launch
from .problem import PACK_BYTES, SHORT_ROW, WARP, SoftmaxProblem, SoftmaxSolver, ceiling, power_of_two

# As in softmax/row_tiles.cu
MOST_EACH, MORE_EACH = 8, (10, 9)  # elements of a lane; more, by inputs, where a row has so many lanes
LEAST_LANES = 8
TILE_THREADS = 256
# Tiles of pairs: bytes of all inputs, elements of a lane, and of the shortest row
PAIR_TILE_BYTES, PAIR_LANE_ELEMENTS, LEAST_PAIR_ROW = 8800, 80, 33
TILE_BYTES = {False: 16 * 1024, True: 20 * 1024}  # of all inputs; of two of at least 4 bytes an element
TILES_AT_ONCE = 6  # per multiprocessor: all tiles at once, where they fit
RESERVED_BYTES = 1024  # of a block's shared memory
SHORT_TILE_BYTES = 24 * 1024


def tile_of(rows: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> tuple[int, int]:
    """Return the lanes that share a row, and the rows of a tile."""
    lanes = power_of_two(ceiling(length, MOST_EACH))
    if lanes > LEAST_LANES and length <= MORE_EACH[inputs - 1] * lanes // 2:
        lanes //= 2
    at_once, row_bytes = TILE_THREADS // lanes, length * scalar_bytes * inputs
    share = ceiling(rows, TILES_AT_ONCE * device.multiprocessors * at_once) * at_once
    room = device.shared_bytes_per_block // TILES_AT_ONCE - RESERVED_BYTES
    if rows >= 4 * device.multiprocessors * at_once and share * row_bytes <= room:
        return lanes, share
    tile_bytes = TILE_BYTES[inputs == 2 and scalar_bytes >= 4]
    rounds = min(tile_bytes // (at_once * row_bytes), ceiling(rows, at_once) // (4 * device.multiprocessors))
    return lanes, at_once * max(rounds, 1)


def pair_tile(length: int, inputs: int) -> tuple[int, int]:
    """Return the lanes that share a row of elements of two bytes, which they take in pairs, and the rows of a tile."""
    lanes = power_of_two(ceiling(length, PAIR_LANE_ELEMENTS))
    warps = min(PAIR_TILE_BYTES // (WARP * length * 2 * inputs), TILE_THREADS // WARP // lanes)
    return lanes, WARP * max(warps, 1)


def short_tile(rows: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> int:
    """Return the rows of a tile of which a thread takes as many at a time as fill packs."""
    at_once = TILE_THREADS * PACK_BYTES // scalar_bytes
    rounds = min(
        SHORT_TILE_BYTES // (at_once * length * scalar_bytes * inputs),
        ceiling(rows, at_once) // (4 * device.multiprocessors),
    )
    return at_once * max(rounds, 1)


class RowTiles(SoftmaxSolver):
    """Short rows of any length, one after the other; where they are packs, registers hold them without a tile."""

    name = "softmax.row_tiles"

    def serves(self, problem: SoftmaxProblem) -> bool:
        return problem.layout.dense and problem.length <= MOST_EACH * WARP

    def applies(self, problem: SoftmaxProblem) -> bool:
        return not problem.layout.aligned and self.serves(problem)

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        rows, length, inputs, scalar_bytes = problem.rows, problem.length, problem.inputs, problem.scalar_bytes
        threads = TILE_THREADS
        if length <= SHORT_ROW and scalar_bytes > 1:
            kind, lanes, of_tile = "_short", 1, short_tile(rows, length, inputs, scalar_bytes, problem.device)
        elif length >= LEAST_PAIR_ROW and scalar_bytes == 2:
            kind, (lanes, of_tile) = "_pairs", pair_tile(length, inputs)
            threads = of_tile * lanes
        else:
            kind, (lanes, of_tile) = "", tile_of(rows, length, inputs, scalar_bytes, problem.device)
        tile_bytes = ceiling(of_tile * length * scalar_bytes, PACK_BYTES) * PACK_BYTES
        return [
            problem.launch(
                "softmax/row_tiles.cu",
                f"softmax_row_tiles_{problem.direction}{kind}",
                threads=threads,
                grid=ceiling(rows, of_tile),
                team=lanes,
                kept=of_tile,
                shared_bytes=tile_bytes * inputs,
            )
        ]
