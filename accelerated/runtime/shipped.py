"""Loads compiled kernels from installed packages: wheels install archives into the folder ``dualdnn_kernels``.

An archive is a zip file named after its target, such as sm_90a.zip. Each entry is a compiled module followed by a
checksum, compressed with xz. The entry's name hashes the source with the project's headers, the module's name and its
definitions. The compiler is not part of the hash, so that machines without a compiler find the entry. An edited source
has another hash, and is compiled.

The checksum also covers the target and the entry's name, so that renamed files and entries are not loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import lzma
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from .cache import DIGEST_BYTES
from .nvcc import FORMAT
from .sources import Module

PACKAGE = "dualdnn_kernels"  # namespace package, to which each wheel adds a folder
# Reading a damaged archive raises one of these.
DAMAGE = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error)
_LOG = logging.getLogger("dualdnn")
_problems: dict[Path, str] = {}  # sentences about archives, and modules in them


def targets(architecture: str) -> list[str]:
    """Return the targets whose binaries run on a GPU, best first, such as sm_90a and sm_90 for sm_90."""
    number = int(architecture.removeprefix("sm_"))
    generation = number // 10 * 10
    special = [f"sm_{number}a", f"sm_{number}f"] if number >= 90 else []
    family = [f"sm_{generation}f"] if number >= 100 else []
    return list(dict.fromkeys([*special, *family, *(f"sm_{n}" for n in range(number, generation - 1, -1))]))


def key_of(module: Module, flat_source: str) -> str:
    """Return the name of a module's entry, the same on every machine."""
    parts = [FORMAT, flat_source, module.name, module.preamble]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _digest(target: str, key: str, content: bytes) -> bytes:
    return hashlib.sha256(f"{target}/{key}/".encode() + content).digest()


def sealed(target: str, key: str, content: bytes) -> bytes:
    """Return the compressed entry of an archive for a compiled module."""
    return lzma.compress(content + _digest(target, key, content))


def unsealed(target: str, key: str, data: bytes) -> bytes | None:
    """Return the compiled module of an entry; None where it belongs to another target or key. Raises one of DAMAGE."""
    data = lzma.decompress(data)
    content, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return content if content and _digest(target, key, content) == digest else None


def package_folders() -> list[Path]:
    """Return the folders into which installed wheels put archives."""
    spec = importlib.util.find_spec(PACKAGE)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def archives() -> dict[Path, int]:
    """Return the number of modules in each readable archive of any target."""
    return {path: len(names) for path, _, names in _readable()}


def problems() -> list[str]:
    """Return a sentence for each archive or module that cannot be read, after a test of all archives."""
    for path, archive, _ in _readable():
        with _reported(path):
            if damaged := archive.testzip():
                _report(path / damaged, "its checksum is wrong")
    return list(_problems.values())


def _readable() -> list[tuple[Path, zipfile.ZipFile, frozenset[str]]]:
    targets = sorted({path.stem for folder in package_folders() for path in folder.glob("sm_*.zip")})
    return [opened for target in targets for opened in _opened(target, os.getpid())]


def _report(path: Path, problem: str) -> None:
    """Log, once per process, that an archive or one of its modules cannot be read."""
    if path not in _problems:
        _problems[path] = f"{path} cannot be read: {problem}; install its package again"
        _LOG.warning(_problems[path])


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    """Report damage that is found within the block, and go on after the block."""
    try:
        yield
    except DAMAGE as error:
        _report(path, str(error))


@cache
def _opened(target: str, process: int) -> list[tuple[Path, zipfile.ZipFile, frozenset[str]]]:
    """Return the archives of a target, opened once per process, because forked children would share file offsets."""
    found = []
    for path in (folder / f"{target}.zip" for folder in package_folders()):
        with _reported(path), contextlib.suppress(FileNotFoundError):
            archive = zipfile.ZipFile(path)
            found.append((path, archive, frozenset(archive.namelist())))
    return found


def shipped(module: Module, architecture: str, flat_source: str) -> tuple[Path, bytes] | None:
    """Return a path that names a module's entry in a package, and its content; None where no package has it."""
    if not architecture.startswith("sm_"):
        return None
    key = key_of(module, flat_source)
    for target in targets(architecture):
        for path, archive, names in _opened(target, os.getpid()):
            if key in names:
                with _reported(path / key):
                    if content := unsealed(target, key, archive.read(key)):
                        return path / key, content
                    _report(path / key, "it was made for another archive or module")
    return None
