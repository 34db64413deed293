"""Run each worker in its own process, and replace one that dies or hangs."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from typing import Any

from .entries import parse_entry
from .judging import Finding, Key
from .worker import Orders, work

HANG = 120.0  # seconds that one operation may take
DIED = "took its process down"
HUNG = "did not end"
Receive = Callable[[str, Any], None]


class Running:
    """Hold a worker, its current entry, when the entry began, and the finding for which the worker ends itself."""

    lost: Finding | None = None

    def __init__(self, orders: Orders) -> None:
        self.orders, self.entry, self.began, self.judged, self.started = (
            orders,
            "",
            time.monotonic(),
            0,
            time.monotonic(),
        )
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(orders, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def fault(self, said: str) -> Finding | None:
        """Return the finding that the current entry ended the worker, or None if it had no entry."""
        if self.lost or not self.entry:
            return self.lost
        entry = parse_entry(self.entry)
        key = Key(entry.family, type(entry.drawn.operation).__name__, self.orders.subjects[-1], "", said)
        return Finding(key, said, entry)

    def rest(self, known: frozenset[Key]) -> Orders | None:
        """Return the orders for this worker's successor, or None if nothing is left.

        A new seed avoids what ended this worker.
        """
        orders = self.orders
        if orders.entries:
            later = orders.entries[orders.entries.index(self.entry) + 1 :] if self.entry in orders.entries else ()
            return replace(orders, entries=later) if later else None
        seconds = orders.seconds and orders.seconds - (time.monotonic() - self.started)
        count = orders.count and orders.count - self.judged
        if (orders.seconds and seconds <= 0) or (orders.count and count <= 0):
            return None
        return replace(orders, seconds=seconds, count=count, seed=orders.seed + 7919, known=known)

    def end(self) -> None:
        """Kill the worker if it is alive."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def run(orders: list[Orders], receive: Receive, tick: Callable[[], None]) -> None:
    """Run workers with these orders until all have ended.

    receive: gets their messages, and (died, finding) for a worker that ended unexpectedly. tick: is called several
    times a second.
    """
    running = [Running(each) for each in orders]
    known: set[Key] = set()
    try:
        while running:
            ready = wait([worker.connection for worker in running], timeout=0.2)
            for worker in list(running):
                if worker.connection in ready:
                    ended = _received(worker, receive, known)
                    said = DIED if ended is None else ""
                elif time.monotonic() - worker.began > HANG and worker.entry:
                    ended, said = None, HUNG
                else:
                    continue
                if ended is False:
                    continue
                running.remove(worker)
                worker.end()
                if said:
                    fault = worker.fault(said)
                    if fault is None:
                        raise ValueError(
                            f"a worker ended before its first operation, exit status {worker.process.exitcode}"
                        )
                    receive("died", fault)
                    known.add(fault.key)
                    if rest := worker.rest(frozenset(known)):
                        running.append(Running(rest))
            tick()
    finally:
        for worker in running:
            worker.end()


def _received(worker: Running, receive: Receive, known: set[Key]) -> bool | None:
    """Handle a worker's messages. Return True if it has ended, None if it died, False if it continues."""
    try:
        for kind, value in _messages(worker.connection):
            if kind == "began":
                worker.entry, worker.began = value, time.monotonic()
            elif kind == "judged":
                worker.judged += value
            elif kind == "found":
                known.add(value.key)
            elif kind == "lost":
                worker.lost = value
                return None
            receive(kind, value)
            if kind == "ended":
                return True
    except (EOFError, OSError):
        return None
    return False


def _messages(connection: Connection) -> Iterator[tuple[str, Any]]:
    yield connection.recv()
    while connection.poll():
        yield connection.recv()
