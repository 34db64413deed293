"""Files that several processes share: each ends with a checksum, and is written under a lock."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import platformdirs

DIGEST_BYTES = hashlib.sha256().digest_size


def cache_folder() -> Path:
    return Path(os.environ.get("DUALDNN_CACHE") or platformdirs.user_cache_dir("dualdnn", appauthor=False))


def verified(path: Path) -> bytes | None:
    """The content of a cached file without its checksum; None if the file is missing or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    content, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return content if content and hashlib.sha256(content).digest() == digest else None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """An exclusive lock, dropped by the system when its holder dies. Its file is removed at the end."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                break
        os.close(descriptor)  # the holder before us removed the file: this one locks nothing
    try:
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)
