"""Reductions of small tensors on the device (kernels/reduce_tensor_small.cu): all that they read is on its way at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.reduce_tensor import pack_width
from dualdnn.api.operations.specs import SCALAR_BYTES

from .clusters import CLUSTERS, has_clusters
from .plans import Launch, type_definitions
from .reduce_tensor_walk import OPERANDS, Walk, arguments

READS = 8  # of a thread
WARP = 32
MOST_THREADS, MOST_BLOCKS = 1024, 528  # of a block; and of these, as many as run at a time with room to spare
MOST_BYTES = 4 << 20  # of A
GATHERING_BYTES = 8  # and as much for its alignment


class Way(NamedTuple):
    """How threads share a reduction: ``blocks`` of a cluster, in each ``lanes`` threads for every one of ``items``."""

    blocks: int
    lanes: int
    items: int

    @property
    def threads(self) -> int:
        return self.lanes * self.items


class _Layout(NamedTuple):
    """width: elements of an access."""

    width: int
    reduced: Any
    kept: Any


def access_bytes(operation: ReduceTensor) -> int:
    """That A has to start at a multiple of."""
    return _layout(operation).width * operation.A.scalar_bytes


def launch(operation: ReduceTensor, device: Any) -> Launch | None:
    """None for what is too large, and where indices are wanted."""
    if operation.wants_indices or operation.A.nbytes > MOST_BYTES:
        return None
    layout = _layout(operation)
    ways = [way for way in _ways(layout, operation.division.rows, has_clusters(device))]
    for way in sorted(ways, key=lambda way: _cost(way, layout)):
        made = launch_of(operation, device, layout, way)
        if way.blocks <= CLUSTERS[0] or made.function.holds_clusters(made.grid, made.block, made.shared_bytes):
            return made
    return None


def _layout(operation: ReduceTensor) -> _Layout:
    """Of the widest accesses of which A consists."""
    walk, rows = Walk(operation), operation.division.rows
    width = pack_width(operation.A)
    while True:
        reduced, kept = walk.reduced(width if rows else 1), walk.kept(1 if rows else width)
        row, step = (reduced.row, reduced.row_stride[1]) if rows else (kept.row, kept.row_stride[2])
        steps = [reduced.outer[d].stride[1] for d in range(reduced.outer_rank)]
        steps += [kept.outer[d].stride[2] for d in range(kept.outer_rank)]
        if kept.packs > 1:
            steps.append(kept.row_stride[2] if rows else reduced.row_stride[1])
        if width == 1 or (step == 1 and not any(extent % width for extent in (row, *steps))):
            return _Layout(width, reduced, kept)
        width //= 2


def _ways(layout: _Layout, rows: bool, clusters: bool) -> Iterator[Way]:
    """Those that read everything at once."""
    for blocks in (1, *CLUSTERS) if clusters else (1,):
        for log_lanes in range(MOST_THREADS.bit_length()):
            for log_items in range(MOST_THREADS.bit_length() - log_lanes):
                way = Way(blocks, 1 << log_lanes, 1 << log_items)
                grid = -(-layout.kept.packs // way.items) * blocks
                enough = layout.reduced.packs <= blocks * way.lanes * READS
                alone = blocks == 1 or way.lanes >= WARP or not rows
                if WARP <= way.threads and enough and alone and grid <= MOST_BLOCKS:
                    yield way


def _cost(way: Way, layout: _Layout) -> tuple[float, ...]:
    return way.blocks, abs(way.lanes * 4 - layout.reduced.packs), abs(way.threads - 128)


def launch_of(operation: ReduceTensor, device: Any, layout: _Layout, way: Way) -> Launch:
    rows, state_bytes = operation.division.rows, SCALAR_BYTES[operation.compute_type]
    states = way.items * (1 if rows else layout.width)
    parts = way.lanes if not rows and way.items >= WARP else -(-way.threads // WARP) if not rows else -(-way.lanes // WARP)
    gathered_at = parts * states
    parts += way.blocks if way.blocks > 1 else 0
    definitions = {"PACK": str(layout.width)} | ({"CLUSTER_BLOCKS": str(way.blocks)} if way.blocks > 1 else {})
    function = device.function(
        "reduce_tensor_small.cu",
        f"reduce_tensor_small_{'rows' if rows else 'columns'}",
        type_definitions(operation.A.scalar_type, operation, **definitions),
    )
    return Launch(
        function,
        arguments(operation, layout.reduced, layout.kept, windows=False, lanes=way.lanes, gathered_at=gathered_at),
        OPERANDS,
        (-(-layout.kept.packs // way.items), way.blocks, 1),
        (way.threads, 1, 1),
        state_bytes * parts * states + 2 * GATHERING_BYTES,
    )
