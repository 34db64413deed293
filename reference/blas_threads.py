"""How many threads matrix products may have beside other work.

BLAS's threads wait for each other busily: where one of them has to share its core, all of them burn theirs until it has
caught up, and a product takes many times as long as on one thread. So a large product has as many threads as cores are
free when it begins, a small one has one thread, and none has more than BLAS was set to.
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

LEAST_TERMS = 2**25  # products, which one thread adds up in about 5 ms
FAMILIES = ("attention", "convolution", "fused_ops", "graph", "rnn")  # families whose references multiply matrices


@cache
def _pools() -> list[Any]:
    """BLAS's thread pools; the look for them among the process's libraries takes a millisecond."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


def running() -> int:
    """Threads of the machine that run or wait for a core, this one among them; 1 where nobody says."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return 1


def multiplies(operation: Operation) -> bool:
    """Whether the operation's reference multiplies matrices."""
    return operation.family in FAMILIES


def threads_for(operation: Operation) -> int:
    """The most threads that products of the operation may have at this moment."""
    terms = getattr(operation, "terms", None)
    if terms is not None and terms * operation.tensor(operation.outputs[0]).count < LEAST_TERMS:
        return 1
    return max(1, (os.cpu_count() or 1) - (running() - 1))


class _Limit:
    """The limit of all computations that run at this moment: BLAS has one number for the process."""

    def __init__(self) -> None:
        self.lock = free_in_children(threading.Lock())
        self.before: list[tuple[Any, int]] = []  # each pool with the threads that it had
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
        """Give BLAS the threads that it had; in a forked child, where nothing computes, whatever ran in the parent."""
        self.inside = 0
        for pool, most in self.before:
            pool.set_num_threads(most)


_limit = _Limit()
os.register_at_fork(after_in_child=_limit.lift)


@contextmanager
def beside_others(operation: Operation) -> Iterator[None]:
    """Limit BLAS to the threads that the operation may have; at the end of the last of several computations it has its own again."""
    if not multiplies(operation):
        yield
        return
    _limit.enter(threads_for(operation))
    try:
        yield
    finally:
        _limit.leave()
