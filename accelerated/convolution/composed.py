"""Plans of launches whose operands begin somewhere in the operands of a call: what gradients make of forward convolutions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dualdnn.api.operations import Operation

from ..plans import Launch, Plan
from .problem import PACK_BYTES


class At(NamedTuple):
    """An operand of the call, and how many bytes behind its address."""

    operand: str
    offset: int = 0


class ComposedLaunch(NamedTuple):
    """A launch and where each of its operands is."""

    launch: Launch
    operands: tuple[At, ...]


def within(launches: Sequence[Launch], where: Mapping[str, At]) -> list[ComposedLaunch]:
    """Return the launches of an operation whose operands are, by name, parts of the operands of another call."""
    return [ComposedLaunch(launch, tuple(where[name] for name in launch.operands)) for launch in launches]


class ComposedPlan(Plan):
    """Launches on parts of the operands. A workspace counts from its first multiple of 16 bytes on."""

    def __init__(self, operation: Operation, launches: Sequence[ComposedLaunch], solver: str) -> None:
        super().__init__(operation, [], solver)
        indices = {name: i for i, name in enumerate(operation.operands)}
        self.workspace = indices["workSpace"]
        self.steps = [(launch, tuple(indices[at.operand] for at in operands)) for launch, operands in launches]
        self.offsets = [tuple(at.offset for at in operands) for _, operands in launches]

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        addresses = [0 if operand is None else operand.address for operand in operands]
        addresses[self.workspace] += -addresses[self.workspace] % PACK_BYTES
        for (launch, positions), offsets in zip(self.steps, self.offsets, strict=True):
            launch.start([addresses[i] + offset for i, offset in zip(positions, offsets, strict=True)], stream)
