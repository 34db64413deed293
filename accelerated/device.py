"""The devices that kernels run on: a GPU through PyCUDA, or the emulated device on the CPU.

Only this file touches PyCUDA. Work on a stream of a GPU is asynchronous; its errors surface as DeviceError in a later
synchronize or download.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .compiler import CompileError, Definitions, DeviceUnavailable, build, module

__all__ = [
    "CompileError", "Device", "DeviceError", "DeviceUnavailable", "Function", "Memory", "Stream", "gpu_is_usable", "open_device",
]  # fmt: skip

MAXIMUM_GRID = (2**31 - 1, 65535, 65535)
MAXIMUM_BLOCK = (1024, 1024, 64)
MAXIMUM_BLOCK_THREADS = 1024
REMEMBERED_CONFIGURATIONS = 4096

Dimensions = tuple[int, ...]


class DeviceError(RuntimeError):
    """A kernel, a copy or an allocation failed on the device."""


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
    ) -> None:
        if len(arguments) != self.argument_bytes:
            raise TypeError(f"arguments: {self.name} takes a structure of {self.argument_bytes} bytes, not {len(arguments)}")
        configuration = (grid, block, shared_bytes)
        if configuration not in self._accepted:
            self._accept(configuration)
        self._launch(arguments, grid, block, shared_bytes, stream)

    @abstractmethod
    def _launch(
        self, arguments: bytes | bytearray, grid: Dimensions, block: Dimensions, shared_bytes: int, stream: Stream | None
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
        threads = functools.reduce(int.__mul__, map(int, block))
        if threads > self.maximum_threads:
            raise ValueError(f"block={block} of {self.name}: {threads} threads, at most {self.maximum_threads} are possible")
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

    def __init__(self) -> None:
        self._functions: dict[tuple[str | Path, str, Definitions], Function] = {}
        self._modules: dict[tuple[str | Path, Definitions], Any] = {}
        self._compiling = threading.Lock()

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """New memory, of undefined content."""

    @abstractmethod
    def upload(self, address: int, data: Any, stream: Stream | None = None) -> None:
        """Copies bytes-like data to the device. Data in pinned memory must stay unchanged until the stream has come by."""

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

    def function(self, source_name: str | Path, kernel_name: str, definitions: Definitions = ()) -> Function:
        """The kernel of a source (a file name in accelerated/kernels, or an absolute path) under preprocessor definitions."""
        key = (source_name, kernel_name, definitions)
        if found := self._functions.get(key):
            return found
        with self._compiling:
            if (source_name, definitions) not in self._modules:
                self._modules[source_name, definitions] = self._load(source_name, definitions)
            if key not in self._functions:
                self._functions[key] = self._find(self._modules[source_name, definitions], kernel_name)
        return self._functions[key]

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


def checked_bytes(data: Any) -> memoryview:
    """The bytes of a bytes-like object."""
    view = memoryview(data)
    if not view.nbytes:
        return memoryview(b"")
    if not view.c_contiguous:
        raise ValueError(f"data: shape {view.shape} with strides {view.strides} is not C-contiguous")
    return view.cast("B")


def checked_range(address: int, nbytes: int, name: str = "address") -> None:
    if nbytes < 0:
        raise ValueError(f"nbytes={nbytes}: expected 0 or more")
    if address <= 0 and nbytes:
        raise ValueError(f"{name}={address} is no device address")


# The GPU


class _ThreadState(threading.local):
    current: GpuDevice | None = None
    context: _CurrentContext | None = None


_thread = _ThreadState()


class _CurrentContext:
    """A context made current in one thread. PyCUDA aborts the process when a thread ends with a context on its stack."""

    def __init__(self, context: Any) -> None:
        context.push()
        self.pop: Callable[[], None] = context.pop

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the driver may be gone already
            self.pop()


@contextlib.contextmanager
def _driver_errors(action: str) -> Iterator[None]:
    import pycuda.driver as cuda

    try:
        yield
    except cuda.Error as error:
        raise DeviceError(f"{action}: {error}") from error


class GpuMemory(Memory):
    def __init__(self, device: GpuDevice, nbytes: int) -> None:
        self.nbytes = nbytes
        self._device = device
        with _driver_errors(f"allocating {nbytes} bytes"):
            self._allocation = device.cuda.mem_alloc(max(nbytes, 1))
        self.address = int(self._allocation)

    def _release(self) -> None:
        with contextlib.suppress(DeviceError):  # a failed kernel has taken the context with it
            self._device.make_current()
            with _driver_errors("freeing memory"):
                self._allocation.free()


class GpuStream(Stream):
    """A stream of PyCUDA; None is the default stream."""

    def __init__(self, device: GpuDevice, stream: Any) -> None:
        self.device, self.stream = device, stream
        self.handle = stream.handle if stream is not None else 0

    def synchronize(self) -> None:
        device = self.device
        device.make_current()
        with _driver_errors("synchronizing a stream"):
            if self.stream is None:
                device.driver.call("cuStreamSynchronize", ctypes.c_void_p(0))
            else:
                self.stream.synchronize()

    def done(self) -> bool:
        self.device.make_current()
        if self.stream is None:
            return self.device.driver.stream_is_done(0)
        with _driver_errors("querying a stream"):
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
    """A stream that PyCUDA did not make. PyCUDA cannot wrap one, so the driver's own functions serve it."""

    def __init__(self, device: GpuDevice, handle: int) -> None:
        self.device, self.handle = device, handle

    def synchronize(self) -> None:
        self.device.make_current()
        self.device.driver.call("cuStreamSynchronize", ctypes.c_void_p(self.handle))

    def done(self) -> bool:
        self.device.make_current()
        return self.device.driver.stream_is_done(self.handle)

    def upload(self, address: int, data: memoryview) -> None:
        # from_buffer refuses read-only memory, and PyCUDA has no address of a buffer: NumPy has.
        import numpy

        host = numpy.frombuffer(data, numpy.uint8).ctypes.data
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(host), len(data))

    def download(self, data: bytearray, address: int) -> None:
        host = (ctypes.c_char * len(data)).from_buffer(data)
        self._copy("cuMemcpyDtoHAsync_v2", ctypes.byref(host), ctypes.c_uint64(address), len(data))

    def fill(self, address: int, byte: int, nbytes: int) -> None:
        self._copy("cuMemsetD8Async", ctypes.c_uint64(address), ctypes.c_ubyte(byte), nbytes)

    def copy(self, destination: int, source: int, nbytes: int) -> None:
        self._copy("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(destination), ctypes.c_uint64(source), nbytes)

    def _copy(self, name: str, first: Any, second: Any, nbytes: int) -> None:
        self.device.driver.call(name, first, second, ctypes.c_size_t(nbytes), ctypes.c_void_p(self.handle))


class _Driver:
    """The few functions of the CUDA driver that PyCUDA does not offer."""

    NOT_READY = 600

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")

    def call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self.library, name)(*arguments):
            raise DeviceError(f"{name}: {self.error_name(code)}")

    def error_name(self, code: int) -> str:
        text = ctypes.c_char_p()
        self.library.cuGetErrorName(code, ctypes.byref(text))
        return (text.value or b"unknown error").decode() + f" ({code})"

    def stream_is_done(self, handle: int) -> bool:
        code = self.library.cuStreamQuery(ctypes.c_void_p(handle))
        if code not in (0, self.NOT_READY):
            raise DeviceError(f"cuStreamQuery: {self.error_name(code)}")
        return bool(code == 0)

    def launcher(self, image: bytes, kernel_name: str) -> Callable[..., None]:
        """Launches a kernel on a stream given by its handle; the kernel is loaded a second time for that."""
        handle, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(handle), image)
        self.call("cuModuleGetFunction", ctypes.byref(function), handle, kernel_name.encode())

        def launch(arguments: bytes | bytearray, grid: Dimensions, block: Dimensions, shared_bytes: int, stream: int) -> None:
            size = ctypes.c_size_t(len(arguments))
            buffer = ctypes.create_string_buffer(bytes(arguments), len(arguments))
            # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END
            extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
            sizes = [ctypes.c_uint(size) for size in (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3], shared_bytes)]
            self.call("cuLaunchKernel", function, *sizes, ctypes.c_void_p(stream), None, extra)

        def raise_shared_limit(shared_bytes: int) -> None:
            self.call("cuFuncSetAttribute", function, ctypes.c_int(8), ctypes.c_int(shared_bytes))

        launch.raise_shared_limit = raise_shared_limit  # type: ignore[attr-defined]
        return launch


