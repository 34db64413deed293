"""What was decided where the document is contradictory, garbled or silent, as data: errata.jsonl.

Where NVIDIA's library does otherwise is data of the suite (conformance/differences).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Erratum:
    """One decision. ids: places in the document that it settles, or a name of ours; section: of docs and site, a family of calls."""

    ids: tuple[str, ...]
    section: str
    question: str
    decision: str
    evidence: str


@cache
def errata() -> tuple[Erratum, ...]:
    """Return every decision, in the order of their sections."""
    lines = resources.files(__package__).joinpath("errata.jsonl").read_text("utf-8").splitlines()
    rows = map(json.loads, lines)
    return tuple(Erratum(**row | {"ids": tuple(row["ids"])}) for row in rows)
