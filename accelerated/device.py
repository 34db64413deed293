"""The devices that kernels run on: a GPU through PyCUDA, or the emulated device on the CPU.

Only this file touches PyCUDA. Work on a stream of a GPU is asynchronous; its errors surface as DeviceError in a later
synchronize or download.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import math
import struct
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy

from . import tensor_maps
from .compiler import Definitions, Module, build, is_built, module
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
from .errors import CompileError, DeviceError, DeviceUnavailable
from .tensor_maps import TensorMap

__all__ = [
    "CompileError",
    "Device",
    "DeviceError",
    "DeviceUnavailable",
    "Function",
    "Memory",
    "Stream",
    "gpu_is_usable",
    "open_device",
]

MAXIMUM_GRID = (2**31 - 1, 65535, 65535)
MAXIMUM_BLOCK = (1024, 1024, 64)
REMEMBERED_CONFIGURATIONS = 4096

Dimensions = tuple[int, ...]


class Memory(ABC):
    """Device memory; freed with its last reference, or before that by free()."""

    address: int
    nbytes: int
    _freed = False

    def free(self) -> None:
        if self._freed:
            raise ValueError(f"the memory at {self.address:#x} ({self.nbytes} bytes) was freed already")
        self._freed = True
        self._release()

    @abstractmethod
    def _release(self) -> None: ...

    def __del__(self) -> None:
        if not self._freed and hasattr(self, "address"):
            self._freed = True
            self._release()


class Stream(ABC):
    """A queue of work, done in order."""

    handle: int
    device: Device

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for all work of the stream."""

    @abstractmethod
    def done(self) -> bool:
        """Whether all work of the stream has finished."""


class Function(ABC):
    """A compiled kernel. It takes one structure, passed as its bytes."""

    name: str
    device: Device
    argument_bytes: int
    maximum_threads: int
    static_shared_bytes: int

    def __init__(self) -> None:
        self._accepted: set[tuple[Dimensions, Dimensions, int]] = set()

    def launch(
        self,
        arguments: bytes | bytearray,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int = 0,
        stream: Stream | None = None,
        cooperative: bool = False,
    ) -> None:
        """cooperative: all blocks run at the same time, or the launch fails."""
        if len(arguments) != self.argument_bytes:
            raise TypeError(
                f"arguments: {self.name} takes a structure of {self.argument_bytes} bytes, not {len(arguments)}"
            )
        configuration = (grid, block, shared_bytes)
        if configuration not in self._accepted:
            self._accept(configuration)
        self._launch(arguments, grid, block, shared_bytes, stream, cooperative)

    def holds_clusters(self, grid: Dimensions, block: Dimensions, shared_bytes: int) -> bool:
        """Whether the device has room for the clusters of this kernel, which may be larger than every GPU allows.

        They can be launched from then on.
        """
        return False

    @abstractmethod
    def _launch(
        self,
        arguments: bytes | bytearray,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        stream: Stream | None,
        cooperative: bool,
    ) -> None: ...

    def _accept(self, configuration: tuple[Dimensions, Dimensions, int]) -> None:
        """Checks a launch configuration; it is remembered, so each is checked once."""
        grid, block, shared_bytes = configuration
        for name, sizes, limits in (("grid", grid, MAXIMUM_GRID), ("block", block, MAXIMUM_BLOCK)):
            if not 1 <= len(sizes) <= 3:
                raise ValueError(f"{name}={sizes} of {self.name}: expected 1 to 3 sizes")
            for size, limit in zip(sizes, limits, strict=False):
                if not 1 <= size <= limit:
                    raise ValueError(f"{name}={sizes} of {self.name}: sizes are 1 to {limits[: len(sizes)]}")
        threads = math.prod(block)
        if threads > self.maximum_threads:
            raise ValueError(
                f"block={block} of {self.name}: {threads} threads, at most {self.maximum_threads} are possible"
            )
        available = self.device.shared_bytes_per_block - self.static_shared_bytes
        if not 0 <= shared_bytes <= available:
            raise ValueError(f"shared_bytes={shared_bytes} of {self.name}: 0 to {available} are possible")
        if len(self._accepted) >= REMEMBERED_CONFIGURATIONS:
            self._accepted.clear()
        self._accepted.add(configuration)


