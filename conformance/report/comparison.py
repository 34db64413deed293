"""Compare two reports: changed cases and clauses, for the terminal and as a page."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape

from .entries import CaseResult, test_of
from .model import Report
from .page import policy_of, source_of

ABSENT = "not there"


@dataclass(frozen=True)
class Change:
    """Describe a case or a clause on a subject before and after, in words of outcomes or of states."""

    kind: str  # case or clause
    id: str
    subject: str
    old: str
    new: str
    message: str = ""

    @property
    def is_regression(self) -> bool:
        """Return whether it newly fails, or passed before and shows nothing; a removed case or subject counts too."""
        if self.kind == "case":
            return self.new in ("failed", "passes unexpectedly") or (
                self.old == "passed" and self.new in ("mistrusted", "skipped")
            )
        return self.new == "failed" or (self.old == "passed" and self.new in ("untested", "not_applicable", "known"))

    @property
    def is_improvement(self) -> bool:
        return self.new == "passed"


@dataclass(frozen=True)
class Comparison:
    """Compare two reports on one specification."""

    old: Report
    new: Report

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Return the changes, regressions first. Subjects in only one report are left out; ``unmatched`` names them."""
        found = [*self._clauses(), *self._cases()]
        return tuple(
            sorted(found, key=lambda c: (not c.is_regression, c.is_improvement, c.kind == "case", c.subject, c.id))
        )

    @property
    def regressions(self) -> tuple[Change, ...]:
        return tuple(change for change in self.changes if change.is_regression)

    @cached_property
    def subjects(self) -> tuple[str, ...]:
        """Return the subjects that both reports have."""
        theirs = {subject.name for subject in self.new.subjects}
        return tuple(subject.name for subject in self.old.subjects if subject.name in theirs)

    @property
    def unmatched(self) -> tuple[str, ...]:
        names = [subject.name for report in (self.old, self.new) for subject in report.subjects]
        return tuple(name for name in dict.fromkeys(names) if name not in self.subjects)

    @property
    def is_partial(self) -> bool:
        """Return whether the new report covers only a part of the suite, so that what it lacks was not run."""
        facts = self.new.environment
        return any(run.get("state", "complete") != "complete" for run in (facts, *facts.get("runs", [])))

    def _clauses(self) -> Iterator[Change]:
        for name in dict.fromkeys([*self.old.clauses, *self.new.clauses]):
            for subject in self.subjects:
                old, new = (report.states.get(name, {}).get(subject, ABSENT) for report in (self.old, self.new))
                not_run = self.is_partial and new == "untested"
                if old != new and not not_run:
                    yield Change("clause", name, subject, old, new)

    def _cases(self) -> Iterator[Change]:
        tables = [{(c.id, c.subject): c for c in report.cases} for report in (self.old, self.new)]
        for key in dict.fromkeys([*tables[0], *tables[1]]):
            if key[1] not in self.subjects:
                continue
            old, new = (table.get(key) for table in tables)
            was, now = (_word(old, *key, self.old, self.new), _word(new, *key, self.new, self.old))
            if was != now and not (now == ABSENT and self.is_partial):
                yield Change("case", *key, was, now, new.message if new else "")


def _word(case: CaseResult | None, id: str, subject: str, report: Report, other: Report) -> str:
    """Return what a report says about a case.

    Skipped cases are counted by test. A case that is not listed counts as skipped if its test has more skips than in
    the other report.
    """
    if case is None:
        key = test_of(id), subject
        skipped = report.skipped_of_test.get(key, 0) > other.skipped_of_test.get(key, 0)
        return "skipped" if skipped else ABSENT
    if case.passes_unexpectedly:
        return "passes unexpectedly"
    return "known failure" if case.outcome == "failed" and case.known else case.outcome


def to_text(comparison: Comparison) -> str:
    """Return the comparison for a terminal, regressions first."""
    lines = [f"on one side only: {', '.join(comparison.unmatched)}"] if comparison.unmatched else []
    if comparison.is_partial:
        lines.append("the new report is of a part of the suite: what it did not run is left out")
    for change in comparison.changes:
        mark = "regression: " if change.is_regression else ""
        lines.append(f"{mark}{change.kind} {change.id} on {change.subject}: {change.old} -> {change.new}")
        if change.is_regression and change.message:
            lines.append(f"  {change.message.strip().splitlines()[-1][:200]}")
    return "\n".join([*lines, summary_of(comparison)])


def summary_of(comparison: Comparison) -> str:
    """Return one line with the numbers of changes."""
    changes = comparison.changes
    better = sum(change.is_improvement for change in changes)
    return f"{len(comparison.regressions)} regressions, {better} improvements, {len(changes)} changes in all"


def to_page(comparison: Comparison) -> str:
    """Return diff.html: one self-contained page without a script."""
    style = source_of("page.css")
    sides = "".join(
        f"<tr><th scope=row>{name}</th><td>{escape(str(report.environment.get('commit', '–')))}</td>"
        f"<td>{escape(str(report.environment.get('date', '–')))}</td><td>{escape(str(report.environment.get('state', 'complete')))}</td></tr>"
        for name, report in (("old", comparison.old), ("new", comparison.new))
    )
    groups = (
        ("Regressions", [c for c in comparison.changes if c.is_regression]),
        ("Improvements", [c for c in comparison.changes if c.is_improvement]),
        ("Other changes", [c for c in comparison.changes if not c.is_regression and not c.is_improvement]),
    )
    sections = "".join(_section(title, changes) for title, changes in groups if changes)
    notes = "".join(
        f'<p class="notice">{escape(line)}</p>' for line in to_text(comparison).splitlines()[:2] if "->" not in line
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy_of(style)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="data:,"><title>Changes of compliance</title><style>{style}</style></head><body>'
        f"<header><h1>Changes of compliance</h1><p class=lead><strong>{escape(comparison.new.specification)}</strong></p></header>"
        f"<main>{notes}<div class=frame><table><caption>Reports</caption><thead><tr><th scope=col>Report</th>"
        f"<th scope=col>commit</th><th scope=col>date</th><th scope=col>state</th></tr></thead><tbody>{sides}</tbody></table></div>"
        f"{sections or '<p>Nothing changed.</p>'}</main></body></html>\n"
    )


def _section(title: str, changes: list[Change]) -> str:
    rows = "".join(
        f"<tr><td>{change.kind}</td><td>{escape(change.subject)}</td><td><code>{escape(change.id)}</code>{_message(change)}</td>"
        f"<td>{_chip(change.old)}</td><td>{_chip(change.new)}</td></tr>"
        for change in changes
    )
    head = "".join(f"<th scope=col>{name}</th>" for name in ("", "Subject", "Id", "was", "is"))
    return (
        f"<section><h2>{title} ({len(changes):,})</h2><div class=frame><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def _chip(word: str) -> str:
    state = {"known failure": "known", "passes unexpectedly": "unexpected", ABSENT: "untested"}.get(word, word)
    return f'<span class="chip {state}">{escape(word.replace("_", " "))}</span>'


def _message(change: Change) -> str:
    return f"<pre>{escape(change.message)}</pre>" if change.message and change.is_regression else ""
