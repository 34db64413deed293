"""Compiles kernels, once: a cache on disk that several processes share.

A module is one kernel source compiled under one set of definitions of macros for one architecture. Its key is a hash
of everything that goes in: the source and the project's headers it includes, the definitions, the compiler's version
and its options.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import platformdirs

from .errors import CompileError, DeviceUnavailable

KERNELS = Path(__file__).parent / "kernels"
TOOLKIT = Path("/usr/local/cuda")  # where NVIDIA's installer puts it
DIGEST_BYTES = hashlib.sha256().digest_size

Definitions = tuple[tuple[str, str], ...]
Progress = Callable[["Module", int, int], None]


@dataclass(frozen=True)
class Module:
    """A kernel source with the preprocessor definitions that choose its variant."""

    source: Path
    definitions: Definitions = ()

    def __str__(self) -> str:
        return " ".join([self.source.name, *(f"-D{name}={value}" for name, value in self.definitions)])

    @property
    def preamble(self) -> str:
        """The definitions, as the first lines of a translation unit."""
        return "".join(f"#define {name} {value}\n" for name, value in self.definitions)


class Toolchain(Protocol):
    """A compiler for one architecture."""

    architecture: str
    suffix: str

    @property
    def identity(self) -> str:
        """Everything beside the module that decides the result: version, options, headers."""

    def wrap(self, module: Module, kernels: list[Kernel]) -> str:
        """The translation unit: the source and what the loader needs to know about its kernels."""

    def run(self, unit: Path, output: Path) -> subprocess.CompletedProcess[str]:
        """Compiles a translation unit, a file in the cache's folder."""


def module(source_name: str | Path, definitions: Definitions = ()) -> Module:
    """The module of a source: a name is looked up among the project's kernels, an absolute path is taken as it is."""
    source = KERNELS / source_name
    if not source.is_file():
        raise FileNotFoundError(f"there is no kernel source {source}")
    return Module(source, tuple(definitions))


def cache_folder() -> Path:
    return Path(os.environ.get("DUALDNN_CACHE") or platformdirs.user_cache_dir("dualdnn", appauthor=False))


# Sources and their kernels


class Kernel(NamedTuple):
    """``launch_bounds``: the arguments of __launch_bounds__, empty without it; ``waits``: whether its first
    statement says that it waits for earlier kernels (kernels/launch.cuh), so that it may be launched before those have finished."""

    name: str
    launch_bounds: str
    waits: bool


INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<[^>]+>).*$', re.MULTILINE)
LAUNCH_BOUNDS = r"(?:__launch_bounds__\s*\(((?:[^()]|\([^()]*\))*)\)\s*)?"
KERNEL = re.compile(
    rf'extern\s+"C"\s+__global__\s+{LAUNCH_BOUNDS}void\s+{LAUNCH_BOUNDS}(\w+)\s*\([^)]*\)\s*(?:\{{\s*((?:wait_for_earlier_kernels|find_place_before_waiting)\(\);))?'
)


def flatten(source: Path) -> str:
    """The source with the project's headers in place (each once) and without the includes of system headers."""
    seen: set[Path] = set()

    def expand(path: Path) -> str:
        folder = path.parent

        def replace(match: re.Match[str]) -> str:
            header = (folder / match[1]).resolve() if match[1] else None
            if header is None or header in seen or not header.is_file():
                return ""
            seen.add(header)
            return expand(header)

        return INCLUDE.sub(replace, path.read_text())

    return expand(source)


def find_kernels(module: Module, flat_source: str, options: Iterable[str]) -> list[Kernel]:
    """The kernels that are left after preprocessing."""
    command = [host_compiler(), "-E", "-P", "-x", "c++", *options, "-"]
    preprocessed = subprocess.run(command, input=module.preamble + flat_source, capture_output=True, text=True)
    if preprocessed.returncode:
        raise CompileError(module.source, module.definitions, preprocessed.stderr)
    matches = KERNEL.findall(preprocessed.stdout)
    if not matches:
        message = 'no kernel: expected extern "C" __global__ void NAME(const Arguments arguments)'
        raise CompileError(module.source, module.definitions, message)
    return [Kernel(name, before or after, bool(waits)) for before, after, name, waits in matches]


# Compilers


@cache
def _find_program(names: tuple[str, ...], path: str | None) -> str | None:
    return next((found for name in names if name and (found := shutil.which(name, path=path))), None)


def host_compiler() -> str:
    """g++, or what CXX names."""
    wanted = os.environ.get("CXX") or "g++"
    if found := _find_program((wanted,), os.environ.get("PATH")):
        return found
    raise DeviceUnavailable(
        f"no C++ compiler: {wanted} is not on PATH; install g++ 11 or later (Debian: apt install g++) or set CXX"
    )


def toolkits() -> list[Path]:
    """Where a CUDA toolkit may be."""
    return [*map(Path, filter(None, [os.environ.get("CUDA_HOME")])), TOOLKIT]


def find_nvcc() -> str:
    candidates = ("nvcc", *(str(toolkit / "bin" / "nvcc") for toolkit in toolkits()))
    if found := _find_program(candidates, os.environ.get("PATH")):
        return found
    raise DeviceUnavailable(
        f"nvcc is missing: it is neither on PATH nor in CUDA_HOME/bin nor in {TOOLKIT}/bin; install the CUDA toolkit"
    )


