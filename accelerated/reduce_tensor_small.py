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
MOST_THREADS, MOST_BLOCKS = 1024, 264  # of a block; and of these
MOST_BYTES = 4 << 20  # of A
PROCESSORS = 132
GATHERING_BYTES = 8  # and as much for its alignment


class Reading(NamedTuple):
    """Accesses of ``width`` elements. reduced, kept: as the kernel walks them; the accesses of a thread are split from the first."""

    width: int
    reduced: Any
    kept: Any


class Way(NamedTuple):
    """How threads share a reduction: ``blocks`` of a cluster, in each ``lanes`` threads for every one of ``items``."""

    blocks: int
    lanes: int
    items: int

    @property
    def threads(self) -> int:
        return self.lanes * self.items


def launch(operation: ReduceTensor, device: Any) -> Launch | None:
    """None for what is too large, and where indices are wanted."""
    if operation.wants_indices or operation.A.nbytes > MOST_BYTES:
        return None
    for way, reading in choices(operation, has_clusters(device)):
        made = launch_of(operation, device, reading, way)
        if way.blocks <= CLUSTERS[0] or made.function.holds_clusters(made.grid, made.block, made.shared_bytes):
            return made
    return None


def choices(operation: ReduceTensor, clusters: bool) -> list[tuple[Way, Reading]]:
    """The one that should take least time first."""
    rows, scalar_bytes = operation.division.rows, operation.A.scalar_bytes
    found = [(way, reading) for reading in readings(operation) for way in ways(reading, rows, clusters)]
    return sorted(found, key=lambda choice: cost(*choice, rows, scalar_bytes))


def access_bytes(operation: ReduceTensor) -> int:
    """That A has to start at a multiple of."""
    return max(reading.width for reading in readings(operation)) * operation.A.scalar_bytes


def readings(operation: ReduceTensor) -> Iterator[Reading]:
    """By accesses of all widths of which A consists, and split in all ways."""
    walk, rows, width = Walk(operation), operation.division.rows, pack_width(operation.A)
    while width:
        kept, whole = walk.kept(1 if rows else width), walk.reduced(width if rows else 1)
        row, step = (whole.row, whole.row_stride[1]) if rows else (kept.row, kept.row_stride[2])
        steps = [whole.outer[d].stride[1] for d in range(whole.outer_rank)]
        steps += [kept.outer[d].stride[2] for d in range(kept.outer_rank)]
        if kept.packs > 1:
            steps.append(kept.row_stride[2] if rows else whole.row_stride[1])
        if width == 1 or (step == 1 and not any(extent % width for extent in (row, *steps))):
            yield from (Reading(width, reduced, kept) for reduced in walk.split(width if rows else 1, READS))
        width //= 2


def ways(reading: Reading, rows: bool, clusters: bool) -> Iterator[Way]:
    """Those that read everything at once."""
    for blocks in (1, *CLUSTERS) if clusters else (1,):
        lanes = max(1, 1 << (-(-reading.reduced.packs // blocks) - 1).bit_length())
        items = 1
        while lanes * items <= MOST_THREADS:
            grid = -(-reading.kept.packs // items) * blocks
            if lanes * items >= WARP and grid <= MOST_BLOCKS:
                yield Way(blocks, lanes, items)
            items *= 2


def cost(way: Way, reading: Reading, rows: bool, scalar_bytes: int) -> float:
    """About how many cycles a choice takes beside what all of them do."""
    states, accesses = 1 if rows else reading.width, reading.reduced.items
    grid = -(-reading.kept.packs // way.items) * way.blocks
    warps = -(-grid // PROCESSORS) * way.threads / WARP  # of a multiprocessor
    merged = WARP if rows else max(1, WARP // way.items)
    shuffles = (min(way.lanes, merged) - 1).bit_length()
    parts = way.lanes // merged if way.lanes > merged else 0
    instructions = 80 + accesses * (5 + 2 * reading.width) + states * 3 * shuffles + (40 + 6 * states if parts else 0)
    cycles = instructions * max(3, warps / 4) + 28 * shuffles + (100 + 10 * parts if parts else 0) + grid
    read = way.threads * -(-grid // PROCESSORS) * accesses * reading.width * scalar_bytes
    return cycles + read / 50 + (900 if way.blocks > 1 else 0)


def launch_of(operation: ReduceTensor, device: Any, reading: Reading, way: Way) -> Launch:
    """As planned."""
    rows, state_bytes = operation.division.rows, SCALAR_BYTES[operation.compute_type]
    states = way.items * (1 if rows else reading.width)
    merged = WARP if rows else max(1, WARP // way.items)  # lanes of a warp
    parts = way.lanes // merged if way.lanes > merged else 0
    gathered_at, gathered = parts * states, (way.blocks if way.blocks > 1 else 0)
    definitions = {"PACK": str(reading.width)} | ({"CLUSTER_BLOCKS": str(way.blocks)} if way.blocks > 1 else {})
    function = device.function(
        "reduce_tensor_small.cu",
        f"reduce_tensor_small_{'rows' if rows else 'columns'}",
        type_definitions(operation.A.scalar_type, operation, **definitions),
    )
    return Launch(
        function,
        arguments(operation, reading.reduced, reading.kept, windows=False, lanes=way.lanes, gathered_at=gathered_at),
        OPERANDS,
        (-(-reading.kept.packs // way.items), way.blocks, 1),
        (way.threads, 1, 1),
        state_bytes * (parts + gathered) * states + 2 * GATHERING_BYTES,
    )
