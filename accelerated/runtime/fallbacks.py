"""Keeps notes next to the cache about solvers that replaced a preferred solver whose modules were missing."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import re
from pathlib import Path

from .cache import readable_folders, writable_folder
from .errors import DeviceUnavailable

FOLDER = "fallbacks"
REASON_CHARACTERS = 800  # characters per note, because compilers write long messages
SHOWN_NOTES = 3  # per summary
SHOWN_CHARACTERS = 160  # per note of a summary
_LOG = logging.getLogger("dualdnn")
_noted: set[tuple[str, str, str]] = set()


def note(preferred: str, served: str, reason: str, level: int = logging.WARNING) -> None:
    """Log, once per process, that a solver replaces the preferred one, and keep the note for other processes."""
    reason = " ".join(reason.split())[:REASON_CHARACTERS]
    if (preferred, served, reason) in _noted:
        return
    _noted.add((preferred, served, reason))
    _LOG.log(level, "%s serves instead of %s: %s", served, preferred, reason)
    with contextlib.suppress(OSError, DeviceUnavailable):
        path = writable_folder() / FOLDER / _name(preferred, served)
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{served} instead of {preferred}: {reason}", encoding="utf-8")


def forget(preferred: str, served: str) -> None:
    """Remove the note about a preferred solver whose modules are available again."""
    with contextlib.suppress(OSError, DeviceUnavailable):
        (writable_folder() / FOLDER / _name(preferred, served)).unlink(missing_ok=True)


def notes() -> list[str]:
    """Return all notes of this cache, the newest first."""
    paths = [path for folder in readable_folders() for path in (folder / FOLDER).glob("*.txt")]
    return [text for path in sorted(paths, key=_time_of, reverse=True) if (text := _read(path))]


def summary() -> str:
    """Return the newest notes, a line each without definitions, and how many more there are, or "nothing"."""
    found = notes()
    lines = [re.sub(r" -D\w+=(\{[^}]*\}|\S+)", "", text)[:SHOWN_CHARACTERS] for text in found[:SHOWN_NOTES]]
    if more := len(found) - len(lines):
        lines.append(f"and {more} more in {readable_folders()[0] / FOLDER}")
    return "\n".join(lines) or "nothing"


def _time_of(path: Path) -> float:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _name(preferred: str, served: str) -> str:
    return hashlib.sha256(f"{preferred} {served}".encode()).hexdigest()[:16] + ".txt"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
