"""Loads modules compiled for the host, and launches their kernels one at a time."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from pathlib import Path

from dualdnn.api.operations.forks import awaited_by_forks

from ..arguments import declared
from ..errors import DeviceError

# Only one launch runs at a time. The scheduler's state exists once per module, and signal handlers belong to the
# process. A launch also makes memory inaccessible for a while.
launching = awaited_by_forks(threading.Lock())
_KERNEL_SOURCES = (".cu", ".cuh")


class HostKernel(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_size_t),
        *declared(ctypes.c_uint, "maximum_block_threads waits"),
        ("field_names", ctypes.c_char_p),
        ("fields", ctypes.POINTER(ctypes.c_uint64)),
    )


class HostPages(ctypes.Structure):
    _fields_ = (("first", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class HostMappings(ctypes.Structure):
    _fields_ = (("stacks", ctypes.c_void_p * 1024), ("shared", ctypes.c_void_p * 3))


_mappings = HostMappings()  # stacks and dynamic shared memory of all launches of this process


class HostLaunch(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.POINTER(HostKernel)),
        ("arguments", ctypes.c_char_p),
        *declared(ctypes.c_uint * 3, "grid block"),
        *declared(ctypes.c_uint, "shared_bytes seed"),
        ("memory", ctypes.POINTER(HostPages)),
        ("memory_count", ctypes.c_size_t),
        ("mappings", ctypes.POINTER(HostMappings)),
        ("failed", ctypes.c_uint),
        *declared(ctypes.c_uint * 3, "block_index thread_index"),
        *declared(ctypes.c_uint64, "instruction other_instruction address"),
        ("message", ctypes.c_char * 1024),
    )


class EmulatedLibrary:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | os.RTLD_LOCAL)
            table = (HostKernel * 0).in_dll(self.library, "emulated_kernels")
            self._launch = self.library.emulated_launch
        except (OSError, ValueError, AttributeError) as error:
            raise DeviceError(f"loading {path}: {error}") from error
        self.kernels: dict[str, HostKernel] = {}
        address = ctypes.addressof(table)
        while (kernel := HostKernel.from_address(address)).name:
            self.kernels[kernel.name.decode()] = kernel
            address += ctypes.sizeof(HostKernel)

    def launch(self, launch: HostLaunch) -> None:
        """Run a launch. The caller must hold the lock ``launching``."""
        launch.mappings = ctypes.pointer(_mappings)
        self._launch(ctypes.byref(launch))

    def source_line(self, instruction: int) -> str | None:
        """Return file:line of the kernel source for an instruction, inlined code included; None where it is unknown."""
        program = shutil.which("addr2line")
        if not program or not instruction:
            return None
        command = [program, "-i", "-e", str(self.path), hex(instruction)]
        frames = subprocess.run(command, capture_output=True, text=True).stdout.split("\n")
        lines = [frame.split(" (")[0] for frame in frames if frame.partition(":")[0].endswith(_KERNEL_SOURCES)]
        return os.path.basename(lines[0]) if lines else None
