"""Read the function table of the document: names, sections, libraries and parameters of its 258 functions.

The public header decides where a printed prototype is missing or differs from the ABI (docs/errata.md, prototypes).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

SPECIFICATION = "cuDNN 8.0.3 API Reference"
VERSION = (8, 0, 3)


@dataclass(frozen=True)
class Length:
    """State how many entries a host array has: the argument ``count`` minus ``less``; in an output, the first
    ``filled`` are written.

    ``count`` and ``filled`` name parameters. A count that is an array stands for the sum of its entries. A count that
    is a tensor descriptor stands for its ``dimension``.
    """

    count: str
    filled: str | None = None
    less: int = 0
    dimension: int = 0


@dataclass(frozen=True)
class Parameter:
    """Describe one parameter as the document declares it.

    null_with: the parameter that is NULL exactly if this one is. length: applies to a host array.
    typed_by: the descriptor whose data type decides the type of a scalar behind a ``void *``. alpha and beta are
    doubles for DOUBLE and floats otherwise. The value of cudnnSetTensor has the data type itself.
    """

    name: str
    ctype: str
    direction: str  # one of "in", "out" and "inout"
    memory: str  # one of "host" and "device"
    nullable: bool
    length: Length | None = None
    typed_by: str | None = None
    null_with: str | None = None

    @cached_property
    def base_type(self) -> str:
        """Return the type without const, pointer and array marks."""
        return self.ctype.replace("const ", "").replace("*", "").replace("[]", "").strip()

    @cached_property
    def is_pointer(self) -> bool:
        return "*" in self.ctype or "[]" in self.ctype

    @property
    def is_returned(self) -> bool:
        """Return whether this is a pure host output, which calls return instead of storing it."""
        return self.direction == "out" and self.memory == "host" and self.is_pointer


@dataclass(frozen=True)
class Function:
    """Describe one function of the document.

    out_of_memory: the id of its section's clause on CUDNN_STATUS_ALLOC_FAILED, or of the clause of cudnnStatus_t.
    """

    name: str
    section: str
    library: str
    deprecated: str | None
    parameters: tuple[Parameter, ...]
    out_of_memory: str = "cudnnStatus_t/c04"

    @property
    def arguments(self) -> tuple[Parameter, ...]:
        """Return the parameters that a caller passes."""
        return tuple(parameter for parameter in self.parameters if not parameter.is_returned)


def _parameter(length: dict[str, Any] | None = None, **facts: Any) -> Parameter:
    return Parameter(**facts, length=Length(**length) if length else None)


@cache
def functions() -> dict[str, Function]:
    """Return all documented functions by name, in the document's order."""
    table = json.loads(Path(__file__).with_name("functions.json").read_text(encoding="utf-8"))
    return {
        name: Function(
            name,
            entry["section"],
            entry["library"],
            entry["deprecated"],
            tuple(_parameter(**parameter) for parameter in entry["parameters"]),
            f"{name}/{entry['out_of_memory']}" if "out_of_memory" in entry else "cudnnStatus_t/c04",
        )
        for name, entry in table.items()
    }
