"""Keep what was seen of an observed program: counts by function and configuration, and each mistake once."""

from __future__ import annotations

import fnmatch
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dualdnn.reference.sampled import Sample

from ..differences import DIFFERENCES
from . import picture

SHOWN = 20  # lines of each kind in the summary
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


@dataclass
class Seen:
    """Count the calls of one function with one configuration.

    worst: largest error in units of the bound. elements: number of sampled elements. squares, sums: of their signed
    errors in units of their bounds. errors: elements in each bin of the picture.
    """

    calls: int = 0
    judged: int = 0
    wrong: int = 0
    worst: float = 0.0
    elements: int = 0
    squares: float = 0.0
    sums: float = 0.0
    errors: list[int] = field(default_factory=lambda: [0] * picture.BINS)
    left: Counter[str] = field(default_factory=Counter)

    def take(self, sample: Sample) -> None:
        """Count the elements of a judged sample."""
        self.elements += len(sample.ratios)
        self.squares += math.fsum(ratio * ratio for ratio in sample.ratios)
        self.sums += math.fsum(sample.ratios)
        for ratio in (*sample.ratios, *(found.ratio for found in sample.wrong)):
            self.errors[picture.bin_of(ratio)] += 1

    @property
    def rms(self) -> float:
        """Return the root mean square of sampled errors, in units of their bounds."""
        return math.sqrt(self.squares / max(1, self.elements))

    @property
    def bias(self) -> float:
        """Return the mean of sampled errors, in units of their bounds."""
        return self.sums / max(1, self.elements)


class Findings:
    """Hold what was seen of a run.

    calls: by function. rows: by function and operation. others: for each kind, the first text and the count of each
    distinct mistake. A difference is a status that docs/errata.md declares for NVIDIA's library.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.calls = path, Counter[str]()
        self.rows: dict[tuple[str, str], Seen] = {}
        self.others: dict[str, dict[str, tuple[str, int]]] = {"wrong": {}, "status": {}, "result": {}, "difference": {}}
        self.left = Counter[str]()

    def row(self, function: str, operation: Any) -> Seen:
        """Return the counts of a configuration."""
        return self.rows.setdefault((function, str(operation)), Seen())

    def note(self, kind: str, text: str, same: str = "") -> None:
        """Count a mistake. ``same`` identifies equal mistakes; the default is the text without addresses."""
        key = same or ADDRESS.sub("0x...", text)
        first, count = self.others[kind].get(key, (text, 0))
        self.others[kind][key] = first, count + 1

    @property
    def judged(self) -> int:
        return sum(row.judged for row in self.rows.values())

    def text(self) -> str:
        """Return the summary."""
        totals = {kind: sum(count for _, count in noted.values()) for kind, noted in self.others.items()}
        lines = [
            f"dualdnn observed {self.path}: {self.calls.total()} calls of {len(self.calls)} functions, {self.judged} judged,"
            f" {totals['wrong']} wrong, {totals['status']} other statuses, {totals['result']} other results"
        ]
        for kind, noted in self.others.items():
            often = sorted(noted.values(), key=lambda entry: -entry[1])
            lines += [f"  {kind}: {text}{_times(count)}" for text, count in often[:SHOWN]]
            lines += [f"  {kind}: and {len(often) - SHOWN} more"] if len(often) > SHOWN else []
        sampled = sorted(
            ((function, operation, row) for (function, operation), row in self.rows.items() if row.elements),
            key=lambda entry: -entry[2].worst,
        )
        for function, operation, row in sampled[:SHOWN]:
            lines.append(
                f"  sampled: {function}: {row.judged} of {row.calls} calls, {row.elements} elements, worst error {row.worst:.3g} of its"
                f" bound, rms {row.rms:.3g}, bias {row.bias:.2g}\n    {replayed(operation)}"
            )
        lines += [f"  sampled: and {len(sampled) - SHOWN} more"] if len(sampled) > SHOWN else []
        lines += [f"  not judged: {reason} ({count} calls)" for reason, count in self.left.most_common(SHOWN)]
        return "\n".join(lines)

    def write(self, folder: Path) -> None:
        """Write summary.txt, observed.json with a row for each configuration, and report.html with a picture of
        these.
        """
        folder.mkdir(parents=True, exist_ok=True)
        text = self.text()
        (folder / "summary.txt").write_text(text + "\n", encoding="utf-8")
        rows = [
            {"function": function, "operation": operation, "calls": row.calls, "judged": row.judged, "wrong": row.wrong,
             "worst_error_in_bounds": row.worst, "sampled_elements": row.elements, "rms_error_in_bounds": row.rms,
             "bias_in_bounds": row.bias, "errors": row.errors, "not_judged": dict(row.left)}
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
        (folder / "report.html").write_text(picture.page(text, rows), encoding="utf-8")


def replayed(operation: object) -> str:
    """Return the command that repeats such a call with seeded data."""
    return f'dualdnn replay "{operation}"'


def erratum(function: str, ours: str, theirs: str, clause: str) -> str:
    """Return the erratum of a declared difference that explains a status, in brackets, or an empty text.

    Differences with conditions on the call's values explain nothing here.
    """
    for difference in DIFFERENCES:
        for found in difference.recorded:
            named = any(pattern != "*" and fnmatch.fnmatchcase(clause, pattern) for pattern in found.clauses)
            statuses = fnmatch.fnmatchcase(ours, found.ours) and fnmatch.fnmatchcase(theirs, found.theirs)
            unconditional = found.kind == "status" and found.when is None and found.expects is None
            if unconditional and found.may_concern(function) and statuses and named:
                return f" [docs/errata.md, {difference.id}]"
    return ""


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""
