"""Test dualdnn diff: which results changed between two reports, and whether one became worse."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
from dualdnn.conformance.command_line import main
from dualdnn.conformance.report import (
    CaseResult,
    Clause,
    Comparison,
    Function,
    Report,
    Subject,
    to_page,
    to_text,
    write_report,
)

STATES = {
    "passed": {"outcome": "passed"},
    "failed": {"outcome": "failed", "message": "line\n<b>wrong</b>", "reproduction": "r"},
    "known": {"outcome": "failed", "message": "m", "reproduction": "r", "known": "D1"},
    "unexpected": {"outcome": "passed", "known": "expected failure"},
    "skipped": {"outcome": "skipped", "reason": "none"},
}


def report(state="complete", subjects=("host",), **cases):
    clauses = {f"f/{name}": Clause(f"f/{name}", "f", "k", None, "cpu", "1", "l", "text") for name in ("a", "b", "c")}
    results = [
        CaseResult(f"case/{name}", "host", clauses=(f"f/{name}",), seconds=0.1, **STATES[word])
        for name, word in cases.items()
    ]
    functions = {"f": Function("l", dict.fromkeys(subjects, True))}
    return Report.build(results, [Subject(name) for name in subjects], functions, clauses, {"state": state})


@pytest.mark.parametrize("old, new, worse", [
    ("passed", "failed", True), ("passed", "skipped", True), ("passed", "unexpected", True), ("known", "failed", True),
    ("skipped", "failed", True), ("failed", "passed", False), ("failed", "known", False), ("known", "passed", False),
    ("skipped", "passed", False), ("failed", "skipped", False),
])  # fmt: skip
def test_only_worse_outcomes_are_regressions(old, new, worse):
    comparison = Comparison(report(a=old, b="passed"), report(a=new, b="passed"))
    assert bool(comparison.regressions) == worse
    assert {change.id for change in comparison.changes} <= {"f/a", "case/a"} and comparison.changes


def test_reports_that_agree():
    comparison = Comparison(report(a="passed", b="known"), report(a="passed", b="known"))
    assert comparison.changes == () and to_text(comparison).startswith("0 regressions")
    assert "Nothing changed" in to_page(comparison)


def test_a_case_that_is_gone_and_a_part_that_was_not_run():
    old = report(a="passed", b="passed")
    gone = Comparison(old, report(a="passed"))
    assert [(c.kind, c.old, c.new) for c in gone.regressions] == [("clause", "passed", "untested")]
    assert ("case", "not there") in {(c.kind, c.new) for c in gone.changes}
    partial = Comparison(old, report("partial", a="passed"))
    assert partial.changes == () and "part of the suite" in to_text(partial)


def test_subjects_of_one_side_are_named():
    comparison = Comparison(report(subjects=("host", "other")), report(subjects=("host", "third")))
    assert comparison.unmatched == ("other", "third") and "other, third" in to_text(comparison)


def test_the_command_and_its_page(tmp_path, capsys):
    before = write_report(report(a="passed", b="failed"), tmp_path / "old")["compliance.json"]
    after = write_report(report(a="failed", b="passed"), tmp_path / "new")["compliance.json"]
    page = tmp_path / "diff.html"
    assert main(["diff", str(before), str(after), "--out", str(page)]) == 1
    shown = capsys.readouterr().out
    assert "regression: case case/a on host: passed -> failed\n  <b>wrong</b>" in shown
    assert "2 regressions, 2 improvements, 4 changes in all" in shown
    assert "&lt;b&gt;wrong&lt;/b&gt;" in page.read_text() and "<b>" not in page.read_text()
    assert page.read_text().index("Regressions (2)") < page.read_text().index("Improvements (2)")
    assert main(["diff", str(before), str(before)]) == 0
    assert main(["diff", str(before), str(tmp_path)]) == 2
    assert ElementTree.fromstring((tmp_path / "new" / "badge.svg").read_text()) is not None
