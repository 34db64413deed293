"""Binds NVRTC's shared library, and compiles one translation unit with it when run as a program.

nvrtc.py runs this file in a separate process: compilations then run in parallel, and the caller can exit at any time.
The file therefore imports nothing from this project.

usage: nvrtc_library.py LIBRARY UNIT OUTPUT OPTION...
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

# NVRTC has no C++ standard library, so CUDA's headers replace the standard headers that kernels include.
STANDARD_HEADERS = {
    name: f"#pragma once\n#include <cuda/std/{name}>\nnamespace std {{ using namespace cuda::std; }}\n"
    for name in ("type_traits", "cstdint", "cstring")
}
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
    """Bind NVRTC's shared library."""

    def __init__(self, path: Path) -> None:
        for builtins in sorted(path.parent.glob("libnvrtc-builtins.so.*")):  # NVRTC does not find them itself.
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
            raise OSError(f"{name}: {self._library.nvrtcGetErrorString(code).decode()} ({self.path})")

    def unpack_headers(self, folder: Path) -> list[Path]:
        """Unpack the CUDA headers that NVRTC 13.5 and later contain into a folder, unless it has them.

        Return the folders to include, an empty list where the library contains no headers.
        """
        if not hasattr(self._library, "nvrtcInstallBundledHeaders"):
            return []
        folder.parent.mkdir(exist_ok=True)
        self.call("nvrtcInstallBundledHeaders", str(folder).encode(), ctypes.c_uint(0), None)
        return [folder, folder / "cccl"]

    def compile(self, text: str, options: list[str]) -> tuple[bytes | None, str]:
        """Return the binary of a translation unit (None where NVRTC refuses it) and the compiler's log."""
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


def main(library: str, unit: str, output: str, *options: str) -> int:
    """Compile a file, print the log to the standard error output, and return the exit status."""
    content, log = Library(Path(library)).compile(Path(unit).read_text(), list(options))
    print(log, file=sys.stderr)
    if content is None:
        return 1
    Path(output).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
