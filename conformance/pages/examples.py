"""Find calls to copy in the programs under examples/, in the guides and in the cases of the suite."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The first place with a call counts.
PLACES = ("examples/c/*.c", "examples/*/*.py", "docs/*.md", "conformance/cases/*.py", "conformance/cases/*/*.py")
LINES = 12  # lines of an excerpt


@cache
def _texts() -> list[tuple[str, list[str]]]:
    """Return path and lines of every file that may have an example; empty if they are not installed."""
    return [
        (path.relative_to(ROOT).as_posix(), path.read_text("utf-8").splitlines())
        for pattern in PLACES
        for path in sorted(ROOT.glob(pattern))
    ]


def example_of(function: str) -> tuple[str, int, str] | None:
    """Return the path, the number of the first line and the lines of a call of ``function``, or None without an
    example.
    """
    called = re.compile(rf"\b{function}\(")
    for path, lines in _texts():
        for number, line in enumerate(lines):
            if called.search(line):
                first = max(0, number - LINES // 2)
                return path, first + 1, "\n".join(lines[first : number + LINES // 2])
    return None
