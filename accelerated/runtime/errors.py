"""What can go wrong on a device, and before one is there."""

from __future__ import annotations

from pathlib import Path


class DeviceError(RuntimeError):
    """A kernel, a copy or an allocation failed on the device."""


class DeviceUnavailable(RuntimeError):
    """A device, or a kernel for it, cannot be had: a driver, package, compiler or header is missing."""


class NotBuilt(DeviceUnavailable):
    """A module is neither in a package nor in the cache, and is not compiled at once."""


class CompileError(DeviceUnavailable):
    """The compiler refused a kernel source."""

    def __init__(self, source: Path, definitions: tuple[tuple[str, str], ...], output: str) -> None:
        variant = "".join(f" -D{name}={value}" for name, value in definitions)
        super().__init__(f"{source.name}{variant}: {output.strip()}")
        self.source, self.definitions, self.output = source, definitions, output
