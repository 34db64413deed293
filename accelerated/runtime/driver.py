"""Calls the CUDA driver through ctypes: contexts, streams, memory, modules and launches.

PyCUDA only describes the GPU (contexts.py), because it lacks launch attributes and holds the GIL while it allocates.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

SUCCESS = 0
NOT_FOUND = 500
NOT_READY = 600
# These are values of CUfunction_attribute.
MAX_THREADS_PER_BLOCK = 0
SHARED_SIZE_BYTES = 1
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
# These are values of CUlaunchAttributeID.
COOPERATIVE = 2
PROGRAMMATIC_STREAM_SERIALIZATION = 6
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING, a stream without implicit synchronization with the default stream
CAPTURE_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED, the thread's calls end no capture of other streams

_POINTER, _ADDRESS, _SIZE, _INT, _UINT = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
_SIGNATURES = {
    "cuGetErrorName": (_INT, _POINTER),
    "cuGetErrorString": (_INT, _POINTER),
    "cuModuleLoadData": (_POINTER, ctypes.c_char_p),
    "cuModuleGetFunction": (_POINTER, _POINTER, ctypes.c_char_p),
    "cuModuleGetGlobal_v2": (_POINTER, _POINTER, _POINTER, ctypes.c_char_p),
    "cuFuncGetAttribute": (_POINTER, _INT, _POINTER),
    "cuFuncSetAttribute": (_POINTER, _INT, _INT),
    "cuLaunchKernelEx": (_POINTER, _POINTER, _POINTER, _POINTER),
    "cuOccupancyMaxActiveClusters": (_POINTER, _POINTER, _POINTER),
    "cuMemAlloc_v2": (_POINTER, _SIZE),
    "cuMemFree_v2": (_ADDRESS,),
    "cuInit": (_UINT,),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, _INT),
    "cuDeviceGetName": (_POINTER, _INT, _INT),
    "cuDeviceGetAttribute": (_POINTER, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuCtxGetCurrent": (_POINTER,),
    "cuCtxGetDevice": (_POINTER,),
    "cuCtxSetCurrent": (_POINTER,),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuCtxSynchronize": (),
    "cuStreamCreate": (_POINTER, _UINT),
    "cuStreamDestroy_v2": (_POINTER,),
    "cuStreamSynchronize": (_POINTER,),
    "cuStreamQuery": (_POINTER,),
    "cuStreamGetCaptureInfo_v2": (_POINTER,) * 6,
    "cuThreadExchangeStreamCaptureMode": (_POINTER,),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, _SIZE, _POINTER),
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, _SIZE, _POINTER),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _POINTER),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _SIZE, _POINTER),
}


class DriverError(RuntimeError):
    """Report that the driver refused a call, or that earlier work failed. code: the driver's result."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Driver:
    """Load the CUDA driver's library and call it in the current context."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.functions: dict[str, Any] = {}
        self.require(_SIGNATURES)

    def require(self, signatures: Mapping[str, tuple[Any, ...]]) -> None:
        """Make functions callable. signatures: argument types by name. Raises AttributeError for a missing function."""
        for name, types in signatures.items():
            if name not in self.functions:
                function = getattr(self.library, name)
                function.argtypes = types
                self.functions[name] = function

    def call(self, name: str, *arguments: object) -> None:
        if code := self.functions[name](*arguments):
            raise self.error(name, code)

    def number(self, name: str, *arguments: object) -> int:
        """Return the integer that a function stores through its first argument."""
        stored = _INT()
        self.call(name, ctypes.byref(stored), *arguments)
        return stored.value

    def current_context(self) -> int:
        """Return the handle of the calling thread's context; 0 without a context."""
        handle = _POINTER()
        self.call("cuCtxGetCurrent", ctypes.byref(handle))
        return handle.value or 0

    def allocate(self, nbytes: int) -> int:
        """Return the address of new device memory of ``nbytes`` bytes."""
        address = _ADDRESS()
        self.call("cuMemAlloc_v2", ctypes.byref(address), nbytes)
        return address.value

    def stream_is_done(self, handle: int) -> bool:
        code = self.functions["cuStreamQuery"](handle)
        if code not in (SUCCESS, NOT_READY):
            raise self.error("cuStreamQuery", code)
        return bool(code == SUCCESS)

    def capture(self, stream: int) -> int:
        """Return the number of a stream's graph capture; 0 where the stream is not capturing."""
        status, number = _INT(), ctypes.c_uint64()
        self.call("cuStreamGetCaptureInfo_v2", stream, ctypes.byref(status), ctypes.byref(number), None, None, None)
        return number.value if status.value else 0

    @contextlib.contextmanager
    def relaxed(self) -> Iterator[None]:
        """Let the calling thread allocate, free and load modules within the block although a stream is capturing."""
        mode = _INT(CAPTURE_RELAXED)
        self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def read(self, address: int, nbytes: int) -> bytearray:
        """Return bytes of device memory, copied on a new non-blocking stream.

        The default stream would wait for other streams, and waiting for a capturing stream is an error.
        """
        data, stream = bytearray(nbytes), _POINTER()
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        try:
            target = (ctypes.c_ubyte * nbytes).from_buffer(data)
            self.call("cuMemcpyDtoHAsync_v2", ctypes.addressof(target), address, nbytes, stream)
            self.call("cuStreamSynchronize", stream)
        finally:
            self.call("cuStreamDestroy_v2", stream)
        return data

    def error(self, name: str, code: int) -> DriverError:
        """Return the exception that describes a function's result code."""
        texts = ctypes.c_char_p(), ctypes.c_char_p()
        for describe, text in zip(("cuGetErrorName", "cuGetErrorString"), texts, strict=True):
            self.functions[describe](code, ctypes.byref(text))
        error, meaning = ((text.value or b"unknown").decode() for text in texts)
        return DriverError(f"{name}: {meaning} ({error}, {code})", code)