class GpuFunction(Function):
    DEFAULT_SHARED_BYTES = 48 * 1024  # more has to be asked for

    def __init__(self, device: GpuDevice, loaded: Any, image: bytes, name: str) -> None:
        super().__init__()
        self.device, self.name, self._image = device, name, image
        cuda = device.cuda
        try:
            self.function = loaded.get_function(name)
            address, nbytes = loaded.get_global(f"argument_bytes_{name}")
        except cuda.LogicError as error:
            raise KeyError(f"the module has no kernel {name}: {error}") from error
        size = bytearray(nbytes)
        cuda.memcpy_dtoh(size, address)
        attributes = cuda.function_attribute
        self.argument_bytes = int.from_bytes(size, "little")
        self.maximum_threads = self.function.get_attribute(attributes.MAX_THREADS_PER_BLOCK)
        self.static_shared_bytes = self.function.get_attribute(attributes.SHARED_SIZE_BYTES)
        self._shared_limit = self.DEFAULT_SHARED_BYTES - self.static_shared_bytes
        self._launch_kernel = self.function._launch_kernel
        self._foreign: Callable[..., None] | None = None

    def _accept(self, configuration: tuple[Dimensions, Dimensions, int]) -> None:
        super()._accept(configuration)
        if configuration[2] > self._shared_limit:
            self.device.make_current()
            with _driver_errors(f"{self.name}: raising the limit of shared memory to {configuration[2]} bytes"):
                attribute = self.device.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
                self.function.set_attribute(attribute, configuration[2])
            self._shared_limit = configuration[2]

    def _launch(
        self, arguments: bytes | bytearray, grid: Dimensions, block: Dimensions, shared_bytes: int, stream: Any
    ) -> None:
        device = self.device
        if _thread.current is not device:
            device.make_current()
        try:
            if stream is None:
                self._launch_kernel(grid, block, arguments, shared_bytes, None)
            elif type(stream) is GpuStream:
                self._launch_kernel(grid, block, arguments, shared_bytes, stream.stream)
            else:
                self._launch_foreign(arguments, grid, block, shared_bytes, stream.handle)
        except device.cuda.Error as error:
            raise DeviceError(f"launching {self.name} with grid={grid} block={block} shared_bytes={shared_bytes}: {error}") from error

    def _launch_foreign(
        self, arguments: bytes | bytearray, grid: Dimensions, block: Dimensions, shared_bytes: int, handle: int
    ) -> None:
        if self._foreign is None:
            self._foreign = self.device.driver.launcher(self._image, self.name)
            self._foreign.raise_shared_limit(max(0, self.device.shared_bytes_per_block - self.static_shared_bytes))  # type: ignore[attr-defined]
        self._foreign(arguments, grid, block, shared_bytes, handle)


