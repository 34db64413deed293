"""Register locks that stay usable after a fork, even if another thread held them at that moment."""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

L = TypeVar("L")
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_awaited: list[Any] = []
_held: list[Any] = []


def free_in_children(lock: L) -> L:
    """Return the lock after registering it to be free in a forked child. Its data must be consistent between any two
    statements."""
    _locks.add(lock)
    return lock


def awaited_by_forks(lock: L) -> L:
    """Return the lock after registering it: a fork first acquires it, so the child sees consistent data."""
    _awaited.append(lock)
    return lock


def _before() -> None:
    for lock in _awaited:
        lock.acquire()
        _held.append(lock)


def _in_parent() -> None:
    while _held:
        _held.pop().release()


def _in_child() -> None:
    _in_parent()
    for lock in list(_locks):
        lock._at_fork_reinit()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
