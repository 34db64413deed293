"""Keeps the times of algorithms that searches measured on a GPU, so that no other process measures them again.

Each device has a text file beside the compiled kernels, and installed packages may have one. A line is a checksum, the
hash of a release and an operation, and milliseconds. Several processes append complete lines; the newest one of an
operation counts, and those that are damaged count nothing.
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

from .cache import locked, readable_folders, writable_folder
from .errors import DeviceUnavailable
from .shipped import package_folders

FOLDER = "choices"
MOST = 8192  # lines that are kept of a device, the newest ones
LINE_BYTES = 64  # of a line, at most


def key_of(operation: Operation) -> str:
    """Return what stands for an operation of this release in a line."""
    return hashlib.sha256(f"{__version__} {operation}".encode()).hexdigest()[:24]


def lines_of(text: str) -> Iterator[tuple[str, float]]:
    """Yield the key and the milliseconds of each line that is not damaged."""
    for line in text.splitlines():
        checksum, _, content = line.partition(" ")
        with contextlib.suppress(ValueError):
            if int(checksum, 16) == zlib.crc32(content.encode()):
                key, milliseconds = content.split()
                yield key, float(milliseconds)


class Choices:
    """The times that were measured on one kind of device, by its name."""

    def __init__(self, device: str) -> None:
        self.name = re.sub(r"\W+", "-", device) + ".txt"

    @cached_property
    def _known(self) -> dict[str, float]:
        """The times of packages, and those of the cache, which are newer."""
        found: dict[str, float] = {}
        for folder in (*package_folders(), *readable_folders()):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                found.update(lines_of((folder / FOLDER / self.name).read_text(encoding="utf-8")))
        return found

    def find(self, operation: Operation) -> float | None:
        """Return the milliseconds of an operation; None where it was not measured."""
        return self._known.get(key_of(operation))

    def keep(self, operation: Operation, milliseconds: float) -> None:
        """Add the time of an operation, where there is a folder that takes it."""
        key = key_of(operation)
        self._known[key] = milliseconds
        content = f"{key} {milliseconds:.6g}"
        with contextlib.suppress(OSError, DeviceUnavailable):
            path = writable_folder() / FOLDER / self.name
            path.parent.mkdir(exist_ok=True)
            with path.open("ab", buffering=0) as file:
                file.write(f"{zlib.crc32(content.encode()):08x} {content}\n".encode())
            if path.stat().st_size > 2 * MOST * LINE_BYTES:
                _shorten(path)


def _shorten(path: Path) -> None:
    """Leave the newest lines of a file."""
    with locked(path.with_suffix(".lock")):
        kept = path.read_text(encoding="utf-8").splitlines(keepends=True)[-MOST:]
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_text("".join(kept), encoding="utf-8")
        os.replace(temporary, path)
