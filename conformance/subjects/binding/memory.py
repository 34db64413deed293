"""Provide GPU memory and streams for a library under test, through the driver alone (libcuda.so.1, primary context)."""

from __future__ import annotations

import ctypes
import itertools
import weakref
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

COMPUTE_CAPABILITY_MAJOR = 75  # CUdevice_attribute
COMPUTE_CAPABILITY_MINOR = 76
STREAM_NON_BLOCKING = 1
INVALID_VALUE = 1  # CUresult
OUT_OF_MEMORY = 2  # CUresult
ALIGNMENT = 256  # bytes, alignment of allocations


class CudaUnavailable(RuntimeError):
    """Say that there is no usable driver or GPU."""


class CudaError(RuntimeError):
    """Report a failed driver call. Asynchronous faults of earlier work show up here too."""


class Buffer:
    """Hold device memory: an allocation that is freed with the object, or a part of ``whole``, which it keeps alive."""

    writable = True

    def __init__(self, cuda: Cuda, address: int, nbytes: int, whole: Buffer | None = None) -> None:
        self.cuda, self.address, self.nbytes, self.whole = cuda, address, nbytes, whole

    @property
    def alive(self) -> bool:
        """Return whether the memory is still allocated."""
        return self.address != 0 if self.whole is None else self.whole.alive

    def slice(self, offset: int, nbytes: int) -> Buffer:
        """Return ``nbytes`` bytes from ``offset``."""
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise ValueError(f"{nbytes} bytes from byte {offset} are not inside a buffer of {self.nbytes} bytes")
        return Buffer(self.cuda, self.address + offset, nbytes, self)

    def free(self) -> None:
        """Free the memory; using it afterwards is an error."""
        if self.whole is not None:
            self.whole.free()
        elif self.address:
            self.cuda.buffers.pop(self.address, None)
            self.cuda.call("cuMemFree_v2", self.address)
            self.address = 0

    def require_alive(self) -> None:
        """Raise if the memory was freed."""
        if not self.alive:
            raise ValueError(f"a buffer of {self.nbytes} bytes is used after it was freed")

    def __del__(self) -> None:
        if self.whole is None and self.address:
            self.cuda.driver.cuMemFree_v2(ctypes.c_uint64(self.address))  # A finaliser must not raise exceptions.

    def to_host(self, dtype: npt.DTypeLike, shape: int | tuple[int, ...]) -> npt.NDArray[Any]:
        """Return the first elements as an array, after all work on the device."""
        self.require_alive()
        array: npt.NDArray[Any] = np.empty(shape, dtype)
        if array.nbytes > self.nbytes:
            raise ValueError(
                f"shape {array.shape} of {array.dtype} takes {array.nbytes} bytes, buffer has {self.nbytes}"
            )
        self.cuda.synchronize()
        if array.nbytes:
            self.cuda.call("cuMemcpyDtoH_v2", array.ctypes.data_as(ctypes.c_void_p), self.address, array.nbytes)
        return array

    def write(self, array: npt.ArrayLike, offset: int = 0) -> None:
        """Copy the array's bytes to this memory; wait for all work on the device before and after."""
        self.require_alive()
        source = np.ascontiguousarray(array)
        if offset < 0 or offset + source.nbytes > self.nbytes:
            raise ValueError(f"{source.nbytes} bytes at {offset} do not fit into a buffer of {self.nbytes} bytes")
        self.cuda.synchronize()
        if source.nbytes:
            address = self.address + offset
            self.cuda.call("cuMemcpyHtoD_v2", address, source.ctypes.data_as(ctypes.c_void_p), source.nbytes)
        self.cuda.synchronize()


class Stream:
    """Hold a CUDA stream that does not synchronise with the default stream."""

    def __init__(self, cuda: Cuda) -> None:
        pointer = ctypes.c_void_p()
        cuda.call("cuStreamCreate", ctypes.byref(pointer), STREAM_NON_BLOCKING)
        self.cuda, self.handle = cuda, int(pointer.value or 0)

    def synchronize(self) -> None:
        """Wait for all work on this stream."""
        self.cuda.call("cuStreamSynchronize", ctypes.c_void_p(self.handle))