class _Attribute(ctypes.Structure):
    """Lay out a CUlaunchAttribute whose value is an integer."""

    _fields_ = [("name", _INT), ("padding", _INT), ("value", _INT), ("rest", _INT * 15)]


_Sizes = _UINT * 3  # ctypes makes this type anew while the interpreter ends, so both uses share one.


class _Configuration(ctypes.Structure):
    """Lay out a CUlaunchConfig."""

    _fields_ = [
        ("grid", _Sizes),
        ("block", _Sizes),
        ("shared_bytes", _UINT),
        ("stream", _POINTER),
        ("attributes", _POINTER),
        ("attribute_count", _UINT),
    ]


class Configuration(NamedTuple):
    """Hold the address of a launch configuration, and keep the memory that it points to alive."""

    address: int
    kept: tuple[Any, ...]


def configuration(
    grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int, stream: int = 0, attributes: tuple[int, ...] = ()
) -> Configuration:
    """Return a launch configuration. attributes: the numbers of the launch attributes that are set to 1."""
    sizes = [_Sizes(*(*size, 1, 1)[:3]) for size in (grid, block)]
    listed = (_Attribute * len(attributes))(*(_Attribute(name, 0, 1) for name in attributes))
    where = ctypes.addressof(listed) if attributes else None
    made = _Configuration(*sizes, shared_bytes, stream or None, where, len(attributes))
    return Configuration(ctypes.addressof(made), (made, listed))


class LoadedModule:
    """Hold a compiled module, loaded into the current context; it is never unloaded."""

    def __init__(self, driver: Driver, image: bytes) -> None:
        self.driver, self._handle = driver, ctypes.c_void_p()
        driver.call("cuModuleLoadData", ctypes.byref(self._handle), image)

    def kernel(self, name: str) -> LoadedKernel:
        handle = ctypes.c_void_p()
        self.driver.call("cuModuleGetFunction", ctypes.byref(handle), self._handle, name.encode())
        return LoadedKernel(self.driver, handle)

    def content(self, name: str) -> bytearray:
        """Return the bytes of a global variable of the module."""
        address, nbytes = _ADDRESS(), _SIZE()
        self.driver.call(
            "cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(nbytes), self._handle, name.encode()
        )
        return self.driver.read(address.value, nbytes.value)


class LoadedKernel:
    """Represent a kernel of a loaded module."""

    def __init__(self, driver: Driver, handle: ctypes.c_void_p) -> None:
        self.driver, self.handle = driver, handle.value
        self.start = driver.functions["cuLaunchKernelEx"]

    def attribute(self, number: int) -> int:
        value = ctypes.c_int()
        self.driver.call("cuFuncGetAttribute", ctypes.byref(value), number, self.handle)
        return value.value

    def set_attribute(self, number: int, value: int) -> None:
        self.driver.call("cuFuncSetAttribute", self.handle, number, value)

    def active_clusters(self, how: Configuration) -> int:
        """Return the number of the kernel's clusters that the device can run at a time."""
        count = ctypes.c_int()
        self.driver.call("cuOccupancyMaxActiveClusters", ctypes.byref(count), self.handle, how.address)
        return count.value

    def launch(self, how: Configuration, parameters: Any) -> None:
        """Launch the kernel. parameters: a pointer to the pointer to its one argument. Raises DriverError."""
        if code := self.start(how.address, self.handle, parameters, None):
            raise self.driver.error("cuLaunchKernelEx", code)
