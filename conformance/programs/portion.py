"""Decide which calls of an observed program are judged: all, every n-th, or the calls that fit a share of the
time.
"""

from __future__ import annotations

import os
import time
from collections import Counter

EVERY = "DUALDNN_OBSERVE_EVERY"
BUDGET = "DUALDNN_OBSERVE_BUDGET"
SPOTS = "DUALDNN_OBSERVE_SPOTS"
MAX_SPOTS = 200  # judged elements of each output of a large call


class Portion:
    """Choose calls.

    every: the first of this many calls of each configuration is judged. budget: the largest share of the time for
    judging. A configuration that was judged more often than average yields to others. spots: judged elements of each
    output of a large call, 0 for all.
    """

    def __init__(self, every: int = 1, budget: float = 1.0, spots: int = MAX_SPOTS) -> None:
        self.every, self.budget, self.spots = every, budget, spots
        self.seen: Counter[tuple[str, str]] = Counter()
        self.chosen: Counter[tuple[str, str]] = Counter()
        self.spent, self.began = 0.0, time.monotonic()

    @classmethod
    def of_environment(cls) -> Portion:
        """Return the portion that ``dualdnn observe`` asked for."""
        every, spots = int(os.environ.get(EVERY) or 1), int(os.environ.get(SPOTS) or MAX_SPOTS)
        return cls(every, float(os.environ.get(BUDGET) or 1), spots)

    def left_out(self, function: str, operation: object) -> str:
        """Return why a call is not judged, or an empty text if it is."""
        key = function, str(operation)
        self.seen[key] += 1
        if (self.seen[key] - 1) % self.every:
            return f"one call of {self.every} is judged"
        if self.budget < 1:
            if self.spent > self.budget * (time.monotonic() - self.began):
                return f"judging takes {self.budget:.0%} of the time"
            if self.chosen[key] and self.chosen[key] * self.seen.total() > self.seen[key] * self.chosen.total():
                return "others were judged less often"
        self.chosen[key] += 1
        return ""

    def spend(self, seconds: float) -> None:
        """Count the time that observing took."""
        self.spent += seconds

    def resumes(self) -> float:
        """Return the time, of time.monotonic(), from which the budget allows more, or 0 if it does now."""
        until = self.began + self.spent / self.budget
        return until if self.budget < 1 and until > time.monotonic() else 0.0
