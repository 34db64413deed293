"""Derive the state of each clause and subject from the results of the cases: the report."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from . import checks, merging
from .clauses import Clause
from .entries import OUTCOMES, CaseResult, Difference, Function, Skips, Subject

SPECIFICATION = "cuDNN API Reference 8.0.3"
SECOND_DOCUMENT = "miopen"  # library of the second document's clauses and functions
# A clause is "known" if every failing case of it was known to fail.
STATES = ("passed", "known", "failed", "untested", "not_applicable")
CASE_TOTALS = (*OUTCOMES, "known_failures", "unexpected_passes")

Totals = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Report:
    """Hold a compliance report. Make one with `Report.build` or `Report.merge`.

    `cases` are those that ran; skipped ones are counted in `skips`, by subject and reason.
    """

    specification: str
    environment: Mapping[str, Any]
    subjects: tuple[Subject, ...]
    clauses: Mapping[str, Clause]
    cases: tuple[CaseResult, ...]
    functions: Mapping[str, Function]
    differences: tuple[Difference, ...] = ()
    benchmarks: tuple[Mapping[str, Any], ...] = ()
    skips: tuple[Skips, ...] = ()

    @classmethod
    def build(
        cls,
        cases: Iterable[CaseResult],
        subjects: Sequence[Subject],
        functions_table: Mapping[str, Function],
        clauses: Mapping[str, Clause],
        environment: Mapping[str, Any],
        differences: Iterable[Difference] = (),
        *,
        benchmarks: Iterable[Mapping[str, Any]] = (),
        skips: Iterable[Skips] = (),
        specification: str = SPECIFICATION,
    ) -> "Report":
        """Build a report of these results. Raises `ReportError` if they contradict each other.

        Skipped results are added to `skips`.
        """
        order = {subject.name: index for index, subject in enumerate(subjects)}
        results = tuple(sorted(cases, key=lambda case: (order.get(case.subject, -1), case.id)))
        report = cls(
            specification=specification,
            environment=dict(environment),
            subjects=tuple(subjects),
            clauses=dict(clauses),
            cases=tuple(case for case in results if case.outcome != "skipped"),
            functions=dict(functions_table),
            differences=tuple(differences),
            benchmarks=tuple(dict(row) for row in benchmarks),
            skips=merging.counted(results, skips),
        )
        _check(report, results)
        return report

    @classmethod
    def merge(cls, *reports: "Report") -> "Report":
        """Merge several runs against the same document, from one machine or many.

        A case that ran twice on a subject counts once, with the most informative result: failed before passed before
        mistrusted before skipped.
        """
        checks.require(bool(reports), "merge needs at least one report")
        first = reports[0]
        for other in reports[1:]:
            _check_same_document(first, other)
        return cls.build(
            cases=merging.merged_cases(case for report in reports for case in report.cases),
            subjects=merging.merged_subjects(subject for report in reports for subject in report.subjects),
            functions_table=merging.merged_functions([report.functions for report in reports]),
            clauses=first.clauses,
            environment=merging.merged_environment([report.environment for report in reports]),
            differences=merging.merged_differences(entry for report in reports for entry in report.differences),
            benchmarks=[row for report in reports for row in report.benchmarks],
            skips=merging.merged_skips([(report.cases, report.skips) for report in reports]),
            specification=first.specification,
        )

    @cached_property
    def cases_of_clause(self) -> dict[str, tuple[CaseResult, ...]]:
        """Return the cases that cite each clause."""
        cited: dict[str, list[CaseResult]] = {clause: [] for clause in self.clauses}
        for case in self.cases:
            for clause in case.clauses:
                cited[clause].append(case)
        return {clause: tuple(cases) for clause, cases in cited.items()}

    @cached_property
    def states(self) -> dict[str, dict[str, str]]:
        """Return the state of each clause on each subject."""
        return {
            clause.id: {subject.name: self._state(clause, subject) for subject in self.subjects}
            for clause in self.clauses.values()
        }

    def _state(self, clause: Clause, subject: Subject) -> str:
        own = [case for case in self.cases_of_clause[clause.id] if case.subject == subject.name]
        # Evidence comes before expectation: a case that showed a clause counts, even if it was not expected to.
        if any(case.outcome == "failed" for case in own):
            return "failed" if any(case.is_new_failure for case in own) else "known"
        if any(case.outcome == "passed" for case in own):
            return "passed"
        if clause.library == SECOND_DOCUMENT and subject.name not in self._of_second_document:
            return "not_applicable"
        return "untested" if clause.shown_on in subject.shows else "not_applicable"

    @cached_property
    def _of_second_document(self) -> frozenset[str]:
        """Return the subjects with any function of the second document; a cuDNN library has no such function."""
        functions = (function for function in self.functions.values() if function.library == SECOND_DOCUMENT)
        return frozenset(name for function in functions for name, there in function.implemented.items() if there)

    @cached_property
    def totals(self) -> Totals:
        """Return subject -> state -> number of clauses."""
        return self._clause_totals(lambda clause: "all")["all"]

    @cached_property
    def library_totals(self) -> dict[str, Totals]:
        """Return library -> subject -> state -> number of clauses."""
        return self._clause_totals(lambda clause: clause.library)

    @cached_property
    def function_totals(self) -> dict[str, Totals]:
        """Return function (or type, or use case) -> subject -> state -> number of clauses."""
        return self._clause_totals(lambda clause: clause.function)

    @cached_property
    def skipped_of_test(self) -> dict[tuple[str, str], int]:
        """Return (test, subject) -> number of its cases that the subject skipped."""
        counts: Counter[tuple[str, str]] = Counter()
        for skips in self.skips:
            counts.update({(test, skips.subject): count for test, count in skips.tests.items()})
        return dict(counts)

    @cached_property
    def _subject_of_name(self) -> dict[str, Subject]:
        return {subject.name: subject for subject in self.subjects}

    def reproduction(self, case: CaseResult) -> str:
        """Return the command that runs a case again."""
        return case.reproduction or self._subject_of_name[case.subject].reproduction(case.id)

    @cached_property
    def case_totals(self) -> Totals:
        """Return subject -> outcome, known failures (also counted as failed) and unexpected passes -> number of
        cases.
        """
        counts = Counter((case.subject, case.outcome) for case in self.cases)
        for skips in self.skips:
            counts[skips.subject, "skipped"] += skips.count
        for case in self.cases:
            if case.known:
                counts[case.subject, "known_failures" if case.outcome == "failed" else "unexpected_passes"] += 1
        return {s.name: {word: counts[s.name, word] for word in CASE_TOTALS} for s in self.subjects}

    def _clause_totals(self, group: Callable[[Clause], str]) -> dict[str, Totals]:
        counts = Counter(
            (group(clause), subject, state)
            for clause in self.clauses.values()
            for subject, state in self.states[clause.id].items()
        )
        groups = dict.fromkeys(["all"] if not self.clauses else map(group, self.clauses.values()))
        return {
            name: {s.name: {state: counts[name, s.name, state] for state in STATES} for s in self.subjects}
            for name in groups
        }


def _check(report: Report, results: Sequence[CaseResult]) -> None:
    checks.text(report.specification, "specification")
    subjects = checks.texts([subject.name for subject in report.subjects], "subjects")
    checks.require(bool(subjects), "a report needs at least one subject")
    _check_environment(report.environment)
    for identifier, clause in report.clauses.items():
        checks.require(identifier == clause.id, f"clause {clause.id} is listed under the id {identifier!r}")
    for name, function in report.functions.items():
        checks.keys(function.implemented, subjects, (), f"implemented of function {name}")
    seen: set[tuple[str, str]] = set()
    for case in results:
        what = f"case {case.id}"
        checks.one_of(case.subject, subjects, f"subject of {what}")
        _check_clauses_exist(case.clauses, report.clauses, what)
        checks.require((case.id, case.subject) not in seen, f"{what} is listed twice on {case.subject}")
        seen.add((case.id, case.subject))
    for skips in report.skips:
        what = f"skipped cases of {skips.subject}"
        checks.one_of(skips.subject, subjects, f"subject of {what}")
        _check_clauses_exist(skips.clauses, report.clauses, what)
    checks.texts([difference.id for difference in report.differences], "ids of the differences")
    for difference in report.differences:
        _check_clauses_exist(difference.clauses, report.clauses, f"difference {difference.id}")
    for index, row in enumerate(report.benchmarks):
        _check_benchmark(row, f"benchmark {index}")


def _check_clauses_exist(cited: Sequence[str], clauses: Mapping[str, Clause], what: str) -> None:
    unknown = [clause for clause in cited if clause not in clauses]
    checks.require(not unknown, f"{what} cites clauses that the document lacks: {', '.join(unknown)}")


def _check_environment(environment: Mapping[str, Any]) -> None:
    for name, value in checks.mapping(environment, "environment").items():
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            message = f"environment entry {name} is {value!r:.80}, which JSON cannot hold: {error}"
            raise checks.ReportError(message) from error
    runs = environment.get("runs", [])
    checks.require(isinstance(runs, list), f"environment entry runs is {runs!r:.80}, expected a list of objects")
    for run in runs:
        checks.mapping(run, "an entry of environment runs")


def _check_benchmark(row: Mapping[str, Any], what: str) -> None:
    checks.text(checks.mapping(row, what).get("name"), f"name of {what}")
    for name, value in row.items():
        finite = not isinstance(value, float) or math.isfinite(value)
        is_cell = finite and (value is None or isinstance(value, (str, bool, int, float)))
        checks.require(is_cell, f"{name} of {what} is {value!r:.80}, expected text, a finite number, a bool or None")


def _check_same_document(first: Report, other: Report) -> None:
    checks.require(
        first.specification == other.specification,
        f"reports of different specifications: {first.specification!r} and {other.specification!r}",
    )
    for what, ours, theirs in (
        ("clause", first.clauses, other.clauses),
        ("function", _libraries(first), _libraries(other)),
    ):
        differing = [key for key in {**ours, **theirs} if ours.get(key) != theirs.get(key)]
        checks.require(
            not differing,
            f"reports of different documents: they differ in {len(differing)} {what} entries, first in {differing[:1]}",
        )


def _libraries(report: Report) -> dict[str, str]:
    return {name: function.library for name, function in report.functions.items()}
