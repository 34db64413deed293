"""Limit the threads of matrix products while other work runs.

Threads of BLAS busy-wait for each other. Where one of them shares its core, all others burn theirs until it catches up.
A product then takes many times as long as on one thread. So a large product uses as many threads as there are free
cores when it begins, and a small one uses one. No product uses more threads than BLAS was set to.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from dualdnn.api.operations import Operation
from dualdnn.api.operations.forks import free_in_children

MIN_TERMS = 2**25  # products, added up by one thread in about 5 ms; smaller sums use one thread
FAMILIES = ("attention", "convolution", "fused_ops", "graph", "rnn")  # families whose references multiply matrices


@cache
def _pools() -> list[Any]:
    """Return the thread pools of BLAS. Finding them among the libraries of the process takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def running() -> int:
    """Return how many threads of the machine run or wait for a core, including this one; 1 where this is unknown."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 1


def multiplies(operation: Operation) -> bool:
    """Return whether the operation's reference multiplies matrices."""
    return operation.family in FAMILIES


def threads_for(operation: Operation) -> int:
    """Return the largest number of threads that products of the operation may use at this moment."""
    terms = getattr(operation, "terms", None)
    if terms is not None and terms * operation.tensor(operation.outputs[0]).count < MIN_TERMS:
        return 1
    return max(1, (os.cpu_count() or 1) - (running() - 1))


class _Limit:
    """Share one limit among all running computations, because BLAS has one setting for the process."""

    def __init__(self) -> None:
        self.lock = free_in_children(threading.Lock())
        self.before: list[tuple[Any, int]] = []  # each pool with its original number of threads
        self.inside = 0

    def enter(self, threads: int) -> None:
        with self.lock:
            if not self.inside:
                self.before = [(pool, pool.get_num_threads()) for pool in _pools()]
            self.inside += 1
            for pool, most in self.before:
                pool.set_num_threads(min(threads, most))

    def leave(self) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                self.lift()

    def lift(self) -> None:
        """Restore the threads of BLAS. A forked child does this too, because nothing computes there."""
        self.inside = 0
        for pool, most in self.before:
            pool.set_num_threads(most)


_limit = _Limit()
os.register_at_fork(after_in_child=_limit.lift)


@contextmanager
def beside_others(operation: Operation) -> Iterator[None]:
    """Limit BLAS to the threads that the operation may use.

    The last of concurrent computations restores the setting.
    """
    if not multiplies(operation):
        yield
        return
    _limit.enter(threads_for(operation))
    try:
        yield
    finally:
        _limit.leave()
