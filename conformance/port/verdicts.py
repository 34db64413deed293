"""What is said of each call, and of the names that are not calls."""

from __future__ import annotations

from dataclasses import dataclass, field

REWRITTEN, HELPED, LEFT = "rewritten", "rewritten through a helper", "left as it was"
VERDICTS = (REWRITTEN, HELPED, LEFT)
# Kinds of notes for which something stays that is no MIOpen: a name, a number, text that makes a name.
OPEN_NOTES = frozenset({"no counterpart", "unknown", "integer", "pasting"})


@dataclass(frozen=True)
class Verdict:
    """What became of one call."""

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
    """Something to look at that is no call: a name without a counterpart, a string, a lost choice."""

    line: int
    column: int
    kind: str  # "no counterpart", "unknown", "integer", "string", "pasting", "check", "comment"
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.kind}: {self.message}"

    @property
    def is_open(self) -> bool:
        """Whether a person has to port what it says."""
        return self.kind in OPEN_NOTES


@dataclass
class PortedFile:
    """One file before and after."""

    path: str
    before: bytes
    after: bytes
    verdicts: list[Verdict] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    error: str | None = None  # why the file was not looked at

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def left(self) -> list[Verdict | Note]:
        """Return what a person has to port."""
        return [*(v for v in self.verdicts if v.verdict == LEFT), *(n for n in self.notes if n.is_open)]

    def count(self, verdict: str) -> int:
        return sum(v.verdict == verdict for v in self.verdicts)
