"""How the kernels of batch normalization divide their elements among threads (the host side of batch.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, factors, structure, type_definitions
from ..primitives.cluster import has_clusters
from ..primitives.geometry import PACK_BYTES, Grid, geometry
from ..solver import Problem

WIDEST = 8  # elements of a pack, at most: so many statistics a thread has in registers
# Neighbouring threads on neighbouring packs of statistics, of packs and of single elements: a sector of 32 bytes each
# at least.
FEWEST_LANES = {True: 2, False: 16}
MOST_LANES = WARP = 32
CLUSTER = 8  # blocks
IN_FLIGHT = {True: 4, False: 8}  # packs that a thread reads before it uses the first; as in batch.cuh


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Division:
    """The block and the grid of a launch, and what its kernel is compiled for."""

    width: int
    along_statistics: bool
    lanes: int  # threads of a block along packs of statistics
    rows: int  # and along packs of positions
    statistics: int  # packs
    positions: int  # packs

    @property
    def block(self) -> Grid:
        return (self.lanes, self.rows, 1)

    @property
    def threads(self) -> int:
        return self.lanes * self.rows

    @property
    def blocks_across(self) -> int:
        """Blocks, or clusters, that have different groups."""
        return -(-self.statistics // self.lanes)

    @property
    def span(self) -> int:
        """Statistics of a thread."""
        return self.width if self.along_statistics else 1


class BatchProblem(Problem):
    """One call: the tensors that its kernel indexes, those of statistics (scale, mean) first, the output last."""

    tensors: Sequence[str] = ()  # of the call, those that have the dimensions of x

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.x: TensorSpec = operation.x
        self.reduced = operation.reduced_dims
        self.kept = tuple(d for d in range(1, self.x.rank) if d not in self.reduced)
        self.indexed = [operation.tensor(name) if name in operation.operands else self.x for name in self.tensors]

    def _geometry(self, dims: Sequence[int], width: int) -> Any:
        """Return the geometry of these dimensions; that of positions has no statistics: their strides are 0."""
        of_statistics = [self.operation.scaleBias, self.operation.meanVariance]
        kept = dims == self.kept
        strides = [[spec.strides[d] if kept else 0 for d in dims] for spec in of_statistics]
        strides += [[spec.strides[d] for d in dims] for spec in self.indexed]
        return geometry([self.x.dims[d] for d in dims], strides, width)

    @property
    def statistics_count(self) -> int:
        """How many statistics there are."""
        return self.operation.scaleBias.count

    @property
    def count(self) -> int:
        """The elements of one group."""
        return self.x.count // self.statistics_count

    def _packs(self, along: Sequence[int], across: Sequence[int], width: int) -> bool:
        """Whether every tensor has packs of ``width`` neighbours along these dimensions."""
        found = self._geometry(along, width)
        tensors = range(2, 2 + len(self.indexed))
        steps = [spec.strides[d] for spec in self.indexed for d in across if self.x.dims[d] > 1]
        return (
            found.row % width == 0
            and all(found.vectorised >> i & 1 for i in tensors)
            and all(step % width == 0 for step in steps)
        )

    @cached_property
    def vector(self) -> tuple[int, bool] | None:
        """(elements of a pack, whether they are of neighbouring statistics); None where the tensors have no packs."""
        width = min(PACK_BYTES // self.x.scalar_bytes, WIDEST)
        if self._packs(self.kept, self.reduced, width):
            return width, True
        if self._packs(self.reduced, self.kept, width):
            return width, False
        return None

    def division(self, packed: bool, threads: int) -> Division:
        """Return the division of the call for blocks of so many threads at most."""
        if packed:
            assert self.vector is not None
            width, along = self.vector
        else:
            width = 1
            fastest = min(
                (d for d in range(self.x.rank) if self.x.dims[d] > 1), key=lambda d: self.x.strides[d], default=0
            )
            along = fastest in self.kept
        statistics = self.statistics_count // (width if along else 1)
        positions = self.count // (1 if along else width)
        lanes = 1
        if along:
            lanes = min(power_of_two(statistics), MOST_LANES)
            blocks = CLUSTER if has_clusters(self.device) else 1
            while lanes > FEWEST_LANES[packed] and -(-statistics // lanes) * blocks < self.device.multiprocessors:
                lanes //= 2
        # Full warps: what a block keeps is a multiple of 16 bytes too, behind which numbers of the arithmetic lie.
        rows = min(threads // lanes, max(power_of_two(positions), WARP // lanes))
        return Division(width, along, lanes, rows, statistics, positions)

    def clusters(self, division: Division) -> int:
        """Return how many blocks share the positions of a group: 1, or CLUSTER where there is work for them."""
        packs = division.rows * IN_FLIGHT[division.width > 1]
        busy = division.blocks_across >= 4 * self.device.multiprocessors
        return CLUSTER if has_clusters(self.device) and not busy and division.positions >= CLUSTER * packs else 1

    def cached(self, division: Division, cluster: int, copies: int) -> tuple[int, int]:
        """(packs of each of ``copies`` tensors that a thread keeps, bytes of shared memory of a block); two blocks have
        room."""
        compute = 8 if self.operation.compute_type == DOUBLE else 4
        words = 2 * division.span + 1
        exchange = compute * words * (division.threads + cluster * division.lanes)
        pack = self.x.scalar_bytes * division.width * division.threads * copies
        needed = -(-division.positions // (division.rows * cluster))
        packs = max(0, min(needed, (self.device.shared_bytes_per_block // 2 - exchange) // pack))
        return packs, packs * pack + exchange

    def layout(self, division: Division, cached: int = 0) -> ctypes.Structure:
        """Return the ``Division`` of the kernel."""
        along = division.along_statistics
        kind = ctypes.c_double if self.operation.compute_type == DOUBLE else ctypes.c_float
        return structure(
            ("statistics", ctypes.c_uint(division.statistics)),
            ("positions", ctypes.c_uint(division.positions)),
            ("cached", ctypes.c_uint(cached)),
            ("count", kind(self.count)),
            ("group", self._geometry(self.kept, division.width if along else 1)),
            ("position", self._geometry(self.reduced, 1 if along else division.width)),
        )

    def launch(
        self, source: str, kernel: str, division: Division, cluster: int, fields: Sequence[tuple[str, Any]],
        operands: Sequence[str], blocks: int, cached: int = 0, shared_bytes: int = 0, **definitions: str,
    ) -> Launch:  # fmt: skip
        """Return the launch of a kernel; ``fields`` of its arguments stand before the division; ``blocks`` share the
        positions."""
        defined = type_definitions(
            self.x.data_type, self.operation, PACK_WIDTH=str(division.width),
            ALONG_STATISTICS=str(int(division.along_statistics)), CLUSTER_BLOCKS=str(cluster), **definitions,
        )  # fmt: skip
        arguments = structure(*fields, ("division", self.layout(division, cached)))
        function = self.device.function(source, kernel, defined)
        return Launch(function, arguments, operands, (division.blocks_across, blocks, 1), division.block, shared_bytes)

    def numbers(self, **values: float) -> list[tuple[str, Any]]:
        """Return fields of scalars in the type of the arithmetic."""
        return factors(self.operation, **values)
