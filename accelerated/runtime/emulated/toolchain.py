"""Compiles kernels for the host with g++, the CUDA headers and the emulation headers of this folder."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from functools import cached_property
from pathlib import Path

from ..cache import locked, remembered
from ..errors import DeviceUnavailable
from ..programs import TOOLKIT, compiler_version, host_compiler, toolkits
from ..sources import KERNELS, Kernel, Module
from .static_shared import excess

HEADERS = Path(__file__).parent
HEADER = "emulated_cuda.h"
SCHEDULER = ("scheduler.cpp", "warp_operations.cpp")  # sources that are linked with every module
RACE_DETECTOR = ("race_accesses.cpp", "race_order.cpp", "race_calls.cpp")
CUDA_WHEELS = "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
WHEEL_FOLDERS = (
    "nvidia/cu13/include",
    "nvidia/cuda_runtime/include",
    "nvidia/cuda_nvcc/include",
    "nvidia/cuda_cccl/include",
)

ONE_KERNEL = "EMULATED_KERNEL"  # macro that names the only kernel of its source to compile

RACES = "emulated-races"
ARCHITECTURES = ("emulated", RACES)
# Memory accesses call race_calls.cpp. So do memcpy and memset, whose accesses inside the C library would be missed.
RACE_OPTIONS = ["-DEMULATED_RACES=1", "-fno-builtin-memcpy", "-fno-builtin-memset"]
RACE_CHECKS = ["-fsanitize=thread", "--param=tsan-instrument-func-entry-exit=0"]


def _search(folders: list[Path]) -> list[Path] | None:
    """Return the folders and their CCCL folders, if together they have the needed headers; None if not."""
    folders = [path for folder in folders for path in (folder, folder / "cccl") if path.is_dir()]
    needed = ("cuda_fp16.h", "cuda_bf16.h", "vector_functions.h", "crt/host_defines.h", "nv/target")
    found = all(any((folder / header).is_file() for folder in folders) for header in needed)
    return folders if found else None


def cuda_headers() -> list[Path]:
    """Return the include folders of a CUDA toolkit or of NVIDIA's Python packages. Raises DeviceUnavailable."""
    for toolkit in toolkits():
        if folders := _search([toolkit / "include"]):
            return folders
    for entry in sys.path:
        if folders := _search([Path(entry, folder) for folder in WHEEL_FOLDERS]):
            return folders
    raise DeviceUnavailable(
        f"no CUDA headers: neither CUDA_HOME nor {TOOLKIT} has them;"
        f" install a CUDA toolkit or: pip install {CUDA_WHEELS}"
    )


