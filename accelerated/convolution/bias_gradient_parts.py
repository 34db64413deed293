"""Gradients of the bias in parts, which another launch adds (convolution/bias_gradient.cuh)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dualdnn.api.operations.specs import DOUBLE

from ..plans import SCRATCH, Launch, factors, pointers, structure, type_definitions
from ..primitives.cluster import CLUSTER_SIZES, has_clusters
from ..primitives.geometry import Grid
from .bias_gradient import BiasProblem
from .filter_gradient.sum import parts_launch

PACK_BYTES = 16
THREADS = 256  # of a block


def cluster_blocks(device: Any) -> int:
    """Return the blocks of a cluster."""
    return CLUSTER_SIZES[0] if has_clusters(device) else 1


def has_packed_result(problem: BiasProblem) -> bool:
    """Return whether the elements of db follow each other."""
    db = problem.operation.db
    return bool(db.dims[1] == 1 or db.strides[1] == 1)


def launches_in_parts(
    problem: BiasProblem,
    source: str,
    parts: int,
    grid: Grid,
    fields: Sequence[tuple[str, Any]],
    definitions: Mapping[str, str],
) -> list[Launch]:
    """Return the launch of the kernel of a source and, where there are several parts, the one that adds them."""
    o, device = problem.operation, problem.device
    names = type_definitions(o.dy.scalar_type, o, **definitions)
    function = device.function(source, source.removesuffix(".cu").replace("/", "_"), names)
    arguments = structure(*pointers(3), *factors(o, alpha=o.alpha, beta=o.beta), *fields)
    first = Launch(function, arguments, ("dy", "db", SCRATCH if parts > 1 else "db"), grid)
    if parts == 1:
        return [first]
    total = parts_launch(o, o.dy.data_type, o.dy.dims[1], parts, device)
    total.operands = (SCRATCH, "db")
    for launch in (first, total):
        launch.scratch_bytes = parts * o.dy.dims[1] * (8 if o.dy.data_type == DOUBLE else 4)
    return [first, total]
