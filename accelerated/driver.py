"""The few functions of the CUDA driver that PyCUDA does not offer: work on streams that PyCUDA did not make."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

SUCCESS, NOT_READY = 0, 600
MAX_DYNAMIC_SHARED_SIZE_BYTES, NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 8, 14  # function attributes

_POINTER, _ADDRESS, _SIZE, _INT, _UINT = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
_SIGNATURES = {
    "cuGetErrorName": (_INT, _POINTER),
    "cuGetErrorString": (_INT, _POINTER),
    "cuModuleLoadData": (_POINTER, ctypes.c_char_p),
    "cuModuleGetFunction": (_POINTER, _POINTER, ctypes.c_char_p),
    "cuFuncSetAttribute": (_POINTER, _INT, _INT),
    "cuLaunchKernel": (_POINTER, *(_UINT,) * 7, _POINTER, _POINTER, _POINTER),
    "cuOccupancyMaxActiveClusters": (_POINTER, _POINTER, _POINTER),
    "cuStreamSynchronize": (_POINTER,),
    "cuStreamQuery": (_POINTER,),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, _SIZE, _POINTER),
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, _SIZE, _POINTER),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _POINTER),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _SIZE, _POINTER),
}


class DriverError(RuntimeError):
    """The driver refused a call, or reports what failed before it."""


class Driver:
    """The CUDA driver's library; it acts in the context that is current."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libcuda.so.1")
        self.functions: dict[str, Any] = {}
        self.require(_SIGNATURES)

    def require(self, signatures: Mapping[str, tuple[Any, ...]]) -> None:
        """Make functions callable: name -> types of the arguments. An AttributeError names one that the driver lacks."""
        for name, types in signatures.items():
            if name not in self.functions:
                function = getattr(self.library, name)
                function.argtypes = types
                self.functions[name] = function

    def call(self, name: str, *arguments: object) -> None:
        if code := self.functions[name](*arguments):
            raise DriverError(f"{name}: {self._describe(code)}")

    def stream_is_done(self, handle: int) -> bool:
        code = self.functions["cuStreamQuery"](handle)
        if code not in (SUCCESS, NOT_READY):
            raise DriverError(f"cuStreamQuery: {self._describe(code)}")
        return bool(code == SUCCESS)

    def _describe(self, code: int) -> str:
        texts = ctypes.c_char_p(), ctypes.c_char_p()
        for name, text in zip(("cuGetErrorName", "cuGetErrorString"), texts, strict=True):
            self.functions[name](code, ctypes.byref(text))
        name, meaning = ((text.value or b"unknown").decode() for text in texts)
        return f"{meaning} ({name}, {code})"


class _LaunchConfiguration(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", _UINT * 3),
        ("block", _UINT * 3),
        ("shared_bytes", _UINT),
        ("stream", _POINTER),
        ("attributes", _POINTER),
        ("attribute_count", _UINT),
    ]


class DriverKernel:
    """A kernel, loaded without PyCUDA."""

    def __init__(self, driver: Driver, image: bytes, name: str, dynamic_shared_bytes: int) -> None:
        self._driver = driver
        module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        driver.call("cuModuleLoadData", ctypes.byref(module), image)
        driver.call("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        driver.call("cuFuncSetAttribute", self._function, MAX_DYNAMIC_SHARED_SIZE_BYTES, dynamic_shared_bytes)

    def active_clusters(self, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int) -> int:
        """How many of the kernel's clusters, of any size from now on, the device holds at a time."""
        self._driver.call("cuFuncSetAttribute", self._function, NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1)
        sizes = [(_UINT * 3)(*(*size, 1, 1)[:3]) for size in (grid, block)]
        configuration = _LaunchConfiguration(*sizes, shared_bytes, None, None, 0)
        count = ctypes.c_int()
        self._driver.call(
            "cuOccupancyMaxActiveClusters", ctypes.byref(count), self._function, ctypes.byref(configuration)
        )
        return count.value

    def launch(
        self,
        arguments: bytes | bytearray,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        shared_bytes: int,
        stream: int,
    ) -> None:
        content = (ctypes.c_ubyte * len(arguments)).from_buffer(bytearray(arguments))
        parameters = ctypes.c_void_p(ctypes.addressof(content))  # the address of the one parameter
        sizes = (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3])
        self._driver.call(
            "cuLaunchKernel", self._function, *sizes, shared_bytes, stream, ctypes.addressof(parameters), None
        )
