"""Read errata.jsonl: the decisions where the document is contradictory, garbled or silent.

The suite declares differences of NVIDIA's library separately (conformance/differences).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Erratum:
    """Hold one decision. ids: names the places in the document that it settles, or is a name of this project. section:
    is its section in docs and site, a family of calls."""

    ids: tuple[str, ...]
    section: str
    question: str
    decision: str
    evidence: str


@cache
def errata() -> tuple[Erratum, ...]:
    """Return all decisions, ordered by section."""
    lines = resources.files(__package__).joinpath("errata.jsonl").read_text("utf-8").splitlines()
    rows = map(json.loads, lines)
    return tuple(Erratum(**row | {"ids": tuple(row["ids"])}) for row in rows)
