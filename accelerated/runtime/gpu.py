"""A GPU as a device: PyCUDA has the context and makes streams, the driver (driver.py) does the rest.

Only this file touches PyCUDA. Work on a stream is asynchronous; its errors surface as DeviceError in a later
synchronize or download.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

from . import tensor_map as tensor_maps
from .device import (
    REMEMBERED_CONFIGURATIONS,
    Device,
    Dimensions,
    Function,
    LaunchShape,
    Memory,
    Starter,
    Stream,
    bytes_of,
    bytes_of_lone_block,
    check_range,
    reaches,
)
from .driver import (
    COOPERATIVE,
    MAX_DYNAMIC_SHARED_SIZE_BYTES,
    MAX_THREADS_PER_BLOCK,
    NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
    PROGRAMMATIC_STREAM_SERIALIZATION,
    SHARED_SIZE_BYTES,
    Configuration,
    Driver,
    DriverError,
    LoadedModule,
    configuration,
)
from .errors import DeviceError, DeviceUnavailable
from .tensor_map import TensorMap

REMEMBERED_STREAMS = 64  # of a launch


class _CurrentContext:
    """A context made current in one thread: PyCUDA aborts the process if a thread ends with a context on its stack."""

    def __init__(self, context: Any) -> None:
        context.push()
        self._pop: Callable[[], None] = context.pop

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the driver may be gone already
            self._pop()


class _ThreadState(threading.local):
    device: GpuDevice | None = None
    context: _CurrentContext | None = None


_thread = _ThreadState()


class GpuMemory(Memory):
    def __init__(self, device: GpuDevice, nbytes: int) -> None:
        self.nbytes, self._device = nbytes, device
        with device.errors(f"allocating {nbytes} bytes"):  # not by PyCUDA, whose other threads stand still meanwhile
            self.address = device.driver.allocate(max(nbytes, 1))

    def _release(self) -> None:
        if self._device.closed:  # the process ends, and its memory with it
            return
        with (
            contextlib.suppress(DeviceError),
            self._device.errors("freeing memory"),
        ):  # after a fault nothing can be freed
            self._device.driver.call("cuMemFree_v2", self.address)


class GpuStream(Stream):
    """A stream by its handle, which is whoever made it; 0 is the default stream. ``owner`` is kept alive with it.

    The driver serves it: PyCUDA cannot wrap another's stream.
    """

    device: GpuDevice

    def __init__(self, device: GpuDevice, handle: int, owner: Any = None) -> None:
        self.device, self.handle, self._owner = device, handle, owner

    def synchronize(self) -> None:
        with self.device.errors("synchronizing a stream"):
            self.device.driver.call("cuStreamSynchronize", self.handle)

    def done(self) -> bool:
        with self.device.errors("querying a stream"):
            return self.device.driver.stream_is_done(self.handle)

    def upload(self, address: int, data: memoryview) -> None:
        host = numpy.frombuffer(data, numpy.uint8).ctypes.data  # ctypes has no address of read-only memory
        self.device.driver.call("cuMemcpyHtoDAsync_v2", address, host, len(data), self.handle)

    def download(self, data: bytearray, address: int) -> None:
        host = (ctypes.c_ubyte * len(data)).from_buffer(data)
        self.device.driver.call("cuMemcpyDtoHAsync_v2", ctypes.addressof(host), address, len(data), self.handle)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.device.driver.call("cuMemsetD8Async", address, byte, nbytes, self.handle)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self.device.driver.call("cuMemcpyDtoDAsync_v2", destination, source, nbytes, self.handle)


class GpuFunction(Function):
    """A kernel of a module, launched through the driver, because PyCUDA's launches have no attributes."""

    OVERLAPPING_ARCHITECTURE = 90  # from which on kernels begin before earlier ones have finished

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
            raise KeyError(f"the module has no kernel {name}: {error}") from error
        self.fields = self._fields(names, struct.unpack(f"<{len(numbers) // 8}Q", numbers))
        self._content = ctypes.c_ubyte * self.argument_bytes
        self._overlaps = bool(waits) and reaches(device, self.OVERLAPPING_ARCHITECTURE)
        self.maximum_threads = self._kernel.attribute(MAX_THREADS_PER_BLOCK)
        self.static_shared_bytes = self._kernel.attribute(SHARED_SIZE_BYTES)
        self._kernel.set_attribute(
            MAX_DYNAMIC_SHARED_SIZE_BYTES, device.shared_bytes_per_block - self.static_shared_bytes
        )
        self._configurations: dict[tuple[LaunchShape, int], Configuration] = {}

    def _launch(self, arguments: bytes | bytearray, shape: LaunchShape, stream: Stream | None) -> None:
        device = self.device
        if _thread.device is not device:
            device.make_current()
        key = (shape, stream.handle if stream else 0)
        how = self._configurations.get(key)
        if how is None:
            how = self._configure(*key)
        if isinstance(arguments, bytes):  # which the driver cannot be given the address of
            arguments = bytearray(arguments)
        pointer = ctypes.c_void_p(ctypes.addressof(self._content.from_buffer(arguments)))
        try:
            self._kernel.launch(how, ctypes.addressof(pointer))
        except DriverError as error:
            raise self._not_launched(error, shape) from error

    def _not_launched(self, error: DriverError, shape: LaunchShape) -> DeviceError:
        described = " ".join(f"{name}={value}" for name, value in shape._asdict().items())
        return DeviceError(f"launching {self.name} with {described}: {error}")

    def starter(self, template: bytes, addresses: int, shape: LaunchShape) -> Starter:
        """With arguments that are laid out for the driver once: a launch writes the addresses into them."""
        self._check(len(template), shape)
        device, launch, content = self.device, self._kernel.launch, self._content
        pack = struct.Struct(f"{addresses}Q").pack_into
        configurations: dict[int, Configuration] = {}  # by stream
        free: list[
            tuple[Any, Any, int]
        ] = []  # arguments that no thread launches with: they, a pointer to them, and its address

        def start(found: Sequence[int], stream: Stream | None) -> None:
            if _thread.device is not device:
                device.make_current()
            handle = stream.handle if stream is not None else 0
            how = configurations.get(handle)
            if how is None:
                if len(configurations) >= REMEMBERED_STREAMS:
                    configurations.clear()
                how = configurations[handle] = self._configure(shape, handle)
            try:
                arguments = free.pop()
            except IndexError:
                made = content.from_buffer_copy(template)
                pointer = ctypes.c_void_p(ctypes.addressof(made))
                arguments = made, pointer, ctypes.addressof(pointer)
            pack(arguments[0], 0, *found)
            try:
                launch(how, arguments[2])
            except DriverError as error:
                raise self._not_launched(error, shape) from error
            free.append(arguments)  # of which the driver has a copy

        return start

    def _configure(self, shape: LaunchShape, stream: int) -> Configuration:
        grid, block, shared_bytes, cooperative = shape
        attributes = (COOPERATIVE,) * cooperative + (PROGRAMMATIC_STREAM_SERIALIZATION,) * self._overlaps
        if len(self._configurations) >= REMEMBERED_CONFIGURATIONS:
            self._configurations.clear()
        # Blocks that wait for each other do so through memory that belongs to one launch at a time.
        bytes_of_block = max(shared_bytes, bytes_of_lone_block(self.device)) if cooperative else shared_bytes
        made = configuration(grid, block, bytes_of_block, stream, attributes)
        self._configurations[shape, stream] = made
        return made

    def holds_clusters(self, grid: Dimensions, block: Dimensions, shared_bytes: int, clusters: int = 1) -> bool:
        try:
            self.device.make_current()
            self._kernel.set_attribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
            return self._kernel.active_clusters(configuration(grid, block, shared_bytes)) >= clusters
        except DriverError:
            return False