def _processor_option() -> str:
    """Return the -march option, with AVX2 and FMA if available; without FMA, fmaf is a slow library call."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    except OSError:
        flags = set()
    return "-march=x86-64-v3" if {"avx2", "fma", "f16c", "bmi2"} <= flags else "-march=x86-64"


class EmulatedToolchain:
    """Compile with g++ to a shared library of the kernels, linked with the scheduler, which is compiled once."""

    suffix = ".so"

    def __init__(self, architecture: str = "emulated") -> None:
        self.architecture = architecture
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            raise DeviceUnavailable(
                f"the emulated device runs on Linux on x86-64, not on {platform.system()} on {platform.machine()}"
            )
        self.options = [
            "-std=c++20", "-g1", "-fPIC", _processor_option(),
            "-mtls-dialect=gnu2",  # __shared__ is thread-local; other dialects make each access a slow call.
            "-fvisibility=hidden", "-fno-gnu-unique",  # Every module has its own scheduler.
            "-fno-asynchronous-unwind-tables", "-gno-statement-frontiers",  # They would take 4 % of the time, unused.
            "-fno-strict-aliasing", "-fno-exceptions", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
            "-Wno-unknown-pragmas",
        ]  # fmt: skip
        self.kernel_options = [
            "-Og",  # It compiles in three quarters of the time of -O1, and kernels run as fast.
            "-fsanitize=bounds-strict,alignment,shift-exponent", "-fno-sanitize-recover=all",
            # The compiler's garbage collection is off, because a kernel needs little memory.
            "--param=ggc-min-expand=400", "--param=ggc-min-heapsize=400000",
        ]  # fmt: skip
        self.scheduler_sources: tuple[str, ...] = SCHEDULER
        if architecture == RACES:
            self.options += RACE_OPTIONS
            self.kernel_options += RACE_CHECKS
            self.scheduler_sources += RACE_DETECTOR
        # The checks call functions of scheduler.cpp. Leaving out the default libraries excludes the sanitizer's own
        # library, and the C++ library, whose symbols take a third of the link time.
        self.link_options = ["-shared", "-Wl,-z,defs", "-nodefaultlibs", "-lm", "-lc", "-lgcc"]

    @cached_property
    def include_folders(self) -> list[Path]:
        return cuda_headers()

    @cached_property
    def identity(self) -> str:
        patterns = ("*.h", "*.hpp", "crt/*.h", "crt/*.hpp")
        cuda = [path for folder in self.include_folders for pattern in patterns for path in folder.glob(pattern)]
        own = [path for path in HEADERS.iterdir() if path.suffix in (".h", ".cpp")]
        digest = hashlib.sha256(b"\0".join(sorted(path.read_bytes() for path in [*own, *cuda])))
        version = remembered("host", lambda: compiler_version(host_compiler()))
        options = [*self.options, *self.kernel_options, *self.link_options, *self.scheduler_sources]
        return "\n".join([version, digest.hexdigest(), *options])

    def require(self) -> None:
        host_compiler()
        cuda_headers()

    def wrap(self, module: Module, kernels: list[Kernel]) -> str:
        only = dict(module.definitions).get(ONE_KERNEL)
        kernels = [kernel for kernel in kernels if only in (None, kernel.name)]
        # An inline kernel that is never called is not compiled.
        others = "#undef __global__\n#define __global__ inline\n" if only else ""
        table, fields = "", ""
        for name, bounds, waits, paths in kernels:
            kind = f"emulated::KernelCall<decltype(&{name})>::type"
            numbers = "".join(f"__builtin_offsetof({kind}, {p}), sizeof((({kind}*)nullptr)->{p}), " for p in paths)
            fields += f"static const unsigned long long fields_{name}[] = {{{numbers}0, 0}};\n"
            names = f'"{",".join(paths)}", fields_{name}'
            bounds = bounds or "emulated::maximum_threads"
            table += f'emulated::describe<{name}>("{name}", {int(waits)}, {names}, {bounds}),\n'
        return (
            f'#include "{HEADER}"\n{others}{module.preamble}#include "{module.source}"\n'
            f'{fields}extern "C" EMULATED_EXPORT const emulated::Kernel emulated_kernels[] = {{\n{table}{{}}}};\n'
        )

    def run(self, unit: Path, output: Path) -> subprocess.CompletedProcess[str]:
        folder = self._prepared(output.parent)
        scheduler = [str(folder / f"{Path(source).stem}.o") for source in self.scheduler_sources]
        outputs = ["-o", str(output), "-x", "c++", str(unit), "-x", "none", *scheduler, *self.link_options]
        result = self._compile([*self.kernel_options, f"-I{folder}"], outputs)
        if result.returncode:  # A damaged precompiled header must not fail the compilation.
            result = self._compile(self.kernel_options, outputs)
        if not result.returncode and (error := excess(output)):
            return subprocess.CompletedProcess(result.args, 1, result.stdout, error)
        return result

    def _compile(self, options: list[str], outputs: list[str]) -> subprocess.CompletedProcess[str]:
        includes = [f"-I{HEADERS}", f"-I{KERNELS}", *(f"-isystem{folder}" for folder in self.include_folders)]
        return subprocess.run(
            [host_compiler(), *self.options, *options, *includes, *outputs], capture_output=True, text=True
        )

    def _prepared(self, cache: Path) -> Path:
        """Return the folder with the compiled scheduler and the precompiled emulation header, and fill it if needed.

        With the precompiled header each compilation takes half the time.
        """
        folder = cache / "headers" / hashlib.sha256(self.identity.encode()).hexdigest()[:32]
        if not (folder / "complete").exists():
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "lock"):
                if not (folder / "complete").exists():
                    made = [self._made(folder / f"{HEADER}.gch", HEADER, ["-x", "c++-header", *self.kernel_options])]
                    made += [
                        self._made(folder / f"{Path(source).stem}.o", source, ["-c", "-O2"])
                        for source in self.scheduler_sources
                    ]
                    if all(made):
                        (folder / "complete").touch()
        return folder

    def _made(self, target: Path, source: str, options: list[str]) -> bool:
        temporary = target.with_suffix(".tmp")
        result = self._compile(options, ["-o", str(temporary), str(HEADERS / source)])
        if result.returncode == 0:  # After a failure, the compilation that follows reports the message.
            os.replace(temporary, target)
        return result.returncode == 0
