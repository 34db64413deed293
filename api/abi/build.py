"""Build ``libcudnn.so.8``, or the library of another release (faces.py), and ``include/cudnn.h``.

This takes seconds, once per version of Python and of this project.
"""

from __future__ import annotations

import compileall
import hashlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from ..files import write
from . import c_types, exports
from .faces import face
from .header import headers
from .names import link, pkg_config

NAME = face(8).library
MODULE = "_dualdnn_c"
CALLBACK = Path(__file__).with_name("callback.cpp")


class BuildError(ValueError):
    """Report that the library could not be built, and what is missing."""


def build(out: Path, release: int = 8) -> Path:
    """Write the library, its headers and its other names below ``out``, and return the library's path.

    release: 8 or 9, whose names and status codes the library has. An existing library with the same source is not compiled again.
    """
    chosen = face(release)
    text, told = exports.source(_paths(), json.dumps(sys.base_prefix), chosen), exports.DEFINITIONS
    parts = [sys.version, text, told, Path(__file__).read_text(), CALLBACK.read_text(), str(_cxx())]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
    library, stamp = out / chosen.library, out / f".{chosen.library}.key"
    _compile_python()
    (out / "include").mkdir(parents=True, exist_ok=True)
    for name, contents in headers(chosen).items():
        write(out / "include" / name, contents.encode())
    write(out / "pkgconfig" / "cudnn.pc", pkg_config(chosen).encode())
    if not (library.is_file() and stamp.is_file() and stamp.read_text() == key):
        stamp.unlink(missing_ok=True)
        _compile(text, told, library, release)
        stamp.write_text(key)
    link(out, chosen.library)
    return library


def _compile_python() -> None:
    """Write the bytecode of both packages; otherwise every start would compile them again if Python cannot write it.

    Read-only folders are skipped.
    """
    for part in ("api", "reference"):
        compileall.compile_dir(Path(__file__).parents[2] / part, quiet=2)


def _compile(text: str, told: str, library: Path, release: int) -> None:
    name = library.name
    try:
        import cffi
    except ImportError:
        raise BuildError("cffi is not installed: pip install 'dualdnn[abi]'") from None
    with tempfile.TemporaryDirectory(prefix=".", dir=library.parent.absolute()) as folder:
        script = Path(folder) / "exports.map"
        script.write_text(f"{name} {{ global: cudnn*; local: *; }};\n")
        ffi = cffi.FFI()
        ffi.cdef(told)
        caught = _callback(Path(folder))
        ffi.set_source(
            MODULE,
            text,
            define_macros=[("DUALDNN_CATCHES", "1")] if caught else [],
            extra_objects=caught,
            # These flags halve the compile time of Python's default -O3, and calls are equally fast.
            extra_compile_args=["-O1", "-g0"],
            extra_link_args=[
                *(["-lstdc++"] if caught else []),
                f"-Wl,-soname,{name}",
                f"-Wl,--version-script={script}",
                f"-Wl,-rpath,{sysconfig.get_config_var('LIBDIR')}",
                "-Wl,-z,nodelete",  # A Python interpreter cannot be unloaded.
            ],
        )
        ffi.embedding_init_code(
            f"from {MODULE} import ffi, lib\nfrom dualdnn.api.abi.entry import install\ninstall(ffi, lib, {release})"
        )
        try:
            ffi.compile(tmpdir=folder, target=name)
        except Exception as error:  # distutils raises several types, which callers cannot import everywhere.
            raise BuildError(
                f"the library could not be compiled: {error}; a C compiler and Python's headers are needed (Debian: apt install gcc python3-dev)"
            ) from error
        os.replace(Path(folder) / name, library)  # Running programs keep the old file.


def _cxx() -> str | None:
    """Return the C++ compiler, or None."""
    return shutil.which(
        shlex.split(os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "g++")[0]
    ) or shutil.which("g++")


def _callback(folder: Path) -> list[str]:
    """Return the object file that catches C++ exceptions of a callback, or an empty list without a C++ compiler."""
    compiler, made = _cxx(), folder / "callback.o"
    if compiler is None:
        return []
    done = subprocess.run([compiler, "-O2", "-fPIC", "-c", str(CALLBACK), "-o", str(made)], capture_output=True)
    return [] if done.returncode else [str(made)]


def _paths() -> str:
    """Return a C string literal with the Python list of folders that contain packages."""
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return json.dumps(repr(folders))


__all__ = ["NAME", "BuildError", "build", "c_types"]
