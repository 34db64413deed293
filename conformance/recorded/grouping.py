"""Group recorded calls of NVIDIA's library for cases, repeat them on a subject, and find what differs as declared.

The reference judges the library's own answers and outputs. Our backends must answer and compute as it did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from dualdnn.api import cudnn as api

from ..differences import DIFFERENCES, Difference, explanation_of
from ..differences.occurrences import Named, named_for, write
from ..report import load_clauses
from ..subjects import open_subject
from ..subjects.library import is_vendor_library
from ..subjects.recorded import is_recorded, recordings_of
from . import Record, Recording
from .judging import RESULT, STATUS, Finding, examine
from .replay import LibraryReplayer, Replayer

RECORDS_PER_CASE = 25
PACKAGED = "recorded-cudnn-9.19"
Call = tuple[Recording, Record]
_REPLAYERS: dict[str, Replayer] = {}
_FOUND: dict[tuple[str, str, str], Finding] = {}  # The key is (subject, recording, record).


@dataclass(frozen=True)
class Group:
    """Holds some recorded calls of one function; ``reason`` says why they cannot be repeated, if they cannot."""

    function: str
    calls: tuple[Call, ...]
    reason: str = ""


def obstacle(record: Record) -> str:
    """Return why a record cannot be repeated, or an empty text if it can."""
    if record.arguments is None:
        return "records are probes: not one documented call with all its arguments"
    missing = [name for name in record.functions if not hasattr(api, name)]
    if missing:
        return f"not implemented: {', '.join(missing)}"
    return "some arguments were not kept" if record.incomplete else ""


def applies(subject: str) -> bool:
    """Return whether the recorded calls bind a subject. Another release's answers do not bind NVIDIA's libraries."""
    kind, _, rest = subject.partition(":")
    library = kind == "library" and not is_vendor_library(Path(rest))
    ours = kind in ("reference", "accelerated", "crosscheck") and "@" not in subject
    return library or is_recorded(subject) or ours


@cache
def sorted_calls(subject: str) -> dict[tuple[str, str], list[Call]]:
    """Return (function, obstacle) -> calls, in the order of the recordings."""
    found: dict[tuple[str, str], list[Call]] = {}
    for recording in recordings_of(subject):
        for record in recording.records:
            found.setdefault((record.function, obstacle(record)), []).append((recording, record))
    return found


def groups(subject: str) -> Iterator[tuple[str, Group]]:
    """Return groups of calls of one function, with their ids."""
    if not applies(subject):
        return
    numbers: Counter[str] = Counter()
    for (function, reason), calls in sorted_calls(subject).items():
        size = len(calls) if reason else RECORDS_PER_CASE
        for start in range(0, len(calls), size):
            numbers[function] += 1
            yield f"{function}_{numbers[function]}", Group(function, tuple(calls[start : start + size]), reason)


def differences(subject: str) -> Iterator[tuple[str, Difference]]:
    """Return the differences that recorded calls show; packaged recordings show those that name them."""
    shown = {name for name, _ in named().failures.values()}
    packaged = not is_recorded(subject) or subject == "recorded"
    return (
        (entry.id, entry)
        for entry in DIFFERENCES
        if entry.recorded and applies(subject) and (entry.id in shown or not packaged or is_recorded(subject))
    )


def contradiction(difference: Difference, here: dict[str, str], due: dict[str, str]) -> str:
    """Return how the records named by a difference deviate from those that show it."""
    lines = [f"difference {difference.id} is not what the recorded calls show"]
    lines += [f"  {key}: {seen}, which is not named" for key, seen in here.items() if key not in due]
    lines += [f"  {key}: {seen} no longer occurs" for key, seen in due.items() if key not in here]
    lines += [f"  {key}: {here[key]}, not {seen}" for key, seen in due.items() if here.get(key, seen) != seen]
    return "\n".join(lines)


def replayer_of(subject: Any) -> Replayer:
    """Return one replayer for all cases of a subject: a handle remembers what it has prepared."""
    if subject.name not in _REPLAYERS:
        if subject.ours:
            _REPLAYERS[subject.name] = Replayer(subject.cudnn, subject.new_handle())
        else:
            dry = Replayer(api, api.cudnnCreate(backend="reference"), compute=False)
            _REPLAYERS[subject.name] = dry
            if subject.cites_clauses:
                _REPLAYERS[subject.name] = LibraryReplayer(
                    subject.cudnn, subject.new_handle(), dry, subject.knows_sizes
                )
    return _REPLAYERS[subject.name]


def findings(subject: Any, calls: list[Call]) -> list[Finding]:
    """Return the findings about the calls, each made once.

    Our backends compute and are compared; a recorded subject is judged.
    """
    for recording, record in calls:
        key = (subject.name, recording.name, record.id)
        if key not in _FOUND:
            _FOUND[key] = examine(record, recording, replayer_of(subject))
    return [_FOUND[subject.name, recording.name, record.id] for recording, record in calls]


@cache
def clauses_of(function: str, kind: str) -> frozenset[str]:
    return frozenset(
        clause.id for clause in load_clauses().values() if clause.function == function and clause.kind == kind
    )


def shown(finding: Finding) -> frozenset[str]:
    """Return the clauses that an agreeing record shows: the one a refusal cites, else those on what the function
    computes or returns."""
    if finding.clause is not None:
        return frozenset([finding.clause])
    told = finding.operation is not None or finding.record.result is not None
    return clauses_of(finding.record.function, "semantics") if told else frozenset()


def rerun(finding: Finding, calls: list[Call], subject: Any) -> str:
    recording = next(recording for recording, record in calls if record is finding.record)
    return f"  rerun: dualdnn replay {recording.name} --record {finding.record.id} --subject {subject.name if subject.ours else 'reference'}"


def key_of(finding: Finding, calls: list[Call]) -> str:
    """Return recording and record, as lists of occurrences name them."""
    return f"{next(recording.name for recording, record in calls if record is finding.record)} {finding.record.id}"


def seen_in(finding: Finding) -> str:
    """Return how a record differs: in statuses, in the result, or in how many elements."""
    if finding.kind == STATUS:
        return f"{finding.theirs}, ours {finding.ours}" + (f" [{finding.clause}]" if finding.clause else "")
    if finding.kind == RESULT:
        return f"result {finding.record.result}"
    return finding.text.partition(":")[2].partition(",")[0].strip()


@cache
def named() -> Named:
    """Return the records of packaged recordings that the differences name."""
    found = named_for(PACKAGED)
    assert found is not None
    return found


def explained(finding: Finding, calls: list[Call]) -> Difference | None:
    """Return the difference that covers the finding and, in a packaged recording, names it."""
    difference, key = explanation_of(finding), key_of(finding, calls)
    if difference is None or key.partition(" ")[0] not in named().families:
        return difference
    return difference if named().failures.get(key, ("", ""))[0] == difference.id else None


def write_occurrences() -> str:
    """Write the packaged records that each difference names. Read the list before you commit it."""
    subject = open_subject("recorded")
    failures = []
    for (_, reason), calls in sorted_calls("recorded").items():
        for finding in [] if reason else findings(subject, calls):
            if difference := explanation_of(finding):
                failures.append((difference.id, seen_in(finding), key_of(finding, calls)))
    return str(write(PACKAGED, False, (recording.name for recording in recordings_of("recorded")), failures))


if __name__ == "__main__":
    print(write_occurrences())
