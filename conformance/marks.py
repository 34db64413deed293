"""Mark cases with the clauses they show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def shows(*clauses: str) -> Any:
    """Mark a case with the clauses that a failure would violate. "cudnnSetTensor/c01 c04-c06" names four of one section."""
    return pytest.mark.shows(*(clause for text in clauses for clause in named(text)))


def needs(attribute: str, reason: str) -> Any:
    """Mark a case with an attribute of the subject; where that is false, the case is skipped for this reason."""
    return pytest.mark.needs(attribute, reason)


def named(text: str) -> Iterator[str]:
    """Yield the clauses that a text names: a section, and numbers or ranges of numbers with both ends."""
    section, _, numbers = text.rpartition("/")
    for part in numbers.split():
        first, _, last = part.partition("-")
        width = len(first) - 1
        yield from (f"{section}/c{n:0{width}}" for n in range(int(first[1:]), int((last or first)[1:]) + 1))


def by_name(value: object) -> str:
    """Return the name of a parameter in a case's id: that of an enumerator, else its text."""
    return getattr(value, "name", None) or str(value)
