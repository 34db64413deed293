"""What was seen of an observed program: counts by function and configuration, and what is wrong, each once."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN = 20  # lines of each kind in the summary
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass
class Seen:
    """The calls of one function with one configuration. worst: error in units of the bound, of all that was judged."""

    calls: int = 0
    judged: int = 0
    wrong: int = 0
    worst: float = 0.0
    left: Counter[str] = field(default_factory=Counter)


class Findings:
    """What was seen of a run. calls: by function; rows: by function and operation; others: of a kind, by what makes
    two of them the same, the first text and how often it came."""

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, Counter[str]()
        self.rows: dict[tuple[str, str], Seen] = {}
        self.others: dict[str, dict[str, tuple[str, int]]] = {"wrong": {}, "status": {}, "result": {}}
        self.left = Counter[str]()

    def row(self, function: str, operation: Any) -> Seen:
        """Return what is counted of a configuration."""
        return self.rows.setdefault((function, str(operation)), Seen())

    def note(self, kind: str, text: str, same: str = "") -> None:
        """Count something that is wrong. same: what makes two of them one, else their text, in which addresses do not count."""
        key = same or ADDRESS.sub("0x...", text)
        first, count = self.others[kind].get(key, (text, 0))
        self.others[kind][key] = first, count + 1

    @property
    def judged(self) -> int:
        return sum(row.judged for row in self.rows.values())

    def text(self) -> str:
        """The summary."""
        totals = {kind: sum(count for _, count in noted.values()) for kind, noted in self.others.items()}
        lines = [
            f"dualdnn observed {self.path}: {self.calls.total()} calls of {len(self.calls)} functions, {self.judged} judged,"
            f" {totals['wrong']} wrong, {totals['status']} other statuses, {totals['result']} other results"
        ]
        for kind, noted in self.others.items():
            often = sorted(noted.values(), key=lambda entry: -entry[1])
            lines += [f"  {kind}: {text}{_times(count)}" for text, count in often[:SHOWN]]
            lines += [f"  {kind}: and {len(often) - SHOWN} more"] if len(often) > SHOWN else []
        lines += [f"  not judged: {reason} ({count} calls)" for reason, count in self.left.most_common(SHOWN)]
        return "\n".join(lines)

    def write(self, folder: Path) -> None:
        """Write summary.txt and observed.json, with a row for each function and configuration."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "summary.txt").write_text(self.text() + "\n", encoding="utf-8")
        rows = [
            {"function": function, "operation": operation, "calls": row.calls, "judged": row.judged, "wrong": row.wrong,
             "worst_error_in_bounds": row.worst, "not_judged": dict(row.left)}
            for (function, operation), row in self.rows.items()
        ]  # fmt: skip
        found = {
            "library": str(self.path),
            "calls": dict(self.calls),
            "judged": self.judged,
            **{
                kind: [{"text": text, "times": count} for text, count in noted.values()]
                for kind, noted in self.others.items()
            },
            "not_judged": dict(self.left),
            "configurations": rows,
        }
        (folder / "observed.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""
