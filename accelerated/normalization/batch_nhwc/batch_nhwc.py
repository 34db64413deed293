"""Plans batch normalization of packed tensors with innermost channels, or activations (batch_nhwc.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_uint
from dataclasses import dataclass
from math import gcd, lcm
from typing import Any

from ...plans import Launch, fields_of, structure
from ...primitives.cluster import has_clusters
from ...primitives.geometry import FastDivmod
from ..batch import CLUSTER, BatchProblem, BatchVectorsSolver

SOURCE = "normalization/batch_nhwc/batch_nhwc.cu"
THREADS = 256  # threads per block, upper bound
LANES = 8  # threads along a row, where they divide its vectors
MORE_LANES = 16  # threads along a row of many vectors
MANY_VECTORS = 64  # vectors per row from which MORE_LANES is used
MAX_LANES = 64  # vectors per row that repeats its groups
WIDTH = 4  # elements per vector
WIDE = 8  # elements per vector of large tensors, which take twice the registers
WIDE_ELEMENTS = 1 << 22  # elements per tensor from which vectors are WIDE
ROWS_IN_FLIGHT = 4  # rows per thread in flight
BLOCKS = 2  # blocks per SM
REPEATING_BLOCKS = 1  # blocks per SM if rows repeat groups, since each block merges all groups
GRADIENT_BLOCKS = 4  # blocks per SM for gradients of large tensors
MANY_ELEMENTS = 1 << 25  # elements per tensor from which GRADIENT_BLOCKS is used
INFERENCE_BLOCKS = 4  # blocks per SM for inference
MAX_PARTS = 16  # partial results per group without clusters
ARRAYS = 6  # arrays of columns at the begin of dynamic shared memory, as in batch_nhwc.cuh
EXCHANGE_BYTES = 44 << 10  # bytes of shared memory for the exchange of partial results
MIN_ROW = 8  # vectors per row that repeats its groups


@dataclass(frozen=True)
class Division:
    """Hold the tiles of a call. vectors: vectors per row of the matrix. lanes, lines: threads per block along and
    across rows. segment: rows per block. segments: number of segments. cluster: blocks that share a partial result."""

    vectors: int
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
        """Return the number of partial results per group."""
        return self.segments // self.cluster

    def arrays_bytes(self, width: int, number_bytes: int) -> int:
        """Return the bytes of the arrays of columns, and of the numbers that a cluster exchanges."""
        columns = self.lanes * width
        exchanged = 3 * self.cluster * min(self.groups, columns) if self.cluster > 1 else 0
        return (ARRAYS * columns + exchanged) * number_bytes

    @property
    def tiles(self) -> int:
        """Return the number of column tiles."""
        return -(-self.vectors // self.lanes)


def width_of(problem: BatchProblem) -> int:
    """Return the elements per vector, which divide the tensor. A mask has one byte per vector."""
    width = min(problem.width, WIDE if problem.x.count >= WIDE_ELEMENTS or problem.has_mask else WIDTH)
    return width if problem.has_mask else gcd(width, problem.x.count)


def division_of(problem: BatchProblem) -> Division | None:
    """Return the division of a call, or None where rows do not consist of full vectors."""
    if not problem.has_columns:
        return None
    width, groups, elements = width_of(problem), problem.statistics_count, problem.x.count
    columns = lcm(groups, width)
    if elements % width:  # The columns would exceed the tensor.
        return None
    while columns < MIN_ROW * width and 2 * columns <= elements:
        columns *= 2
    repeats, vectors = columns // groups, columns // width
    if repeats > 1 and vectors > MAX_LANES:
        return None
    wanted_lanes = (MORE_LANES, LANES, 4) if vectors >= MANY_VECTORS else (LANES, 4)
    lanes = vectors if repeats > 1 or vectors <= LANES else next((n for n in wanted_lanes if vectors % n == 0), 32)
    lines = THREADS // lanes
    rows = -(-elements // columns)
    tiles = -(-vectors // lanes)
    per_multiprocessor = BLOCKS
    if problem.is_inference:  # Inference merges nothing.
        per_multiprocessor = INFERENCE_BLOCKS
    elif repeats > 1:
        per_multiprocessor = REPEATING_BLOCKS
    elif problem.is_gradient and elements >= MANY_ELEMENTS:
        per_multiprocessor = GRADIENT_BLOCKS
    wanted = max(1, per_multiprocessor * problem.device.multiprocessors // tiles)
    of_thread = 1 if problem.is_inference else ROWS_IN_FLIGHT
    segments = min(wanted, -(-rows // (lines * of_thread)))
    partials = min(groups, lanes * width)
    fits = 3 * (THREADS * width + CLUSTER * partials) * problem.compute_bytes <= EXCHANGE_BYTES
    cluster = CLUSTER if segments > MAX_PARTS and fits and has_clusters(problem.device) else 1
    if cluster == 1 and not problem.is_inference:
        segments = min(segments, 2 * MAX_PARTS)
    segment = -(-rows // segments)
    filled = -(-rows // segment)
    segments = -(-filled // cluster) * cluster
    tail = elements // width - (rows - 1) * vectors
    return Division(vectors, rows, tail, groups, repeats, lanes, lines, segment, segments, cluster)


def columns_of(problem: BatchProblem, d: Division) -> ctypes.Structure:
    """Return the ``Columns`` of the kernels."""
    return structure(
        *fields_of(c_uint, vectors=d.vectors, rows=d.rows, tail=d.tail, segment=d.segment, part=d.segment * d.cluster),
        *fields_of(c_uint, parts=d.parts, groups=d.groups, repeats=d.repeats),
        ("group", FastDivmod.of(d.groups)),
        ("count", problem.number(problem.count)),
    )


class BatchNhwcSolver(BatchVectorsSolver):
    """Normalize with statistics of groups that are neighbours in memory."""

    name = "normalization.batch_nhwc"

    def serves(self, problem: BatchProblem) -> bool:
        return problem.aligned and division_of(problem) is not None

    def launches(self, problem: BatchProblem) -> list[Launch]:
        d = division_of(problem)
        assert d is not None
        columns = columns_of(problem, d)
        # `numbers` counts partial results. Scratch memory holds three numbers per partial moment, then two per partial
        # sum; 4 * numbers is an even offset.
        numbers = d.parts * (d.groups if d.repeats > 1 else d.vectors * width_of(problem))
        others: list[tuple[str, Any]] = [("columns", columns)]
        if problem.is_gradient:
            others.append(("sums", ctypes.c_uint(4 * numbers)))
            saved = problem.operation.saved is not None
            kernels = [*([] if saved else ["backward_moments"]), "sums", "gradient"]
        else:
            kernels = ["inference"] if problem.is_inference else ["moments", "training"]
        return [
            problem.launch(
                SOURCE, f"normalization_batch_nhwc_{kernel}", others,
                (d.tiles, d.segments, 1), (d.lanes, d.lines, 1),
                0 if problem.is_inference else d.arrays_bytes(width_of(problem), problem.compute_bytes),
                0 if problem.is_inference else 6 * numbers * problem.compute_bytes,
                THREADS=THREADS, VECTOR_WIDTH=width_of(problem), ROWS_IN_FLIGHT=ROWS_IN_FLIGHT,
                CLUSTER_BLOCKS=1 if problem.is_inference else d.cluster,
            )
            for kernel in kernels
        ]  # fmt: skip