class HostDriver:
    """Implement this module's driver calls for libraries whose device memory is the memory of the process."""

    def __init__(self) -> None:
        self.blocks: dict[int, Any] = {}
        self.streams = itertools.count(0x1000, 16)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("cu"):
            raise AttributeError(name)
        return lambda *_: 0  # Contexts and waiting need no work.

    def cuMemAlloc_v2(self, address: Any, nbytes: Any) -> int:
        try:
            block = np.empty(nbytes.value + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError):
            return OUT_OF_MEMORY
        address._obj.value = -(-block.ctypes.data // ALIGNMENT) * ALIGNMENT
        self.blocks[address._obj.value] = block
        return 0

    def cuMemFree_v2(self, address: Any) -> int:
        return 0 if self.blocks.pop(address.value, None) is not None else INVALID_VALUE

    def cuMemcpyDtoH_v2(self, host: Any, device: Any, nbytes: Any) -> int:
        ctypes.memmove(host, device.value, nbytes.value)
        return 0

    def cuMemcpyHtoD_v2(self, device: Any, host: Any, nbytes: Any) -> int:
        ctypes.memmove(device.value, host, nbytes.value)
        return 0

    def cuStreamCreate(self, stream: Any, _flags: Any) -> int:
        stream._obj.value = next(self.streams)
        return 0

    def cuGetErrorName(self, number: int, text: Any) -> int:
        text._obj.value = f"error {number} of host memory".encode()
        return 0

    def cuDeviceGetName(self, text: Any, _size: Any, _device: Any) -> int:
        text.value = b"host memory"
        return 0


class Cuda:
    """Hold the primary context of one GPU, or its replacement if device memory is the memory of the process."""

    def __init__(self, ordinal: int = 0, driver: Any = None) -> None:
        try:
            self.driver = driver or ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaUnavailable(f"no NVIDIA driver: {error}") from None
        if number := self.driver.cuInit(0):
            raise CudaUnavailable(f"the NVIDIA driver finds no usable GPU (cuInit returned {number})")
        self.device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.buffers: weakref.WeakValueDictionary[int, Buffer] = weakref.WeakValueDictionary()
        self.call("cuDeviceGet", ctypes.byref(self.device), ordinal)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), self.device)
        self.make_current()

    def make_current(self) -> None:
        """Direct this thread's driver and runtime calls to this GPU."""
        if self.context:
            self.driver.cuCtxSetCurrent(self.context)

    def call(self, name: str, *arguments: Any) -> None:
        """Make one driver call; device addresses and sizes are Python integers."""
        self.make_current()
        converted = [ctypes.c_uint64(a) if isinstance(a, int) else a for a in arguments]
        if number := getattr(self.driver, name)(*converted):
            text = ctypes.c_char_p()
            self.driver.cuGetErrorName(number, ctypes.byref(text))
            raise CudaError(f"{name}: {(text.value or b'unknown error').decode()} ({number})")

    def allocate(self, nbytes: int) -> Buffer:
        """Return uninitialised memory; zero bytes give a buffer with its own address."""
        if nbytes < 0:
            raise ValueError(f"nbytes: {nbytes} is negative")
        address = ctypes.c_uint64()
        try:
            self.call("cuMemAlloc_v2", ctypes.byref(address), max(1, nbytes))
        except (CudaError, ctypes.ArgumentError) as error:
            raise CudaError(f"{nbytes} bytes cannot be allocated: {error}") from None
        buffer = Buffer(self, address.value, nbytes)
        self.buffers[buffer.address] = buffer
        return buffer

    def find(self, address: int) -> Buffer | None:
        """Return the live memory that an address points into."""
        for buffer in list(self.buffers.values()):
            offset = address - buffer.address
            if offset == 0:
                return buffer
            if 0 < offset < buffer.nbytes:
                return buffer.slice(offset, buffer.nbytes - offset)
        return None

    def synchronize(self) -> None:
        """Wait for all work of the context."""
        self.call("cuCtxSynchronize")

    @property
    def name(self) -> str:
        """Return the GPU's name."""
        text = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", text, 256, self.device)
        return text.value.decode()

    @property
    def compute_capability(self) -> str:
        """Return the compute capability, for example "9.0"."""
        parts = []
        for attribute in (COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR):
            value = ctypes.c_int()
            self.call("cuDeviceGetAttribute", ctypes.byref(value), attribute, self.device)
            parts.append(str(value.value))
        return ".".join(parts)


@cache
def open_cuda(ordinal: int = 0) -> Cuda:
    """Return the one ``Cuda`` of a GPU in this process. Raises ``CudaUnavailable`` with the reason if there is none."""
    return Cuda(ordinal)


@cache
def host_memory() -> Cuda:
    """Return the replacement of a GPU for a library that computes in the memory of the process."""
    return Cuda(driver=HostDriver())
