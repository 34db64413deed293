"""Gradients of the bias in parts, of which the last to arrive adds all (convolution/bias_gradient.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_ulonglong
from typing import Any, Self

from dualdnn.api.operations.specs import DOUBLE

from ..plans import SCRATCH, Launch, factors, pointers, structure, type_definitions
from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..primitives.geometry import Grid
from ..reduce_tensor.any import COUNTS, Counts
from ..reduce_tensor.problem import NOT_COUNTED
from ..runtime.device import LaunchShape
from .bias_gradient import BiasProblem

PACK_BYTES = 16
THREADS, GROUPS = 256, 32  # of a block; groups of blocks that arrive together


class PartsLaunch(Launch):
    """A launch of several parts, by a count that its scratch memory has to itself; where all counts are taken, of one part."""

    counts: Counts
    parts: int
    single: Launch

    def starter_of(self, template: bytes) -> Any:
        shape = LaunchShape(self.grid, self.block, self.shared_bytes, self.cooperative)
        return self.function.starter(template, len(self.operands) + 1, shape)

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        number = self.counts.number(addresses[-1], self.parts)
        if number == NOT_COUNTED:
            self.single.start(addresses, stream)
        else:
            super().start([*addresses, number], stream)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        made = super().with_scalars(values)
        if made is not self:
            made.single = self.single.with_scalars(values)
        return made


def cluster_blocks(device: Any) -> int:
    """Return the blocks of a cluster."""
    return CLUSTER_SIZES[0] if has_clusters(device) else 1


def launch_in_parts(
    problem: BiasProblem, source: str, parts: int, grid: Any, fields: Any, definitions: Mapping[str, str]
) -> Launch:
    """Return the launch of the kernel of a source. grid, fields: of the parts, as functions of their number."""
    o, device = problem.operation, problem.device
    names = type_definitions(o.dy.scalar_type, o, COUNTS=str(COUNTS), GROUPS=str(GROUPS), **definitions)
    function = device.function(source, source.removesuffix(".cu").replace("/", "_"), names)

    def made(kind: type[Launch], parts: int) -> Any:
        arguments: ctypes.Structure = structure(
            *pointers(3),
            ("count", c_ulonglong()),
            *factors(o, alpha=o.alpha, beta=o.beta),
            *fields(parts),
        )
        blocks: Grid = grid(parts)
        return kind(function, arguments, ("dy", "db", SCRATCH if kind is PartsLaunch else "db"), blocks)

    single: Launch = made(Launch, 1)
    if parts == 1:
        return single
    launch: PartsLaunch = made(PartsLaunch, parts)
    launch.counts = device.__dict__.setdefault("bias_gradient_counts", Counts())
    launch.parts, launch.single = parts, single
    launch.scratch_bytes = parts * o.dy.dims[1] * (8 if o.dy.data_type == DOUBLE else 4)
    return launch
