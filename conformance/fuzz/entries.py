"""Store one drawn operation, with everything needed to run it again, as a line of text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dualdnn.api.operations import Operation, parse

from ..domains import DOMAINS, Drawn
from ..refusals.carried import applicable

FIELDS = {"family", "operations", "inputs", "seed", "offsets", "aliases", "refused", "varied"}
REQUIRED = frozenset({"family", "operations"})


@dataclass(frozen=True)
class Entry:
    """Hold what was drawn in a family, and the seed of the inputs. The family is empty if no domain draws it."""

    family: str
    drawn: Drawn
    seed: int = 0

    def __str__(self) -> str:
        """Return the line: JSON in a fixed order, without empty values."""
        values: dict[str, Any] = {
            "family": self.family,
            "operations": [repr(step) for step in self.drawn.steps],
            "inputs": self.drawn.inputs,
            "seed": self.seed,
            "offsets": dict(self.drawn.offsets),
            "aliases": dict(self.drawn.aliases),
            "refused": self.drawn.refused,
            "varied": self.drawn.varied,
        }
        return json.dumps({name: value for name, value in values.items() if value or name == "seed"})

    @property
    def before(self) -> dict[str, Any]:
        """Return the bytes of operands with interdependent numbers."""
        return DOMAINS[self.family].before(self.drawn, self.seed) if self.family else {}


def parse_entry(text: str) -> Entry:
    """Return the entry of a line. Raises ``ValueError`` that names the mistake."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not an entry: {text!r:.80} ({error})") from error
    return entry_of(values)


def entry_of(values: Any, required: frozenset[str] = REQUIRED) -> Entry:
    """Return the entry of JSON values. Raises ``ValueError`` that names the mistake."""
    if not isinstance(values, Mapping) or not required <= values.keys() <= FIELDS:
        needed = " and ".join(sorted(required))
        raise ValueError(f"an entry has {needed}, and some of {', '.join(sorted(FIELDS))}; this is {values!r:.80}")
    family = values.get("family", "")
    if family and family not in DOMAINS:
        raise ValueError(f"family is {family!r}, there are {', '.join(DOMAINS)}")
    steps = tuple(parse(text) for text in values["operations"])
    if not steps or not all(isinstance(step, Operation) for step in steps):
        raise ValueError(f"operations are {values['operations']!r:.80}, expected texts of operations")
    offsets, aliases = (tuple(values.get(name, {}).items()) for name in ("offsets", "aliases"))
    if (refused := values.get("refused", "")) and refused not in applicable(steps[0]):
        raise ValueError(f"refused is {refused!r}: no such row of conformance/refusals changes {steps[0]}")
    varied = values.get("varied", False)
    drawn = Drawn(steps, values.get("inputs", "normal"), offsets, aliases, refused, varied)
    return Entry(family, drawn, values.get("seed", 0))