@cache
def compiler_version(program: str) -> str:
    result = subprocess.run([program, "--version"], capture_output=True, text=True)
    if result.returncode:
        raise DeviceUnavailable(f"{program} --version failed: {result.stderr.strip()}")
    return result.stdout.strip()


ARGUMENT_BYTES = """
template <class Signature> struct ArgumentBytes;
template <class Arguments> struct ArgumentBytes<void(Arguments)> {
  static constexpr unsigned long long value = sizeof(Arguments);
};
"""


class Nvcc:
    """CUDA's compiler, to a binary for one GPU architecture, sm_90 say."""

    suffix = ".cubin"
    options = ("-cubin", "-std=c++17", "-O3", "--expt-relaxed-constexpr", "-lineinfo", "--diag-suppress=177")

    def __init__(self, architecture: str) -> None:
        if not re.fullmatch(r"sm_\d+", architecture):
            raise ValueError(f"architecture={architecture!r}: expected emulated or sm_ and digits, sm_90 say")
        self.architecture = architecture
        number = architecture.removeprefix("sm_")
        # The instructions of one generation (wgmma, setmaxnreg) need its own target; the binary is for that GPU anyway.
        target = number + "a" if int(number) >= 90 else number
        self.target = f"-gencode=arch=compute_{target},code=sm_{target}"

    @property
    def identity(self) -> str:
        versions = [compiler_version(find_nvcc()), compiler_version(host_compiler())]
        return "\n".join([*versions, self.target, *self.options, ARGUMENT_BYTES])

    def wrap(self, module: Module, kernels: list[Kernel]) -> str:
        sizes = [
            f'extern "C" __device__ __attribute__((used)) unsigned long long about_{kernel.name}[2] = '
            f"{{ArgumentBytes<decltype({kernel.name})>::value, {int(kernel.waits)}}};\n"
            for kernel in kernels
        ]
        return f'{module.preamble}#include "{module.source}"\n{ARGUMENT_BYTES}{"".join(sizes)}'

    def run(self, unit: Path, output: Path) -> subprocess.CompletedProcess[str]:
        command = [find_nvcc(), *self.options, self.target, "-o", str(output), "-x", "cu", str(unit)]
        return subprocess.run(command, capture_output=True, text=True)


@cache
def toolchain(architecture: str) -> Toolchain:
    """The compiler for an architecture: `emulated`, or a GPU's (sm_90)."""
    if architecture == "emulated":
        from .emulated.toolchain import EmulatedToolchain

        return EmulatedToolchain()
    return Nvcc(architecture)


# The cache


def verified(path: Path) -> bytes | None:
    """The content of a cached file without its checksum; None if the file is missing or damaged."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    content, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
    return content if content and hashlib.sha256(content).digest() == digest else None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """An exclusive lock, dropped by the system when its holder dies. Its file is removed at the end."""
    while True:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(path), os.fstat(descriptor)):
                break
        os.close(descriptor)  # the holder before us removed the file: this one locks nothing
    try:
        yield
    finally:
        os.unlink(path)
        os.close(descriptor)


def _place(module: Module, architecture: str, flat_source: str) -> Path:
    """Where the cache has the compiled module, or would have it."""
    tools = toolchain(architecture)
    parts = [tools.identity, flat_source, str(module.source), module.preamble]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    return cache_folder() / f"{module.source.stem}-{architecture}-{key}{tools.suffix}"


def is_built(module: Module, architecture: str) -> bool:
    """Whether build() will not have to compile."""
    return verified(_place(module, architecture, flatten(module.source))) is not None


def build(module: Module, architecture: str, *, rebuild: bool = False) -> tuple[Path, bytes]:
    """The compiled module, from the cache or from the compiler: its file and its content.

    The file ends with a checksum. `rebuild` ignores what the cache has.
    """
    tools = toolchain(architecture)
    flat_source = flatten(module.source)
    path = _place(module, architecture, flat_source)
    if not rebuild and (content := verified(path)):
        return path, content
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_suffix(".lock")):
        if not rebuild and (content := verified(path)):
            return path, content
        return path, _compile(tools, module, flat_source, path)


def _compile(tools: Toolchain, module: Module, flat_source: str, path: Path) -> bytes:
    for leftover in path.parent.glob(f"{path.stem}.*.tmp.*"):  # of a process that died; we hold the lock
        leftover.unlink(missing_ok=True)
    temporary = path.with_name(f"{path.stem}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    unit, output = temporary.with_suffix(".tmp.cu"), temporary.with_suffix(f".tmp{path.suffix}")
    try:
        kernels = find_kernels(module, flat_source, ["-DEMULATED_CUDA=1"] if tools.architecture == "emulated" else [])
        unit.write_text(tools.wrap(module, kernels))
        result = tools.run(unit, output)
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
    """Compiles modules ahead of their use, `jobs` at a time; calls progress(module, done, total) after each.

    Every module is tried; the first error is raised at the end.
    """
    wanted = [module(source, definitions) for source, definitions in modules]
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        futures = {pool.submit(build, item, architecture): item for item in wanted}
        for done, future in enumerate(as_completed(futures), 1):
            if progress and not future.exception():
                progress(futures[future], done, len(futures))
    return [future.result()[0] for future in futures]
