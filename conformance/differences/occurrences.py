"""Lists the failures that each declared difference names, by subject, as data in SUBJECT.json next to this file.

A difference covers neither more nor fewer failures than were seen.

    python -m dualdnn.conformance.differences.occurrences compliance.json.gz ...    # writes the vendor's from reports
    python -m dualdnn.conformance.recorded.grouping                             # writes the recorded calls'
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .table import DIFFERENCES, Difference, difference_for

FOLDER = Path(__file__).parent
TOLD = re.compile(
    r"(?P<call>\w+): CUDNN_STATUS_(?P<answer>\w+)|CUDNN_STATUS_(?P<due>\w+) \[(?P<clause>\S+/c\d+)|expected CUDNN_STATUS_(?P<instead>\w+), got"
    r"|CUDNN_STATUS_(?P<status>\w+)|wrong elements: (?P<wrong>.*)|(?P<operand>\w+): \d+ (?P<bytes>bytes\b.*? changed)"
    r"|(?P<word>succeeded|process down|the refused call changed memory)|(?P<assertion>AssertionError|\bassert\b)"
)
EXPLAINED = "difference "  # A suspicion that a declared difference explains begins so.
COUNTS = re.compile(r"\d+ (?=[a-zA-Z])")


@dataclass(frozen=True)
class Named:
    """Holds the failures of a subject that differences explain.

    computes: whether the subject had a device when they were seen. families: the files of cases, or the recordings,
    that were run; others have no list yet. failures: case, or recording and record, -> (id of the difference, what was
    seen).
    """

    computes: bool
    families: frozenset[str]
    failures: dict[str, tuple[str, str]]


@cache
def named_for(subject: str) -> Named | None:
    """Return the failures that this subject has shown; None where no list exists."""
    path = FOLDER / f"{subject}.json"
    if not path.is_file():
        return None
    document = json.loads(path.read_text(encoding="utf-8"))
    failures = {
        key: (difference, seen)
        for difference, kinds in document["differences"].items()
        for seen, keys in kinds.items()
        for key in keys
    }
    return Named(document["computes"], frozenset(document["families"]), failures)


def what(message: str) -> str:
    """Return what a failure says apart from numbers, places and texts.

    It names the call and its answer, or the status that a clause demands. Else it names the wrong operands and how they
    are wrong, or the assertion that failed.
    """
    lines = [line for line in message.splitlines() if not line.startswith("difference V-")]
    found: dict[str, None] = {}
    for match in TOLD.finditer("\n".join([line for line in lines if line.startswith("E ")] or lines)):
        kind, text = str(match.lastgroup), match[str(match.lastgroup)]
        if kind == "answer":
            found[f"{match['call']} {text}"] = None
        elif kind == "clause":
            found[f"not {match['due']} by {text}"] = None
        elif kind == "instead":
            found[f"not {text}"] = None
        elif kind == "bytes":
            found[f"{match['operand']}: {COUNTS.sub('', text)}"] = None
        elif kind == "wrong":
            found[f"wrong {COUNTS.sub('', text)}"] = None
        elif kind == "assertion":
            checked = [line[1:].strip().removeprefix("assert ") for line in lines if line.startswith("> ")]
            found[" ".join(["assertion", *checked[-1:]])] = None
        elif kind != "status" or not any(said.endswith(f" {text}") for said in found):
            found[text] = None
    return ", ".join(found)


def difference_of_case(
    case: str, subject: str, computes: bool, passed: bool, message: str
) -> tuple[Difference | None, str]:
    """Return (the difference that a case of a foreign subject shows, why a declared difference does not explain it)."""
    if not passed and (shown := shown_sometimes(case, subject, what(message))):
        return shown, ""
    covering = None if passed else difference_for(case, subject, what(message))
    named = named_for(subject)
    if named is None or named.computes != computes or case.partition("/")[0] not in named.families:
        return covering, ""
    if case not in named.failures:
        return None, f"difference {covering.id} covers this case and does not name it" if covering else ""
    name, seen = named.failures[case]
    difference = next((entry for entry in DIFFERENCES if entry.id == name), None)
    if difference is None or not difference.covers(case, subject):
        return None, f"difference {name} names this case and does not cover it"
    if not passed and what(message) != seen:
        return None, f"difference {name} expects {seen!r} here, this is {what(message)!r}"
    return difference, ""


def shown_sometimes(case: str, subject: str, said: str) -> Difference | None:
    """Return the difference that this failure of a case shows in some runs and not in others."""
    return next((entry for entry in DIFFERENCES if entry.may_show(case, subject, said)), None)


def explained(case: str, subject: str, suspicions: Iterable[str]) -> list[str]:
    """Return the suspicions about a foreign subject's outputs, each with the difference that it shows, if any."""
    said = list(suspicions)
    outputs = dict.fromkeys(one.partition(":")[0] for one in said)
    shown = shown_sometimes(case, subject, f"suspect {', '.join(outputs)}")
    return [f"{EXPLAINED}{shown.id}: {one}" for one in said] if shown else said


def unseen(subject: str, computes: bool, cases: Iterable[str]) -> list[str]:
    """Return the cases that a subject's list names and that a whole run did not have.

    The list of recorded calls names calls; recorded/grouping.py looks for these itself.
    """
    named = named_for(subject)
    if named is None or named.computes != computes:
        return []
    return sorted({case for case in named.failures if "/" in case} - set(cases))


def write(subject: str, computes: bool, families: Iterable[str], failures: Iterable[tuple[str, str, str]]) -> Path:
    """Write (difference, what was seen, case) as the list of a subject."""
    kinds: dict[str, dict[str, list[str]]] = {}
    for difference, seen, key in sorted(failures):
        kinds.setdefault(difference, {}).setdefault(seen, []).append(key)
    path = FOLDER / f"{subject}.json"
    document = {"computes": computes, "families": sorted(families), "differences": kinds}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return path


def write_from_reports(paths: Iterable[Path]) -> list[Path]:
    """Write the lists of NVIDIA's libraries that reports have judged: one report for each family, or one for all."""
    from ..report import Report, read_json

    report = Report.merge(*map(read_json, paths))
    written = []
    for subject in {case.subject for case in report.cases if re.match(r"(vendor|library)-\d+$", case.subject)}:
        name = subject.replace("library-", "vendor-")
        run = [case for case in report.cases if case.subject == subject and case.outcome != "skipped"]
        failures = [
            (declared.id, what(case.message), case.id)
            for case in run
            if case.outcome == "failed"
            and not shown_sometimes(case.id, name, what(case.message))
            and (declared := difference_for(case.id, name, what(case.message)))
        ]
        computes = any(case.outcome != "skipped" and case.error_ratio is not None for case in run)
        written.append(write(name, computes, {case.id.partition("/")[0] for case in run}, failures))
    return written


if __name__ == "__main__":
    print(*write_from_reports(map(Path, sys.argv[1:])), sep="\n")
