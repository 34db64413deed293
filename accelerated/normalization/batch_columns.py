"""Batch normalization of packed tensors with channels, or activations, innermost (batch_columns.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_uint
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

from dualdnn.api.operations.specs import FLOAT, HALF

from ..plans import Launch, structure
from ..primitives.cluster import has_clusters
from ..primitives.geometry import PACK_BYTES, FastDivmod
from .batch import CLUSTER, WARP, BatchPacksSolver, BatchProblem

SOURCE = "normalization/batch_columns.cu"
THREADS = 256  # of a block, at most
LANES, MORE_LANES, MANY_PACKS = 8, 16, 64  # threads along a row: where they divide its packs; of rows with many
MOST_LANES = 64  # of rows that have a group twice
# Elements of a pack at most, and of a tensor from which on packs may have 8: they take twice the registers.
WIDTH, WIDE, WIDE_ELEMENTS = 4, 8, 1 << 22
ROWS_IN_FLIGHT = 4  # of a thread
# Of a multiprocessor; where each merges what all have of every group; backward, of tensors of so many elements
BLOCKS, REPEATING_BLOCKS, GRADIENT_BLOCKS, MANY_ELEMENTS = 2, 1, 4, 1 << 25
INFERENCE_BLOCKS = 4
MOST_PARTS = 16  # partial results of a group without clusters
COLUMNS = 32  # of a kernel's arrays: a multiple of this
EXCHANGE_BYTES = 44 << 10  # of shared memory
LEAST_ROW = 8  # packs, where rows have groups several times
# Blocks that all run at once: their threads, threads along a row, the segments of a tile whose parts a block merges at
# most, elements from which on they serve, bytes of shared memory that the device has for itself, and rows of a thread
# that registers hold, by the elements of a pack.
TOGETHER_THREADS, TOGETHER_LANES, TOGETHER_SEGMENTS, TOGETHER_ELEMENTS = 512, (16, 8, 4), 33, 1 << 19
RESERVED_BYTES, TOGETHER_LEAST_BYTES = 1 << 10, 96 << 10
HELD_FORWARD, HELD_BACKWARD = {4: 12, 8: 12}, {4: 6, 8: 6}
TOGETHER_COPIES, MOST_TILES, STREAM_BYTES = 8, 256, 64 << 20


@dataclass(frozen=True)
class Division:
    """The tiles of a call. packs: of a row of the matrix; lanes, lines: threads of a block along and across rows;
    segment: rows of a block; segments; cluster: blocks that share a partial result."""

    packs: int
    rows: int
    tail: int
    groups: int
    repeats: int
    lanes: int
    lines: int
    segment: int
    segments: int
    cluster: int

    @property
    def parts(self) -> int:
        """Partial results of each group."""
        return self.segments // self.cluster

    @property
    def tiles(self) -> int:
        """Column tiles."""
        return -(-self.packs // self.lanes)


def round_up(columns: int) -> int:
    """Return the columns that kernels are compiled for."""
    return -(-columns // COLUMNS) * COLUMNS


def width_of(problem: BatchProblem) -> int:
    """Return the elements of a pack, which divide the tensor. A mask has a byte for each pack."""
    width = min(problem.width, WIDE if problem.x.count >= WIDE_ELEMENTS or problem.has_mask else WIDTH)
    return width if problem.has_mask else gcd(width, problem.x.count)


def division_of(problem: BatchProblem) -> Division | None:
    """Return the division of a call, or None where its rows are not made of packs."""
    if not problem.has_columns:
        return None
    width, groups, elements = width_of(problem), problem.statistics_count, problem.x.count
    columns = lcm(groups, width)
    if elements % width:  # else a row has no more than all of them
        return None
    while columns < LEAST_ROW * width and 2 * columns <= elements:
        columns *= 2
    repeats, packs = columns // groups, columns // width
    if repeats > 1 and packs > MOST_LANES:
        return None
    wanted_lanes = (MORE_LANES, LANES, 4) if packs >= MANY_PACKS else (LANES, 4)
    lanes = packs if repeats > 1 or packs <= LANES else next((n for n in wanted_lanes if packs % n == 0), 32)
    lines = THREADS // lanes
    rows = -(-elements // columns)
    tiles = -(-packs // lanes)
    per_multiprocessor = BLOCKS
    if problem.is_inference:  # which merges nothing
        per_multiprocessor = INFERENCE_BLOCKS
    elif repeats > 1:
        per_multiprocessor = REPEATING_BLOCKS
    elif problem.is_gradient and elements >= MANY_ELEMENTS:
        per_multiprocessor = GRADIENT_BLOCKS
    wanted = max(1, per_multiprocessor * problem.device.multiprocessors // tiles)
    of_thread = 1 if problem.is_inference else ROWS_IN_FLIGHT
    segments = min(wanted, -(-rows // (lines * of_thread)))
    # Clusters exchange moments through static shared memory, of which a block has 48 KB.
    partials = min(groups, lanes * width)
    fits = 3 * (THREADS * width + CLUSTER * round_up(partials)) * problem.compute_bytes <= EXCHANGE_BYTES
    cluster = CLUSTER if segments > MOST_PARTS and fits and has_clusters(problem.device) else 1
    if cluster == 1 and not problem.is_inference:
        segments = min(segments, 2 * MOST_PARTS)
    segment = -(-rows // segments)
    filled = -(-rows // segment)
    segments = -(-filled // cluster) * cluster
    tail = elements // width - (rows - 1) * packs
    return Division(packs, rows, tail, groups, repeats, lanes, lines, segment, segments, cluster)


def together_of(problem: BatchProblem) -> Division | None:
    """Return the division of a call among blocks that run at the same time, a multiprocessor for each, or None."""
    enough = problem.device.shared_bytes_per_block >= TOGETHER_LEAST_BYTES
    if not problem.has_columns or problem.x.data_type not in (FLOAT, HALF) or not enough:
        return None
    if problem.is_inference or (problem.is_gradient and problem.operation.saved is None):
        return None
    width, groups = problem.width, problem.statistics_count
    if groups % width or groups < TOGETHER_LANES[-1] * width:
        return None
    packs, rows = groups // width, problem.x.count // groups
    alone = problem.device.kind != "gpu"  # the emulated device runs one block at a time
    blocks = problem.device.multiprocessors
    for lanes in TOGETHER_LANES:
        tiles = -(-packs // lanes)
        segments = 1 if alone else min(blocks // tiles, rows)
        if segments == 0 or tiles > MOST_TILES:
            return None
        if segments <= TOGETHER_SEGMENTS or lanes == TOGETHER_LANES[-1]:
            break
    segment = -(-rows // segments)
    segments = -(-rows // segment)
    # Blocks that wait for each other have the words of the barriers to themselves: two launches have no room together.
    if segments > 1 and 2 * tiles * segments <= blocks:
        return None
    return Division(packs, rows, packs, groups, 1, lanes, TOGETHER_THREADS // lanes, segment, segments, 1)


def columns_of(problem: BatchProblem, d: Division) -> ctypes.Structure:
    """Return the ``Columns`` of the kernels."""
    return structure(
        ("packs", c_uint(d.packs)),
        ("rows", c_uint(d.rows)),
        ("tail", c_uint(d.tail)),
        ("segment", c_uint(d.segment)),
        ("part", c_uint(d.segment * d.cluster)),
        ("parts", c_uint(d.parts)),
        ("groups", c_uint(d.groups)),
        ("repeats", c_uint(d.repeats)),
        ("group", FastDivmod.of(d.groups)),
        ("count", problem.number(problem.count)),
    )


class BatchColumnsSolver(BatchPacksSolver):
    """Statistics of neighbours in memory."""

    name = "normalization.batch_columns"

    def serves(self, problem: BatchProblem) -> bool:
        return problem.aligned and division_of(problem) is not None

    def launches(self, problem: BatchProblem) -> list[Launch]:
        d = division_of(problem)
        assert d is not None
        columns = columns_of(problem, d)
        # of partial moments, of which each has three, and of partial sums behind them, of two, at an even number
        numbers = d.parts * (d.groups if d.repeats > 1 else d.packs * width_of(problem))
        others: list[tuple[str, Any]] = [("columns", columns)]
        if problem.is_gradient:
            others.append(("sums", ctypes.c_uint(4 * numbers)))
            saved = problem.operation.saved is not None
            kernels = [*([] if saved else ["backward_moments"]), "sums", "gradient"]
        else:
            kernels = ["inference"] if problem.is_inference else ["moments", "training"]
        return [
            problem.launch(
                SOURCE, f"normalization_batch_columns_{kernel}", others,
                (d.tiles, d.segments, 1), (d.lanes, d.lines, 1),
                scratch_bytes=0 if problem.is_inference else 6 * numbers * problem.compute_bytes,
                THREADS=THREADS, PACK_WIDTH=width_of(problem), MOST_COLUMNS=round_up(d.lanes * width_of(problem)),
                MOST_PARTIALS=round_up(min(d.groups, d.lanes * width_of(problem))), ROWS_IN_FLIGHT=ROWS_IN_FLIGHT,
                CLUSTER_BLOCKS=1 if problem.is_inference else d.cluster, HELD=0, AGAIN=0, COPIED_ROWS=1, MOST_TILES=1,
            )
            for kernel in kernels
        ]  # fmt: skip


def static_bytes(d: Division, width: int) -> int:
    """Return the bytes of shared memory that rows do not have: those of the kernels' arrays, at most."""
    columns, threads = d.lanes * width, d.lanes * d.lines
    return 4 * (columns * (7 + 2 * threads // WARP) + 4 * threads) + RESERVED_BYTES


class BatchColumnsTogetherSolver(BatchPacksSolver):
    """Statistics of neighbours in memory, by blocks that keep what they have while they wait for each other."""

    name = "normalization.batch_columns_together"

    def serves(self, problem: BatchProblem) -> bool:
        return problem.aligned and together_of(problem) is not None

    def applies(self, problem: BatchProblem) -> bool:
        return problem.x.count >= TOGETHER_ELEMENTS and self.serves(problem)

    def launches(self, problem: BatchProblem) -> list[Launch]:
        d = together_of(problem)
        assert d is not None
        width, tensors = problem.width, 2 if problem.is_gradient else 1
        of_row, copies = tensors * PACK_BYTES * TOGETHER_THREADS, TOGETHER_COPIES // tensors
        of_thread = -(-d.segment // d.lines)
        words = 4 * TOGETHER_THREADS * copies if problem.is_gradient and problem.has_mask else 0
        room = (problem.device.shared_bytes_per_block - static_bytes(d, width) - words) // of_row - copies
        held = (HELD_BACKWARD if problem.is_gradient else HELD_FORWARD)[width] if of_thread > room else 0
        room = min(room, of_thread)
        launch = problem.launch(
            SOURCE, f"normalization_batch_columns_{'backward' if problem.is_gradient else 'training'}_together",
            [("columns", columns_of(problem, d)), ("room", c_uint(room))], (d.tiles, d.segments, 1),
            (d.lanes, d.lines, 1), shared_bytes=(room + copies) * of_row + words,
            scratch_bytes=3 * d.parts * d.packs * width * problem.compute_bytes, THREADS=TOGETHER_THREADS,
            PACK_WIDTH=width, MOST_COLUMNS=d.lanes * width, MOST_PARTIALS=1, ROWS_IN_FLIGHT=1, COPIED_ROWS=copies,
            CLUSTER_BLOCKS=1, HELD=held, AGAIN=int(of_thread > room + held), CALLS=problem.fused,
            MOST_TILES=MOST_TILES,
            STREAMS=int(not problem.has_mask and tensors * problem.x.count * problem.x.scalar_bytes >= STREAM_BYTES),
        )  # fmt: skip
        launch.cooperative = d.segments > 1
        return [launch]
