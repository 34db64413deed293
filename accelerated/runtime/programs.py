"""Finds the compilers of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from .errors import DeviceUnavailable

TOOLKIT = Path("/usr/local/cuda")  # folder of NVIDIA's installer
NVCC_WHEELS = "nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt nvidia-cuda-runtime nvidia-cuda-cccl"
WHEEL_TOOLKIT = "nvidia/cu13"  # folder below sys.path into which NVIDIA's Python packages install a toolkit


@cache
def _find_program(names: tuple[str, ...], path: str | None) -> str | None:
    return next((found for name in names if name and (found := shutil.which(name, path=path))), None)


def host_compiler() -> str:
    """Return the path of the compiler that CXX names, by default g++. Raises DeviceUnavailable where it is missing."""
    wanted = os.environ.get("CXX") or "g++"
    if found := _find_program((wanted,), os.environ.get("PATH")):
        return found
    raise DeviceUnavailable(
        f"no C++ compiler: {wanted} is not on PATH; install g++ 11 or later (Debian: apt install g++) or set CXX"
    )


def toolkits() -> list[Path]:
    """Return the folders that may hold a CUDA toolkit."""
    return [*map(Path, filter(None, [os.environ.get("CUDA_HOME")])), TOOLKIT]


def find_nvcc() -> str:
    """Return the path of nvcc from PATH, a toolkit or NVIDIA's Python packages. Raises DeviceUnavailable."""
    folders = [*toolkits(), *(Path(entry, WHEEL_TOOLKIT) for entry in sys.path)]
    candidates = ("nvcc", *(str(folder / "bin" / "nvcc") for folder in folders))
    if found := _find_program(candidates, os.environ.get("PATH")):
        return found
    raise DeviceUnavailable(
        f"nvcc is missing: it is neither on PATH nor in CUDA_HOME/bin nor in {TOOLKIT}/bin; install the CUDA toolkit"
        f" or: pip install {NVCC_WHEELS}"
    )


@cache
def compiler_version(program: str) -> str:
    result = subprocess.run([program, "--version"], capture_output=True, text=True)
    if result.returncode:
        raise DeviceUnavailable(f"{program} --version failed: {result.stderr.strip()}")
    return result.stdout.strip()


def require_finished(result: subprocess.CompletedProcess[str]) -> None:
    """Raise DeviceUnavailable where a signal (an interrupt, too little memory) stopped the compiler.

    The source itself may then be correct, so this is not a CompileError.
    """
    if result.returncode < 0 or "signal terminated program" in result.stderr:
        raise DeviceUnavailable(f"a signal stopped the compiler: {result.args[0]} {result.stderr.strip()}".strip())
