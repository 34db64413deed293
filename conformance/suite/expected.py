"""Read and write lists of expected failures, so that CI of an incomplete library fails only on new failures.

A line has the name of a subject and the id of a case. ``#`` begins a comment, and empty lines are skipped. The subject
may be a pattern (``library-*``), because names of foreign libraries end with their version. Earlier ids of cases are read
as their present ones.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dualdnn.api.files import write

from ..cases import present_id

REASON = "expected failure"  # reason of a known failure that no declared difference explains
HEADING = """\
# Cases that are expected to fail, one a line: subject, case. Written by dualdnn conformance --write-expected.
# With --expected, these do not fail the run; a new failure does, and so does a case that is listed and passes.
"""


@dataclass(frozen=True)
class Expected:
    """Hold the cases that are expected to fail, by subject or pattern of subjects."""

    entries: frozenset[tuple[str, str]] = frozenset()

    def lists(self, subject: str, case: str) -> bool:
        return (subject, case) in self.entries or any(
            listed == case and fnmatch.fnmatchcase(subject, pattern) for pattern, listed in self.entries
        )


def read_expected(path: Path) -> Expected:
    """Read the list in a file. Raises ``ValueError`` that names an invalid line."""
    entries = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        subject, _, case = text.partition(" ")
        if not case.strip() or "/" not in case:
            raise ValueError(
                f"{path}, line {number}: {line!r} is not a subject and case (library-8907 pooling/test_forward)"
            )
        entries.add((subject, present_id(case.strip())))
    return Expected(frozenset(entries))


def write_expected(path: Path, failures: Iterable[tuple[str, str]]) -> int:
    """Write (subject, case) of failures, and return how many there are."""
    lines = sorted({f"{subject} {case}\n" for subject, case in failures})
    write(path, (HEADING + "".join(lines)).encode())
    return len(lines)
