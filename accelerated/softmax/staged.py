"""Plans softmax of any rows through shared memory, shared by warps, blocks or clusters (softmax/staged.cu)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dualdnn.api.operations.backend import RUN

from ..plans import Launch
from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..reproducible import Order, level_of
from ..solver import Solver
from .problem import (
    BLOCK_BYTES,
    BUSY_THREADS,
    LONG_STRIDED_ROW,
    MIN_SEGMENT_BYTES,
    SEGMENT_BYTES,
    VECTOR_BYTES,
    WARP,
    RowShape,
    SoftmaxProblem,
    ceiling,
    power_of_two,
)

# softmax/staged.cu is compiled for these numbers.
GROUP_VECTORS = {
    True: 2,
    False: 8,
}  # vectors per group that a thread loads at once, by whether they are wide
LANES_THREADS = 128  # threads per block, where some lanes of a warp share a row
BLOCK_THREADS = (128, 512)  # threads per block that shares a row, alone or in a cluster: lower and upper bound
CLUSTER_THREADS = 256  # threads per block of a cluster where all blocks are resident, upper bound
STRIDED_THREADS = 256  # threads per block of strided rows
FEW_SHARES = 8  # threads per row up to which a block has half of STRIDED_THREADS
LANE_VECTORS = 8  # vectors per lane for short rows
THREAD_VECTORS = {True: 4, False: 8}  # vectors per thread for longer rows, by whether they are wide
IN_FLIGHT = 4  # groups in flight per thread, lower bound


@dataclass(frozen=True)
class Division:
    """Hold the division of rows among threads. team: threads that share a row, or vectors of strided rows per block."""

    kind: str
    threads: int
    grid: int
    team: int
    groups: int  # groups per thread
    states: int  # online-softmax states in shared memory
    cluster: int = 1  # blocks that share a row


def lanes_of(shape: RowShape, device: Any, per_lane: int) -> int:
    """Return the lanes per row: as few as keep the device busy."""
    length = shape.length
    lanes = power_of_two(ceiling(length, per_lane))
    if shape.vector:
        lanes = max(lanes, min(power_of_two(length), 4))  # A row with 64 bytes is read in 64 contiguous bytes.
    while lanes < WARP and lanes < length and shape.many * lanes < device.multiprocessors * BUSY_THREADS:
        lanes *= 2
    return lanes


def _by_lanes(shape: RowShape, device: Any) -> Division:
    lanes = lanes_of(shape, device, LANE_VECTORS)
    grid = ceiling(shape.rows * lanes, LANES_THREADS)
    return Division("rows", LANES_THREADS, grid, lanes, ceiling(shape.length, lanes * GROUP_VECTORS[shape.vector]), 0)


def of_rows(shape: RowShape, device: Any, blocks: int) -> Division:
    """Return the division of single rows: some lanes, a block, or a cluster of ``blocks`` blocks per row."""
    length, each = shape.length, THREAD_VECTORS[shape.vector]
    if length <= WARP * each:
        return _by_lanes(shape, device)
    idle = shape.many < 2 * device.multiprocessors and length >= blocks * BLOCK_THREADS[0] * each // 4
    clustered = shape.row_bytes > BLOCK_BYTES or (idle and blocks > 1)
    if not clustered:
        blocks = 1
    elif shape.many >= device.multiprocessors and BLOCK_BYTES < shape.row_bytes <= 2 * BLOCK_BYTES:
        blocks = min(blocks, 2)
    short = shape.row_bytes <= blocks * device.shared_bytes_per_block  # whether a cluster's shared memory holds a row
    at_once = clustered and short and shape.many * blocks <= 2 * device.multiprocessors
    instructions = (
        not shape.vector and shape.inputs == 2 and shape.vector_bytes >= 4
    )  # whether the kernel is issue-bound
    most = CLUSTER_THREADS if at_once and not instructions else BLOCK_THREADS[1]
    ring = IN_FLIGHT * GROUP_VECTORS[shape.vector] * shape.inputs * shape.vector_bytes  # least bytes per thread
    while most * ring > device.shared_bytes_per_block * 7 // 8:
        most //= 2
    threads = max(min(power_of_two(ceiling(length, blocks * each)), most), BLOCK_THREADS[0])
    groups = ceiling(length, threads * blocks * GROUP_VECTORS[shape.vector])
    states = threads // WARP + (blocks if clustered else 0)
    kind = "rows_cluster" if clustered else "rows"
    return Division(kind, threads, shape.rows * blocks, threads, groups, states, blocks)


def of_strided_rows(shape: RowShape, device: Any, width: int, blocks: int) -> Division:
    """Return the division of strided rows: threads of a block take neighbouring vectors, and share their length.

    blocks: blocks per cluster for long rows. width: elements per vector.
    """
    clustered = shape.length >= LONG_STRIDED_ROW
    blocks = blocks if clustered else 1
    length, each = ceiling(shape.length, blocks), 2 * THREAD_VECTORS[shape.vector]
    shares = power_of_two(ceiling(length, each))
    most = STRIDED_THREADS // 2 if shape.vector and 1 < shares <= FEW_SHARES else STRIDED_THREADS
    across = max(SEGMENT_BYTES // shape.vector_bytes, most // shares)
    across = min(across, most // 4 if length > each else most, power_of_two(shape.many))
    busy = device.multiprocessors * 3 // 4 if clustered else 2 * device.multiprocessors
    while across * shape.vector_bytes > MIN_SEGMENT_BYTES and ceiling(shape.many, across) * blocks < busy:
        across //= 2
    if ceiling(shape.many, across) * blocks < busy:
        each = GROUP_VECTORS[shape.vector]
    shares = max(min(power_of_two(ceiling(length, each)), most // across), ceiling(WARP, across))
    threads = across * shares
    groups = ceiling(shape.length, shares * blocks * GROUP_VECTORS[shape.vector])
    rows = across * (width if shape.vector else 1)
    states = (threads // max(across, WARP) + (blocks if clustered else 0)) * rows
    kind = "strided_cluster" if clustered else "strided"
    return Division(kind, threads, ceiling(shape.rows, across) * blocks, across, groups, states, blocks)


def cluster_definition(blocks: int) -> dict[str, int]:
    """Return the macro of kernels whose clusters have an unusual number of blocks."""
    return {"CLUSTER_BLOCKS": blocks} if blocks not in (1, CLUSTER_SIZES[0]) else {}


def can_launch(launch: Launch, blocks: int) -> bool:
    """Return whether the device can run clusters of that size. The usual size runs on every GPU with clusters."""
    return blocks <= CLUSTER_SIZES[0] or bool(
        launch.function.holds_clusters(launch.grid, launch.block, launch.shared_bytes)
    )


class Staged(Solver[SoftmaxProblem]):
    """Serve all remaining calls: rows and strided rows of any length and alignment."""

    name = "softmax.staged"

    def alignment(self, problem: SoftmaxProblem) -> Mapping[str, int]:
        """Return the alignment of single rows; unaligned rows need the fallback, because they have one more vector."""
        rows = problem.layout.aligned and not problem.layout.strided
        return dict.fromkeys(problem.operation.operands, VECTOR_BYTES) if problem.aligned and rows else {}

    def summation_order(self, problem: SoftmaxProblem) -> Order | None:
        """Return how a row is divided; None where vectors divide it by its address.

        Above level RUN a cluster has at most the blocks that every device takes.
        """
        if problem.shape.vector and not (problem.aligned and problem.layout.aligned):
            return None
        found = self._division(problem, self._clusters(problem)[0])
        blocks = (found.cluster, found.threads, found.team, found.groups)
        return Order("fma", (self.name, found.kind, *blocks, problem.shape.vector))

    def _clusters(self, problem: SoftmaxProblem) -> Sequence[int]:
        """Return the sizes of clusters to try, the largest first."""
        shape, device = problem.shape, problem.device
        held_by_cluster = shape.row_bytes <= CLUSTER_SIZES[0] * device.shared_bytes_per_block
        idle = shape.many * CLUSTER_SIZES[0] < device.multiprocessors
        large = level_of(device) == RUN and (problem.layout.strided or not held_by_cluster or idle)
        return CLUSTER_SIZES[: 1 + large][::-1] if has_clusters(device) else (1,)

    def _division(self, problem: SoftmaxProblem, blocks: int) -> Division:
        if problem.layout.strided:
            return of_strided_rows(problem.shape, problem.device, problem.width, blocks)
        return of_rows(problem.shape, problem.device, blocks)

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        for blocks in self._clusters(problem):
            division = self._division(problem, blocks)
            launch = self._launch(problem, division)
            if can_launch(launch, division.cluster):
                break
        return [launch]

    def _launch(self, problem: SoftmaxProblem, division: Division) -> Launch:
        shape = problem.shape
        group_bytes = GROUP_VECTORS[shape.vector] * shape.inputs * division.threads * shape.vector_bytes
        states_bytes = division.states * problem.state_bytes
        kept = min(division.groups, (problem.device.shared_bytes_per_block - states_bytes) // group_bytes)
        kind = f"{'vector' if shape.vector else 'scalar'}_{division.kind}"
        evicts = kind == "vector_rows_cluster" and shape.inputs == 1
        return problem.launch(
            "softmax/staged.cu",
            f"softmax_staged_{problem.direction}_{kind}",
            threads=division.threads,
            grid=division.grid,
            team=division.team,
            kept=kept,
            shared_bytes=kept * group_bytes + states_bytes,
            definitions=cluster_definition(division.cluster) | (problem.evict_first if evicts else {}),
        )
