"""Whether calls may be answered by what was decided for earlier ones: not while somebody watches or changes how they are decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[Callable[[], None]] = []
_reasons = 0


def is_suspended() -> bool:
    """Whether every call has to be decided anew."""
    return _reasons > 0


def listen(changed: Callable[[], None]) -> None:
    """Call this function whenever the answer of ``is_suspended`` may have changed, or the log was configured."""
    _listeners.append(changed)


def changed() -> None:
    """Let those who answer calls look again at whether they may."""
    for listener in _listeners:
        listener()


@contextmanager
def suspended() -> Iterator[None]:
    """Let every call in this scope be decided anew, in all threads."""
    global _reasons
    _reasons += 1
    changed()
    try:
        yield
    finally:
        _reasons -= 1
        changed()
