"""One report from several runs: what becomes of each part."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import checks
from .entries import CaseResult, Difference, Function, Subject

# Of two results of one case the one that says more stands: a failure is never hidden,
# and a run that could not show a case gives way to one that could.
_PRECEDENCE = ("skipped", "mistrusted", "passed", "failed")
_SEPARATOR = "; "


def _weight(case: CaseResult) -> tuple[int, float]:
    ratio = -1.0 if case.error_ratio is None else case.error_ratio
    return _PRECEDENCE.index(case.outcome), math.inf if math.isnan(ratio) else ratio


def merged_cases(cases: Iterable[CaseResult]) -> list[CaseResult]:
    merged: dict[tuple[str, str], CaseResult] = {}
    for case in cases:
        key = (case.id, case.subject)
        other = merged.setdefault(key, case)
        checks.require(
            set(other.clauses) == set(case.clauses),
            f"case {case.id} on {case.subject} cites {other.clauses} in one report and {case.clauses} in another",
        )
        merged[key] = max(other, case, key=_weight)
    return list(merged.values())


def merged_subjects(subjects: Iterable[Subject]) -> list[Subject]:
    merged: dict[str, Subject] = {}
    for subject in subjects:
        other = merged.get(subject.name, subject)
        shows = tuple(dict.fromkeys(other.shows + subject.shows))
        descriptions = dict.fromkeys((other.description + _SEPARATOR + subject.description).split(_SEPARATOR))
        merged[subject.name] = Subject(subject.name, shows, _SEPARATOR.join(filter(None, descriptions)))
    return list(merged.values())


def merged_functions(tables: Sequence[Mapping[str, Function]]) -> dict[str, Function]:
    """A function that a subject implements in one run is implemented; all tables name the same functions."""
    merged = {}
    for name, function in tables[0].items():
        implemented: dict[str, bool] = {}
        for table in tables:
            for subject, value in table[name].implemented.items():
                implemented[subject] = value or implemented.get(subject, False)
        merged[name] = Function(function.library, implemented)
    return merged


def merged_environment(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all runs share, and under "runs" what is particular to each."""
    runs: list[dict[str, Any]] = []
    for environment in environments:
        shared = {name: value for name, value in environment.items() if name != "runs"}
        for run in environment.get("runs", [{}]):
            if shared | run not in runs:
                runs.append(shared | run)
    if len(runs) == 1:
        return runs[0]
    common = {name: value for name, value in runs[0].items() if all(name in run and run[name] == value for run in runs)}
    return common | {"runs": [{name: value for name, value in run.items() if name not in common} for run in runs]}


def merged_differences(differences: Iterable[Difference]) -> list[Difference]:
    merged: dict[str, Difference] = {}
    for difference in differences:
        other = merged.setdefault(difference.id, difference)
        checks.require(other == difference, f"difference {difference.id} reads differently in two reports")
    return list(merged.values())
