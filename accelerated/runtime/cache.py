"""Files that several processes share: each ends with a checksum, and is written under a lock.

Where the cache cannot be used (no home, read-only, full, no execution of its files), a private folder among the
temporary files serves instead, with one warning. What a folder that is only read-only holds still serves.
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


LEAST_FREE_BYTES = 2**24
_problems: dict[Path, str] = {}  # folders that were found unusable while they were used


def problem_of(folder: Path) -> str | None:
    """Return why kernels cannot be written to a folder and loaded from it; the folder is made where it is missing."""
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
    return "the file system is full" if facts.f_bavail * facts.f_frsize < LEAST_FREE_BYTES else None


def private_folder() -> Path:
    """A folder among the temporary files that only this user can reach, the same for all processes of the user."""
    roots = dict.fromkeys(Path(root) for root in (tempfile.gettempdir(), "/dev/shm", "/var/tmp"))
    for root in roots:
        folder = root / f"dualdnn-cache-{os.getuid()}"
        with contextlib.suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            facts = folder.lstat()  # whoever made it before us must not be somebody else
            private = stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
            if private and problem_of(folder) is None:
                return folder
    raise DeviceUnavailable(
        f"no folder takes compiled kernels, neither {cache_folder()} ({problem_of(cache_folder())}) nor one in"
        f" {', '.join(map(str, roots))}; set DUALDNN_CACHE to one that can be written"
    )


def writable_folder() -> Path:
    """The cache's folder, or where that cannot be used the private one, with one warning."""
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
    """Return where compiled kernels may be found: one that is only read-only or full still serves."""
    folder = cache_folder()
    private = [Path(tempfile.gettempdir()) / f"dualdnn-cache-{os.getuid()}"] if problem_of(folder) else []
    return [each for each in (folder, *private) if each.is_dir() and not os.statvfs(each).f_flag & os.ST_NOEXEC]


def given_up(folder: Path, error: OSError) -> None:
    """Use a folder no more, which failed while it was written."""
    _problems[folder] = error.strerror or str(error)


def remembered(name: str, find: Callable[[], str]) -> str:
    """Return what ``find`` returns; where a program is missing that it needs, what it returned when the cache was
    filled."""
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
    """The content of a cached file without its checksum; None if the file is missing, damaged or not readable."""
    try:
        data = path.read_bytes()
    except OSError:
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
