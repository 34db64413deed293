"""Find what shows each clause of the document: its cases, and whether one fails when the clause is broken."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from ..cases import present_id
from ..report.clauses import Clause
from ..scope import clauses

REPORT = Path(__file__).resolve().parents[2] / "reports/emulated/compliance.json.gz"  # the published run of every case
COUNTED = Path(__file__).with_name("counted.json")  # its cases by clause, which setup.py writes into a wheel


@dataclass(frozen=True)
class Evidence:
    """Hold a clause, the cases that name it, and its state (docs/evidence.md), with the reason if it is not proven."""

    clause: Clause
    cases: tuple[str, ...]
    state: str
    why: str = ""


@cache
def evidence() -> dict[str, Evidence]:
    """Return the evidence for every clause, by id, in the document's order."""
    cases, unproven = _cases(), _unproven()
    found = {}
    for name, clause in clauses().items():
        if not cases.get(name):
            found[name] = Evidence(clause, (), "not applicable", clause.reason)
        else:
            why = unproven.get(name, "")
            found[name] = Evidence(clause, tuple(sorted(cases[name])), "shown" if why else "proven", why)
    return found


@cache
def of_subject() -> dict[str, list[Evidence]]:
    """Return the evidence by the function or type of the clauses."""
    found = defaultdict(list)
    for one in evidence().values():
        found[one.clause.function].append(one)
    return dict(found)


def _read(package: str, name: str) -> dict[str, dict[str, list[str]]]:
    data: dict[str, dict[str, list[str]]] = json.loads(resources.files(package).joinpath(name).read_text("utf-8"))
    return data


def _cases() -> Mapping[str, set[str]]:
    """Return the cases that name each clause, or that the published run counts for it."""
    found = defaultdict(set)
    for case, named in _read("dualdnn.conformance.cases", "clauses.json").items():
        for clause in named:
            found[clause].add(case)
    counted: dict[str, list[str]] = {}
    if COUNTED.exists():
        counted = json.loads(COUNTED.read_text("utf-8"))
    elif REPORT.exists():
        report = json.loads(gzip.decompress(REPORT.read_bytes()))
        counted = {name: one["cases"] for name, one in report["clauses"].items()}
    for clause, cases in counted.items():
        found[clause].update(present_id(case).partition("[")[0] for case in cases)
    return found


def _unproven() -> dict[str, str]:
    """Return for each clause why it is shown and not proven."""
    written = _read("dualdnn.conformance", "unproven.json")
    reasons: dict[str, str] = written["reasons"]  # type: ignore[assignment]
    classes: dict[str, list[str]] = written["unproven"]["reference"]  # type: ignore[assignment]
    return {name: reasons[kind] for kind, names in classes.items() for name in names}
