"""Defines the interface of a device's memory and streams."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any


class Memory(ABC):
    """Own device memory, which is freed with its last reference or earlier by free()."""

    address: int
    nbytes: int
    freed = False

    def free(self) -> None:
        if self.freed:
            raise ValueError(f"the memory at {self.address:#x} ({self.nbytes} bytes) was freed already")
        self.freed = True
        self._release()

    @abstractmethod
    def _release(self) -> None: ...

    def __del__(self) -> None:
        if not self.freed and hasattr(self, "address"):
            self.freed = True
            self._release()


class Stream(ABC):
    """Represent a queue of work that the device does in order."""

    handle: int
    device: DeviceMemory

    def __repr__(self) -> str:
        return f"<stream {self.handle:#x} of {self.device.name}>"

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work of the stream has finished."""

    @abstractmethod
    def done(self) -> bool:
        """Return whether all work of the stream has finished."""

    def capture(self) -> int:
        """Return the number of the graph capture of the stream; 0 where the stream is not capturing."""
        return 0


class DeviceMemory(ABC):
    """Define what a device does with memory: it allocates, copies and fills it, in the order of a stream."""

    name: str
    default_stream: Stream
    adopts_streams = True  # whether adopt_stream() accepts the handles of foreign streams
    knows_extents = False  # whether extent() knows the size of allocations

    @abstractmethod
    def allocate(self, nbytes: int) -> Memory:
        """Return new memory of undefined content. Raises DeviceError where the allocation fails."""

    def extent(self, address: int) -> int | None:
        """Return the bytes from an address to the end of its allocation; None where the device does not know.

        Raises ValueError where the address is in no allocation of the device.
        """
        return None

    @abstractmethod
    def upload(self, address: int, data: Any, stream: Stream | None = None) -> None:
        """Copy bytes-like data to the device. Pinned memory must stay unchanged until the stream has copied it."""

    @abstractmethod
    def download(self, address: int, nbytes: int, stream: Stream | None = None) -> bytearray:
        """Return a copy of device memory, made after the earlier work of the stream."""

    @abstractmethod
    def fill(self, address: int, nbytes: int, byte: int, stream: Stream | None = None) -> None: ...

    @abstractmethod
    def copy(self, destination: int, source: int, nbytes: int, stream: Stream | None = None) -> None:
        """Copy within the device; the ranges must not overlap."""

    @abstractmethod
    def new_stream(self) -> Stream: ...

    @abstractmethod
    def adopt_stream(self, handle: int) -> Stream:
        """Return a stream for the handle of one that the caller made and will destroy."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until all work of all streams has finished."""
