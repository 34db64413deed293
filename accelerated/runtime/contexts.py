"""Finds a GPU of this machine and the CUDA context that the device works in, through PyCUDA or the driver alone.

PyCUDA describes the GPU and keeps its context alive where it can be imported. Elsewhere ctypes asks the driver. Both
adopt the context that the calling thread uses on that GPU, so that the thread's allocations are valid in it. Without
such a context they retain the primary context, which the CUDA runtime uses, too.

No context is pushed on PyCUDA's stacks, because PyCUDA aborts the process when a thread ends with a context on its
stack. Only that thread could pop it. A program that calls PyCUDA itself therefore needs its own context
(``pycuda.autoprimaryctx``), made before it opens the device.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .driver import Driver, DriverError
from .errors import DeviceUnavailable

# These are values of the enumeration CUdevice_attribute.
MULTIPROCESSOR_COUNT = 16
COMPUTE_CAPABILITY_MAJOR = 75
COMPUTE_CAPABILITY_MINOR = 76
MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
NAME_BYTES = 256
# A launch returns one of these where the thread has no context, or another context than the kernel's.
FOREIGN = (201, 400)  # CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE


@dataclass(frozen=True)
class Gpu:
    """Hold the properties of a GPU and a context on it.

    layer: the software that described the GPU. context: the driver's handle. owner: the object that keeps the context
    alive.
    """

    layer: str
    name: str
    architecture: str
    multiprocessors: int
    shared_bytes_per_block: int
    context: int
    owner: Any = None


def find_gpu(driver: Driver, index: int) -> Gpu:
    """Return the GPU with number ``index``. Raises DeviceUnavailable where there is none."""
    try:
        import pycuda  # type: ignore[import-not-found, import-untyped, unused-ignore]
        import pycuda.driver as cuda  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as error:
        return _described_by_driver(driver, index, f"the driver alone (PyCUDA: {error})")
    return _described_by_pycuda(cuda, index, f"PyCUDA {getattr(pycuda, 'VERSION_TEXT', '')}".strip())


def _described_by_pycuda(cuda: Any, index: int, layer: str) -> Gpu:
    try:
        cuda.init()
        _require_index(index, cuda.Device.count())
        gpu, attributes = cuda.Device(index), cuda.device_attribute
        current = cuda.Context.get_current()
        adopted = current is not None and current.get_device() == gpu
        context = current if adopted else gpu.retain_primary_context()
        return Gpu(
            layer,
            gpu.name(),
            "sm_{}{}".format(*gpu.compute_capability()),
            gpu.get_attribute(attributes.MULTIPROCESSOR_COUNT),
            gpu.get_attribute(attributes.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            context.handle,
            context,
        )
    except cuda.Error as error:
        raise DeviceUnavailable(f"the NVIDIA driver finds no GPU: {error}") from error


def _described_by_driver(driver: Driver, index: int, layer: str) -> Gpu:
    try:
        driver.call("cuInit", 0)
        _require_index(index, driver.number("cuDeviceGetCount"))
        gpu = driver.number("cuDeviceGet", index)
        name = ctypes.create_string_buffer(NAME_BYTES)
        driver.call("cuDeviceGetName", name, NAME_BYTES, gpu)

        def attribute(number: int) -> int:
            return driver.number("cuDeviceGetAttribute", number, gpu)

        context = driver.current_context()
        if not context or driver.number("cuCtxGetDevice") != gpu:
            retained = ctypes.c_void_p()  # The context is retained until the process ends, as the device is.
            driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(retained), gpu)
            context = retained.value or 0
        return Gpu(
            layer,
            name.value.decode(),
            f"sm_{attribute(COMPUTE_CAPABILITY_MAJOR)}{attribute(COMPUTE_CAPABILITY_MINOR)}",
            attribute(MULTIPROCESSOR_COUNT),
            attribute(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
            context,
        )
    except DriverError as error:
        raise DeviceUnavailable(f"the NVIDIA driver finds no GPU: {error}") from error


def _require_index(index: int, count: int) -> None:
    if not 0 <= index < count:
        raise DeviceUnavailable(f"index={index}: the number of GPUs is {count}")


@contextlib.contextmanager
def entered(driver: Driver, context: int) -> Iterator[None]:
    """Make a context current in the calling thread while the block runs.

    A thread without a context keeps this one afterwards; a thread with another context gets that one back.
    """
    current = driver.current_context()
    if current and current != context:
        driver.call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            driver.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        return
    if not current:
        driver.call("cuCtxSetCurrent", context)
    yield
