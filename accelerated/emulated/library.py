"""A module compiled for the host, and its kernels."""

from __future__ import annotations

import ctypes
import math
import os
import shutil
import struct
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from ..device import Dimensions, Function, Stream
from ..errors import DeviceError

if TYPE_CHECKING:
    from .device import EmulatedDevice

_launching = (
    threading.Lock()
)  # a module's scheduler runs one launch at a time, and signal handlers belong to the process
_KERNEL_SOURCES = (".cu", ".cuh")


class _Kernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_size_t),
        ("maximum_block_threads", ctypes.c_uint),
    )


class _Launch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.POINTER(_Kernel)),
        ("arguments", ctypes.c_char_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("seed", ctypes.c_uint),
        ("failed", ctypes.c_uint),
        ("block_index", ctypes.c_uint * 3),
        ("thread_index", ctypes.c_uint * 3),
        ("instruction", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("message", ctypes.c_char * 1024),
    )


class EmulatedLibrary:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            table = (_Kernel * 0).in_dll(self.library, "emulated_kernels")
            self.launch = self.library.emulated_launch
        except (OSError, ValueError, AttributeError) as error:
            raise DeviceError(f"loading {path}: {error}") from error
        self.kernels: dict[str, _Kernel] = {}
        address = ctypes.addressof(table)
        while (kernel := _Kernel.from_address(address)).name:
            self.kernels[kernel.name.decode()] = kernel
            address += ctypes.sizeof(_Kernel)

    def source_line(self, instruction: int) -> str | None:
        """file:line of the kernel's source, of an instruction in it or in what was inlined there."""
        program = shutil.which("addr2line")
        if not program or not instruction:
            return None
        command = [program, "-i", "-e", str(self.path), hex(instruction)]
        frames = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")
        lines = [frame.split(" (")[0] for frame in frames if frame.partition(":")[0].endswith(_KERNEL_SOURCES)]
        return os.path.basename(lines[0]) if lines else None


class EmulatedFunction(Function):
    static_shared_bytes = 0

    def __init__(self, device: EmulatedDevice, library: EmulatedLibrary, name: str) -> None:
        super().__init__()
        if name not in library.kernels:
            raise KeyError(f"{library.path.name} has no kernel {name}, it has {sorted(library.kernels)}")
        self.device: EmulatedDevice = device
        self.name, self._library = name, library
        self._kernel = library.kernels[name]
        self.argument_bytes = self._kernel.argument_bytes
        self.maximum_threads = self._kernel.maximum_block_threads
        self._words = struct.Struct(f"={self.argument_bytes // 8}Q")

    def _launch(
        self,
        arguments: bytes | bytearray,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        stream: Stream | None,
        cooperative: bool,
    ) -> None:
        if cooperative and math.prod(grid) > 1:
            raise DeviceError(f"{self.name}: a cooperative launch of grid={grid}; this device runs one block at a time")
        launch = _Launch(
            ctypes.pointer(self._kernel),
            bytes(arguments),
            (*grid, 1, 1)[:3],
            (*block, 1, 1)[:3],
            shared_bytes,
            self.device.seed,
        )
        with _launching:
            self._library.launch(ctypes.byref(launch))
        if launch.failed:
            raise DeviceError(self._describe(launch))
        self._check_padding(arguments)

    def _describe(self, launch: _Launch) -> str:
        where = f"{self.name} failed in block {tuple(launch.block_index)}"
        if launch.failed == 2:
            where += f", thread {tuple(launch.thread_index)}"
        if line := self._library.source_line(launch.instruction):
            where += f", at {line}"
        message = launch.message.decode(errors="replace")
        if launch.address:
            message += f", {self.device.pool.describe(launch.address)}"
        return f"{where}: {message}"

    def _check_padding(self, arguments: bytes | bytearray) -> None:
        """Looks beside the allocations that the arguments point into."""
        pool = self.device.pool
        for word in set(self._words.unpack_from(arguments)):
            allocation = pool.find(word)
            if allocation and (changed := allocation.changed_padding()) is not None:
                raise DeviceError(f"{self.name} wrote {allocation.describe(changed)}")
