"""Merge the parts of several runs into one report."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import checks
from .entries import CaseResult, Difference, Function, Skips, Subject, test_of

# If a case has two results, the more informative one counts. A failure is never hidden, and a run that could not show a
# case yields to one that could.
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


def counted(cases: Iterable[CaseResult], skips: Iterable[Skips]) -> tuple[Skips, ...]:
    """Count the skipped cases of some results by subject, reason and test, and add earlier counts."""
    tests: dict[tuple[str, str], Counter[str]] = {}
    clauses: dict[tuple[str, str], dict[str, None]] = {}
    own = (Skips(c.subject, c.reason, {test_of(c.id): 1}, c.clauses) for c in cases if c.outcome == "skipped")
    for entry in (*skips, *own):
        key = entry.subject, entry.reason
        tests.setdefault(key, Counter()).update(entry.tests)
        clauses.setdefault(key, {}).update(dict.fromkeys(entry.clauses))
    return tuple(
        Skips(*key, dict(sorted(counts.items())), tuple(sorted(clauses[key]))) for key, counts in sorted(tests.items())
    )


def merged_skips(runs: Sequence[tuple[Sequence[CaseResult], Sequence[Skips]]]) -> list[Skips]:
    """Merge the skips of several runs.

    A test has its largest number of cases in any run, and a case that ran anywhere is not skipped.
    """
    ran = Counter((test_of(id), subject) for id, subject in {(c.id, c.subject) for cases, _ in runs for c in cases})
    most: Counter[tuple[str, str]] = Counter()
    for cases, skips in runs:
        of_run = Counter((test_of(case.id), case.subject) for case in cases)
        for entry in skips:
            of_run.update({(test, entry.subject): count for test, count in entry.tests.items()})
        most |= of_run
    left = most - ran
    largest: dict[tuple[str, str], Counter[str]] = {}
    clauses: dict[tuple[str, str], dict[str, None]] = {}
    for entry in (entry for _, skips in runs for entry in skips):
        key = entry.subject, entry.reason
        largest[key] = largest.get(key, Counter()) | Counter(entry.tests)
        clauses.setdefault(key, {}).update(dict.fromkeys(entry.clauses))
    merged = []
    for (subject, reason), counts in largest.items():
        tests = {test: min(count, left[test, subject]) for test, count in counts.items() if left[test, subject] > 0}
        left.subtract({(test, subject): count for test, count in tests.items()})
        if tests:
            merged.append(Skips(subject, reason, tests, tuple(clauses[subject, reason])))
    return merged


def merged_subjects(subjects: Iterable[Subject]) -> list[Subject]:
    merged: dict[str, Subject] = {}
    for subject in subjects:
        other = merged.get(subject.name, subject)
        shows = tuple(dict.fromkeys(other.shows + subject.shows))
        descriptions = dict.fromkeys((other.description + _SEPARATOR + subject.description).split(_SEPARATOR))
        merged[subject.name] = Subject(
            subject.name, shows, _SEPARATOR.join(filter(None, descriptions)), other.asked or subject.asked
        )
    return list(merged.values())


def merged_functions(tables: Sequence[Mapping[str, Function]]) -> dict[str, Function]:
    """Merge function tables.

    A function that a subject implements in one run is implemented; all tables name the same functions.
    """
    merged = {}
    for name, function in tables[0].items():
        implemented: dict[str, bool] = {}
        for table in tables:
            for subject, value in table[name].implemented.items():
                implemented[subject] = value or implemented.get(subject, False)
        merged[name] = Function(function.library, implemented)
    return merged


def merged_environment(environments: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what all runs share, and under "runs" the rest of each."""
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
