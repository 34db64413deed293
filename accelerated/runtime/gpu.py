"""Implements a device on a GPU: contexts.py finds the GPU and its context, driver.py calls the driver.

Work on a stream is asynchronous; its errors surface as DeviceError in a later synchronize or download.

Every call enters the device's context (``entered``) and restores the thread's own context afterwards. A launch enters
it only after the driver has refused the thread's context, because asking first would cost as much as a launch.

A stream may be capturing. Allocations, modules and tensor maps that a launch needs are then made outside of the graph,
and stay alive. Waiting for a capturing stream raises DeviceError before the driver would end the capture.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
from dualdnn.api.operations.answers import Answers

from . import contexts
from . import tensor_map as tensor_maps
from .choices import Choices
from .device import (
    Device,
    Dimensions,
    Function,
    Launching,
    LaunchShape,
    NativeLaunch,
    bytes_of,
    check_range,
    reaches,
    smem_for_one_block_per_sm,
)
from .driver import (
    COOPERATIVE,
    MAX_DYNAMIC_SHARED_SIZE_BYTES,
    MAX_THREADS_PER_BLOCK,
    NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    NOT_FOUND,
    PROGRAMMATIC_STREAM_SERIALIZATION,
    SHARED_SIZE_BYTES,
    Configuration,
    Driver,
    DriverError,
    LoadedModule,
    configuration,
)
from .errors import DeviceError, DeviceUnavailable
from .memory import Memory, Stream
from .tensor_map import TensorMap

STREAMS_KEPT = 16  # launch configurations, one per stream, that in_shape() keeps for a kernel in one shape


class GpuMemory(Memory):
    def __init__(self, device: GpuDevice, nbytes: int) -> None:
        self.nbytes, self._device = nbytes, device
        with device.errors(f"allocating {nbytes} bytes"):
            self.address = device.driver.allocate(max(nbytes, 1))

    def _release(self) -> None:
        if self._device.closed:  # The process ends, and the driver frees its memory.
            return
        with (
            contextlib.suppress(DeviceError),
            self._device.errors("freeing memory"),
        ):  # After a fault the driver cannot free memory.
            self._device.driver.call("cuMemFree_v2", self.address)


class GpuStream(Stream):
    """Wrap the handle of any stream; 0 is the default stream."""

    device: GpuDevice

    def __init__(self, device: GpuDevice, handle: int) -> None:
        self.device, self.handle = device, handle

    def capture(self) -> int:
        return self.device.driver.capture(self.handle)

    def require_waiting(self, action: str) -> None:
        """Raise DeviceError if the stream is capturing, because waiting for it would end the capture."""
        with self.device.errors(action):
            if self.capture():
                raise DeviceError(f"{action}: stream {self.handle:#x} is capturing, and nobody can wait for it")

    def synchronize(self) -> None:
        self.require_waiting("synchronizing a stream")
        with self.device.errors("synchronizing a stream"):
            self.device.driver.call("cuStreamSynchronize", self.handle)

    def done(self) -> bool:
        self.require_waiting("querying a stream")
        with self.device.errors("querying a stream"):
            return self.device.driver.stream_is_done(self.handle)

    def upload(self, address: int, data: memoryview) -> None:
        if self.capture():
            self.device.captured.append(data)
        host = numpy.frombuffer(data, numpy.uint8).__array_interface__["data"][0]  # ctypes rejects read-only memory.
        self.device.driver.call("cuMemcpyHtoDAsync_v2", address, host, len(data), self.handle)

    def download(self, data: bytearray, address: int) -> None:
        host = (ctypes.c_ubyte * len(data)).from_buffer(data)
        self.device.driver.call("cuMemcpyDtoHAsync_v2", ctypes.addressof(host), address, len(data), self.handle)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.device.driver.call("cuMemsetD8Async", address, byte, nbytes, self.handle)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self.device.driver.call("cuMemcpyDtoDAsync_v2", destination, source, nbytes, self.handle)


class OwnStream(GpuStream):
    """Own a stream that the device made; it is destroyed with its last reference."""

    def __init__(self, device: GpuDevice) -> None:
        made = ctypes.c_void_p()
        device.driver.call("cuStreamCreate", ctypes.byref(made), 0)
        super().__init__(device, made.value or 0)

    def __del__(self) -> None:
        if hasattr(self, "handle") and not self.device.closed:
            with contextlib.suppress(DeviceError), self.device.errors("destroying a stream"):
                self.device.driver.call("cuStreamDestroy_v2", self.handle)


class GpuFunction(Function):
    """Launch a kernel of a loaded module."""

    OVERLAPPING_ARCHITECTURE = 90  # lowest compute capability with programmatic dependent launch, times 10

    device: GpuDevice

    def __init__(self, device: GpuDevice, module: LoadedModule, name: str) -> None:
        super().__init__()
        self.device, self.name = device, name
        try:
            self._kernel = module.kernel(name)
            self.argument_bytes, waits = struct.unpack("<QQ", module.content(f"about_{name}"))
            numbers = module.content(f"fields_{name}")
            names = bytes(module.content(f"names_{name}")).rstrip(b"\0").decode()
        except DriverError as error:
            if error.code != NOT_FOUND:
                raise
            raise KeyError(f"the module has no kernel {name}: {error}") from error
        self.fields = self._fields(names, struct.unpack(f"<{len(numbers) // 8}Q", numbers))
        self._overlaps = bool(waits) and reaches(device, self.OVERLAPPING_ARCHITECTURE)
        self.maximum_threads = self._kernel.attribute(MAX_THREADS_PER_BLOCK)
        self.static_shared_bytes = self._kernel.attribute(SHARED_SIZE_BYTES)
        self._kernel.set_attribute(
            MAX_DYNAMIC_SHARED_SIZE_BYTES, device.shared_bytes_per_block - self.static_shared_bytes
        )

    def issue(self, arguments: bytes | bytearray, shape: LaunchShape, stream: Stream | None) -> None:
        self.in_shape(shape)(bytes(arguments))(stream)

    def in_shape(self, shape: LaunchShape) -> Callable[[bytes], Launching]:
        configurations, start, kernel = Answers(STREAMS_KEPT), self._kernel.start, self._kernel.handle

        def bound(arguments: bytes) -> Launching:
            content = ctypes.c_char_p(arguments)
            pointer = ctypes.addressof(content)

            def launch(stream: Stream | None) -> None:
                number = 0 if stream is None else stream.handle
                if (how := configurations.get(number)) is None:
                    how = configurations.of(number, lambda: self._configure(shape, number))
                if code := start(how.address, kernel, pointer, None):
                    self._launch_entered(code, how, content, shape)

            return launch

        return bound

    def _launch_entered(self, code: int, how: Configuration, content: Any, shape: LaunchShape) -> None:
        """Repeat a launch in the device's context if the driver refused the thread's. Raises DeviceError.

        code: the driver's result in the thread's context. content: the pointer to the arguments.
        """
        try:
            if code not in contexts.FOREIGN:
                raise self._kernel.driver.error("cuLaunchKernelEx", code)
            with self.device.entered():
                self._kernel.launch(how, ctypes.byref(content))
        except DriverError as error:
            described = " ".join(f"{name}={value}" for name, value in shape._asdict().items())
            raise DeviceError(f"launching {self.name} with {described}: {error}") from error

    def native(self, shape: LaunchShape) -> NativeLaunch:
        grid, block = ((*sizes, 1, 1)[:3] for sizes in shape[:2])
        # Blocks of a cooperative launch synchronize through memory that only one launch may use at a time. Each block
        # gets an SM of its own: it asks for more than half of the SM's shared memory.
        lone = smem_for_one_block_per_sm(self.device) if shape.cooperative else 0
        nbytes = max(shape.shared_bytes, lone)
        return NativeLaunch(int(self._kernel.handle or 0), grid, block, nbytes, shape.cooperative, self._overlaps)

    def _configure(self, shape: LaunchShape, stream: int) -> Configuration:
        _, grid, block, shared_bytes, cooperative, overlaps = self.native(shape)
        attributes = (COOPERATIVE,) * cooperative + (PROGRAMMATIC_STREAM_SERIALIZATION,) * overlaps
        return configuration(grid, block, shared_bytes, stream, attributes)

    def holds_clusters(self, grid: Dimensions, block: Dimensions, shared_bytes: int, clusters: int = 1) -> bool:
        try:
            with self.device.entered():
                self._kernel.set_attribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
                return self._kernel.active_clusters(configuration(grid, block, shared_bytes)) >= clusters
        except DriverError:
            return False


class GpuDevice(Device):
    kind = "gpu"

    def __init__(self, index: int) -> None:
        super().__init__()
        try:
            self.driver = Driver()
        except OSError as error:
            raise DeviceUnavailable(f"the NVIDIA driver is missing: {error}") from error
        except AttributeError as error:
            raise DeviceUnavailable(f"the NVIDIA driver lacks a function, 11.8 or later is needed: {error}") from error
        self.gpu = contexts.find_gpu(self.driver, index)
        self.native_context = self.gpu.context
        self.name, self.architecture = self.gpu.name, self.gpu.architecture
        self.multiprocessors, self.shared_bytes_per_block = self.gpu.multiprocessors, self.gpu.shared_bytes_per_block
        self.choices = Choices(self.name)
        self.closed = False
        self.captured: list[memoryview] = []  # host memory that captured graphs read at each run, kept alive
        self.default_stream: GpuStream = GpuStream(self, 0)
        atexit.register(self._close)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Make the device's context current while the block runs; its calls end no capture of other streams."""
        with contexts.entered(self.driver, self.gpu.context), self.driver.relaxed():
            yield

    def _close(self) -> None:
        self.closed = True

    @contextlib.contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Enter the device's context, and convert the driver's errors in the block to DeviceError."""
        try:
            with self.entered():
                yield
        except DriverError as error:
            raise DeviceError(f"{action}: {error}") from error

    def allocate(self, nbytes: int) -> GpuMemory:
        check_range(1, nbytes)
        if nbytes >= 2**63:  # ctypes would pass the number modulo 2**64.
            raise DeviceError(f"allocating {nbytes} bytes: more than an address space holds")
        return GpuMemory(self, nbytes)

    def upload(self, address: int, data: Any, stream: Any = None) -> None:
        view = bytes_of(data)
        check_range(address, len(view))
        if view:
            with self.errors(f"uploading {len(view)} bytes to {address:#x}"):
                (stream or self.default_stream).upload(address, view)

    def download(self, address: int, nbytes: int, stream: Any = None) -> bytearray:
        check_range(address, nbytes)
        data = bytearray(nbytes)
        stream = stream or self.default_stream
        stream.require_waiting(f"downloading {nbytes} bytes from {address:#x}")
        with self.errors(f"downloading {nbytes} bytes from {address:#x}"):
            if nbytes:
                stream.download(data, address)
            stream.synchronize()
        return data

    def fill(self, address: int, nbytes: int, byte: int, stream: Any = None) -> None:
        check_range(address, nbytes)
        if nbytes:
            with self.errors(f"filling {nbytes} bytes at {address:#x}"):
                (stream or self.default_stream).fill(address, byte, nbytes)

    def copy(self, destination: int, source: int, nbytes: int, stream: Any = None) -> None:
        check_range(destination, nbytes, "destination")
        check_range(source, nbytes, "source")
        if nbytes:
            with self.errors(f"copying {nbytes} bytes from {source:#x} to {destination:#x}"):
                (stream or self.default_stream).copy(destination, source, nbytes)

    def new_stream(self) -> GpuStream:
        with self.errors("making a stream"):
            return OwnStream(self)

    def adopt_stream(self, handle: int) -> Stream:
        return GpuStream(self, handle) if handle else self.default_stream

    def synchronize(self) -> None:
        with self.errors("synchronizing the device"):
            self.driver.call("cuCtxSynchronize")

    def tensor_map(self, wanted: TensorMap, address: int) -> bytes:
        with self.errors(f"describing {wanted} at {address:#x}"):
            self.driver.require(tensor_maps.SIGNATURES)
            return tensor_maps.driver_map(self.driver, wanted, address)

    def _load_module(self, path: Path, content: bytes) -> LoadedModule:
        with self.errors(f"loading {path}"):
            return LoadedModule(self.driver, content)

    def _find(self, module: LoadedModule, kernel_name: str) -> GpuFunction:
        with self.errors(f"finding {kernel_name}"):
            return GpuFunction(self, module, kernel_name)
