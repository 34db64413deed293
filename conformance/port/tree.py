"""Finds the sources that a path stands for, and reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

C_SUFFIXES = frozenset({".c", ".h", ".cc", ".cpp", ".cxx", ".c++", ".hh", ".hpp", ".hxx", ".inl", ".cu", ".cuh"})
SUFFIXES = C_SUFFIXES | {".py"}
HELPERS = ("dualdnn_port_miopen.h", "dualdnn_port_miopen.py")


@dataclass(frozen=True)
class Source:
    """Names a file and the path that it was found under."""

    path: Path
    root: Path  # Targets of --out are relative to this folder.


def sources(paths: Iterable[Path]) -> Iterator[Source]:
    """Return the sources that the paths stand for; links and hidden folders are not followed."""
    seen: set[Path] = set()
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} does not exist")
        if path.is_file():
            if path.suffix not in SUFFIXES:
                raise ValueError(f"{path} is not a source of C, C++, CUDA or Python: {', '.join(sorted(SUFFIXES))}")
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
            if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink():  # A pipe would be waited for.
                yield path


def read(path: Path) -> bytes:
    """Return the bytes of a source. Raises ``ValueError`` where they are not text."""
    content = path.read_bytes()
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("is UTF-16: convert it to UTF-8 first")
    if b"\0" in content:
        raise ValueError("is binary")
    if b"\n" not in content and content.count(b"\r") > 1:
        raise ValueError("ends its lines with CR alone: convert it to LF first")
    return content
