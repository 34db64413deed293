"""Plans that keep something in the workspace between their launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..plans import Plan

PACK_BYTES = 16


class Memory:
    """Memory of the device from an address on."""

    def __init__(self, address: int) -> None:
        self.address = address


class WorkspacePlan(Plan):
    """A plan whose workspace, the last operand, may begin at any address: it is used from a multiple of 16 bytes on."""

    def __call__(self, operands: Sequence[Any], stream: Any) -> None:
        workspace = operands[-1]
        if workspace is not None:
            operands = [*operands[:-1], Memory(workspace.address + -workspace.address % PACK_BYTES)]
        super().__call__(operands, stream)
