"""Plans one after the other, whose operands are those of a call or lie in its workspace."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from dualdnn.api.operations import Operation

from ..plans import Plan
from ..scalars import ValueNeeded

ALIGNMENT = 16  # of what lies in the workspace


class Memory:
    """Memory of the device from an address on."""

    def __init__(self, address: int) -> None:
        self.address = address


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
        self.used += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return start

    @property
    def nbytes(self) -> int:
        """Bytes of the workspace, which may begin anywhere."""
        return self.used + ALIGNMENT - 1 if self.used else 0


class SequencePlan(Plan):
    """The parts, in order."""

    def __init__(self, operation: Operation, parts: Sequence[Part], solver: str) -> None:
        super().__init__(operation, [], solver)
        self.steps = [step for part in parts for step in part.plan.steps]
        indices = {name: i for i, name in enumerate(operation.operands)}
        self.parts = [
            (part.plan, [self._found(part.where.get(name, name), indices) for name in part.operation.operands])
            for part in parts
        ]

    def with_scalars(self, values: Mapping[str, float]) -> Self:
        """Calls do not share it: a part that makes its fallback later would need its own scalars when others have
        run."""
        raise ValueNeeded(self.solver)

    @staticmethod
    def _found(where: str | int, indices: Mapping[str, int]) -> tuple[int, int]:
        """Return the operand of the call, and bytes behind its beginning; the workspace is the last one."""
        return (len(indices) - 1, where) if isinstance(where, int) else (indices[where], -1)

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        workspace = operands[-1]
        start = 0 if workspace is None else workspace.address + -workspace.address % ALIGNMENT
        for plan, found in self.parts:
            plan([operands[i] if offset < 0 else Memory(start + offset) for i, offset in found], stream)
