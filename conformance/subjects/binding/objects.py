"""Wrap a library's C pointers as descriptors and handles, and check them before use."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from . import arithmetic
from .elf import fault_of
from .host import GuardedMemory, SpareMemory
from .memory import Buffer, Cuda, Stream, host_memory, open_cuda
from .types import Crashes


class Opaque:
    """Wrap an object of the library: a C pointer of a known type, alive until its Destroy function succeeds."""

    def __init__(self, library: Library, ctype: str, address: int) -> None:
        self.library, self.ctype, self.address = library, ctype, address
        self.alive = True
        self.elements: dict[int, tuple[Any, ...]] = {}  # attribute number -> descriptors that it was set to
        self.kind: int | None = None  # the type of a backend descriptor

    def __repr__(self) -> str:
        return f"<{self.ctype} at {self.address:#x}{'' if self.alive else ', destroyed'}>"


class Handle(Opaque):
    """Wrap a library context, with the memory of its GPU."""

    def __init__(self, library: Library, ctype: str, address: int) -> None:
        super().__init__(library, ctype, address)
        self.stream: Stream | int | None = None

    @property
    def cuda(self) -> Cuda:
        """Return the GPU of the handle."""
        if self.library.cuda is None:  # The library made a handle without a driver, so it computes in host memory.
            self.library.cuda = host_memory()
        return self.library.cuda

    def allocate(self, nbytes: int) -> Buffer:
        """Return uninitialised GPU memory."""
        return self.cuda.allocate(nbytes)

    def zeros(self, nbytes: int) -> Buffer:
        """Return ``nbytes`` zero bytes."""
        return self.to_device(np.zeros(nbytes, np.uint8))

    def to_device(self, array: npt.ArrayLike) -> Buffer:
        """Return a copy of the array's elements in GPU memory, in C order."""
        source = np.ascontiguousarray(array)
        buffer = self.allocate(source.nbytes)
        buffer.write(source)
        return buffer

    def new_stream(self) -> Stream:
        """Return a stream for cudnnSetStream."""
        stream = Stream(self.cuda)
        self.library.streams[stream.handle] = stream
        return stream

    def synchronize(self) -> None:
        """Wait for all work on the GPU."""
        self.cuda.synchronize()


@dataclass
class Callback:
    """Hold the installed log callback: the caller's function and user data, and the C function that runs them."""

    function: Callable[..., object] | None = None
    user_data: Any = None
    c_function: Any = None


COPIED = 86  # exit status of a forked copy of the process that returns from a call


def end_copy_of(process: int) -> None:
    """End this process if it is a copy of the one that called a library: the library has forked."""
    if os.getpid() != process:
        os._exit(COPIED)


class Library:
    """Hold a loaded shared library and the objects that it returned."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if fault := fault_of(path):
            raise OSError(f"{path} {fault}")
        try:
            before = os.getpid()
            self.loaded = ctypes.CDLL(str(path))
            end_copy_of(before)
            arithmetic.restore()
        except OSError as error:
            raise OSError(f"{path} cannot be loaded as a shared library: {error}") from None
        self.objects: weakref.WeakValueDictionary[int, Opaque] = weakref.WeakValueDictionary()
        self.streams: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
        self.cuda: Cuda | None = None
        self.callback = Callback()
        self.host: GuardedMemory | SpareMemory = GuardedMemory()
        self.asks_null = False  # whether calls are repeated with NULL for their outputs
        self.takes_stray_pointers = False  # whether it may receive destroyed objects, or objects of another kind

    @property
    def guarded(self) -> bool:
        """Return whether the library is expected to stay within its callers' host memory."""
        return isinstance(self.host, GuardedMemory)

    def symbol(self, name: str) -> Any:
        """Return the exported C function, or None."""
        return getattr(self.loaded, name, None)

    def version(self) -> int | None:
        """Return what cudnnGetVersion returns, or None if it is not exported."""
        function = self.symbol("cudnnGetVersion")
        if function is None:
            return None
        function.restype = ctypes.c_size_t
        return int(function())

    def use_gpu(self, ordinal: int) -> None:
        """Make a GPU current for the library's calls. Raises ``CudaUnavailable``."""
        self.cuda = open_cuda(ordinal)
        self.cuda.make_current()

    def adopt(self, ctype: str, address: int | None) -> Opaque | None:
        """Return the Python object of a pointer that the library returned."""
        if not address:
            return None
        known = self.objects.get(address)
        if known is not None and known.alive and known.ctype == ctype:
            return known
        made = (Handle if ctype == "cudnnHandle_t" else Opaque)(self, ctype, address)
        self.objects[address] = made
        return made

    def opaque_address(self, value: object, ctype: str, function: str, name: str) -> int | None:
        """Return the pointer of an object that is safe to pass to the library; None is NULL."""
        if value is None:
            return None
        if not isinstance(value, Opaque) or value.library is not self:
            raise Crashes(function, f"{name}: {value!r} is not a {ctype} of {self.path.name}")
        if self.takes_stray_pointers:
            return value.address
        if value.ctype != ctype:
            raise Crashes(function, f"{name}: {value!r} stands where a {ctype} is needed")
        if not value.alive:
            raise Crashes(function, f"{name}: {value!r} must not be used any more")
        return value.address

    def device_address(self, value: object, function: str, name: str) -> int | None:
        """Return the device pointer of a buffer or of an object with ``__cuda_array_interface__``; None is NULL.

        Integers must point into an allocated buffer.
        """
        if value is None:
            return None
        if isinstance(value, Buffer):
            if not value.alive:
                raise Crashes(function, f"{name}: the buffer was freed")
            return value.address
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None:
            return int(interface["data"][0])
        if isinstance(value, int) and self.cuda is not None and self.cuda.find(value) is not None:
            return value
        raise Crashes(function, f"{name}: {value!r} is not device memory that is known to be allocated")

    def memory_at(self, address: int | None) -> Buffer | int | None:
        """Return the buffer, or part of one, at a device address, or the address itself if it is unknown."""
        if not address:
            return None
        found = self.cuda.find(address) if self.cuda is not None else None
        return address if found is None else found
