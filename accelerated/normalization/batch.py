"""The calls of batch normalization as their kernels see them, and how those of any layout divide their elements among
threads (the host side of batch_call.cuh and batch.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.normalization.batch import NormalizationGradient, NormalizationInference
from dualdnn.api.operations.specs import DOUBLE

from ..plans import SCRATCH, Launch, factors, pointers, structure, type_definitions
from ..primitives.cluster import has_clusters
from ..primitives.geometry import PACK_BYTES, Grid, geometry
from ..solver import Problem, Solver

FEWEST_LANES = 16  # neighbouring threads on neighbouring statistics: a sector of 32 bytes at least
MOST_LANES = WARP = 32
CLUSTER = 8  # blocks
IN_FLIGHT = 8  # elements that a thread reads before it uses the first; as in batch.cuh
NONE = ""  # a null pointer
ANY, ALONE, RECTIFIED, ADDED = range(4)  # what kernels know of a call when they are compiled, as in batch_call.cuh


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Division:
    """The block and the grid of a launch of any layout."""

    lanes: int  # threads of a block along statistics
    rows: int  # and along positions
    statistics: int
    positions: int

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


class BatchProblem(Problem):
    """One call: the tensors of the dimensions of x, the output last, its launch operands and its scalars."""

    def __init__(self, operation: Any, device: Any, aligned: bool = True) -> None:
        super().__init__(operation, device, aligned)
        self.x: TensorSpec = operation.x
        self.is_gradient = isinstance(operation, NormalizationGradient)
        self.is_inference = isinstance(operation, NormalizationInference)
        self.reduced = operation.reduced_dims
        self.kept = tuple(d for d in range(1, self.x.rank) if d not in self.reduced)
        self.tensors = ("x", "dy", "dz", "dx") if self.is_gradient else ("x", "z", "y")
        self.indexed = [operation.tensor(name) if name in operation.operands else self.x for name in self.tensors]

    @cached_property
    def call(self) -> ctypes.Structure:
        """The ``ForwardCall`` or ``BackwardCall`` of the kernels; its pointers are those of ``operands`` and scratch
        memory."""
        o, count = self.operation, self.count
        if self.is_gradient:
            scalars = factors(
                o, alpha=o.alphaDataDiff, beta=o.betaDataDiff, parameter_alpha=o.alphaParamDiff,
                parameter_beta=o.betaParamDiff, epsilon=o.epsilon,
            )  # fmt: skip
        else:
            activation = getattr(o, "activation", None)
            scalars = factors(
                o, alpha=o.alpha, beta=o.beta, epsilon=o.epsilon, factor=getattr(o, "exponentialAverageFactor", 0.0),
                unbiased=count / (count - 1) if count > 1 else float("nan"),
            )  # fmt: skip
            scalars += [
                ("rectify", ctypes.c_int(activation is not None)),
                ("propagate", ctypes.c_int(activation.relu_nan if activation is not None else 1)),
            ]
        return structure(*pointers(len(self.operands) + 1), *scalars)

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands of every launch, in the order of the kernels' pointers, but for scratch memory, the last one."""
        kept = "reserveSpace" if self.has_mask else NONE
        if self.is_gradient:
            return (*self.tensors, "scale", "bias", "savedMean", "savedInvVariance", "dScale", "dBias", kept)
        known = ("mean", "variance") if self.is_inference else ("runningMean", "runningVariance")
        return (*self.tensors, "scale", "bias", *known, "savedMean", "savedInvVariance", kept)

    @cached_property
    def has_mask(self) -> bool:
        """Whether a mask says what the activation passes: where z is added before it."""
        return (self.operation.dz if self.is_gradient else self.operation.z) is not None

    @cached_property
    def fused(self) -> int:
        """What is fused with a call of alpha 1 and beta 0: ALONE, RECTIFIED or ADDED; else ANY."""
        o = self.operation
        scaled = (o.alphaDataDiff, o.betaDataDiff) if self.is_gradient else (o.alpha, o.beta)
        if scaled != (1, 0) or (self.has_mask and o.activation is None):
            return ANY
        return ADDED if self.has_mask else ALONE if o.activation is None else RECTIFIED

    @property
    def statistics_count(self) -> int:
        """How many statistics there are."""
        return self.operation.scaleBias.count

    @property
    def count(self) -> int:
        """The elements of one group."""
        return self.x.count // self.statistics_count

    @property
    def compute_bytes(self) -> int:
        """The size of a number of the arithmetic."""
        return 8 if self.operation.compute_type == DOUBLE else 4

    @property
    def width(self) -> int:
        """Elements of a pack of 16 bytes."""
        return PACK_BYTES // self.x.scalar_bytes

    def number(self, value: float) -> Any:
        """Return a number of the arithmetic as a field."""
        return ctypes.c_double(value) if self.operation.compute_type == DOUBLE else ctypes.c_float(value)

    @cached_property
    def _packed_alike(self) -> bool:
        """Whether all tensors have the strides of x and no gaps, and those of statistics neither."""
        of_statistics = (self.operation.scaleBias, self.operation.meanVariance)
        alike = all(spec.strides == self.x.strides for spec in self.indexed)
        extent = 1 + sum((e - 1) * s for e, s in zip(self.x.dims, self.x.strides, strict=True))
        return alike and extent == self.x.count and all(self._lie_alike(spec) for spec in of_statistics)

    def _lie_alike(self, spec: TensorSpec) -> bool:
        """Whether a tensor of statistics has no gaps, and the order in which x has their positions."""
        dims = [d for d in self.kept if self.x.dims[d] > 1]
        smallest = min((self.x.strides[d] for d in dims), default=1)
        return all(spec.strides[d] * smallest == self.x.strides[d] for d in dims)

    @cached_property
    def has_columns(self) -> bool:
        """Whether the statistics of neighbours in memory are neighbours: channels innermost, or activations."""
        reduced = [self.x.strides[d] for d in self.reduced if self.x.dims[d] > 1]
        kept = [self.x.strides[d] for d in self.kept if self.x.dims[d] > 1]
        return self._packed_alike and bool(kept) and max(kept) < min(reduced, default=self.x.count)

    @cached_property
    def plane(self) -> int | None:
        """The elements of a contiguous plane of one channel; None where the tensors have no such planes."""
        spatial = range(2, self.x.rank)
        if self.kept != (1,) or not self._packed_alike:
            return None
        plane = prod(self.x.dims[d] for d in spatial)
        strides, dims = self.x.strides, self.x.dims
        inner = all(strides[d] < plane for d in spatial if dims[d] > 1)
        outer = (dims[1] == 1 or strides[1] == plane) and (dims[0] == 1 or strides[0] == plane * dims[1])
        return plane if inner and outer else None

    # --- any layout ---

    def _geometry(self, dims: Sequence[int]) -> Any:
        """Return the geometry of these dimensions; that of positions has no statistics: their strides are 0."""
        of_statistics = [self.operation.scaleBias, self.operation.meanVariance]
        kept = dims == self.kept
        strides = [[spec.strides[d] if kept else 0 for d in dims] for spec in of_statistics]
        strides += [[spec.strides[d] for d in dims] for spec in self.indexed]
        return geometry([self.x.dims[d] for d in dims], strides, 1)

    def division(self, threads: int) -> Division:
        """Return the division of the call for blocks of so many threads at most."""
        fastest = min((d for d in range(self.x.rank) if self.x.dims[d] > 1), key=lambda d: self.x.strides[d], default=0)
        statistics, positions = self.statistics_count, self.count
        lanes = 1
        if fastest in self.kept:
            lanes = min(power_of_two(statistics), MOST_LANES)
            blocks = CLUSTER if has_clusters(self.device) else 1
            while lanes > FEWEST_LANES and -(-statistics // lanes) * blocks < self.device.multiprocessors:
                lanes //= 2
        # Full warps: what a block keeps is a multiple of 16 bytes too, behind which numbers of the arithmetic lie.
        rows = min(threads // lanes, max(power_of_two(positions), WARP // lanes))
        return Division(lanes, rows, statistics, positions)

    def clusters(self, division: Division) -> int:
        """Return how many blocks share the positions of a group: 1, or CLUSTER where there is work for them."""
        busy = division.blocks_across >= 4 * self.device.multiprocessors
        enough = division.positions >= CLUSTER * division.rows * IN_FLIGHT
        return CLUSTER if has_clusters(self.device) and not busy and enough else 1

    def cached(self, division: Division, cluster: int, copies: int) -> tuple[int, int]:
        """(elements of each of ``copies`` tensors that a thread keeps, bytes of shared memory of a block); two blocks
        have room."""
        exchange = self.compute_bytes * (3 * division.threads + 4 * cluster * division.lanes)
        of_threads = self.x.scalar_bytes * division.threads * copies
        needed = -(-division.positions // (division.rows * cluster))
        kept = max(0, min(needed, (self.device.shared_bytes_per_block // 2 - exchange) // of_threads))
        return kept, kept * of_threads + exchange

    def layout(self, division: Division, cached: int = 0) -> ctypes.Structure:
        """Return the ``Division`` of the kernel."""
        return structure(
            ("statistics", ctypes.c_uint(division.statistics)),
            ("positions", ctypes.c_uint(division.positions)),
            ("cached", ctypes.c_uint(cached)),
            ("count", self.number(self.count)),
            ("group", self._geometry(self.kept)),
            ("position", self._geometry(self.reduced)),
        )

    # --- launches ---

    def launch(
        self, source: str, kernel: str, others: Sequence[tuple[str, Any]], grid: Grid, block: Grid,
        shared_bytes: int = 0, scratch_bytes: int = 0, **definitions: int,
    ) -> Launch:  # fmt: skip
        """Return the launch of a kernel; ``others`` are its arguments behind the call."""
        named = {name: str(number) for name, number in {"CALLS": int(self.fused == ALONE), **definitions}.items()}
        defined = type_definitions(self.x.data_type, self.operation, **named)
        arguments = structure(("call", self.call), *others)
        function = self.device.function(source, kernel, defined)
        operands = (*self.operands, SCRATCH if scratch_bytes else NONE)
        launch = Launch(function, arguments, operands, grid, block, shared_bytes)
        launch.scratch_bytes = scratch_bytes
        return launch


class BatchPacksSolver(Solver[BatchProblem]):
    """A solver whose kernels move packs of 16 bytes."""

    def alignment(self, problem: BatchProblem) -> Mapping[str, int]:
        return dict.fromkeys((*problem.tensors, "reserveSpace"), PACK_BYTES)
