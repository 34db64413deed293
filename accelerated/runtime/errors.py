"""Defines the errors of devices, compilers and the kernel cache."""

from __future__ import annotations

from pathlib import Path

from dualdnn.api.operations.backend import BackendError, Unavailable


class DeviceError(BackendError):
    """Report that a kernel, a copy or an allocation failed on the device."""


class DeviceUnavailable(Unavailable):
    """Report that a device or its kernels are unavailable: a driver, package, compiler or header is missing."""


class NotBuilt(DeviceUnavailable):
    """Report a module that is neither in a package nor in the cache, and may not be compiled."""


class CompileError(DeviceUnavailable):
    """Report that the compiler refused a kernel source."""

    def __init__(self, source: Path, definitions: tuple[tuple[str, str], ...], output: str) -> None:
        variant = "".join(f" -D{name}={value}" for name, value in definitions)
        super().__init__(f"{source.name}{variant}: {output.strip()}")
        self.source, self.definitions, self.output = source, definitions, output
