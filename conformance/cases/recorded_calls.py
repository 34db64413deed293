"""Repeats recorded calls of NVIDIA's library: our backends must answer and compute as it did.

Declared differences (differences/) are separate cases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.conformance.differences import explanation_of
from dualdnn.conformance.recorded.grouping import (
    contradiction,
    differences,
    explained,
    findings,
    groups,
    key_of,
    named,
    rerun,
    seen_in,
    shown,
    sorted_calls,
)
from dualdnn.conformance.recorded.judging import AGREES, SKIPPED
from dualdnn.conformance.subjects.recorded import RecordedSubject

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.suite.evidence import Evidence


def held(subject: Subject) -> None:
    """Skip subjects whose choices, where the document leaves one open, are unknown."""
    if not (subject.cites_clauses or isinstance(subject, RecordedSubject)):
        pytest.skip("a library that cites no clauses may answer otherwise than the recorded one")


@pytest.mark.per_subject("calls", groups)
def test_calls(subject: Subject, calls: Any, evidence: Evidence) -> None:
    """Every call of the group agrees with its record, apart from declared differences."""
    held(subject)
    if calls.reason:
        pytest.skip(f"{len(calls.calls)} recorded calls of {calls.function}: {calls.reason}")
    found = findings(subject, list(calls.calls))
    for finding in found:
        if finding.kind == AGREES:
            evidence.clauses |= shown(finding)
            evidence.error_ratio = max(evidence.error_ratio or 0.0, finding.error_ratio)
    blind = subject.cites_clauses and not subject.knows_sizes
    unseen = [f for f in found if blind and f.kind == SKIPPED]  # The memory is too small.
    wrong = [
        f
        for f in found
        if f.kind != AGREES and not any(f is u for u in unseen) and explained(f, list(calls.calls)) is None
    ]
    if wrong:
        listed = "\n".join(f"{finding}\n{rerun(finding, list(calls.calls), subject)}" for finding in wrong)
        pytest.fail(f"{len(wrong)} of {len(found)} recorded calls disagree\n{listed}", pytrace=False)


@pytest.mark.per_subject("difference", differences)
def test_difference(subject: Subject, difference: Any, evidence: Evidence) -> None:
    """Our backends still differ from the recorded library as declared.

    The recorded library differs in exactly the named records, and in the named way.
    """
    held(subject)
    calls = [
        call
        for (function, reason), listed in sorted_calls(
            "recorded" if subject.cites_clauses else subject.spelling
        ).items()
        if not reason and any(rule.may_concern(function) for rule in difference.recorded)
        for call in listed
    ]
    if subject.cites_clauses:  # One call shows it, most likely of the function itself.
        calls.sort(key=lambda call: call[1].function != difference.function)
        shows = (explained(finding, [call]) is difference for call in calls for finding in findings(subject, [call]))
        assert any(shows), f"no recorded call shows difference {difference.id} any more"
        return
    found = [finding for finding in findings(subject, calls) if explanation_of(finding) is difference]
    if subject.spelling == "recorded":
        here = {key_of(finding, calls): seen_in(finding) for finding in found}
        due = {key: seen for key, (name, seen) in named().failures.items() if name == difference.id}
        if here != due:
            evidence.contradiction = contradiction(difference, here, due)
            pytest.fail(evidence.contradiction, pytrace=False)
    if not found:
        pytest.skip(f"no recorded call shows difference {difference.id}")
    else:
        pytest.fail(
            "\n".join([f"{len(found)} recorded calls differ from the document", *map(str, found)]), pytrace=False
        )
