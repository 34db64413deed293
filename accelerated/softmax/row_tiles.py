"""Plans softmax of short contiguous rows, with many rows per tile in shared memory (softmax/row_tiles.cu)."""

from __future__ import annotations

from typing import Any

from ..plans import Launch
from ..reproducible import Order
from ..solver import Solver
from .problem import SHORT_ROW, VECTOR_BYTES, WARP, SoftmaxProblem, ceiling, power_of_two

# softmax/row_tiles.cu is compiled for these numbers.
MAX_EACH = 8  # elements per lane
MORE_EACH = (10, 9)  # elements per lane for one and two inputs, where MAX_EACH would take twice as many lanes
MIN_LANES = 8  # lanes per row above which MORE_EACH is used
TILE_THREADS = 256  # threads per block
PAIR_TILE_BYTES = 8800  # bytes of all inputs per tile of pairs
PAIR_LANE_ELEMENTS = 80  # elements per lane for pairs
MIN_PAIR_ROW = 33  # elements per row from which pairs are used
TILE_BYTES = {False: 16 * 1024, True: 20 * 1024}  # bytes per tile, by whether there are two inputs of 4 bytes or more
TILES_AT_ONCE = 6  # tiles per SM where all fit the device at once
RESERVED_BYTES = 1024  # shared memory that the system reserves per block
SHORT_TILE_BYTES = 24 * 1024  # bytes per tile of rows up to SHORT_ROW


def tile_of(rows: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> tuple[int, int]:
    """Return the lanes per row and the rows per tile."""
    lanes = power_of_two(ceiling(length, MAX_EACH))
    if lanes > MIN_LANES and length <= MORE_EACH[inputs - 1] * lanes // 2:
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
    """Return the lanes per row and the rows per tile for 16-bit elements, which lanes take in pairs."""
    lanes = power_of_two(ceiling(length, PAIR_LANE_ELEMENTS))
    warps = min(PAIR_TILE_BYTES // (WARP * length * 2 * inputs), TILE_THREADS // WARP // lanes)
    return lanes, WARP * max(warps, 1)


def short_tile(rows: int, length: int, inputs: int, scalar_bytes: int, device: Any) -> int:
    """Return the rows per tile of very short rows; a thread takes several at a time, to fill vectors."""
    at_once = TILE_THREADS * VECTOR_BYTES // scalar_bytes
    rounds = min(
        SHORT_TILE_BYTES // (at_once * length * scalar_bytes * inputs),
        ceiling(rows, at_once) // (4 * device.multiprocessors),
    )
    return at_once * max(rounds, 1)


class RowTiles(Solver[SoftmaxProblem]):
    """Serve short contiguous rows. RegisterResident is preferred where rows consist of aligned vectors."""

    name = "softmax.row_tiles"

    def serves(self, problem: SoftmaxProblem) -> bool:
        return problem.layout.dense and problem.length <= MAX_EACH * WARP

    def applies(self, problem: SoftmaxProblem) -> bool:
        return not problem.layout.aligned and self.serves(problem)

    def summation_order(self, problem: SoftmaxProblem) -> Order:
        """Return the lanes that share a row, which its length decides alone."""
        return Order("fma", (self.name, problem.scalar_bytes, problem.operation.compute_type, problem.length))

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        rows, length, inputs, scalar_bytes = problem.rows, problem.length, problem.inputs, problem.scalar_bytes
        threads = TILE_THREADS
        if length <= SHORT_ROW and scalar_bytes > 1:
            kind, lanes, of_tile = "_short", 1, short_tile(rows, length, inputs, scalar_bytes, problem.device)
        elif length >= MIN_PAIR_ROW and scalar_bytes == 2:
            kind, (lanes, of_tile) = "_pairs", pair_tile(length, inputs)
            threads = of_tile * lanes
        else:
            kind, (lanes, of_tile) = "", tile_of(rows, length, inputs, scalar_bytes, problem.device)
        tile_bytes = ceiling(of_tile * length * scalar_bytes, VECTOR_BYTES) * VECTOR_BYTES
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
