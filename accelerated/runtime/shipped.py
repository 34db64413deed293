"""Compiled kernels of installed packages: wheels put archives into the namespace folder ``dualdnn_kernels``.

An archive is a zip file named after its target, sm_90a.zip say. Its entries are compiled modules with a checksum behind
them, each compressed by xz. The name of an entry is the hash of what the module is: its source with the project's
headers, its name and its definitions. The compiler that made it is no part of that, so that it is found where there is
none. A source that was edited finds nothing, and is compiled.

The checksum covers the target and the name, too, so that a file or an entry that was renamed is not loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import lzma
import os
import struct
import zipfile
import zlib
from functools import cache
from pathlib import Path

from .cache import DIGEST_BYTES
from .nvcc import FORMAT
from .sources import Module

PACKAGE = "dualdnn_kernels"  # a namespace: each wheel has a part of it
# Reading a damaged archive raises one of these.
DAMAGE = (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, lzma.LZMAError, zlib.error, struct.error)


def targets(architecture: str) -> list[str]:
    """Return the targets whose binaries run on a GPU, the best first: sm_90 -> sm_90a, sm_90; sm_86 -> sm_86, sm_80."""
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
    """Return a compiled module as an archive has it."""
    return lzma.compress(content + _digest(target, key, content))


def unsealed(target: str, key: str, data: bytes) -> bytes | None:
    """Return the compiled module; None where it was made for another target or module. Raises one of DAMAGE."""
    data = lzma.decompress(data)
    content, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return content if content and _digest(target, key, content) == digest else None


def package_folders() -> list[Path]:
    """Return the folders that installed wheels put their files into."""
    spec = importlib.util.find_spec(PACKAGE)
    return [Path(folder) for folder in (spec.submodule_search_locations or [])] if spec else []


def archives() -> dict[Path, int]:
    """Return the installed archives that can be read, of every target, with the number of modules in each."""
    targets = sorted({path.stem for folder in package_folders() for path in folder.glob("sm_*.zip")})
    return {path: len(names) for target in targets for path, _, names in _opened(target, os.getpid())}


@cache
def _opened(target: str, process: int) -> list[tuple[Path, zipfile.ZipFile, frozenset[str]]]:
    """Return the archives of a target, open in one process: its children would share the offsets of the files."""
    found = []
    for path in (folder / f"{target}.zip" for folder in package_folders()):
        with contextlib.suppress(*DAMAGE):
            archive = zipfile.ZipFile(path)
            found.append((path, archive, frozenset(archive.namelist())))
    return found


def shipped(module: Module, architecture: str, flat_source: str) -> tuple[Path, bytes] | None:
    """Return a module that a package has: a path that names it, and its content. Return None where none has it."""
    if not architecture.startswith("sm_"):
        return None
    key = key_of(module, flat_source)
    for target in targets(architecture):
        for path, archive, names in _opened(target, os.getpid()):
            if key in names:
                with contextlib.suppress(*DAMAGE):
                    if content := unsealed(target, key, archive.read(key)):
                        return path / key, content
    return None
