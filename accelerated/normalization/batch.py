"""Describes batch normalization calls, and divides tensors of generic layouts among threads.

It is the host side of batch_call.cuh and batch.cuh.
"""

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

from ..plans import SCRATCH, Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.cluster import has_clusters
from ..primitives.geometry import VECTOR_BYTES, Grid, geometry
from ..reproducible import Order, order_of_batch
from ..solver import Problem, Solver

MIN_LANES = 16  # threads along statistics; fewer would not read whole sectors of 32 bytes
WARP = 32  # threads
MAX_LANES = WARP  # threads along statistics
CLUSTER = 8  # blocks per cluster
IN_FLIGHT = 8  # loads in flight per thread, as in batch.cuh
NONE = ""  # operand name of a null pointer
ANY, ALONE, RECTIFIED, ADDED = range(4)  # kinds of calls that kernels are compiled for, as in batch_call.cuh


def power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least ``number``."""
    return 1 << (number - 1).bit_length()


@dataclass(frozen=True)
class Division:
    """Hold the block and the grid of a launch for generic layouts."""

    lanes: int  # threads per block along statistics
    rows: int  # threads per block along positions
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
        """Return the number of blocks, or clusters, along statistics."""
        return -(-self.statistics // self.lanes)


class BatchProblem(Problem):
    """Hold a call: the tensors with the dimensions of x (output last), the launch operands and the scalars."""

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
        """Return the ``ForwardCall`` or ``BackwardCall`` of the kernels: pointers to operands and scratch, scalars."""
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
        """Return the names of the operands in the order of the kernels' pointers, without the scratch memory."""
        kept = "reserveSpace" if self.has_mask else NONE
        if self.is_gradient:
            return (*self.tensors, "scale", "bias", "savedMean", "savedInvVariance", "dScale", "dBias", kept)
        known = ("mean", "variance") if self.is_inference else ("runningMean", "runningVariance")
        return (*self.tensors, "scale", "bias", *known, "savedMean", "savedInvVariance", kept)

    @cached_property
    def has_mask(self) -> bool:
        """Return whether the reserve space holds a mask of the activation, because z is added before it."""
        return (self.operation.dz if self.is_gradient else self.operation.z) is not None

    @cached_property
    def fused(self) -> int:
        """Return the kind of fusion (ALONE, RECTIFIED or ADDED) if alpha is 1 and beta 0; else ANY."""
        o = self.operation
        scaled = (o.alphaDataDiff, o.betaDataDiff) if self.is_gradient else (o.alpha, o.beta)
        if scaled != (1, 0) or (self.has_mask and o.activation is None):
            return ANY
        return ADDED if self.has_mask else ALONE if o.activation is None else RECTIFIED

    @property
    def statistics_count(self) -> int:
        """Return the number of statistics."""
        return self.operation.scaleBias.count

    @property
    def count(self) -> int:
        """Return the number of elements per mean and variance."""
        return self.x.count // self.statistics_count

    @property
    def compute_bytes(self) -> int:
        """Return the bytes per number of the arithmetic type."""
        return 8 if self.operation.compute_type == DOUBLE else 4

    @property
    def width(self) -> int:
        """Return the elements per vector of 16 bytes."""
        return VECTOR_BYTES // self.x.scalar_bytes

    def number(self, value: float) -> Any:
        """Return a number in the arithmetic type, as the value of a field."""
        return ctypes.c_double(value) if self.operation.compute_type == DOUBLE else ctypes.c_float(value)

    @cached_property
    def _packed_alike(self) -> bool:
        """Return whether all tensors are packed with the strides of x, and statistics are packed in the same order."""
        of_statistics = (self.operation.scaleBias, self.operation.meanVariance)
        alike = all(spec.strides == self.x.strides for spec in self.indexed)
        extent = 1 + sum((e - 1) * s for e, s in zip(self.x.dims, self.x.strides, strict=True))
        return alike and extent == self.x.count and all(self._lie_alike(spec) for spec in of_statistics)

    def _lie_alike(self, spec: TensorSpec) -> bool:
        """Return whether a tensor of statistics is packed in the order of the kept dimensions of x."""
        dims = [d for d in self.kept if self.x.dims[d] > 1]
        smallest = min((self.x.strides[d] for d in dims), default=1)
        return all(spec.strides[d] * smallest == self.x.strides[d] for d in dims)

    @cached_property
    def has_columns(self) -> bool:
        """Return whether the kept dimensions are innermost: NHWC, or statistics per activation."""
        reduced = [self.x.strides[d] for d in self.reduced if self.x.dims[d] > 1]
        kept = [self.x.strides[d] for d in self.kept if self.x.dims[d] > 1]
        return self._packed_alike and bool(kept) and max(kept) < min(reduced, default=self.x.count)

    @cached_property
    def plane(self) -> int | None:
        """Return the elements of a channel's contiguous plane; None where the tensors have no such planes."""
        spatial = range(2, self.x.rank)
        if self.kept != (1,) or not self._packed_alike:
            return None
        plane = prod(self.x.dims[d] for d in spatial)
        strides, dims = self.x.strides, self.x.dims
        inner = all(strides[d] < plane for d in spatial if dims[d] > 1)
        outer = (dims[1] == 1 or strides[1] == plane) and (dims[0] == 1 or strides[0] == plane * dims[1])
        return plane if inner and outer else None

    # --- generic layouts ---

    def _geometry(self, dims: Sequence[int]) -> Any:
        """Return the geometry of dimensions; along positions, the strides of statistics are 0."""
        of_statistics = [self.operation.scaleBias, self.operation.meanVariance]
        kept = dims == self.kept
        strides = [[spec.strides[d] if kept else 0 for d in dims] for spec in of_statistics]
        strides += [[spec.strides[d] for d in dims] for spec in self.indexed]
        return geometry([self.x.dims[d] for d in dims], strides, 1)

    def division(self, threads: int) -> Division:
        """Return the division of the call into blocks of at most ``threads`` threads."""
        fastest = min((d for d in range(self.x.rank) if self.x.dims[d] > 1), key=lambda d: self.x.strides[d], default=0)
        statistics, positions = self.statistics_count, self.count
        lanes = 1
        if fastest in self.kept:
            lanes = min(power_of_two(statistics), MAX_LANES)
            blocks = CLUSTER if has_clusters(self.device) else 1
            while lanes > MIN_LANES and -(-statistics // lanes) * blocks < self.device.multiprocessors:
                lanes //= 2
        # A block has full warps. The elements that it keeps then end at a multiple of 16 bytes, where others begin.
        rows = min(threads // lanes, max(power_of_two(positions), WARP // lanes))
        return Division(lanes, rows, statistics, positions)

    def clusters(self, division: Division) -> int:
        """Return the number of blocks that share the positions of a group: CLUSTER where it pays, else 1."""
        busy = division.blocks_across >= 4 * self.device.multiprocessors
        enough = division.positions >= CLUSTER * division.rows * IN_FLIGHT
        return CLUSTER if has_clusters(self.device) and not busy and enough else 1

    def cached(self, division: Division, cluster: int, copies: int) -> tuple[int, int]:
        """Return the elements that a thread keeps of each of ``copies`` tensors, and the shared memory per block.

        Two blocks fit an SM.
        """
        exchange = self.compute_bytes * (3 * division.threads + 4 * cluster * division.lanes)
        of_threads = self.x.scalar_bytes * division.threads * copies
        needed = -(-division.positions // (division.rows * cluster))
        kept = max(0, min(needed, (self.device.shared_bytes_per_block // 2 - exchange) // of_threads))
        return kept, kept * of_threads + exchange

    def layout(self, division: Division, cached: int = 0) -> ctypes.Structure:
        """Return the ``Division`` of the kernel."""
        return structure(
            *fields_of(ctypes.c_uint, statistics=division.statistics, positions=division.positions, cached=cached),
            ("count", self.number(self.count)),
            ("group", self._geometry(self.kept)),
            ("position", self._geometry(self.reduced)),
        )

    def order_by(self, solver: Solver[Any]) -> Order | None:
        return Order("none", (solver.name,)) if self.is_inference else order_of_batch(solver, self.operation)

    # --- launches ---

    def launch(
        self, source: str, kernel: str, others: Sequence[tuple[str, Any]], grid: Grid, block: Grid,
        shared_bytes: int = 0, scratch_bytes: int = 0, **definitions: int,
    ) -> Launch:  # fmt: skip
        """Return the launch of a kernel; ``others`` are its arguments after the call."""
        named = {name: str(number) for name, number in {"CALLS": int(self.fused == ALONE), **definitions}.items()}
        defined = type_definitions(self.x.data_type, self.operation, **named)
        arguments = structure(("call", self.call), *others)
        function = self.device.function(source, kernel, defined)
        operands = (*self.operands, SCRATCH if scratch_bytes else NONE)
        launch = Launch(function, arguments, operands, grid, block, shared_bytes)
        launch.scratch_bytes = scratch_bytes
        return launch


class BatchVectorsSolver(Solver[BatchProblem]):
    """Plan kernels that move vectors of 16 bytes."""

    def alignment(self, problem: BatchProblem) -> Mapping[str, int]:
        return dict.fromkeys((*problem.tensors, "reserveSpace"), VECTOR_BYTES)
