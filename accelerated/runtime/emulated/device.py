"""Implements the emulated device: one CPU core runs kernels compiled for the host, synchronously and in order."""

from __future__ import annotations

import ctypes
import math
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..device import Device, Function, LaunchShape, bytes_of, check_range
from ..errors import DeviceError, DeviceUnavailable
from ..memory import Stream
from ..scratch import ExactScratch
from ..sources import Definitions
from ..tensor_map import TensorMap, emulated_map
from .library import EmulatedLibrary, HostLaunch, HostPages, launching
from .memory import Allocation, GuardedMemory, GuardedPool
from .toolchain import ONE_KERNEL, RACES, EmulatedToolchain

GUARDS = ("end", "start")
MAX_MULTIPROCESSORS = 1024  # upper bound of DUALDNN_EMULATION_MULTIPROCESSORS
# A source whose path begins with one of these has up to eight kernels, but a set of definitions needs only
# one or two of them. Each kernel is compiled by itself there (docs/performance/emulated_device.md).
BY_KERNEL = ("normalization/batch_", "pooling/max_backward/max_backward.")


def _integer(name: str, default: int, least: int, most: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and least <= int(text) <= most):
        raise ValueError(f"{name}={text!r}: expected an integer from {least} to {most}")
    return int(text)


def _choice(name: str, choices: tuple[str, ...]) -> str:
    text = os.environ.get(name, choices[0])
    if text not in choices:
        raise ValueError(f"{name}={text!r}: expected {' or '.join(choices)}")
    return text


class EmulatedStream(Stream):
    """Represent a stream whose work is done when its call returns."""

    def __init__(self, device: EmulatedDevice, handle: int) -> None:
        self.device, self.handle = device, handle

    def synchronize(self) -> None:
        pass

    def done(self) -> bool:
        return True


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
        names = self._kernel.field_names.decode()
        self.fields = self._fields(names, self._kernel.fields[: 2 * len(names.split(","))])
        self._words = struct.Struct(f"={self.argument_bytes // 8}Q")

    def issue(self, arguments: bytes | bytearray, shape: LaunchShape, stream: Stream | None) -> None:
        grid, block, shared_bytes, cooperative = shape
        if cooperative and math.prod(grid) > 1:
            raise DeviceError(f"{self.name}: a cooperative launch of grid={grid}; this device runs one block at a time")
        memory = self._memory_of(arguments)
        pages = (HostPages * len(memory))(*(HostPages(each.first, each.last - each.first) for each in memory))
        launch = HostLaunch(
            ctypes.pointer(self._kernel),
            bytes(arguments),
            (*grid, 1, 1)[:3],
            (*block, 1, 1)[:3],
            shared_bytes,
            self.device.seed,
            pages,
            len(memory),
        )
        with launching:  # A launch of another thread could make shared operands inaccessible for a while.
            self._library.launch(launch)
            changed = [] if launch.failed else [(each, each.changed_padding()) for each in memory]
        if launch.failed:
            raise DeviceError(self._describe(launch))
        for each, address in changed:
            if address is not None:
                raise DeviceError(f"{self.name} wrote {each.describe(address)}")

    def _describe(self, launch: HostLaunch) -> str:
        where = f"{self.name} failed in block {tuple(launch.block_index)}"
        if launch.failed == 2:
            where += f", thread {tuple(launch.thread_index)}"
        if line := self._library.source_line(launch.instruction):
            where += f", at {line}"
        message = launch.message.decode(errors="replace")
        if other := self._library.source_line(launch.other_instruction):
            message += f", at {other}"
        if launch.address:
            message += f", {self.device.pool.describe(launch.address)}"
        return f"{where}: {message}"

    def _memory_of(self, arguments: bytes | bytearray) -> list[Allocation]:
        """Return the allocations that the arguments point into, guard pages included."""
        pool = self.device.pool
        found = {pool.find(word) for word in set(self._words.unpack_from(arguments))}
        return [allocation for allocation in found if allocation]


