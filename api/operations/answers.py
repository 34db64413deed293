"""Keeps answers of calls in bounded dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KEPT = 4096  # answers, where nobody says how many


class Answers(dict[Any, Any]):
    """Answers by key. One too many empties it."""

    def __init__(self, most: int | None = None) -> None:
        """Keep so many at most; None: KEPT."""
        super().__init__()
        self.most = most

    def of(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what is kept for a key, else what ``make`` returns, which is kept."""
        found = self.get(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found

    def keep(self, key: Any, answer: Any) -> None:
        """Keep an answer, which is not None."""
        if len(self) >= (self.most or KEPT):
            self.clear()
        self[key] = answer
