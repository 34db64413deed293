"""Keeps the times of algorithms that searches measured on a GPU, so that no other process measures them again.

Each device has a text file next to the compiled kernels, and installed packages may contain one. A line holds a
checksum, the hash of a release and an operation, and milliseconds. Several processes append complete lines. The newest
line of an operation counts, and damaged lines are skipped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import zlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from dualdnn.api import __version__
from dualdnn.api.operations import Operation
from dualdnn.api.operations.backend import RUN

from .cache import locked, readable_folders, writable_folder
from .errors import DeviceUnavailable
from .shipped import package_folders

FOLDER = "choices"
MAX_LINES = 8192  # lines kept per device; older lines are dropped
LINE_BYTES = 64  # upper bound of the bytes per line


def key_of(operation: Operation, level: str = RUN) -> str:
    """Return the hash by which lines name an operation of this release at a level, 24 hexadecimal digits."""
    named = f"{__version__} {operation}" + (f" {level}" if level != RUN else "")
    return hashlib.sha256(named.encode()).hexdigest()[:24]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def times_in(path: Path) -> Iterator[tuple[str, float]]:
    """Yield the key and the milliseconds of each line of a file whose checksum is right."""
    for line in _text(path).splitlines():
        checksum, _, content = line.partition(" ")
        with contextlib.suppress(ValueError):
            if int(checksum, 16) == zlib.crc32(content.encode()):
                key, milliseconds = content.split()
                yield key, float(milliseconds)


class Choices:
    """Hold the times that were measured on devices of one name."""

    def __init__(self, device: str) -> None:
        self.name = re.sub(r"\W+", "-", device) + ".txt"

    @cached_property
    def _known(self) -> dict[str, float]:
        """Return milliseconds by key; the times in the cache replace the times in packages."""
        found: dict[str, float] = {}
        for folder in (*package_folders(), *readable_folders()):
            for path in sorted(folder.glob(f"{FOLDER}*/{self.name}")):  # Each package has a folder of its own.
                with contextlib.suppress(OSError):
                    found.update(times_in(path))
        return found

    def find(self, operation: Operation, level: str = RUN) -> float | None:
        """Return the milliseconds of an operation at a level, or None where no search measured it."""
        return self._known.get(key_of(operation, level))

    def keep(self, operation: Operation, milliseconds: float, level: str = RUN) -> None:
        """Append the time of an operation to the device's file. Do nothing where no folder can be written."""
        key = key_of(operation, level)
        self._known[key] = milliseconds
        content = f"{key} {milliseconds:.6g}"
        with contextlib.suppress(OSError, DeviceUnavailable):
            path = writable_folder() / FOLDER / self.name
            path.parent.mkdir(exist_ok=True)
            with path.open("ab", buffering=0) as file:  # A full disk may have cut the last line off.
                file.write(f"\n{zlib.crc32(content.encode()):08x} {content}\n".encode())
            if path.stat().st_size > 2 * MAX_LINES * LINE_BYTES:
                _shorten(path)


def _shorten(path: Path) -> None:
    """Rewrite a file with its newest MAX_LINES lines only."""
    with locked(path.with_suffix(".lock")):
        kept = [line for line in _text(path).splitlines(keepends=True) if line.strip()][-MAX_LINES:]
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text("".join(kept), encoding="utf-8")
        os.replace(temporary, path)
