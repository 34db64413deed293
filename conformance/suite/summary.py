"""Count the outcomes of a run for its last lines."""

from __future__ import annotations

from typing import Any

from ..differences.occurrences import EXPLAINED
from ..report import Report

FOREIGN = ("library:", "vendor")  # Names of subjects that are shared libraries begin so.
SUMMARY_WORDS = ("passed", "failed", "known failures", "unexpected passes", "mistrusted", "skipped", "suspect")


def summary(results: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Return subject -> word -> number of cases. "failed" counts failures without an explanation."""
    counts: dict[str, dict[str, int]] = {}
    for result in results:
        words = counts.setdefault(result["subject"], dict.fromkeys(SUMMARY_WORDS, 0))
        if result["known"]:
            words["known failures" if result["outcome"] == "failed" else "unexpected passes"] += 1
        elif result["outcome"] == "passed" and result["mistrusted"]:
            words["mistrusted"] += 1
        else:
            words[result["outcome"]] += 1
            unexplained = [one for one in result["suspect"] if not one.startswith(EXPLAINED)]
            words["suspect"] += bool(result["outcome"] == "passed" and unexplained)
    return counts


def last_line(message: str, width: int = 200) -> str:
    """Return the last line of a traceback, or the only line of a message."""
    lines = [line for line in message.splitlines() if line.strip()]
    return lines[-1].strip()[:width] if lines else ""


def unjudged(report: Report, partial: bool) -> list[str]:
    """Return a line on each foreign library of which every case was skipped, whatever it answered.

    partial: only a part of the suite was run, which may have no case for a library; then a verdict on any subject is
    enough.
    """
    totals = {name: words for name, words in report.case_totals.items() if any(words.values())}
    skipped = {name for name, words in totals.items() if not words["passed"] + words["failed"]}
    if partial and len(skipped) < len(totals):
        return []
    foreign = [subject.name for subject in report.subjects if (subject.asked or subject.name).startswith(FOREIGN)]
    return [f"{name}: nothing was judged, every case was skipped" for name in foreign if name in skipped]
