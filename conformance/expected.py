"""Lists of expected failures: for people whose library does not pass everything yet, and whose CI shall fail on what is new.

A line is the name of a subject and the id of a case; ``#`` begins a comment, empty lines are skipped. The subject may be a
pattern (``library-*``): names of foreign libraries end with their version.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from dualdnn.api.files import write

REASON = "expected failure"  # why a failure is known, where no declared difference says so
HEADING = """\
# Cases that are expected to fail, one a line: subject, case. Written by dualdnn conformance --write-expected.
# With --expected, these do not fail the run; a new failure does, and so does a case that is listed and passes.
"""


@dataclass(frozen=True)
class Expected:
    """The cases that are expected to fail, by subject or pattern of subjects."""

    entries: frozenset[tuple[str, str]] = frozenset()

    def lists(self, subject: str, case: str) -> bool:
        return (subject, case) in self.entries or any(
            listed == case and fnmatch.fnmatchcase(subject, pattern) for pattern, listed in self.entries
        )


def read_expected(path: Path) -> Expected:
    """The list in a file; ``ValueError`` names a line that is none."""
    entries = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        subject, _, case = text.partition(" ")
        if not case.strip() or "/" not in case:
            raise ValueError(
                f"{path}, line {number}: {line!r} is no subject and case (library-8907 pooling/test_forward)"
            )
        entries.add((subject, case.strip()))
    return Expected(frozenset(entries))


def write_expected(path: Path, failures: Iterable[tuple[str, str]]) -> int:
    """Write (subject, case) of failures; returns how many there are."""
    lines = sorted({f"{subject} {case}\n" for subject, case in failures})
    write(path, (HEADING + "".join(lines)).encode())
    return len(lines)
