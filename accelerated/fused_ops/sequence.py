"""Run plans one after the other. Their operands are a call's, or parts of its workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from dualdnn.api.operations import Operation

from ..plans import PlacedPlan, Plan, with_alignment, workspace_aligned
from ..scalars import ValueNeeded


class Part(NamedTuple):
    """Place the plan of an operation. ``where`` maps operands to their name in the call, or to their byte offset in the
    workspace.
    """

    operation: Operation
    plan: Plan
    where: Mapping[str, str | int] = {}


class Workspace:
    """Allocate the memory of a workspace piece by piece, aligned to 16 bytes."""

    def __init__(self) -> None:
        self.used = 0

    def take(self, nbytes: int) -> int:
        """Return the offset of the next piece."""
        start = self.used
        self.used += workspace_aligned(nbytes)
        return start

    @property
    def nbytes(self) -> int:
        """Return the bytes of the workspace, whose address may have any alignment."""
        return with_alignment(self.used)


class SequencePlan(PlacedPlan):
    """Run the parts in order. The workspace of the call is the last operand."""

    def __init__(self, operation: Operation, parts: Sequence[Part], solver: str) -> None:
        regions = [where for part in parts for where in part.where.values() if isinstance(where, int)]
        indices = {name: i for i, name in enumerate((*operation.operands, *regions))}
        steps = [
            (part.plan, [indices[part.where.get(name, name)] for name in part.operation.operands]) for part in parts
        ]
        workspace = len(operation.operands) - 1
        super().__init__(workspace, [(workspace, offset) for offset in regions], steps, solver)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Raise ValueNeeded, because calls cannot share the plan. A part that makes its fallback later would need
        its own scalars.
        """
        raise ValueNeeded(self.solver)
