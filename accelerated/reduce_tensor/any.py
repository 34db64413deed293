"""Reductions of any tensor; long ones in segments whose partial results go through the workspace (reduce_tensor/any.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from threading import Lock
from typing import Any

from ..plans import Launch
from .division import BLOCK, WARP
from .problem import NOT_COUNTED, OPERANDS, WORKSPACE_ALIGNMENT, ReduceProblem, ReduceSolver, Tiles

SOURCE = "reduce_tensor/any.cu"
WARPS = BLOCK // WARP
COUNTS = 512  # counts of arrivals that the kernels have
MERGED_AT_ONCE = 4  # partial results of a lane
pack_addresses = Struct(f"{len(OPERANDS) + 1}Q").pack_into


class Counts:
    """Numbers of the counts of arrivals. Calls that are in flight together have different workspaces, so each workspace
    has its own, for every number of segments: whatever shares one, it is back at 0 when all blocks have arrived.
    """

    def __init__(self) -> None:
        self.numbers: dict[tuple[int, int], int] = {}
        self.lock = Lock()

    def number(self, workspace: int, segments: int) -> int:
        """Return the number for a workspace at this address, NOT_COUNTED where all counts are taken."""
        found = self.numbers.get((workspace, segments))
        if found is not None:
            return found
        with self.lock:
            if len(self.numbers) == COUNTS:
                return NOT_COUNTED
            return self.numbers.setdefault((workspace, segments), len(self.numbers))


class SegmentedLaunch(Launch):
    """The launch that leaves partial results in the workspace; its last blocks to arrive merge them where they are counted."""

    segments: int
    counts: Counts | None = None  # None: another launch merges

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        self.start_counted(addresses, stream, self.number(addresses))

    def number(self, addresses: Sequence[int]) -> int:
        """Return the number of the count that the blocks' arrivals enter."""
        return self.counts.number(self.workspace(addresses), self.segments) if self.counts else NOT_COUNTED

    def workspace(self, addresses: Sequence[int]) -> int:
        """Return the address of the partial results in the caller's workspace."""
        return -(-addresses[-1] // WORKSPACE_ALIGNMENT) * WORKSPACE_ALIGNMENT

    def start_counted(self, addresses: Sequence[int], stream: Any, number: int) -> None:
        """Launch with the workspace aligned. number: of a count, or NOT_COUNTED."""
        arguments = bytearray(self.template)
        pack_addresses(arguments, 0, *addresses[:-1], self.workspace(addresses), number)
        self.launch(arguments, stream)


class MergeLaunch(SegmentedLaunch):
    """The launch that merges partial results where arrivals were not counted."""

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        if self.number(addresses) == NOT_COUNTED:
            self.start_counted(addresses, stream, NOT_COUNTED)


class AnyTensor(ReduceSolver):
    """Whatever no other solver is preferred for: rows and columns of any layout, with indices or without."""

    name = "reduce_tensor.any"
    counted = True  # whether the last block to arrive merges partial results, not another launch

    def serves(self, problem: ReduceProblem) -> bool:
        return True

    def launches(self, problem: ReduceProblem) -> list[Launch]:
        division, (_, kept, _) = problem.division, problem.walked
        lanes, segments = division.lanes, division.segments
        tiles = Tiles.of(kept, BLOCK // lanes) if not division.rows and segments == 1 else None
        kind = Launch if segments == 1 else SegmentedLaunch
        reduce = kind(
            problem.function(SOURCE, f"reduce_tensor_any_{'rows' if division.rows else 'columns'}"),
            problem.arguments(kept, lanes, tiles),
            OPERANDS,
            (tiles.blocks if tiles else -(-kept.packs // (BLOCK // lanes)), segments, 1),
            (BLOCK, 1, 1),
            problem.state_bytes * (WARPS if division.rows else BLOCK * problem.width),
        )
        if not isinstance(reduce, SegmentedLaunch):
            return [reduce]
        kept, lanes_of_merge = problem.walk.kept(1), _lanes_of_merge(segments)
        merge = MergeLaunch(
            problem.function(SOURCE, "reduce_tensor_any_partial_results"),
            problem.arguments(kept, lanes_of_merge),
            OPERANDS,
            (-(-kept.packs // (BLOCK // lanes_of_merge)), 1, 1),
            (BLOCK, 1, 1),
            problem.state_bytes * WARPS,
        )
        reduce.segments = merge.segments = segments
        if self.counted:
            reduce.counts = merge.counts = problem.device.__dict__.setdefault("reduction_counts", Counts())
        return [reduce, merge]


def _lanes_of_merge(segments: int) -> int:
    """Threads that share an element of C when its partial results are merged."""
    return min(BLOCK, 1 << (-(-segments // MERGED_AT_ONCE) - 1).bit_length())
