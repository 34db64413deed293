"""Plans reductions of any tensor; long ones keep partial results in the workspace (reduce_tensor/generic.cu)."""

from __future__ import annotations

from collections.abc import Sequence

from ..plans import Launch
from ..records import Record, Where
from ..solver import Solver
from .division import BLOCK, WARP
from .problem import OPERANDS, WORKSPACE_ALIGNMENT, ReduceProblem, Tiles

SOURCE = "reduce_tensor/generic.cu"
WARPS = BLOCK // WARP
MERGED_AT_ONCE = 4  # partial results per lane of the merging kernel


class WorkspaceLaunch(Launch):
    """Launch a kernel that uses the workspace, the last operand, from its first aligned address on."""

    def record(self, record: Record, operands: Sequence[Where]) -> None:
        *others, workspace = operands
        super().record(record, [*others, workspace.aligned(WORKSPACE_ALIGNMENT)])


class AnyTensor(Solver[ReduceProblem]):
    """Serve rows and columns of generic layouts, with or without indices."""

    name = "reduce_tensor.generic"

    def workspace_bytes(self, problem: ReduceProblem) -> int:
        return problem.workspace_bytes

    def launches(self, problem: ReduceProblem) -> list[Launch]:
        division, (_, kept, _) = problem.division, problem.walked
        lanes, segments = division.lanes, division.segments
        tiles = Tiles.of(kept, BLOCK // lanes) if not division.rows and segments == 1 else None
        reduce = WorkspaceLaunch(
            problem.function(SOURCE, f"reduce_tensor_generic_{'rows' if division.rows else 'columns'}"),
            problem.arguments(kept, lanes, tiles),
            OPERANDS,
            (tiles.blocks if tiles else -(-kept.vectors // (BLOCK // lanes)), segments, 1),
            (BLOCK, 1, 1),
            problem.state_bytes * (WARPS if division.rows else BLOCK * problem.width),
        )
        if segments == 1:
            return [reduce]
        kept, lanes_of_merge = problem.walk.kept(1), _lanes_of_merge(segments)
        merge = WorkspaceLaunch(
            problem.function(SOURCE, "reduce_tensor_generic_partial_results"),
            problem.arguments(kept, lanes_of_merge),
            OPERANDS,
            (-(-kept.vectors // (BLOCK // lanes_of_merge)), 1, 1),
            (BLOCK, 1, 1),
            problem.state_bytes * WARPS,
        )
        return [reduce, merge]


def _lanes_of_merge(segments: int) -> int:
    """Return the number of threads that merge the partial results of an element of C."""
    return min(BLOCK, 1 << (-(-segments // MERGED_AT_ONCE) - 1).bit_length())