class GpuDevice(Device):
    kind = "gpu"

    def __init__(self, index: int) -> None:
        super().__init__()
        try:
            import pycuda.driver as cuda
        except ImportError as error:
            raise DeviceUnavailable(f"PyCUDA cannot be imported ({error}); it needs the NVIDIA driver and: pip install pycuda") from error
        try:
            cuda.init()
            count = cuda.Device.count()
        except cuda.Error as error:
            raise DeviceUnavailable(f"the NVIDIA driver finds no GPU: {error}") from error
        if not 0 <= index < count:
            raise DeviceUnavailable(f"index={index}: there are {count} GPUs")
        self.cuda: Any = cuda
        self.driver = _Driver()
        gpu = cuda.Device(index)
        attributes = cuda.device_attribute
        self.name = gpu.name()
        self.architecture = "sm_{}{}".format(*gpu.compute_capability())
        self.multiprocessors = gpu.get_attribute(attributes.MULTIPROCESSOR_COUNT)
        self.shared_bytes_per_block = gpu.get_attribute(attributes.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        self.context = self._context(gpu)
        self.make_current()
        self.default_stream = GpuStream(self, None)
        atexit.register(self._leave)

    def _context(self, gpu: Any) -> Any:
        """The context the caller uses with PyCUDA on this GPU, so that its allocations can be operands; else the primary one."""
        current = self.cuda.Context.get_current()
        if current is not None and current.get_device() == gpu:
            return current
        return gpu.retain_primary_context()

    def make_current(self) -> None:
        """Makes the device's context current in the calling thread, once."""
        if _thread.current is not self:
            _thread.context = _CurrentContext(self.context)
            _thread.current = self

    def _leave(self) -> None:
        if _thread.current is self:
            _thread.current = _thread.context = None

    def allocate(self, nbytes: int) -> GpuMemory:
        checked_range(1, nbytes)
        self.make_current()
        return GpuMemory(self, nbytes)

    def upload(self, address: int, data: Any, stream: Any = None) -> None:
        view = checked_bytes(data)
        checked_range(address, len(view))
        if view:
            self.make_current()
            with _driver_errors(f"uploading {len(view)} bytes to {address:#x}"):
                (stream or self.default_stream).upload(address, view)

    def download(self, address: int, nbytes: int, stream: Any = None) -> bytearray:
        checked_range(address, nbytes)
        data = bytearray(nbytes)
        stream = stream or self.default_stream
        self.make_current()
        with _driver_errors(f"downloading {nbytes} bytes from {address:#x}"):
            if nbytes:
                stream.download(data, address)
            stream.synchronize()
        return data

    def fill(self, address: int, nbytes: int, byte: int, stream: Any = None) -> None:
        checked_range(address, nbytes)
        if nbytes:
            self.make_current()
            with _driver_errors(f"filling {nbytes} bytes at {address:#x}"):
                (stream or self.default_stream).fill(address, byte, nbytes)

    def copy(self, destination: int, source: int, nbytes: int, stream: Any = None) -> None:
        checked_range(destination, nbytes, "destination")
        checked_range(source, nbytes, "source")
        if nbytes:
            self.make_current()
            with _driver_errors(f"copying {nbytes} bytes from {source:#x} to {destination:#x}"):
                (stream or self.default_stream).copy(destination, source, nbytes)

    def new_stream(self) -> GpuStream:
        self.make_current()
        with _driver_errors("making a stream"):
            return GpuStream(self, self.cuda.Stream())

    def adopt_stream(self, handle: int) -> Stream:
        return ForeignStream(self, handle) if handle else self.default_stream

    def synchronize(self) -> None:
        self.make_current()
        with _driver_errors("synchronizing the device"):
            self.cuda.Context.synchronize()

    def _load_module(self, path: Path, content: bytes) -> tuple[Any, bytes]:
        self.make_current()
        with _driver_errors(f"loading {path}"):
            return self.cuda.module_from_buffer(content), content

    def _find(self, module: tuple[Any, bytes], kernel_name: str) -> GpuFunction:
        self.make_current()
        return GpuFunction(self, *module, kernel_name)


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
