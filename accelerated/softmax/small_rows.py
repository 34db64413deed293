"""Plans softmax of few rows in the registers of clusters, which exchange states once (softmax/small_rows.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

from ..plans import Launch
from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..primitives.geometry import FastDivmod, merge_dimensions
from ..runtime.arguments import declared
from .problem import VECTOR_BYTES, WARP, Extents, SoftmaxProblem, SoftmaxSolver, can_launch, ceiling, cluster_definition

MAX_THREADS = 512  # threads per block
RANK = 4  # dimensions along rows, and across them, upper bound
# The keys are elements per vector. The values are the vectors per thread that are compiled, in order of preference.
EACH = {1: (8, 4, 2), 2: (1, 2, 4), 4: (2, 4), 8: (1, 2, 4)}
MIN_ROW = 1024  # elements per row; other solvers are preferred for shorter rows
FEW_VALUES = 32  # values per thread up to which two blocks of 512 threads fit the registers of an SM
EXCHANGE_BYTES = 16  # shared memory for the barrier of a cluster


@cache
def _offsets_type(operands: int) -> type[ctypes.Structure]:
    class Offsets(ctypes.Structure):
        _fields_ = [
            *declared(ctypes.c_uint, "count items apart limit"),
            ("item_step", ctypes.c_int * operands),
            ("extent", FastDivmod * (RANK - 1)),
            ("step", ctypes.c_int * RANK * operands),
        ]

    return Offsets


def offsets_of(extents: Sequence[int], steps: Sequence[Sequence[int]], d: int, each: int) -> Any:
    """Return the kernels' ``Offsets``, where each thread has ``each`` equidistant positions along dimension ``d``.

    extents: merged dimensions, slowest first. steps: every operand's strides in elements.
    """
    apart = ceiling(extents[d], each)
    # Dimension d comes last.
    order = [*reversed([i for i in range(len(extents)) if i != d])]
    value: Any = _offsets_type(len(steps))()
    value.count = apart * prod(extents[i] for i in order)
    value.items, value.apart, value.limit = ceiling(extents[d], apart), apart, extents[d]
    for dimension in range(RANK - 1):
        value.extent[dimension] = FastDivmod.of(extents[order[dimension]] if dimension < len(order) else 1)
    for operand, step in enumerate(steps):
        value.item_step[operand] = apart * step[d]
        value.step[operand][:] = [*(step[i] for i in order), *[0] * (RANK - 1 - len(order)), step[d]]
    return value


def row_offsets(problem: SoftmaxProblem) -> Any:
    """Return the offsets at which rows begin."""
    extents, steps = merge_dimensions(*problem.outer_extents)
    return offsets_of(extents, steps, 0, 1)


class Division(NamedTuple):
    """Hold the division of a row among the threads of a cluster.

    blocks: blocks per cluster. each: vectors per thread, equidistant. along: the offsets of the first vector of every
    thread. at_once: whether all blocks are resident at the same time.
    """

    blocks: int
    each: int
    threads: int
    along: Any
    at_once: bool

    @property
    def states(self) -> int:
        """Return the states in shared memory: one per possible warp of the cluster, rounded up to full warps."""
        return ceiling(self.blocks * MAX_THREADS // WARP, WARP) * WARP


def divisions(extents: Extents, rows: int, device: Any, vectors: Sequence[int], values: int) -> Iterator[Division]:
    """Yield the divisions that hold a row, fastest first.

    extents: vectors along a row, with every operand's strides in elements. vectors: candidates for vectors per thread.
    values: values per vector, of all inputs.
    """
    for blocks in CLUSTER_SIZES if has_clusters(device) else (1,):
        for each in vectors:
            along = min(_splits(extents, each), key=lambda along: along.count)
            threads = ceiling(ceiling(along.count, blocks), WARP) * WARP
            beside = 2 if each * values <= FEW_VALUES else 1  # blocks per SM
            if threads <= MAX_THREADS:
                yield Division(blocks, each, threads, along, rows * blocks <= beside * device.multiprocessors)


def _splits(row: Extents, each: int) -> Iterator[Any]:
    """Yield the offsets of threads whose vectors follow each of the dimensions, outermost first."""
    extents, steps = merge_dimensions(*row)
    yield from (offsets_of(extents, steps, d, each) for d in range(len(extents)))


class SmallRows(SoftmaxSolver):
    """Serve few rows with a cluster each (a block without clusters), in vectors of 16 bytes or single elements."""

    name = "softmax.small_rows"

    def serves(self, problem: SoftmaxProblem) -> bool:
        return self._chosen(problem, at_once=False) is not None

    def applies(self, problem: SoftmaxProblem) -> bool:
        width = self._width(problem)
        if problem.layout.along.vectors * width < MIN_ROW or (width == 1 and problem.layout.vector):
            return False
        return self._chosen(problem, at_once=True) is not None

    def launches(self, problem: SoftmaxProblem) -> list[Launch]:
        chosen = self._chosen(problem, at_once=True) or self._chosen(problem, at_once=False)
        assert chosen is not None
        return [chosen]

    def alignment(self, problem: SoftmaxProblem) -> Mapping[str, int]:
        return self.packed(problem) if self._width(problem) > 1 else {}

    def _width(self, problem: SoftmaxProblem) -> int:
        return problem.width if problem.packed_rows else 1

    def _chosen(self, problem: SoftmaxProblem, at_once: bool) -> Launch | None:
        """Return the launch of the first division that the device can run. at_once: whether all blocks must fit."""
        if problem.layout.strided:
            return None
        rows, width = row_offsets(problem), self._width(problem)
        extents = problem.row_extents
        if width > 1:
            extents = [problem.length // width], [[width]] * len(problem.specs)
        for division in divisions(extents, problem.rows, problem.device, EACH[width], width * problem.inputs):
            if at_once and not division.at_once:
                continue
            launch = problem.small_launch(
                "softmax/small_rows.cu",
                f"softmax_small_rows_{problem.direction}_{division.each}",
                threads=division.threads,
                grid=problem.rows * division.blocks,
                rows=rows,
                along=division.along,
                shared_bytes=division.states * problem.state_bytes + EXCHANGE_BYTES,
                definitions={"VECTOR_BYTES": width * problem.scalar_bytes} | cluster_definition(division.blocks),
            )
            assert width * problem.scalar_bytes <= VECTOR_BYTES
            if can_launch(launch, division.blocks):
                return launch
        return None
