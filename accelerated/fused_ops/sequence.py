"""Plans one after the other, whose operands are those of a call or lie in its workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from dualdnn.api.operations import Operation

from ..plans import PlacedPlan, Plan, with_alignment, workspace_aligned
from ..scalars import ValueNeeded


class Part(NamedTuple):
    """The plan of an operation, and where its operands are that do not have their name in the call: the name that they
    have there, or bytes from the beginning of the workspace."""

    operation: Operation
    plan: Plan
    where: Mapping[str, str | int] = {}


class Workspace:
    """Memory of a workspace that is given out piece by piece, from its first multiple of 16 bytes on."""

    def __init__(self) -> None:
        self.used = 0

    def take(self, nbytes: int) -> int:
        """Return where the next piece begins."""
        start = self.used
        self.used += workspace_aligned(nbytes)
        return start

    @property
    def nbytes(self) -> int:
        """Bytes of the workspace, which may begin anywhere."""
        return with_alignment(self.used)


class SequencePlan(PlacedPlan):
    """The parts, in order. The workspace of the call is its last operand."""

    def __init__(self, operation: Operation, parts: Sequence[Part], solver: str) -> None:
        regions = [where for part in parts for where in part.where.values() if isinstance(where, int)]
        indices = {name: i for i, name in enumerate((*operation.operands, *regions))}
        steps = [
            (part.plan, [indices[part.where.get(name, name)] for name in part.operation.operands]) for part in parts
        ]
        workspace = len(operation.operands) - 1
        super().__init__(workspace, [(workspace, offset) for offset in regions], steps, solver)

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Calls do not share it: a part that makes its fallback later would need its own scalars when others have
        run."""
        raise ValueNeeded(self.solver)
