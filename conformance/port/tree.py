"""Files: which ones a path stands for, reading them, and writing so that none is ever half written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

C_SUFFIXES = frozenset({".c", ".h", ".cc", ".cpp", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".inl", ".cu", ".cuh"})
SUFFIXES = C_SUFFIXES | {".py"}
HELPERS = ("dualdnn_port_miopen.h", "dualdnn_port_miopen.py")


@dataclass(frozen=True)
class Source:
    """A file and the path that it was found under."""

    path: Path
    root: Path  # a folder: what targets of --out are relative to


def sources(paths: Iterable[Path]) -> Iterator[Source]:
    """The sources that the paths stand for; links and hidden folders are not followed."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        if path.is_file():
            if path.suffix not in SUFFIXES:
                raise ValueError(f"{path} is no source of C, C++, CUDA or Python: {', '.join(sorted(SUFFIXES))}")
            found, root = [path], path.parent
        else:
            found, root = sorted(_inside(path)), path
        for file in found:
            if file.name not in HELPERS and file.resolve() not in seen:
                seen.add(file.resolve())
                yield Source(file, root)


def _inside(folder: Path) -> Iterator[Path]:
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and not Path(base, name).is_symlink()]
        for name in names:
            path = Path(base, name)
            if path.suffix in SUFFIXES and not path.is_symlink():
                yield path


def read(path: Path) -> bytes:
    """The bytes of a source; ``ValueError`` where they are no text."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("is UTF-16: convert it to UTF-8 first")
    if b"\0" in content:
        raise ValueError("is binary")
    return content


def check_writable(targets: Iterable[Path]) -> None:
    """Raise before anything is written where a target cannot be."""
    for target in targets:
        if target.exists() and (
            not target.is_file() or not target.stat().st_mode & 0o222 or not os.access(target, os.W_OK)
        ):
            raise PermissionError(f"{target} is read-only: nothing was written")
        folder = next(parent for parent in target.parents if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} cannot be written to: nothing was written")


def write(target: Path, content: bytes) -> None:
    """Replace the file in one step, with the permissions that it had."""
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.chmod(name, mode)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
