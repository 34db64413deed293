"""Show the progress of work: a bar with the share done and the time left on a terminal, or else ten lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

BAR = 24  # characters of the bar
INTERVAL = 0.2  # seconds between two updates of the bar
SHARES = 10  # lines of a run without a terminal


def clock(seconds: float) -> str:
    """Return a duration for people: 0:07, 12:40, 1:05:00."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Bar:
    """Show the progress of work on a stream.

    ``total`` is the number of parts, 0 while unknown; ``noun`` names the parts.
    """

    def __init__(
        self,
        noun: str,
        total: float = 0,
        stream: TextIO | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.noun, self.total, self.stream, self.now = noun, total, stream or sys.stdout, now
        self.done: float = 0
        self.notes = ""  # text after the share
        self.started = now()
        self.drawn = -INTERVAL
        self.shown = False
        self.lines = 0
        self.terminal = self.stream.isatty()

    def advance(self, done: float, notes: str = "") -> None:
        """Record how much is done, and show it if it is time."""
        self.done, self.notes = done, notes
        if not self.total:
            return
        if self.terminal:
            if self.now() - self.drawn >= INTERVAL:
                self.draw()
        elif int(SHARES * self.share) > self.lines:
            self.lines = int(SHARES * self.share)
            self.stream.write(f"{self.text()}\n")
            self.stream.flush()

    @property
    def share(self) -> float:
        """Return the share that is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    def text(self) -> str:
        """Return the share, the parts, the notes, and the time left at the average rate."""
        elapsed = self.now() - self.started
        left = (
            f"about {clock(elapsed / self.share - elapsed)} left" if 0 < self.share < 1 else f"{clock(elapsed)} taken"
        )
        parts = f"{self.done:,.0f} of {self.total:,.0f} {self.noun}"
        return ", ".join(filter(None, (f"{self.share:4.0%}  {parts}", self.notes, left)))

    def draw(self) -> None:
        """Draw the bar over the previous one."""
        full = round(BAR * self.share)
        self.stream.write(f"\r\x1b[K[{'#' * full}{'-' * (BAR - full)}] {self.text()}")
        self.stream.flush()
        self.drawn, self.shown = self.now(), True

    def clear(self) -> None:
        """Remove the bar, so that a line can be written in its place."""
        if self.shown:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.shown, self.drawn = False, -INTERVAL
