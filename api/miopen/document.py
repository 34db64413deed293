"""Read the function table of the MIOpen porting guide: 53 functions in 55 rows.

docs/errata.md (M001 and following) decides where the guide and the public header differ.
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
    """Describe one function of the guide."""

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
    """Return all functions of the guide by name, in its order."""
    table = json.loads(resources.files(__package__).joinpath("functions.json").read_text(encoding="utf-8"))
    return {
        name: Function(name, entry["row"], entry["family"], tuple(Parameter(**p) for p in entry["parameters"]))
        for name, entry in table.items()
    }