class Device(ABC):
    """Where memory lies and kernels run."""

    name: str
    kind: str
    architecture: str
    multiprocessors: int
    shared_bytes_per_block: int
    default_stream: Stream
    compiles_in_background = True  # for whoever has another kernel meanwhile

    def __init__(self) -> None:
        self._background: dict[tuple[str | Path, Definitions], threading.Thread] = {}
        self._functions: dict[tuple[str | Path, str, Definitions], Function] = {}
        self._modules: dict[tuple[str | Path, Definitions], Any] = {}
        self._finding = threading.Lock()
        self._compiling: dict[tuple[str | Path, Definitions], threading.Lock] = {}

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """New memory, of undefined content."""

    @abstractmethod
    def upload(self, address: int, data: Any, stream: Stream | None = None) -> None:
        """Copies bytes-like data to the device. Pinned memory must stay unchanged until the stream has come by."""

    @abstractmethod
    def download(self, address: int, nbytes: int, stream: Stream | None = None) -> bytearray:
        """A copy of device memory, after the work of the stream."""

    @abstractmethod
    def fill(self, address: int, nbytes: int, byte: int, stream: Stream | None = None) -> None: ...

    @abstractmethod
    def copy(self, destination: int, source: int, nbytes: int, stream: Stream | None = None) -> None:
        """Copies within the device; the ranges do not overlap."""

    @abstractmethod
    def new_stream(self) -> Stream: ...

    @abstractmethod
    def adopt_stream(self, handle: int) -> Stream:
        """A stream that somebody else made and destroys."""

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for all work of all streams."""

    @abstractmethod
    def tensor_map(self, wanted: TensorMap, address: int) -> bytes:
        """The description of a tensor at an address for the copy engine of compute capability 9.0."""

    def function(self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()) -> Function:
        """A kernel of a source, a file name in accelerated/kernels or an absolute path, under definitions of macros."""
        key = (source_name, kernel_name, definitions)
        if found := self._functions.get(key):
            return found
        wanted = (source_name, definitions)
        with self._finding:
            compiling = self._compiling.setdefault(wanted, threading.Lock())
        with compiling:  # whoever needs another module does not wait
            if wanted not in self._modules:
                self._modules[wanted] = self._load(source_name, definitions)
            if key not in self._functions:
                self._functions[key] = self._find(self._modules[wanted], kernel_name)
        return self._functions[key]

    def function_when_ready(
        self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()
    ) -> Function | None:
        """As function(), but None while its module is compiled in the background, which the first call begins."""
        wanted = (source_name, definitions)
        with self._finding:
            compiling = self._background.get(wanted)
            if compiling is None and self.compiles_in_background and wanted not in self._modules:
                item = module(source_name, definitions)
                if not is_built(item, self.architecture):
                    compiling = threading.Thread(target=self._build_quietly, args=(item,), daemon=True)
                    self._background[wanted] = compiling
                    compiling.start()
        if compiling is not None and compiling.is_alive():
            return None
        return self.function(source_name, kernel_name, definitions)

    def _build_quietly(self, item: Module) -> None:
        with contextlib.suppress(CompileError, DeviceUnavailable):  # function() reports it
            build(item, self.architecture)

    def _load(self, source_name: str | Path, definitions: Definitions) -> Any:
        """Builds and loads a module; a cached file that does not load is compiled again, once."""
        wanted = module(source_name, definitions)
        path, content = build(wanted, self.architecture)
        try:
            return self._load_module(path, content)
        except DeviceError:
            return self._load_module(*build(wanted, self.architecture, rebuild=True))

    @abstractmethod
    def _load_module(self, path: Path, content: bytes) -> Any: ...

    @abstractmethod
    def _find(self, module: Any, kernel_name: str) -> Function: ...


def bytes_of(data: Any) -> memoryview:
    """The bytes of a bytes-like object."""
    view = memoryview(data)
    if not view.nbytes:
        return memoryview(b"")
    if not view.c_contiguous:
        raise ValueError(f"data: shape {view.shape} with strides {view.strides} is not C-contiguous")
    return view.cast("B")


def check_range(address: int, nbytes: int, name: str = "address") -> None:
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes}: expected 0 or more")
    if address <= 0 and nbytes:
        raise ValueError(f"{name}={address} is no device address")


# The GPU


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
        with device.errors(f"allocating {nbytes} bytes"):
            self._allocation = device.cuda.mem_alloc(max(nbytes, 1))
        self.address = int(self._allocation)

    def _release(self) -> None:
        if self._device.closed:  # the process ends, and its memory with it
            return
        with (
            contextlib.suppress(DeviceError),
            self._device.errors("freeing memory"),
        ):  # after a fault nothing can be freed
            self._allocation.free()


class GpuStream(Stream):
    """A stream of PyCUDA's."""

    device: GpuDevice

    def __init__(self, device: GpuDevice, stream: Any) -> None:
        self.device, self.stream, self.handle = device, stream, stream.handle

    def synchronize(self) -> None:
        with self.device.errors("synchronizing a stream"):
            self.stream.synchronize()

    def done(self) -> bool:
        with self.device.errors("querying a stream"):
            return bool(self.stream.is_done())

    def upload(self, address: int, data: memoryview) -> None:
        self.device.cuda.memcpy_htod_async(address, data, self.stream)

    def download(self, data: bytearray, address: int) -> None:
        self.device.cuda.memcpy_dtoh_async(data, address, self.stream)

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self.device.cuda.memset_d8_async(address, byte, nbytes, self.stream)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self.device.cuda.memcpy_dtod_async(destination, source, nbytes, self.stream)


