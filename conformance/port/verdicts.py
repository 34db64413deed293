"""Holds the verdict of each call, and the notes on names that are not calls."""

from __future__ import annotations

from dataclasses import dataclass, field

REWRITTEN = "rewritten"
HELPED = "rewritten through a helper"
LEFT = "left as it was"
VERDICTS = (REWRITTEN, HELPED, LEFT)
# After these notes, something stays that MIOpen does not have: a name, a number, text that makes a name.
OPEN_NOTES = frozenset({"no counterpart", "unknown", "integer", "zero", "pasting"})


@dataclass(frozen=True)
class Verdict:
    """Says how one call was ported."""

    line: int
    column: int
    verdict: str
    function: str
    target: str | None
    rule: str
    message: str

    def __str__(self) -> str:
        arrow = f" -> {self.target}" if self.target else ""
        why = f": {self.message}" if self.message else ""
        return f"{self.line}:{self.column}: {self.verdict} [{self.rule}]: {self.function}{arrow}{why}"


@dataclass(frozen=True)
class Note:
    """Points at something that is not a call: a name without a counterpart, a string, a lost choice."""

    line: int
    column: int
    kind: str  # one of "no counterpart", "unknown", "integer", "zero", "string", "pasting", "check", "comment"
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.kind}: {self.message}"

    @property
    def is_open(self) -> bool:
        """Return whether a person has to act on the note."""
        return self.kind in OPEN_NOTES


@dataclass
class PortedFile:
    """Holds one file before and after."""

    path: str
    before: bytes
    after: bytes
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    error: str | None = None  # The text says why the file was not read.

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def left(self) -> list[Verdict | Note]:
        """Return what a person has to port."""
        return [*(v for v in self.verdicts if v.verdict == LEFT), *(n for n in self.notes if n.is_open)]

    def count(self, verdict: str) -> int:
        return sum(v.verdict == verdict for v in self.verdicts)
