"""The process that draws and judges. It tells its parent each entry before it runs, so that a crash or a hang has a name."""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from ..domains import DOMAINS, PROFILES, Drawn, operations
from ..subjects import open_subject
from .entries import Entry, parse_entry
from .judging import Finding, Judge, Key

BATCH = 50  # examples of a family at a time
SHRINKING = 500  # operations that the search for a simpler one may try


@dataclass(frozen=True)
class Orders:
    """Say what a worker does. seconds, count: it ends after the first of them; 0 means without end. known: faults that are told once already."""

    subjects: tuple[str, ...]
    families: tuple[str, ...]
    profiles: tuple[str, ...]
    solvers: str
    seed: int
    seconds: float
    count: int
    known: frozenset[Key] = frozenset()
    entries: tuple[str, ...] = ()  # what runs in place of anything drawn


class Shown(AssertionError):
    """A fault that Hypothesis makes simpler."""


def work(orders: Orders, connection: Connection) -> None:
    """Draw and judge until the orders say that it is enough, and send what is found."""
    judge = Judge([open_subject(name) for name in orders.subjects], orders.solvers)
    worker = Worker(orders, connection, judge)
    if orders.entries:
        worker.again(orders.entries)
    else:
        worker.draw()
    used = {family: found.lists() for family, found in judge.used.items()}
    connection.send(("ended", (used, list(judge.facts.items()))))
    connection.close()


class Worker:
    """Runs the batches. Messages: (began, entry), (judged, how many), (found, finding), (ended, what was used)."""

    def __init__(self, orders: Orders, connection: Connection, judge: Judge) -> None:
        self.orders, self.connection, self.judge = orders, connection, judge
        self.known = set(orders.known)
        self.judged = 0
        self.ends = time.monotonic() + orders.seconds if orders.seconds else float("inf")

    @property
    def enough(self) -> bool:
        return time.monotonic() > self.ends or bool(self.orders.count and self.judged >= self.orders.count)

    def examine(self, entry: Entry) -> Finding | None:
        """Judge an entry of which the parent knows."""
        self.connection.send(("began", str(entry)))
        found = self.judge.examine(entry)
        self.judged += 1
        self.connection.send(("judged", 1))
        return found

    def again(self, texts: Iterable[str]) -> None:
        """Judge these entries, and say of each what it shows."""
        for text in texts:
            self.connection.send(("shown", (text, self.examine(parse_entry(text)))))

    def draw(self) -> None:
        """Draw batches of the families in turn."""
        batch = 0
        while not self.enough:
            for family in self.orders.families:
                self._batch(family, zlib.crc32(f"{self.orders.seed} {family} {batch}".encode()))
                if self.enough:
                    return
            batch += 1

    def _batch(self, family: str, number: int) -> None:
        smallest: list[Finding] = []
        tried = 0

        def check(drawn: Drawn) -> None:
            nonlocal tried
            tried += bool(smallest)
            if tried > SHRINKING or (self.enough and not smallest):
                return
            found = self.examine(Entry(family, drawn, number % 997))
            if found is None or found.key in self.known or (smallest and found.key != smallest[0].key):
                return
            smallest.append(found)
            raise Shown(found.text)

        profiles = tuple(PROFILES[name] for name in self.orders.profiles)
        drawing: Any = settings(
            max_examples=BATCH, database=None, deadline=None, suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink), report_multiple_bugs=False, print_blob=False,
        )(given(operations(DOMAINS[family], profiles))(check))  # fmt: skip
        try:
            seed(number)(drawing)()
        except Exception:  # the fault, or what Hypothesis says of one that it does not get to see again
            if not smallest:
                raise
        if smallest:
            self.known.add(smallest[0].key)
            self.connection.send(("found", smallest[-1]))
