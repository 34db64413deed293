"""Describes what the accelerated backend finds on this machine: GPUs, compilers, headers and caches."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from . import fallbacks, shipped
from .cache import cache_folder, private_folder, problem_of
from .devices import open_device
from .emulated.toolchain import cuda_headers
from .errors import DeviceUnavailable
from .nvrtc import find_nvrtc
from .programs import compiler_version, find_nvcc, host_compiler


@cache
def cuda_version() -> int:
    """Return CUDART_VERSION of the CUDA headers that kernels are compiled against, 0 where there are none."""
    try:
        folders = cuda_headers()
    except DeviceUnavailable:
        return 0
    for folder in folders:
        header = folder / "cuda_runtime_api.h"
        if header.is_file() and (
            found := re.search(r"#define CUDART_VERSION\s+(\d+)", header.read_text(errors="replace"))
        ):
            return int(found[1])
    return 0


def compilers() -> dict[str, str]:
    """Return each compiler's version by name, or the text that says what is missing and how to get it."""
    return {
        "nvcc": _tried(lambda: _first_line(compiler_version(find_nvcc()))),
        "NVRTC": _tried(lambda: f"{(found := find_nvrtc()).version} in {found.path}"),
        "host compiler": _tried(lambda: _first_line(compiler_version(host_compiler()))),
    }


def facts() -> dict[str, str]:
    """Return a description of each component by name, or the text that says what is missing and how to get it."""
    return {
        "GPU": _tried(_gpu),
        "emulated device": _tried(lambda: open_device("emulated").name),
        "shipped kernels": _tried(_shipped_kernels),
        **compilers(),
        "CUDA headers": _tried(lambda: f"{cuda_version()} in {cuda_headers()[0]}"),
        "kernel cache": _tried(_kernel_cache),
        "served by fallbacks": fallbacks.summary(),
    }


def _gpu() -> str:
    device: Any = open_device("gpu")
    return f"{device.name}, {device.architecture}, {device.multiprocessors} SMs, by {device.gpu.layer}"


def _shipped_kernels() -> str:
    found = [f"{count} modules in {path}" for path, count in shipped.archives().items()]
    if lines := [*found, *shipped.problems()]:
        return ", ".join(lines)
    raise DeviceUnavailable("pip install 'dualdnn[gpu]'")


def _kernel_cache() -> str:
    folder = cache_folder()
    if problem := problem_of(folder):
        return f"{folder} cannot be used: {problem}; kernels go to {private_folder()} (DUALDNN_CACHE names another)"
    return str(folder)


def _tried(look: Callable[[], object]) -> str:
    try:
        return str(look())
    except DeviceUnavailable as missing:
        return f"missing: {missing}"


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in lines if "release" in line), lines[0] if lines else "")