class ForeignStream(Stream):
    """A stream that PyCUDA did not make and cannot wrap: the driver itself serves it. 0 is the default stream."""

    device: GpuDevice

    def __init__(self, device: GpuDevice, handle: int) -> None:
        self.device, self.handle = device, handle

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
        except DriverError as error:
            raise KeyError(f"the module has no kernel {name}: {error}") from error
        self._content = ctypes.c_ubyte * self.argument_bytes
        self._overlaps = bool(waits) and int(device.architecture.removeprefix("sm_")) >= self.OVERLAPPING_ARCHITECTURE
        self.maximum_threads = self._kernel.attribute(MAX_THREADS_PER_BLOCK)
        self.static_shared_bytes = self._kernel.attribute(SHARED_SIZE_BYTES)
        self._kernel.set_attribute(
            MAX_DYNAMIC_SHARED_SIZE_BYTES, device.shared_bytes_per_block - self.static_shared_bytes
        )
        self._configurations: dict[tuple[Any, ...], Configuration] = {}

    def _launch(
        self,
        arguments: bytes | bytearray,
        grid: Dimensions,
        block: Dimensions,
        shared_bytes: int,
        stream: Stream | None,
        cooperative: bool,
    ) -> None:
        device = self.device
        if _thread.device is not device:
            device.make_current()
        key = (grid, block, shared_bytes, stream.handle if stream else 0, cooperative)
        how = self._configurations.get(key)
        if how is None:
            how = self._configure(*key)
        if isinstance(arguments, bytes):  # which the driver cannot be given the address of
            arguments = bytearray(arguments)
        try:
            self._kernel.launch(how, ctypes.addressof(self._content.from_buffer(arguments)))
        except DriverError as error:
            configuration = f"grid={grid} block={block} shared_bytes={shared_bytes} cooperative={cooperative}"
            raise DeviceError(f"launching {self.name} with {configuration}: {error}") from error

    def _configure(
        self, grid: Dimensions, block: Dimensions, shared_bytes: int, stream: int, cooperative: bool
    ) -> Configuration:
        attributes = (COOPERATIVE,) * cooperative + (PROGRAMMATIC_STREAM_SERIALIZATION,) * self._overlaps
        if len(self._configurations) >= REMEMBERED_CONFIGURATIONS:
            self._configurations.clear()
        made = configuration(grid, block, shared_bytes, stream, attributes)
        self._configurations[grid, block, shared_bytes, stream, cooperative] = made
        return made

    def holds_clusters(self, grid: Dimensions, block: Dimensions, shared_bytes: int) -> bool:
        try:
            self.device.make_current()
            self._kernel.set_attribute(NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
            return self._kernel.active_clusters(configuration(grid, block, shared_bytes)) > 0
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
        self.default_stream: ForeignStream = ForeignStream(self, 0)
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
            return GpuStream(self, self.cuda.Stream())

    def adopt_stream(self, handle: int) -> Stream:
        return ForeignStream(self, handle) if handle else self.default_stream

    def synchronize(self) -> None:
        with self.errors("synchronizing the device"):
            self.cuda.Context.synchronize()

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


_opening = threading.Lock()
_devices: dict[tuple[str, int], Device] = {}


def open_device(kind: str, index: int = 0) -> Device:
    """The device, the same object each time. DeviceUnavailable says what is missing."""
    if kind not in ("gpu", "emulated"):
        raise ValueError(f"kind={kind!r}: expected 'gpu' or 'emulated'")
    with _opening:
        if (kind, index) not in _devices:
            _devices[kind, index] = GpuDevice(index) if kind == "gpu" else _emulated_device(index)
        return _devices[kind, index]


def _emulated_device(index: int) -> Device:
    from .emulated import EmulatedDevice

    return EmulatedDevice(index)


def gpu_is_usable() -> bool:
    """Whether open_device("gpu") works here."""
    try:
        open_device("gpu")
    except DeviceUnavailable:
        return False
    return True