class GpuDevice(Device):
    kind = "gpu"

    def __init__(self, index: int) -> None:
        super().__init__()
        try:
            import pycuda.driver as cuda  # type: ignore[import-not-found, import-untyped, unused-ignore]
        except ImportError as error:
            message = f"PyCUDA cannot be imported ({error}); it needs the NVIDIA driver and: pip install pycuda"
            raise DeviceUnavailable(message) from error
        try:
            cuda.init()
            count = cuda.Device.count()
        except cuda.Error as error:
            raise DeviceUnavailable(f"the NVIDIA driver finds no GPU: {error}") from error
        if not 0 <= index < count:
            raise DeviceUnavailable(f"index={index}: the number of GPUs is {count}")
        self.cuda: Any = cuda
        try:
            self.driver = Driver()
        except (OSError, AttributeError) as error:
            raise DeviceUnavailable(f"the NVIDIA driver lacks a function, 11.8 or later is needed: {error}") from error
        self.closed = False
        gpu = cuda.Device(index)
        attributes = cuda.device_attribute
        self.name = gpu.name()
        self.architecture = "sm_{}{}".format(*gpu.compute_capability())
        self.multiprocessors = gpu.get_attribute(attributes.MULTIPROCESSOR_COUNT)
        self.shared_bytes_per_block = gpu.get_attribute(attributes.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        self._context = self._choose_context(gpu)
        self.default_stream: GpuStream = GpuStream(self, 0)
        self.make_current()
        atexit.register(self._close)

    def _choose_context(self, gpu: Any) -> Any:
        """The context the caller uses with PyCUDA on this GPU, so that its allocations fit; else the primary one."""
        current = self.cuda.Context.get_current()
        if current is not None and current.get_device() == gpu:
            return current
        return gpu.retain_primary_context()

    def make_current(self) -> None:
        """Makes the device's context current in the calling thread, once."""
        if _thread.device is not self:
            _thread.context = None  # leaves another device's context before this one is entered
            _thread.context = _CurrentContext(self._context)
            _thread.device = self

    def _close(self) -> None:
        self.closed = True
        if _thread.device is self:
            _thread.device = _thread.context = None

    @contextlib.contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Enters the device's context; the driver's errors in the block become DeviceError."""
        try:
            self.make_current()
            yield
        except (self.cuda.Error, DriverError) as error:
            raise DeviceError(f"{action}: {error}") from error

    def allocate(self, nbytes: int) -> GpuMemory:
        check_range(1, nbytes)
        if nbytes >= 2**63:  # the driver would take the number modulo 2**64
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
            stream = self.cuda.Stream()
            return GpuStream(self, stream.handle, stream)

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
