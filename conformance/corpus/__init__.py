"""Keep operations that cases or a fuzzer found worth running again; the suite runs them.

A line of <module>.jsonl is an operation, or a chain of operations, with all that is needed to run it:

id          test_name[parameter] of the case that runs it, with all lines of this id; or family-number if a fuzzer found it
why         a sentence on the property that it shows
clauses     the clauses that the case shows
ours        true where only our backends have the call
each        one entry for each operation of a chain whose steps differ: ``names``, operand -> its memory in the chain, and ``inputs``
workspace   "given" where the operations state their workspace, instead of getting the size that the subject asks for
turns       the operations run once with each of these ``offsets``: operand -> bytes by which it begins later
multiprocessors   number of SMs of the device that the operations are planned for

The other fields are as in ``dualdnn fuzz --again``; a line without a family has independent operands.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from dualdnn.api.operations import Operation

from ..fuzz.entries import FIELDS, Entry, entry_of
from ..trial import Step

FOLDER = Path(__file__).parent
OF_CASES = "test_"  # prefix of the ids of cases


@dataclass(frozen=True)
class Pinned:
    """Hold a line that belongs to a case."""

    why: str
    clauses: tuple[str, ...]
    ours: bool
    workspace: str
    line: dict[str, Any]

    @cached_property
    def entry(self) -> Entry:
        """Return the operations and their inputs, as an entry."""
        return entry_of(_without_reason(self.line), frozenset({"operations"}))

    @property
    def turns(self) -> list[dict[str, int]]:
        """Return the offsets of operands in each run of the line."""
        return self.line.get("turns") or [dict(self.entry.drawn.offsets)]

    def steps(self, operations: Sequence[Operation]) -> list[Step]:
        """Return the steps that call these operations: the line's operations with their workspaces."""
        drawn = self.entry.drawn
        each = self.line.get("each", [{"names": dict(drawn.aliases), "inputs": drawn.inputs}] * len(operations))
        pairs = zip(operations, each, strict=True)
        return [Step(operation, one.get("names", {}), one.get("inputs", "normal")) for operation, one in pairs]


def pinned() -> dict[str, Entry]:
    """Return the entries that a fuzzer found, by id: family-number."""
    return {
        values["id"]: entry_of(_without_reason(values))
        for path in sorted(FOLDER.glob("*.jsonl"))
        for values in _lines(path)
        if not values["id"].startswith(OF_CASES)
    }


def cases(path: Path) -> dict[str, dict[str, list[Pinned]]]:
    """Return the lines of a file that belong to cases: test -> parameter -> lines in order.
    The parameter is an empty text for a case without parameters."""
    found: dict[str, dict[str, list[Pinned]]] = {}
    for values in _lines(path):
        test, _, parameter = values["id"].partition("[")
        if test.startswith(OF_CASES):
            clauses, ours = tuple(values.get("clauses", ())), values.get("ours", False)
            line = Pinned(values["why"], clauses, ours, values.get("workspace", ""), values)
            found.setdefault(test, {}).setdefault(parameter.removesuffix("]"), []).append(line)
    return found


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _without_reason(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in FIELDS}


def pin(entry: Entry, why: str) -> str:
    """Append an entry to the corpus of its family, and return its id. Raise ``ValueError`` without a reason, or for a duplicate."""
    if not entry.family:
        raise ValueError("an entry is pinned in its family, this one has none")
    if entry.drawn.refused:
        raise ValueError(f"{entry.drawn.refused} is a case of conformance/refusals; add a row there if no case fails")
    if len(why.split()) < 3:
        raise ValueError(f"--why is {why!r}: say in a sentence what the entry shows")
    path = FOLDER / f"{entry.family}.jsonl"
    there = _lines(path) if path.exists() else []
    values = json.loads(str(entry))
    if same := next((line["id"] for line in there if _without_reason(line) == values), None):
        raise ValueError(f"the entry is pinned already, as {same}")
    name = f"{entry.family}-{1 + max((int(line['id'].rpartition('-')[2]) for line in there if not line['id'].startswith(OF_CASES)), default=0)}"
    path.parent.mkdir(exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"id": name, "why": why, **values}) + "\n")
    return name
