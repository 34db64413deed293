"""Softmax of long rows by persistent blocks, one per multiprocessor, whose tiles TMA loads
(softmax/persistent_tma.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dualdnn.api.operations.specs import FLOAT

from ..plans import Launch
from .problem import BLOCK_BYTES, PACK_BYTES, WARP, Division, RowShape, SoftmaxProblem, SoftmaxSolver, ceiling

# As in softmax/grid_all_reduce.cuh
TILE_PACKS, MOST_BLOCKS, MOST_TILES = (
    2,
    192,
    48,
)  # packs of a compute thread in a tile, of all inputs; blocks; tiles in shared memory
OPEN_ROWS = 16  # of a block, between the first read and the last write
COMPUTE_THREADS, QUEUE_TILES = 512, 6  # of a block; tiles that registers hold
REDUCER_WARPS = 4  # of a block, with the one that loads; one more where registers hold no tiles
# Where rows are read at most so many bytes of, a multiprocessor has to read that many
LONG_ROW_BYTES, MANY_ROWS_BYTES = 300 * 1000, 700 * 1024
LEAST_HALF_GRADIENT_BYTES = 384 * 1024  # per multiprocessor: of gradients of elements of two bytes
# By inputs: bytes of a row, and of a multiprocessor
LEAST_BYTES = ((192 * 1000, 48 * 1000), (250 * 1000, 190 * 1000))
SMALL_GROUP = 16  # blocks
ALONE_BYTES = 24 * 1024  # that a block reads while it exchanges states with itself
ROW_COST_BYTES = 8 * 1024  # measured cost of a row beside its tiles
L2_BYTES = 64 << 20  # read and written: fewer stay in L2
# Of what is written L2 keeps so much, as the next kernel reads it, unless it is more than the second number. Of larger
# results all are evicted first: where others are read next, what stays costs 1 to 6 %. (Where the next kernel does read
# them, it takes 4 to 12 % less if half of them, of 50 to 80 MB, stay.)
KEPT_RESULT_BYTES, MOST_RESULT_BYTES = 24 << 20, 48 << 20


class Lead(NamedTuple):
    """Bytes that a block reads while blocks exchange the state of a row: of groups of few blocks, and of more, which
    are served less evenly; and bytes that are in flight to it."""

    small_groups: int
    large_groups: int
    in_flight: int


FIRST_LEAD, L2_LEAD, LAST_LEAD = (
    Lead(80 << 10, 104 << 10, 48 << 10),
    Lead(80 << 10, 80 << 10, 16 << 10),  # of tensors that stay in L2
    Lead(64 << 10, 64 << 10, 32 << 10),
)
# By inputs, in order of preference, of those that fit
LEADS = {
    1: (FIRST_LEAD, Lead(64 << 10, 80 << 10, 48 << 10), LAST_LEAD),
    2: (FIRST_LEAD, Lead(64 << 10, 64 << 10, 48 << 10), LAST_LEAD),
}
# Of floats with one input, where registers hold tiles: preferred to all but the first of these. 4 to 5 % less of 55 us
QUEUE_LEAD = Lead(80 << 10, 128 << 10, 64 << 10)


def division_of(
    shape: RowShape, device: Any, state_bytes: int, lead: Lead = FIRST_LEAD, queue: int = 0
) -> Division | None:
    """Return the division in which the block that has most to do has least, of those that leave time for the exchange,
    or None where none fits. queue: tiles that registers hold."""
    if device.multiprocessors > MOST_BLOCKS:
        return None
    exchange = (2 * COMPUTE_THREADS // WARP + OPEN_ROWS) * state_bytes + (2 * OPEN_ROWS + 4 + 2 * MOST_TILES) * 8
    most = COMPUTE_THREADS * TILE_PACKS // shape.inputs
    best: tuple[float, Division] | None = None
    for blocks in range(1, device.multiprocessors + 1):
        steps = ceiling(shape.length, blocks * most)
        part = ceiling(shape.length, WARP * blocks * steps) * WARP
        tile_bytes = part * shape.inputs * PACK_BYTES
        tiles = min((device.shared_bytes_per_block - exchange) // tile_bytes, MOST_TILES)
        ahead = max(ceiling(lead.in_flight, tile_bytes), 2)
        exchanged = ALONE_BYTES
        if blocks > 1:
            exchanged = lead.small_groups if blocks <= SMALL_GROUP else lead.large_groups
        delay = min(steps + ceiling(exchanged, tile_bytes), OPEN_ROWS * steps - 2)
        if delay + ahead > tiles + queue or delay < queue:
            continue
        waves = ceiling(shape.rows, device.multiprocessors // blocks)
        time = waves * (steps * tile_bytes + ROW_COST_BYTES)
        if best is None or time < best[0]:
            best = time, Division(blocks, part, steps, tiles, ahead, delay, tiles * tile_bytes + exchange)
    return best[1] if best else None


def leads_of(inputs: int, in_l2: bool, queues: bool) -> list[tuple[Lead, int]]:
    """Return leads and the tiles that registers hold, in order of preference. in_l2: all that is moved stays there.
    queues: registers may hold tiles."""
    first, *others = LEADS[inputs]
    found = [(L2_LEAD if in_l2 else first, 0)]
    if queues and inputs == 1:
        found.append((QUEUE_LEAD, QUEUE_TILES))
    found += [(lead, 0) for lead in others]
    return found + [(lead, QUEUE_TILES) for lead in others if queues]


def kept_sixteenths(output_bytes: int) -> int:
    """Return how many sixteenths of the results L2 keeps."""
    return min(16 * KEPT_RESULT_BYTES // output_bytes, 16) if output_bytes <= MOST_RESULT_BYTES else 0


class PersistentTma(SoftmaxSolver):
    """Long rows of packs of 16 bytes, by all multiprocessors together."""

    name = "softmax.persistent_tma"

    def serves(self, problem: SoftmaxProblem) -> bool:
        return self._found(problem) is not None

    def applies(self, problem: SoftmaxProblem) -> bool:
        """Return whether rows are so long and so many that this was measured to take less time."""
        row_bytes, inputs = problem.shape.row_bytes, problem.inputs
        least_row, least = LEAST_BYTES[inputs - 1]
        if inputs == 2 and problem.scalar_bytes == 2:
            least_row, least = LONG_ROW_BYTES, LEAST_HALF_GRADIENT_BYTES
        if row_bytes <= least_row:
            least = MANY_ROWS_BYTES
        share = problem.rows * row_bytes // problem.device.multiprocessors
        return row_bytes > BLOCK_BYTES and share >= least and self.serves(problem)

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        found = self._found(problem)
        assert found is not None
        division, queue = found
        cache_policy = 0
        if not self._in_l2(problem):
            cache_policy = 1 | kept_sixteenths(problem.moved_bytes // (problem.inputs + 1)) << 1
        threads = COMPUTE_THREADS + (REDUCER_WARPS + (queue == 0)) * WARP
        definitions = problem.evict_first | ({"QUEUE_TILES": queue} if queue else {})
        return [division.launch(problem, "softmax/persistent_tma.cu", threads, cache_policy, definitions)]

    def alignment(self, problem: SoftmaxProblem) -> Mapping[str, int]:
        return self.packed(problem)

    def _in_l2(self, problem: SoftmaxProblem) -> bool:
        return problem.moved_bytes <= L2_BYTES

    def _found(self, problem: SoftmaxProblem) -> tuple[Division, int] | None:
        """Return the preferred division and the tiles that registers hold."""
        if not problem.packed_rows or problem.layout.rows.outer_rank:
            return None
        is_float = problem.output.scalar_type == FLOAT
        for lead, queue in leads_of(problem.inputs, self._in_l2(problem), is_float):
            division = division_of(problem.shape, problem.device, problem.state_bytes, lead, queue)
            if division is not None:
                return division, queue
        return None
