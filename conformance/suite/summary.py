"""Count the outcomes of a run for its last lines."""

from __future__ import annotations

from typing import Any

from ..differences.occurrences import EXPLAINED

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
