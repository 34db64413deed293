"""Softmax of long strided rows by persistent blocks that share every row, whose tiles TMA loads
(softmax/persistent_tma_strided.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from dualdnn.api.operations.specs import FLOAT

from ..plans import Launch
from .problem import EVICTED_BYTES, LONG_STRIDED_ROW, PACK_BYTES, WARP, Division, SoftmaxProblem, SoftmaxSolver, ceiling

# As in softmax/persistent_tma_strided.cu and softmax/grid_exchange.cuh
MOST_BLOCKS, MOST_ROWS, MOST_TILES = 192, 64, 48  # blocks; strided rows of a column tile; tiles in shared memory
OPEN_TILES, MOST_TURNS = (
    8,
    64,
)  # column tiles between the first read and the last write; times that their slots are used again
SOURCE = "softmax/persistent_tma_strided.cu"
COMPUTE_THREADS, TILE_PACKS = 256, 4  # per block; packs of a tile that each has, of all inputs
OTHER_WARPS = (7, 4)  # by inputs: those that reduce, and the one that loads
BARRIERS = 2 * MOST_TILES + 2 + 3 * OPEN_TILES
IN_FLIGHT_BYTES, LEAD_BYTES = 40 << 10, 64 << 10  # to a block; that it reads while blocks exchange states
# Tiles that registers hold, by inputs: of floats, of elements of two bytes
QUEUE_TILES = {False: (0, 0), True: (3, 7)}
SPARE_TILES = 1  # where shared memory is full: slots that are free before they are needed
FEWEST_TILES = 4  # of a block, of all column tiles, where registers hold some
FEW_COLUMN_TILES = 4  # of tensors that L2 keeps: to exchange more states takes longer than other solvers do
LEAST_SHARE_BYTES = (120 * 1024, 180 * 1024)  # per multiprocessor, by inputs


def division_of(problem: SoftmaxProblem, queue: int) -> Division | None:
    """Return how all multiprocessors share every column tile, or None where they cannot. queue: tiles that registers
    hold."""
    layout, device, inputs, width = problem.layout, problem.device, problem.inputs, problem.width
    positions, blocks, length = layout.rows.row, device.multiprocessors, problem.shape.length
    across = positions // width
    dense = all(stride == positions for stride in layout.along.row_stride[:inputs])
    if not dense or positions > MOST_ROWS or across & (across - 1) or blocks > MOST_BLOCKS:
        return None
    column_tiles = problem.rows // across
    steps = ceiling(length * across * inputs, blocks * COMPUTE_THREADS * TILE_PACKS)
    part = ceiling(length, blocks * steps)
    if column_tiles > OPEN_TILES * MOST_TURNS:
        return None
    exchange = PACK_BYTES + ceiling(8 * BARRIERS + 4 * (1 + OPEN_TILES), PACK_BYTES) * PACK_BYTES
    # gradients have no maxima: warps hand over sums alone
    exchange += (COMPUTE_THREADS // WARP // inputs + OPEN_TILES) * positions * problem.state_bytes
    tile_bytes, every = part * across * inputs * PACK_BYTES, column_tiles * steps
    room = (device.shared_bytes_per_block - exchange) // tile_bytes
    tiles = min(room, MOST_TILES, every)
    if column_tiles > OPEN_TILES:  # nothing of a column tile is left when the next one comes to its slot
        tiles = min(tiles, (OPEN_TILES - 1) * steps - queue - 1)
    ahead = min(ceiling(IN_FLIGHT_BYTES, tile_bytes), ceiling(tiles, 2))
    spare = SPARE_TILES if tiles == room else 0
    most = min(tiles + queue - ahead - spare, OPEN_TILES * steps - 2, every)
    delay = max(every, queue) if tiles == every else most
    if ahead < 1 or every < min(queue, FEWEST_TILES):
        return None
    lead = LEAD_BYTES if blocks > 1 else 0  # a block alone waits for nobody
    if delay < max(queue, min(steps + ceiling(lead, tile_bytes), every)):
        return None
    return Division(0, across, part, steps, tiles, ahead, delay, tiles * tile_bytes + exchange)


class PersistentTmaStrided(SoftmaxSolver):
    """Long strided rows, few of which lie side by side, so that all of a tile follows each other in memory."""

    name = "softmax.persistent_tma_strided"

    def serves(self, problem: SoftmaxProblem) -> bool:
        return self._found(problem) is not None

    def applies(self, problem: SoftmaxProblem) -> bool:
        shape = problem.shape
        share = shape.rows * shape.row_bytes // problem.device.multiprocessors
        if shape.length < LONG_STRIDED_ROW or share < LEAST_SHARE_BYTES[problem.inputs - 1]:
            return False
        found = self._found(problem)
        few = found is not None and problem.rows <= FEW_COLUMN_TILES * found.across
        return found is not None and (few or self._exceeds_l2(problem))

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        found = self._found(problem)
        assert found is not None
        threads = COMPUTE_THREADS + OTHER_WARPS[problem.inputs - 1] * WARP
        definitions = {"ALGORITHM": int(problem.operation.algorithm)}
        return [found.launch(problem, SOURCE, threads, int(self._exceeds_l2(problem)), definitions)]

    def alignment(self, problem: SoftmaxProblem) -> Mapping[str, int]:
        return self.packed(problem)

    def _exceeds_l2(self, problem: SoftmaxProblem) -> bool:
        return problem.moved_bytes >= EVICTED_BYTES[0]

    def _found(self, problem: SoftmaxProblem) -> Division | None:
        layout = problem.layout
        is_float = problem.output.scalar_type == FLOAT
        known = problem.aligned and layout.strided and layout.vector and (is_float or problem.scalar_bytes == 2)
        if not known or not problem.tma:
            return None
        return division_of(problem, QUEUE_TILES[is_float][problem.inputs - 1])
