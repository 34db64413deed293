"""Keep answers of calls in bounded dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

KEPT = 4096  # answers, the default limit


class Answers(dict[Any, Any]):
    """Hold answers by key; exceeding the limit clears the dictionary."""

    def __init__(self, most: int | None = None) -> None:
        """Limit the number of answers to ``most``, or to KEPT if it is None."""
        super().__init__()
        self.most = most

    def of(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the answer of a key; if there is none, call ``make`` and keep its result."""
        found = self.get(key)
        if found is None:
            found = make()
            self.keep(key, found)
        return found

    def keep(self, key: Any, answer: Any) -> None:
        """Keep an answer, which must not be None."""
        if len(self) >= (self.most or KEPT):
            self.clear()
        self[key] = answer
