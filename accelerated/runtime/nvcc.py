"""Compiles kernels for a GPU with nvcc."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .cache import remembered
from .programs import compiler_version, find_nvcc, host_compiler
from .sources import KERNELS, Kernel, Module

ARGUMENT_BYTES = """
template <class Signature> struct ArgumentBytes;
template <class Arguments> struct ArgumentBytes<void(Arguments)> {
  static constexpr unsigned long long value = sizeof(Arguments);
  using type = Arguments;
};
"""


FORMAT = "1"  # version of the text that wrap() appends; packages of another version are not used


class Nvcc:
    """Compile with nvcc to a binary for one GPU architecture, such as sm_90."""

    suffix = ".cubin"
    options: tuple[str, ...] = (
        "-cubin",
        "-std=c++17",
        "-O3",
        "--expt-relaxed-constexpr",
        "-lineinfo",
        "--diag-suppress=177",
    )

    def __init__(self, architecture: str) -> None:
        if not re.fullmatch(r"sm_\d+", architecture):
            raise ValueError(f"architecture={architecture!r}: expected emulated or sm_ and digits, sm_90 say")
        self.architecture = architecture
        number = architecture.removeprefix("sm_")
        # wgmma and setmaxnreg need the architecture-specific target sm_90a. The binary runs on that GPU only anyway.
        target = number + "a" if int(number) >= 90 else number
        self._aim(target)

    def _aim(self, target: str) -> None:
        """Set the target, such as 90a."""
        self.target = f"-gencode=arch=compute_{target},code=sm_{target}"

    @property
    def identity(self) -> str:
        versions = [
            remembered("nvcc", lambda: compiler_version(find_nvcc())),
            remembered("host", lambda: compiler_version(host_compiler())),
        ]
        return "\n".join([*versions, self.target, *self.options, ARGUMENT_BYTES, "fields"])

    def require(self) -> None:
        find_nvcc()
        host_compiler()

    def wrap(self, module: Module, kernels: list[Kernel]) -> str:
        about = "".join(map(self._about, kernels))
        return f'{module.preamble}#include "{module.source}"\n{ARGUMENT_BYTES}{about}'

    def _about(self, kernel: Kernel) -> str:
        """Return the variables from which gpu.py reads a kernel's argument size, whether it waits, and its fields."""
        arguments, variable = f"ArgumentBytes<decltype({kernel.name})>", 'extern "C" __device__ __attribute__((used))'
        fields = "".join(
            f"__builtin_offsetof({arguments}::type, {path}), sizeof((({arguments}::type*)nullptr)->{path}), "
            for path in kernel.fields
        )
        return (
            f"{variable} unsigned long long about_{kernel.name}[2] = {{{arguments}::value, {int(kernel.waits)}}};\n"
            f"{variable} unsigned long long fields_{kernel.name}[] = {{{fields}0}};\n"
            f'{variable} char names_{kernel.name}[] = "{",".join(kernel.fields)}";\n'
        )

    def run(self, unit: Path, output: Path) -> subprocess.CompletedProcess[str]:
        command = [find_nvcc(), *self.options, self.target, f"-I{KERNELS}", "-o", str(output), "-x", "cu", str(unit)]
        return subprocess.run(command, capture_output=True, text=True)


class ShippingNvcc(Nvcc):
    """Compile modules for packages, without line information.

    Line information is three quarters of a binary, and it names folders of this machine.
    """

    options = tuple(option for option in Nvcc.options if option != "-lineinfo")

    def __init__(self, target: str) -> None:
        if not re.fullmatch(r"sm_\d+[af]?", target):
            raise ValueError(f"target={target!r}: expected sm_, digits and perhaps a or f, sm_90a say")
        super().__init__(target.rstrip("af"))
        self._aim(target.removeprefix("sm_"))
