"""Whether calls may be answered by what was decided for earlier ones: not while somebody watches or changes how they are decided.

The variable DUALDNN_MEMO says so, too: 0: they may not; check: they are decided anew, and compared with what was decided.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

MODES = {"0": 0, "1": 1, "check": 2}  # values of DUALDNN_MEMO
_text = os.environ.get("DUALDNN_MEMO") or "1"
if _text not in MODES:
    raise ValueError(f"DUALDNN_MEMO={_text!r}: expected {', '.join(MODES)}")
mode = MODES[_text]
compares = mode == 2
_listeners: list[Callable[[], None]] = []
_reasons = 0
live = mode > 0  # whether calls may be answered so at the moment


def is_suspended() -> bool:
    """Return whether every call has to be decided anew."""
    return _reasons > 0


def listen(changed: Callable[[], None]) -> None:
    """Call this function whenever the answer of ``is_suspended`` may have changed, or the log was configured."""
    _listeners.append(changed)


def changed() -> None:
    """Let those who answer calls look again at whether they may."""
    global live
    live = mode > 0 and not _reasons
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
