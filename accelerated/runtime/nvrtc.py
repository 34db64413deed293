"""Compiles kernels for a GPU by NVRTC, NVIDIA's compiler as a library, where there is no nvcc and no C++ compiler.

One package for Python is all it needs: from 13.5 on it carries CUDA's headers, which are unpacked into the cache once.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from .cache import remembered, writable_folder
from .emulated.toolchain import cuda_headers
from .errors import DeviceUnavailable
from .nvcc import ARGUMENT_BYTES, Nvcc
from .programs import toolkits
from .sources import KERNELS, require_preprocessor

NVRTC_WHEEL = "nvidia-cuda-nvrtc"
# Where NVIDIA's packages for Python, and those of PyTorch, have the library
FOLDERS = ("nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib")
# NVRTC has no headers of the C++ standard library: CUDA's stand for those that kernels include.
STANDARD_HEADERS = {
    name: f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
    for name in ("type_traits", "cstdint", "cstring")
}
PRELUDE = """#include <cuda/std/climits>
#define __builtin_offsetof(T, M) ((unsigned long long)((char*)&((T*)0)->M - (char*)0))
#define INFINITY __builtin_bit_cast(float, 0x7f800000u)
#define NAN __builtin_bit_cast(float, 0x7fffffffu)
"""
_SIGNATURES = {
    "nvrtcVersion": (ctypes.c_void_p, ctypes.c_void_p),
    "nvrtcCreateProgram": (
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p),
    ),
    "nvrtcCompileProgram": (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p),
    "nvrtcGetProgramLogSize": (ctypes.c_void_p, ctypes.c_void_p),
    "nvrtcGetProgramLog": (ctypes.c_void_p, ctypes.c_char_p),
    "nvrtcGetCUBINSize": (ctypes.c_void_p, ctypes.c_void_p),
    "nvrtcGetCUBIN": (ctypes.c_void_p, ctypes.c_char_p),
    "nvrtcDestroyProgram": (ctypes.c_void_p,),
}


class Library:
    """NVRTC's shared library."""

    def __init__(self, path: Path) -> None:
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):  # which it does not find by itself
            ctypes.CDLL(str(builtins), mode=ctypes.RTLD_GLOBAL)
        self.path, self._library = path, ctypes.CDLL(str(path))
        for name, types in _SIGNATURES.items():
            getattr(self._library, name).argtypes = types
        self._library.nvrtcGetErrorString.restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        self.version = f"NVRTC {major.value}.{minor.value}"

    def call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, name)(*arguments):
            raise DeviceUnavailable(f"{name}: {self._library.nvrtcGetErrorString(code).decode()} ({self.path})")

    def headers(self) -> list[Path]:
        """Return the folders of CUDA's headers: those that the library carries, or else those of this machine."""
        if not hasattr(self._library, "nvrtcInstallBundledHeaders"):
            return cuda_headers()
        folder = writable_folder() / "headers" / self.version.replace(" ", "-")
        folder.parent.mkdir(exist_ok=True)
        self.call("nvrtcInstallBundledHeaders", str(folder).encode(), ctypes.c_uint(0), None)
        return [folder, folder / "cccl"]

    def compile(self, text: str, options: list[str]) -> tuple[bytes | None, str]:
        """Return the binary of a translation unit, None where it is refused, and what the compiler says."""
        program = ctypes.c_void_p()
        count = len(STANDARD_HEADERS)
        texts = (ctypes.c_char_p * count)(*(header.encode() for header in STANDARD_HEADERS.values()))
        names = (ctypes.c_char_p * count)(*(name.encode() for name in STANDARD_HEADERS))
        self.call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), b"unit.cu", count, texts, names)
        try:
            given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
            failed = self._library.nvrtcCompileProgram(program, len(options), given)
            log = self._read(program, "nvrtcGetProgramLog").rstrip(b"\0").decode(errors="replace")
            return None if failed else self._read(program, "nvrtcGetCUBIN"), log
        finally:
            self.call("nvrtcDestroyProgram", ctypes.byref(program))

    def _read(self, program: ctypes.c_void_p, name: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"{name}Size", program, ctypes.byref(size))
        data = ctypes.create_string_buffer(size.value)
        self.call(name, program, data)
        return data.raw


def find_nvrtc() -> Library:
    """Return NVRTC of NVIDIA's package for Python, or of a toolkit. Raises DeviceUnavailable where there is none."""
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
    """NVRTC, to a binary for one GPU architecture, sm_90 say."""

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
        folders = [KERNELS, *library.headers()]
        target = self.target.rpartition("code=")[2]
        options = [f"--gpu-architecture={target}", *self.options, *(f"-I{folder}" for folder in folders)]
        content, log = library.compile(PRELUDE + unit.read_text(), options)
        if content is not None:
            output.write_bytes(content)
        return subprocess.CompletedProcess([library.version], int(content is None), "", log)
