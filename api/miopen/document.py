"""Implement the function table of the MIOpen porting guide: 53 functions in 55 rows.

Where the guide and the public header differ, docs/errata.md says what was decided (M001 and following).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources

from ..document import Parameter

SPECIFICATION = "MIOpen Porting Guide"


@dataclass(frozen=True)
class Function:
    """One function of the guide."""

    name: str
    row: int
    family: str
    parameters: tuple[Parameter, ...]

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """Return the parameters that a caller passes."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_returned)


@cache
def functions() -> dict[str, Function]:
    """All functions of the guide by name, in its order."""
    table = json.loads(resources.files(__package__).joinpath("functions.json").read_text(encoding="utf-8"))
    return {
        name: Function(name, entry["row"], entry["family"], tuple(Parameter(**p) for p in entry["parameters"]))
        for name, entry in table.items()
    }
