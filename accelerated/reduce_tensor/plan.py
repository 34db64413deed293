"""Reductions on the device (reduce_tensor/any.cu, reduce_tensor_large.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from struct import Struct
from threading import Lock
from typing import Any

from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.reduce_tensor import BLOCK, WORKSPACE_ALIGNMENT, pack_width
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import AlignedPlan, Launch, Plan, implements, type_definitions
from . import small
from .problem import FLOAT_BYTES, HALF_BYTES, NOT_COUNTED, OPERANDS, Tiles, Walk, arguments, even

WARP = 32
# As measured; of 38 MB columns took a third longer with the kernels of large tensors
LARGE_BYTES, LARGE_SCALARS = 64 << 20, (HALF_BYTES, FLOAT_BYTES)  # of A, of its elements
WARPS = BLOCK // WARP
READS = 8  # of a thread that are in flight together
pack_addresses = Struct(f"{len(OPERANDS) + 1}Q").pack_into
COUNTS = 512  # that the kernels have room for
MOST_PARTIALS = 32 * BLOCK  # that one block merges before another launch would have
PACK_BYTES = 16  # that A starts at a multiple of where rows are short


@implements(ReduceTensor)
def reduce_tensor(operation: ReduceTensor, device: Any) -> Plan:
    """One launch of what is small, or of rows that are short; else any."""
    if made := small.launch(operation, device):
        launch, access_bytes = made
        otherwise = partial(_not_small, operation, device)
        return AlignedPlan(operation, Plan(operation, [launch]), {"A": access_bytes}, otherwise)
    return _not_small(operation, device)


def _not_small(operation: ReduceTensor, device: Any) -> Plan:
    reduced, kept, windows = _walked(operation)
    if _short(operation, reduced, kept, windows):
        first = Plan(operation, [_short_rows(operation, reduced, kept, device)])
    elif _large(operation, *_walked(operation, aligned=True)):
        first = _split(operation, device, large=True)
    else:
        return _split(operation, device)
    return AlignedPlan(operation, first, {"A": PACK_BYTES}, partial(_split, operation, device))


def _walked(operation: ReduceTensor, aligned: bool = False) -> tuple[Any, Any, bool]:
    walk, width = Walk(operation), pack_width(operation.A)
    return walk.rows(width, aligned) if operation.division.rows else walk.columns(width)


def _split(operation: ReduceTensor, device: Any, large: bool = False) -> Plan:
    """One launch. Where reductions are split into segments, the last blocks to arrive merge the partial results, or,
    if these are many, the blocks of a second launch. large: by the kernels of large tensors.
    """
    A, division, source = operation.A, operation.division, "large" if large else "any"
    width = pack_width(A)
    reduced, kept, windows = _walked(operation, aligned=large)
    suffix = "_indexed" if operation.wants_indices else ""
    types = type_definitions(A.scalar_type, operation)
    state_bytes = SCALAR_BYTES[operation.compute_type] * (2 if operation.wants_indices else 1)  # in shared memory
    lanes = division.lanes
    tiles = Tiles.of(kept, BLOCK // lanes) if not division.rows and division.segments == 1 else None
    reduce = Launch(
        device.function(
            f"reduce_tensor/{source}.cu",
            f"reduce_tensor_{source}_{'rows' if division.rows else 'columns'}{suffix}",
            types,
        ),
        arguments(operation, reduced, kept, windows, lanes, tiles),
        OPERANDS,
        (tiles.blocks if tiles else -(-kept.packs // (BLOCK // lanes)), division.segments, 1),
        (BLOCK, 1, 1),
        state_bytes * (WARPS if division.rows else BLOCK * width),
    )
    if division.segments == 1:
        return Plan(operation, [reduce])
    items = 1 if division.rows else BLOCK // lanes * width  # elements of C of a block
    lanes = min(BLOCK, 1 << (-(-division.segments // 4) - 1).bit_length())
    kept = Walk(operation).kept(1)
    merge = Launch(
        device.function(f"reduce_tensor/{source}.cu", f"reduce_tensor_partial_results{suffix}", types),
        arguments(operation, reduced, kept, windows, lanes),
        OPERANDS,
        (-(-kept.packs // (BLOCK // lanes)), 1, 1),
        (BLOCK, 1, 1),
        state_bytes * WARPS,
    )
    if division.segments * items > MOST_PARTIALS:
        return Plan(operation, [reduce, merge])
    return _SegmentedPlan(operation, reduce, merge, device.__dict__.setdefault("reduction_counts", _Counts()))


def _large(operation: ReduceTensor, reduced: Any, kept: Any, windows: bool) -> bool:
    """Whether the cache holds little of A, and packs are whole."""
    if operation.wants_indices or operation.A.nbytes <= LARGE_BYTES or operation.A.scalar_bytes not in LARGE_SCALARS:
        return False
    if not operation.division.rows:
        return even(operation, reduced, kept, windows)
    return not windows and bool(reduced.row_stride[1] == 1 and reduced.row % pack_width(operation.A) == 0)


def _short(operation: ReduceTensor, reduced: Any, kept: Any, windows: bool) -> bool:
    """Whether elements of C reduce rows of few packs that follow each other in memory."""
    rows = operation.division.rows and operation.division.lanes < WARP and even(operation, reduced, kept, windows)
    return rows and kept.outer_rank == 0 and bool(kept.row_stride[2] == reduced.row)


def _short_rows(operation: ReduceTensor, reduced: Any, kept: Any, device: Any) -> Launch:
    """Blocks of as many rows as their threads read at once."""
    lanes = 1 << (-(-reduced.packs // READS) - 1).bit_length()
    suffix = "_indexed" if operation.wants_indices else ""
    state_bytes = SCALAR_BYTES[operation.compute_type] * (2 if operation.wants_indices else 1)
    rows = BLOCK // lanes
    types = type_definitions(operation.A.scalar_type, operation)
    return Launch(
        device.function("reduce_tensor/any.cu", f"reduce_tensor_any_short_rows{suffix}", types),
        arguments(operation, reduced, kept, windows=False, lanes=lanes),
        OPERANDS,
        (-(-operation.C.count // rows), 1, 1),
        (BLOCK, 1, 1),
        state_bytes * rows * reduced.packs,
    )


class _Counts:
    """Numbers of the counts of arrivals. Calls that are in flight together have different workspaces, so each workspace
    has its own, for every number of segments: whatever shares one, it is back at 0 when all blocks have arrived.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int], int] = {}
        self.lock = Lock()

    def number(self, workspace: int, segments: int) -> int:
        """NOT_COUNTED where all counts are taken."""
        found = self.numbers.get((workspace, segments))
        if found is not None:
            return found
        with self.lock:
            if len(self.numbers) == COUNTS:
                return NOT_COUNTED
            return self.numbers.setdefault((workspace, segments), len(self.numbers))


class _SegmentedPlan(Plan):
    """One launch that counts the arrivals of its blocks, or two where nothing is left to count with."""

    def __init__(self, operation: ReduceTensor, reduce: Launch, merge: Launch, counts: _Counts) -> None:
        super().__init__(operation, [reduce, merge])
        self.launches, self.positions = [reduce, merge], self.steps[0][1]
        self.segments, self.counts = operation.division.segments, counts

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        addresses = [0 if operands[i] is None else operands[i].address for i in self.positions]
        workspace = addresses[-1] = -(-addresses[-1] // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT
        number = self.counts.number(workspace, self.segments)
        for launch in self.launches if number == NOT_COUNTED else self.launches[:1]:
            arguments = bytearray(launch.template)
            pack_addresses(arguments, 0, *addresses, number)
            launch.function.launch(arguments, launch.grid, launch.block, launch.shared_bytes, stream)
