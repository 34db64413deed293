"""Report what a whole run or tier should have shown and did not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from .. import scope
from ..differences.occurrences import unseen
from ..report import CaseResult
from ..report import Subject as ReportedSubject
from ..solvers import without_a_launch
from ..tiers import STANDARD, Tier, read_tier

OURS = ("reference", "accelerated", "crosscheck")  # prefixes of the names of our own subjects


RECORDED = "recorded_calls/"  # cases that only the subject of recorded calls has


@dataclass
class Lacking:
    """Hold what is missing.

    unshown: subject -> clauses without a case. unlaunched: kernels. unseen: subject -> removed cases that a declared
    difference still names. unrun: cases of the tier that did not run.
    """

    unshown: dict[str, list[str]] = field(default_factory=dict)
    unlaunched: list[str] = field(default_factory=list)
    unseen: dict[str, list[str]] = field(default_factory=dict)
    unrun: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """Return lines to print on what is missing."""
        found = [
            f"{name}: {len(clauses)} clauses in scope have no case: {', '.join(clauses)}"
            for name, clauses in self.unshown.items()
            if clauses
        ]
        found += [
            f"{name}: {len(cases)} failures of declared differences are of cases that are no more: {', '.join(cases)}"
            for name, cases in self.unseen.items()
            if cases
        ]
        if self.unlaunched:
            found.append(f"{len(self.unlaunched)} kernels are launched by no case: {', '.join(self.unlaunched)}")
        if self.unrun:
            found.append(f"{len(self.unrun)} cases of the tier did not run: {', '.join(self.unrun)}")
        return found


def lacking(
    cases: Iterable[CaseResult],
    subjects: Iterable[ReportedSubject],
    tier: Tier | None,
    kernels: Mapping[str, object] | None,
) -> Lacking:
    """Return what these results of a whole run lack.

    tier: the tier that ran, or None for all cases, which include the standard tier. kernels: the launched kernels by
    name, or None if not every solver ran.
    """
    results, named = list(cases), list(subjects)
    ran = {case.id for case in results}
    listed = tier or read_tier(STANDARD)
    ours = [subject.name for subject in named if subject.name.startswith(OURS)]
    return Lacking(
        {name: scope.without_a_case(name, results) for name in ours},
        [] if kernels is None else without_a_launch(kernels, ours),
        {s.name: unseen(s.name, "both" in s.shows, ran) for s in named if s.name not in ours and tier is None},
        [case for case in listed.cases if case not in ran and not case.startswith(RECORDED)]
        if len(ours) > 1 and listed
        else [],
    )
