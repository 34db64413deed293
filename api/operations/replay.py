"""Decide whether cached answers may serve repeated calls.

They may not while a log, a test or another observer needs every call to be computed. DUALDNN_MEMO=0 disables the
caches; DUALDNN_MEMO=check recomputes each answer and compares.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MODES = {"0": 0, "1": 1, "check": 2}  # MODES maps a value of DUALDNN_MEMO to a level.
_text = os.environ.get("DUALDNN_MEMO") or "1"
if _text not in MODES:
    raise ValueError(f"DUALDNN_MEMO={_text!r}: expected {', '.join(MODES)}")
mode = MODES[_text]
compares = mode == 2
_listeners: list[Callable[[], None]] = []
_reasons = 0
live = mode > 0  # It says whether cached answers may serve calls at the moment.


def is_suspended() -> bool:
    """Return whether every call must be computed anew."""
    return _reasons > 0


def listen(changed: Callable[[], None]) -> None:
    """Register a function to call when ``is_suspended`` may have changed or the log was configured."""
    _listeners.append(changed)


def changed() -> None:
    """Tell the listeners to check again whether cached answers may serve."""
    global live
    live = mode > 0 and not _reasons
    for listener in _listeners:
        listener()


@contextmanager
def suspended() -> Iterator[None]:
    """Compute every call anew in this scope, in all threads."""
    global _reasons
    _reasons += 1
    changed()
    try:
        yield
    finally:
        _reasons -= 1
        changed()
