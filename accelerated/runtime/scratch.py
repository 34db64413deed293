"""Provides scratch memory for launches whose documented call has no workspace argument."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from dualdnn.api.operations.forks import free_in_children

from .errors import DeviceError
from .memory import DeviceMemory, Memory, Stream

MIN_BYTES = 1 << 16
COUNTER_BYTES = 1 << 13  # before the address of scratch memory; zeros between launches


class ScratchMemory(NamedTuple):
    """Hold scratch memory of undefined content, after COUNTER_BYTES of zeros that each launch restores."""

    memory: Memory
    address: int
    nbytes: int


class Scratch:
    """Own one scratch buffer per stream, which the stream's launches share because they run one after the other.

    A larger buffer is allocated when a call needs it. Smaller ones are kept, because launches may still use them. Each
    graph capture has its own buffer, which is kept: the graph may run on any stream, whose other work has another one.
    """

    def __init__(self, device: DeviceMemory) -> None:
        self._device = device
        self._streams: dict[tuple[int, int], tuple[threading.RLock, list[ScratchMemory]]] = {}

    def lend(self, stream: Stream | None, nbytes: int, work: Callable[[ScratchMemory], None]) -> None:
        """Call ``work`` with memory of at least ``nbytes`` bytes, for launches that it issues on the stream only."""
        stream = stream or self._device.default_stream
        key = stream.handle, stream.capture()
        lock, pieces = self._streams.get(key) or self._streams.setdefault(
            key, (free_in_children(threading.RLock()), [])
        )
        with lock:
            self._provide(pieces, nbytes)
            work(pieces[-1])

    def _provide(self, pieces: list[ScratchMemory], nbytes: int) -> None:
        """Ensure that the last buffer of a stream's list has at least ``nbytes`` bytes."""
        if not pieces or pieces[-1].nbytes < nbytes:
            pieces.append(self.new(nbytes))

    def new(self, nbytes: int) -> ScratchMemory:
        """Return new memory of at least ``nbytes`` bytes."""
        return self._allocated(max(MIN_BYTES, 1 << (nbytes - 1).bit_length()))

    def _allocated(self, nbytes: int) -> ScratchMemory:
        memory = self._device.allocate(COUNTER_BYTES + nbytes)
        stream = self._device.new_stream()  # No graph is captured from it, so that the zeros are written now.
        self._device.fill(memory.address, COUNTER_BYTES, 0, stream)
        stream.synchronize()
        return ScratchMemory(memory, memory.address + COUNTER_BYTES, nbytes)


class ExactScratch(Scratch):
    """Own scratch memory of a device whose work is done when a call returns.

    Each call gets a new buffer of the exact size, so that accesses past its end and reads before writes are found.
    """

    def lend(self, stream: Stream | None, nbytes: int, work: Callable[[ScratchMemory], None]) -> None:
        """Call ``work`` with memory of ``nbytes`` bytes. Raises DeviceError where it leaves a counter that is not 0."""

        def checked(memory: ScratchMemory) -> None:
            work(memory)
            if any(self._device.download(memory.address - COUNTER_BYTES, COUNTER_BYTES)):
                raise DeviceError("a launch left counters before its scratch memory that are not 0")

        super().lend(stream, nbytes, checked)

    def _provide(self, pieces: list[ScratchMemory], nbytes: int) -> None:
        pieces[:] = [self.new(nbytes)]

    def new(self, nbytes: int) -> ScratchMemory:
        return self._allocated(nbytes)
