"""Draw and judge in a separate process.

Each entry is sent to the parent before it runs, so that a crash or hang has a name.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings, strategies

from ..domains import DOMAINS, PROFILES, Domain, Drawn, Profile, Source, operations
from ..domains.variations import varied
from ..refusals.carried import applicable
from ..subjects import is_lost, open_subject
from .entries import Entry, parse_entry
from .judging import Finding, Judge, Key

BATCH = 50  # examples of a family at a time
REFUSED = 15  # percent of the operations that get a change for which the call must be refused
VARIED = 35  # percent of the operations that get any change
SHRINKING = 500  # operations that the search for a simpler one may try
LOST = "ended its device"


@dataclass(frozen=True)
class Orders:
    """Tell a worker what to do.

    It ends after ``seconds`` or ``count``, whichever comes first; 0 means no limit. known: faults that were already
    reported.
    """

    subjects: tuple[str, ...]
    families: tuple[str, ...]
    profiles: tuple[str, ...]
    solvers: str
    seed: int
    seconds: float
    count: int
    known: frozenset[Key] = frozenset()
    entries: tuple[str, ...] = ()  # entries that run instead of drawn ones


def with_changes(domain: Domain, profiles: tuple[Profile, ...]) -> Any:
    """Return a strategy of what a domain draws, sometimes with a change, for which the call must or may be refused."""

    @strategies.composite
    def changed(draw: Any) -> Drawn:
        found: Drawn = draw(operations(domain, profiles))
        chance = draw(strategies.integers(0, 99))
        if chance >= 100 - REFUSED and (names := applicable(found.operation)):
            return replace(found, refused=draw(strategies.sampled_from(names)))
        any_change = 100 - REFUSED > chance >= 100 - REFUSED - VARIED and domain.name != "graph"
        return varied(Source(draw, profiles[0]), found) if any_change else found

    return changed()


class Shown(AssertionError):
    """Report a fault, so that Hypothesis simplifies it."""


def work(orders: Orders, connection: Connection) -> None:
    """Draw and judge until the orders are fulfilled, and send the findings."""
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
    """Run the batches.

    Messages: (began, entry), (judged, number), (found, finding), (lost, finding) before the process ends itself,
    (ended, what was used).
    """

    def __init__(self, orders: Orders, connection: Connection, judge: Judge) -> None:
        self.orders, self.connection, self.judge = orders, connection, judge
        self.known = set(orders.known)
        self.judged = 0
        self.ends = time.monotonic() + orders.seconds if orders.seconds else float("inf")

    @property
    def enough(self) -> bool:
        return time.monotonic() > self.ends or bool(self.orders.count and self.judged >= self.orders.count)

    def examine(self, entry: Entry) -> Finding | None:
        """Announce an entry to the parent, and judge it."""
        self.connection.send(("began", str(entry)))
        found = self.judge.examine(entry)
        self.judged += 1
        self.connection.send(("judged", int(self.judge.unasked < len(self.judge.subjects))))
        if found and any(map(is_lost, self.judge.subjects)):  # Everything that runs here later would fail, too.
            self.connection.send(("lost", replace(found, key=found.key._replace(what=f"{LOST}: {found.key.what}"))))
            self.connection.close()
            os._exit(1)
        return found

    def again(self, texts: Iterable[str]) -> None:
        """Judge these entries, and send what each shows."""
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
        )(given(with_changes(DOMAINS[family], profiles))(check))  # fmt: skip
        try:
            seed(number)(drawing)()
        except Exception:  # This is the fault, or Hypothesis's message that it could not reproduce it.
            if not smallest:
                raise
        if smallest:
            self.known.add(smallest[0].key)
            self.connection.send(("found", smallest[-1]))
