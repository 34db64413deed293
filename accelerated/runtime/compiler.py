"""Compiles kernels once, into a cache on disk that several processes share.

A module is one kernel source, compiled with one set of macro definitions for one architecture. Its key hashes the
source, the project headers that it includes, the definitions, the compiler's version and the compiler's options.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from .cache import given_up, locked, readable_folders, verified, writable_folder
from .emulated.toolchain import ARCHITECTURES, EmulatedToolchain
from .errors import CompileError, DeviceUnavailable, NotBuilt
from .nvcc import Nvcc
from .nvrtc import Nvrtc
from .programs import require_finished
from .shipped import shipped
from .sources import Definitions, Kernel, Module, find_kernels, flatten, module

Progress = Callable[["Module", int, int], None]
POLICIES = ("", "off", "wait")
GPU_COMPILERS: dict[str, type[Nvcc]] = {"nvcc": Nvcc, "nvrtc": Nvrtc}


class Toolchain(Protocol):
    """Describe a compiler for one architecture."""

    architecture: str
    suffix: str

    @property
    def identity(self) -> str:
        """Return all that decides the binary besides the module: the compiler's version, options and headers."""

    def wrap(self, module: Module, kernels: list[Kernel]) -> str:
        """Return the translation unit: the source, and the variables that describe its kernels to the loader."""

    def require(self) -> None:
        """Raise DeviceUnavailable, with advice on what to install, unless the compiler can run here."""

    def run(self, unit: Path, output: Path) -> subprocess.CompletedProcess[str]:
        """Compile the translation unit in a file of the cache's folder."""


@cache
def toolchain(architecture: str) -> Toolchain:
    """Return the compiler for an architecture: `emulated` with or without race reports, or a GPU's such as sm_90.

    For a GPU it is nvcc, or NVRTC where nvcc cannot run. DUALDNN_COMPILER overrides the choice. Raises ValueError for
    another value of DUALDNN_COMPILER.
    """
    if architecture in ARCHITECTURES:
        return EmulatedToolchain(architecture)
    wanted = os.environ.get("DUALDNN_COMPILER", "")
    if wanted not in ("", *GPU_COMPILERS):
        raise ValueError(f"DUALDNN_COMPILER={wanted!r}: expected {' or '.join(GPU_COMPILERS)}")
    made = [GPU_COMPILERS[name](architecture) for name in ([wanted] if wanted else GPU_COMPILERS)]
    return next(filter(_can_run, made), made[0])


def _can_run(tools: Toolchain) -> bool:
    try:
        tools.require()
    except DeviceUnavailable:
        return False
    return True


def _name(module: Module, architecture: str, flat_source: str) -> str:
    """Return the name of a compiled module's file in the cache."""
    tools = toolchain(architecture)
    parts = [tools.identity, flat_source, module.name, module.preamble]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return f"{module.source.parent.name}_{module.source.stem}-{architecture}-{key}{tools.suffix}"


def is_built(module: Module, architecture: str) -> bool:
    """Return whether build() finds the module without compiling it."""
    return existing(module, architecture) is not None


def existing(module: Module, architecture: str) -> tuple[Path, bytes] | None:
    """Return the file and the content of a compiled module from a package or the cache; None where neither has it."""
    flat_source = flatten(module.source)
    if found := shipped(module, architecture, flat_source):
        return found
    try:
        return _cached(_name(module, architecture, flat_source))
    except DeviceUnavailable:  # The names in the cache depend on the compiler, and there is no compiler.
        return None


def policy() -> str:
    """Return the value of DUALDNN_JIT. Raises ValueError for a value that is not listed here.

    off: nothing is compiled. wait: calls wait for the compiler. empty: fallback kernels serve until the compiler is
    done.
    """
    wanted = os.environ.get("DUALDNN_JIT", "")
    if wanted not in POLICIES:
        raise ValueError(f"DUALDNN_JIT={wanted!r}: expected off or wait, or nothing")
    return wanted


