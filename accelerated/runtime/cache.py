"""Keeps files that several processes share; each file ends with a checksum and is written under a lock.

The cache cannot be used where there is no home folder, or where its folder is read-only, full or mounted noexec. A
private temporary folder then takes new files, after one warning. Files in a read-only or full folder are still read.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import platformdirs

from .errors import DeviceUnavailable

DIGEST_BYTES = hashlib.sha256().digest_size


def cache_folder() -> Path:
    return Path(os.environ.get("DUALDNN_CACHE") or platformdirs.user_cache_dir("dualdnn", appauthor=False))


MIN_FREE_BYTES = 2**24
_problems: dict[Path, str] = {}  # reason by folder, for folders that failed during a write


def problem_of(folder: Path) -> str | None:
    """Return why a folder cannot hold kernels, or None. Create the folder where it is missing."""
    return _problems.get(folder) or _examined(folder)


@cache
def _examined(folder: Path) -> str | None:
    if not folder.is_absolute():
        return "there is no home folder to put it in"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
        facts = os.statvfs(folder)
    except OSError as error:
        return error.strerror or str(error)
    if facts.f_flag & os.ST_NOEXEC:
        return "files in it cannot be executed (noexec)"
    return "the file system is full" if facts.f_bavail * facts.f_frsize < MIN_FREE_BYTES else None


def private_folder() -> Path:
    """Return a temporary folder that only this user can access; all processes of the user share it.

    Raises DeviceUnavailable where no such folder can be written.
    """
    roots = dict.fromkeys(Path(root) for root in (tempfile.gettempdir(), "/dev/shm", "/var/tmp"))
    for root in roots:
        folder = root / f"dualdnn-cache-{os.getuid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            facts = folder.lstat()  # An existing folder must belong to this user.
            private = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
            if private and problem_of(folder) is None:
                return folder
    raise DeviceUnavailable(
        f"no folder takes compiled kernels, neither {cache_folder()} ({problem_of(cache_folder())}) nor one in"
        f" {', '.join(map(str, roots))}; set DUALDNN_CACHE to one that can be written"
    )


def writable_folder() -> Path:
    """Return the folder of the cache; where it cannot be used, warn once and return the private folder."""
    folder = cache_folder()
    if problem := problem_of(folder):
        private = private_folder()
        _warn(
            f"the kernel cache {folder} cannot be used: {problem}; compiled kernels go to {private}. Set DUALDNN_CACHE"
        )
        return private
    return folder


@cache
def _warn(text: str) -> None:
    warnings.warn(f"{text} to a folder that can be written", RuntimeWarning, stacklevel=2)


def readable_folders() -> list[Path]:
    """Return the folders in which compiled kernels may be found, read-only and full ones included."""
    folder = cache_folder()
    private = [Path(tempfile.gettempdir()) / f"dualdnn-cache-{os.getuid()}"] if problem_of(folder) else []
    return [each for each in (folder, *private) if each.is_dir() and not os.statvfs(each).f_flag & os.ST_NOEXEC]


def given_up(folder: Path, error: OSError) -> None:
    """Record a folder whose write failed, so that no more files are written to it."""
    _problems[folder] = error.strerror or str(error)


def remembered(name: str, find: Callable[[], str]) -> str:
    """Return the result of ``find``, and keep it in the cache under ``name``.

    Where ``find`` misses a program, return the kept result instead. Raises DeviceUnavailable where there is none.
    """
    try:
        found = find()
    except DeviceUnavailable:
        for folder in readable_folders():
            with contextlib.suppress(OSError):
                return (folder / "compilers" / name).read_text()
        raise
    with contextlib.suppress(OSError, DeviceUnavailable):
        path = writable_folder() / "compilers" / name
        if not path.exists() or path.read_text() != found:
            path.parent.mkdir(exist_ok=True)
            temporary = path.with_name(f"{name}.{os.getpid()}.tmp")
            temporary.write_text(found)
            os.replace(temporary, path)
    return found


def verified(path: Path) -> bytes | None:
    """Return the content of a cached file without its checksum; None if it is missing, damaged or not readable."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    content, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return content if content and hashlib.sha256(content).digest() == digest else None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock within the block, then remove its file. The system drops the lock of a dead process."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                break
        os.close(descriptor)  # The previous holder removed the file, so this descriptor locks nothing.
    try:
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)
