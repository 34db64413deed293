"""Holds the table of differences, and finds the case or finding that each one explains."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

DIFFERENCES: list[Difference] = []
KINDS = ("status", "outputs", "result")


@dataclass(frozen=True)
class Disagreement:
    """Says which findings about recorded calls (recorded.judging.Finding) a difference explains.

    kind: status, outputs or result; nothing explains our own wrong outputs. functions, clauses: patterns of the
    function and of the clause that our refusal cites. ours, theirs: patterns of the statuses, without CUDNN_STATUS_.
    when: a predicate on the recorded call. expects: a predicate on the finding: exactly what the library answered or
    computed; a result needs one.
    """

    kind: str = "status"
    functions: tuple[str, ...] = ("*",)
    ours: str = "*"
    theirs: str = "*"
    clauses: tuple[str, ...] = ("*",)
    when: Callable[[Any], bool] | None = None
    expects: Callable[[Any], bool] | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}, a difference explains one of {', '.join(KINDS)}")
        if self.kind == "result" and self.expects is None:
            raise ValueError("a difference in a result must say what it expects")

    def may_concern(self, function: str) -> bool:
        """Return whether records of this function can show it."""
        return _any(self.functions, function)

    def covers(self, finding: Any) -> bool:
        return (
            finding.kind == self.kind
            and self.may_concern(finding.record.function)
            and fnmatch.fnmatchcase(finding.ours, self.ours)
            and fnmatch.fnmatchcase(finding.theirs, self.theirs)
            and _any(self.clauses, finding.clause or "")
            and (self.when is None or self.when(finding.record))
            and (self.expects is None or self.expects(finding))
        )


@dataclass(frozen=True)
class Difference:
    """Describes one disagreement.

    cases: patterns of case ids (fnmatch) that show it. says: patterns of the text of these failures (occurrences.what);
    a case that fails otherwise shows something else. subjects: patterns of subject names. recorded: the findings about
    recorded calls that it explains. sometimes: (pattern of cases, pattern of their text) that show it in some runs
    only. The library orders its work differently each time; no list names these. A case that passes and is suspect says
    "suspect" and the outputs.
    """

    id: str
    function: str
    clauses: tuple[str, ...]
    document: str
    vendor: str
    decision: str
    cases: tuple[str, ...] = ()
    says: tuple[str, ...] = ("*",)
    subjects: tuple[str, ...] = ("vendor-*", "recorded-*")
    recorded: tuple[Disagreement, ...] = ()
    sometimes: tuple[tuple[str, str], ...] = ()

    def may_show(self, case: str, subject: str, said: str) -> bool:
        """Return whether this failure of a case is one that the difference shows in some runs."""
        found = any(fnmatch.fnmatchcase(case, c) and fnmatch.fnmatchcase(said, w) for c, w in self.sometimes)
        return found and _any(self.subjects, subject)

    def covers(self, case: str, subject: str, said: str | None = None) -> bool:
        """Return whether the failure of a case, with this text where it is known, is one of these."""
        if case == f"recorded_calls/test_difference[{self.id}]":  # This case is judged by the records that it names.
            return _any(self.subjects, subject)
        return _any(self.cases, case) and (said is None or _any(self.says, said)) and _any(self.subjects, subject)


def _any(patterns: Iterable[str], text: str) -> bool:
    return any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns)


def declare(differences: Iterable[Difference]) -> None:
    """Add differences to the table, each id once."""
    for difference in differences:
        if any(entry.id == difference.id for entry in DIFFERENCES):
            raise ValueError(f"the difference {difference.id} is declared already")
        DIFFERENCES.append(difference)


def difference_for(case: str, subject: str, said: str | None = None) -> Difference | None:
    """Return the declared difference that explains why this case fails on this subject, given the failure's text
    where it is known."""
    return next((entry for entry in DIFFERENCES if entry.covers(case, subject, said)), None)


def explanation_of(finding: Any) -> Difference | None:
    """Return the declared difference that explains a finding about a recorded call."""
    return next((entry for entry in DIFFERENCES if any(rule.covers(finding) for rule in entry.recorded)), None)