def obstacle(architecture: str) -> str:
    """Return why modules for an architecture cannot be compiled here; empty where they can."""
    if policy() == "off":
        return "DUALDNN_JIT=off"
    try:
        toolchain(architecture).require()
    except DeviceUnavailable as missing:
        return str(missing)
    return ""


def _cached(name: str) -> tuple[Path, bytes] | None:
    found = ((folder / name, verified(folder / name)) for folder in readable_folders())
    return next(((path, content) for path, content in found if content), None)


def build(module: Module, architecture: str, *, rebuild: bool = False) -> tuple[Path, bytes]:
    """Return the file and the content of a compiled module, from a package, the cache or the compiler.

    The file ends with a checksum. `rebuild` compiles even where a package or the cache has the module. Raises NotBuilt
    where DUALDNN_JIT=off forbids compiling, and CompileError where the compiler refuses the source.
    """
    flat_source = flatten(module.source)
    if not rebuild and (found := shipped(module, architecture, flat_source)):
        return found
    name = _name(module, architecture, flat_source)
    if not rebuild and (found := _cached(name)):
        return found
    if policy() == "off":
        raise NotBuilt(f"{module} is in no package and not in the cache, and DUALDNN_JIT=off")
    folder = writable_folder()
    try:
        return folder / name, built_at(folder / name, toolchain(architecture), module, flat_source, rebuild=rebuild)
    except OSError as error:  # The file system may have filled up since writable_folder() looked at it.
        given_up(folder, error)
        return build(module, architecture, rebuild=rebuild)  # This uses another folder, or raises without one.


def built_at(path: Path, tools: Toolchain, module: Module, flat_source: str, *, rebuild: bool = False) -> bytes:
    """Return the content of a module's file. Compile it first where the file is missing, damaged or to be rebuilt."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock")):
        if not rebuild and (content := verified(path)):
            return content
        return _compile(tools, module, flat_source, path)


def _compile(tools: Toolchain, module: Module, flat_source: str, path: Path) -> bytes:
    for leftover in path.parent.glob(f"{path.stem}.*.tmp.*"):  # A process that died left it; we hold the lock.
        leftover.unlink(missing_ok=True)
    temporary = path.with_name(f"{path.stem}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    unit, output = temporary.with_suffix(".tmp.cu"), temporary.with_suffix(f".tmp{path.suffix}")
    try:
        kernels = find_kernels(
            module, flat_source, ["-DEMULATED_CUDA=1"] if tools.architecture in ARCHITECTURES else []
        )
        unit.write_text(tools.wrap(module, kernels))
        result = tools.run(unit, output)
        require_finished(result)
        if result.returncode:
            raise CompileError(module.source, module.definitions, result.stdout + result.stderr)
        content = output.read_bytes()
        with output.open("ab") as file:
            file.write(hashlib.sha256(content).digest())
        os.replace(output, path)
        return content
    finally:
        unit.unlink(missing_ok=True)
        output.unlink(missing_ok=True)


def compile_all(
    modules: Iterable[tuple[str | Path, Definitions]],
    architecture: str,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> list[Path]:
    """Compile modules ahead of their use, `jobs` at a time, and call progress(module, done, total) after each.

    Return their files. Every module is tried; the first error is raised at the end.
    """
    wanted = [module(source, definitions) for source, definitions in modules]
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        futures = {pool.submit(build, item, architecture): item for item in wanted}
        try:
            for done, future in enumerate(as_completed(futures), 1):
                if progress and not future.exception():
                    progress(futures[future], done, len(futures))
        finally:
            pool.shutdown(cancel_futures=True)  # An interrupted run drops the modules that have not begun.
    return [future.result()[0] for future in futures]


def build_together(modules: Iterable[tuple[str | Path, Definitions]], device: Any) -> None:
    """Compile the modules of a plan for a device, one per core at a time."""
    if wanted := list(modules):
        compile_all(wanted, device.architecture, min(len(wanted), os.cpu_count() or 1))
