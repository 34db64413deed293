"""Compiles kernels for the host: g++, the CUDA headers and the emulation headers of this folder."""

from __future__ import annotations

import hashlib
import platform
import sys
from functools import cached_property
from pathlib import Path

from .. import compiler
from ..compiler import DeviceUnavailable, Kernel, Module, compiler_version, host_compiler, toolkits

HEADERS = Path(__file__).parent
CUDA_WHEELS = "nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
WHEEL_FOLDERS = (
    "nvidia/cu13/include",
    "nvidia/cuda_runtime/include",
    "nvidia/cuda_nvcc/include",
    "nvidia/cuda_cccl/include",
)


def _search(folders: list[Path]) -> list[Path] | None:
    """The folders, with CCCL's beside them, if together they have what the emulation includes."""
    folders = [path for folder in folders for path in (folder, folder / "cccl") if path.is_dir()]
    needed = ("cuda_fp16.h", "cuda_bf16.h", "vector_functions.h", "crt/host_defines.h", "nv/target")
    found = all(any((folder / header).is_file() for folder in folders) for header in needed)
    return folders if found else None


def cuda_headers() -> list[Path]:
    """The include folders of a CUDA toolkit, or else of NVIDIA's packages for Python."""
    for toolkit in toolkits():
        if folders := _search([toolkit / "include"]):
            return folders
    for entry in sys.path:
        if folders := _search([Path(entry, folder) for folder in WHEEL_FOLDERS]):
            return folders
    raise DeviceUnavailable(
        f"no CUDA headers: neither CUDA_HOME nor {compiler.TOOLKIT} has them; install a CUDA toolkit or: pip install {CUDA_WHEELS}"
    )


def _processor_option() -> str:
    """With AVX2 and FMA where the processor has them: without, fmaf is a slow call into the C library."""
    try:
        flags = set(Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    except OSError:
        flags = set()
    return "-march=x86-64-v3" if {"avx2", "fma", "f16c", "bmi2"} <= flags else "-march=x86-64"


class EmulatedToolchain:
    """g++, to a shared library with the kernels and the scheduler that runs them."""

    architecture = "emulated"
    suffix = ".so"

    def __init__(self) -> None:
        if platform.system() != "Linux" or platform.machine() != "x86_64":
            raise DeviceUnavailable(
                f"the emulated device runs on Linux on x86-64, not on {platform.system()} on {platform.machine()}"
            )
        self.options = [
            "-std=c++20", "-O1", "-g1", "-shared", "-fPIC", _processor_option(),
            "-ffp-contract=fast",  # fuses multiply and add, as nvcc does
            "-mtls-dialect=gnu2",  # __shared__ is thread-local; other dialects make each access a slow call
            "-fvisibility=hidden", "-fno-gnu-unique",  # every module has its own scheduler
            "-fno-strict-aliasing", "-fno-exceptions", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
            # The checks call functions of scheduler.h; -nodefaultlibs keeps out the runtime library of the sanitizer.
            "-fsanitize=bounds-strict,alignment,shift-exponent", "-fno-sanitize-recover=all",
            "-nodefaultlibs", "-Wl,-z,defs", "-Wno-unknown-pragmas",
        ]  # fmt: skip

    @cached_property
    def include_folders(self) -> list[Path]:
        return cuda_headers()

    @cached_property
    def identity(self) -> str:
        headers = [*sorted(HEADERS.glob("*.h")), *self._cuda_headers_in_use()]
        digest = hashlib.sha256(b"\0".join(header.read_bytes() for header in headers)).hexdigest()
        return "\n".join([compiler_version(host_compiler()), digest, *map(str, self.include_folders), *self.options])

    def _cuda_headers_in_use(self) -> list[Path]:
        names = ("cuda_fp16.hpp", "cuda_bf16.hpp", "vector_types.h")
        return [folder / name for folder in self.include_folders for name in names if (folder / name).is_file()]

    def wrap(self, module: Module, kernels: list[Kernel]) -> str:
        table = "".join(
            f'  emulated::describe<{kernel.name}>("{kernel.name}", {kernel.launch_bounds or "emulated::maximum_threads"}),\n'
            for kernel in kernels
        )
        return (
            f'#include "{HEADERS / "emulated_cuda.h"}"\n#include "{module.source}"\nextern "C" {{\n'
            f"EMULATED_EXPORT extern const emulated::Kernel emulated_kernels[] = {{\n{table}  {{}}}};\n"
            "EMULATED_EXPORT void emulated_launch(emulated::Launch* launch) { emulated::launch(*launch); }\n}\n"
        )

    def command(self, module: Module, unit: Path, output: Path) -> list[str]:
        includes = [f"-isystem{folder}" for folder in self.include_folders]
        libraries = ["-lstdc++", "-lm", "-lgcc_s", "-lc", "-lgcc"]
        return [
            host_compiler(),
            *self.options,
            *includes,
            *module.options,
            "-o",
            str(output),
            "-x",
            "c++",
            str(unit),
            "-x",
            "none",
            *libraries,
        ]
