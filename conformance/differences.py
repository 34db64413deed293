"""Where NVIDIA's library and the document disagree: data, each decided in docs/errata.md under the same id.

A case of a foreign library that fails as a difference says is expected: it is reported as failed, with the difference,
but does not fail the run. The document wins for our backends, always.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass

DIFFERENCES: list[Difference] = []


@dataclass(frozen=True)
class Difference:
    """One disagreement. cases: patterns of case ids (fnmatch) that show it; subjects: patterns of subject names."""

    id: str
    function: str
    clauses: tuple[str, ...]
    document: str
    vendor: str
    decision: str
    cases: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ("vendor-*", "library-*", "recorded-*")

    def covers(self, case: str, subject: str) -> bool:
        matches = any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)
        return matches and any(fnmatch.fnmatchcase(subject, pattern) for pattern in self.subjects)


def declare(differences: Iterable[Difference]) -> None:
    """Add to the table."""
    DIFFERENCES.extend(differences)


def difference_for(case: str, subject: str) -> Difference | None:
    """The declared difference that explains why this case fails on this subject."""
    return next((entry for entry in DIFFERENCES if entry.covers(case, subject)), None)
