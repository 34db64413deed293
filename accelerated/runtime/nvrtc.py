"""Compiles kernels for a GPU with the library NVRTC, where there is no nvcc and no C++ compiler.

It needs one Python package. NVRTC 13.5 and later contain CUDA's headers, which are unpacked into the cache once.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from . import nvrtc_library
from .cache import remembered, writable_folder
from .emulated.toolchain import cuda_headers
from .errors import DeviceUnavailable
from .nvcc import ARGUMENT_BYTES, Nvcc
from .nvrtc_library import Library
from .programs import toolkits
from .sources import KERNELS, require_preprocessor

NVRTC_WHEEL = "nvidia-cuda-nvrtc"
# NVIDIA's Python packages, also as PyTorch installs them, put the library into these folders.
FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
PRELUDE = """#include <cuda/std/climits>
#define __builtin_offsetof(T, M) ((unsigned long long)((char*)&((T*)0)->M - (char*)0))
#define INFINITY __builtin_bit_cast(float, 0x7f800000u)
#define NAN __builtin_bit_cast(float, 0x7fffffffu)
"""


def find_nvrtc() -> Library:
    """Return NVRTC from NVIDIA's Python package or from a toolkit. Raises DeviceUnavailable where there is none."""
    folders = [*(Path(entry, folder) for entry in sys.path for folder in FOLDERS), *(t / "lib64" for t in toolkits())]
    for folder in folders:
        for path in sorted(folder.glob("libnvrtc.so.*[0-9]"), key=lambda path: len(path.name)):
            return _loaded(path)
    raise DeviceUnavailable(f"NVRTC is missing: pip install 'dualdnn[jit]' ({NVRTC_WHEEL})")


@cache
def _loaded(path: Path) -> Library:
    try:
        return Library(path)
    except (OSError, AttributeError) as error:
        raise DeviceUnavailable(f"NVRTC cannot be loaded: {error}") from error


class Nvrtc(Nvcc):
    """Compile with NVRTC to a binary for one GPU architecture, such as sm_90."""

    options = ("-std=c++17", "-default-device", "--diag-suppress=177")

    @property
    def identity(self) -> str:
        version = remembered("nvrtc", lambda: find_nvrtc().version)
        return "\n".join([version, self.target, *self.options, PRELUDE, ARGUMENT_BYTES, "fields"])

    def require(self) -> None:
        find_nvrtc()
        require_preprocessor()

    def run(self, unit: Path, output: Path) -> subprocess.CompletedProcess[str]:
        library = find_nvrtc()
        folders = [KERNELS, *_headers(library)]
        target = self.target.rpartition("code=")[2]
        options = [f"--gpu-architecture={target}", *self.options, *(f"-I{folder}" for folder in folders)]
        unit.write_text(PRELUDE + unit.read_text())
        if python := _interpreter():
            command = [python, "-I", "-S", nvrtc_library.__file__, str(library.path), str(unit), str(output), *options]
            return subprocess.run(command, capture_output=True, text=True)
        content, log = library.compile(unit.read_text(), options)
        if content is not None:
            output.write_bytes(content)
        return subprocess.CompletedProcess([library.version], int(content is None), "", log)


def _headers(library: Library) -> list[Path]:
    """Return the folders of CUDA's headers, which the library contains or else this machine has installed."""
    folder = writable_folder() / "headers" / library.version.replace(" ", "-")
    try:
        return library.unpack_headers(folder) or cuda_headers()
    except OSError as error:
        raise DeviceUnavailable(f"{library.version} cannot unpack its headers into {folder}: {error}") from error


def _interpreter() -> str | None:
    """Return the path of the Python interpreter; None where a C program embeds Python without an interpreter."""
    candidates = [sys.executable or "", str(Path(sys.prefix, "bin", "python3"))]
    return next((path for path in candidates if Path(path).name.startswith("python") and Path(path).is_file()), None)
