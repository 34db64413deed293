"""Pinned operations: what a fuzzer found once, run by the suite ever since (cases/pinned_operations.py).

<family>.jsonl beside this file has an entry a line: its id, why it is there in a sentence, and what ``dualdnn fuzz --again`` takes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ..fuzz.entries import Entry, entry_of

FOLDER = Path(__file__).parent


def pinned() -> dict[str, Entry]:
    """Return the entries by id: family-number."""
    return {
        values.pop("id"): entry_of(_without_reason(values))
        for path in sorted(FOLDER.glob("*.jsonl"))
        for values in _lines(path)
    }


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _without_reason(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in ("id", "why")}


def pin(entry: Entry, why: str) -> str:
    """Append an entry to the corpus of its family, and return its id. ``ValueError`` where it has no reason or is there already."""
    if len(why.split()) < 3:
        raise ValueError(f"--why is {why!r}: say in a sentence what the entry shows")
    path = FOLDER / f"{entry.family}.jsonl"
    there = _lines(path) if path.exists() else []
    values = json.loads(str(entry))
    if same := next((line["id"] for line in there if _without_reason(line) == values), None):
        raise ValueError(f"the entry is pinned already, as {same}")
    name = f"{entry.family}-{1 + max((int(line['id'].rpartition('-')[2]) for line in there), default=0)}"
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": name, "why": why, **values}) + "\n")
    return name