class EmulatedDevice(Device):
    """Run kernels on the CPU and report their mistakes.

    seed: order of the threads of a launch: 0 forward, 1 backward, other numbers shuffled. Results that depend on it
    show a missing barrier. multiprocessors: number of SMs among which planners divide work; a GPU's number gives the
    launches of that GPU. guard: the side of new memory ("end" or "start") that touches an inaccessible page.
    DUALDNN_EMULATION_FOREIGN=1 accepts other memory of the process, whose size the device does not know.
    DUALDNN_EMULATION_RACES=1 reports races, whatever the order of threads and the results (races.h).
    """

    kind = "emulated"
    knows_extents = True
    compiles_in_background = False  # The choice of a kernel must not depend on time.
    multiprocessors = 1
    shared_bytes_per_block = 227 * 1024

    def __init__(self, index: int = 0) -> None:
        super().__init__()
        if index != 0:
            raise DeviceUnavailable(f"index={index}: there is one emulated device, 0")
        _ = EmulatedToolchain().identity  # This raises DeviceUnavailable unless the headers and a version are found.
        self.name = "emulated device"
        self.seed = _integer("DUALDNN_EMULATION_SEED", 0, 0, 2**32 - 1)
        self.multiprocessors = _integer("DUALDNN_EMULATION_MULTIPROCESSORS", 1, 1, MAX_MULTIPROCESSORS)
        self.guard = _choice("DUALDNN_EMULATION_GUARD", GUARDS)
        self.takes_foreign = self.adopts_streams = _choice("DUALDNN_EMULATION_FOREIGN", ("0", "1")) == "1"
        self.architecture = RACES if _choice("DUALDNN_EMULATION_RACES", ("0", "1")) == "1" else "emulated"
        self._of_races: Any = {}, {}, {}
        self.pool = GuardedPool()
        self.scratch = ExactScratch(self)
        self.default_stream: EmulatedStream = EmulatedStream(self, 0)
        self._streams = 0

    @contextmanager
    def reporting_races(self) -> Iterator[None]:
        """Load kernels with race reports in this scope. Plans that were made outside of it have the others."""
        had = self._modules, self._functions, self._refused
        architecture, self.architecture = self.architecture, RACES
        self._modules, self._functions, self._refused = self._of_races
        try:
            yield
        finally:
            self._modules, self._functions, self._refused = had
            self.architecture = architecture

    def allocate(self, nbytes: int) -> GuardedMemory:
        check_range(1, nbytes)
        if self.guard not in GUARDS:
            raise ValueError(f"guard={self.guard!r}: expected one of {GUARDS}")
        return self.pool.allocate(nbytes, at_start=self.guard == "start")

    def extent(self, address: int) -> int | None:
        found = self.pool.find(address)
        if found is None and self.takes_foreign:
            return None
        if found is None or not found.contains(address, 0):
            raise ValueError(f"is {address:#x}, in no memory of the emulated device: {self.pool.describe(address)}")
        return found.address + found.nbytes - address

    def upload(self, address: int, data: Any, stream: Stream | None = None) -> None:
        view = bytes_of(data)
        if view:
            with launching:
                self._target(address, len(view), "upload")[:] = view

    def download(self, address: int, nbytes: int, stream: Stream | None = None) -> bytearray:
        check_range(address, nbytes)
        if not nbytes:
            return bytearray()
        with launching:
            return bytearray(self._target(address, nbytes, "download"))

    def fill(self, address: int, nbytes: int, byte: int, stream: Stream | None = None) -> None:
        check_range(address, nbytes)
        if nbytes:
            with launching:
                ctypes.memset(ctypes.addressof(self._range(address, nbytes, "fill")), byte, nbytes)

    def copy(self, destination: int, source: int, nbytes: int, stream: Stream | None = None) -> None:
        check_range(destination, nbytes, "destination")
        check_range(source, nbytes, "source")
        if nbytes:
            with launching:
                self._target(destination, nbytes, "copy")[:] = self._target(source, nbytes, "copy")

    def _target(self, address: int, nbytes: int, action: str) -> memoryview:
        return memoryview(self._range(address, nbytes, action)).cast("B")

    def _range(self, address: int, nbytes: int, action: str) -> Any:
        """Return the bytes of a range. Raises DeviceError outside of device memory, unless foreign memory is taken."""
        check_range(address, nbytes)
        if not self.takes_foreign or self.pool.find(address):
            self.pool.check(address, nbytes, action)
        return (ctypes.c_ubyte * nbytes).from_address(address)

    def new_stream(self) -> EmulatedStream:
        self._streams += 1
        return EmulatedStream(self, self._streams)

    def adopt_stream(self, handle: int) -> EmulatedStream:
        return EmulatedStream(self, handle) if handle else self.default_stream

    def synchronize(self) -> None:
        pass

    def tensor_map(self, wanted: TensorMap, address: int) -> bytes:
        return emulated_map(wanted, address)

    def module_definitions(self, source_name: str | Path, kernel_name: str, definitions: Definitions) -> Definitions:
        return (*definitions, (ONE_KERNEL, kernel_name)) if str(source_name).startswith(BY_KERNEL) else definitions

    def _load_module(self, path: Path, content: bytes) -> EmulatedLibrary:
        return EmulatedLibrary(path)

    def _find(self, module: EmulatedLibrary, kernel_name: str) -> EmulatedFunction:
        return EmulatedFunction(self, module, kernel_name)
