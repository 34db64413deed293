"""Compiles each module once, in threads that run during calls; there is at most one thread per core.

The threads are daemons: a process ends without waiting for a compilation. A forked child starts its own threads.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Hashable

from dualdnn.api.operations.forks import free_in_children


class Task:
    """Run the compilation of one module. ``error`` holds the exception of a failed compilation."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work, self._done, self._process = work, threading.Event(), os.getpid()
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.error = error
        finally:
            self._done.set()

    def is_alive(self) -> bool:
        """Return whether the module is queued or being compiled; always False in a forked child."""
        return self._process == os.getpid() and not self._done.is_set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the task is done, or until ``timeout`` seconds have passed."""
        if self.is_alive():
            self._done.wait(timeout)


class Background:
    """Hold the compiler threads and their tasks, by key."""

    def __init__(self) -> None:
        self._lock = free_in_children(threading.Lock())
        self._queue: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._tasks: dict[Hashable, Task] = {}
        self._threads, self._process = 0, os.getpid()
        self.finished = 0  # number of ended tasks; a plan made while tasks ran is valid until this changes

    def find(self, key: Hashable) -> Task | None:
        """Return the task that was begun under a key, or None."""
        return self._tasks.get(key)

    def tasks(self) -> list[Task]:
        """Return all tasks that were begun."""
        return [*self._tasks.values()]

    def begin(self, key: Hashable, work: Callable[[], object]) -> Task:
        """Return the task of a key, and queue it unless it was queued before."""
        with self._lock:
            if self._process != os.getpid():
                self._queue, self._threads, self._process = queue.SimpleQueue(), 0, os.getpid()
            if (known := self._tasks.get(key)) is not None and (known.is_alive() or known._done.is_set()):
                return known
            made = self._tasks[key] = Task(work)
            self._queue.put(made)
            if self._threads < (os.cpu_count() or 1):
                self._threads += 1
                threading.Thread(target=self._serve, args=(self._queue,), daemon=True).start()
        return made

    def _serve(self, tasks: queue.SimpleQueue[Task]) -> None:
        while True:
            tasks.get().run()
            with self._lock:
                self.finished += 1
