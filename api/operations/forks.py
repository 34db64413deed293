"""Locks that survive a fork: another thread may hold one at that moment, and that thread is not in the child."""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

L = TypeVar("L")
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_awaited: list[Any] = []
_held: list[Any] = []


def free_in_children(lock: L) -> L:
    """Return the lock, which a forked child finds free. For locks whose data is whole between any two statements."""
    _locks.add(lock)
    return lock


def awaited_by_forks(lock: L) -> L:
    """Return the lock, for whose holder a fork waits: what it guards is whole in the child."""
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
