"""What is said of each call, and of the names that are not calls."""

from __future__ import annotations

from dataclasses import dataclass, field

REWRITTEN, HELPED, LEFT = "rewritten", "rewritten through a helper", "left as it was"
VERDICTS = (REWRITTEN, HELPED, LEFT)


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
    kind: str  # "no counterpart", "unknown", "string", "pasting", "check", "comment"
    message: str

    def __str__(self) -> str:
        return f"{self.line}:{self.column}: {self.kind}: {self.message}"


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

    def count(self, verdict: str) -> int:
        return sum(v.verdict == verdict for v in self.verdicts)
