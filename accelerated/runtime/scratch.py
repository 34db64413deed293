"""Provides scratch memory for launches whose documented call has no workspace argument."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dualdnn.api.operations.forks import free_in_children

if TYPE_CHECKING:
    from .device import Device, Memory, Stream

MIN_BYTES = 1 << 16


class Scratch:
    """Own one scratch buffer per stream, which the stream's launches share because they run one after the other.

    A larger buffer is allocated when a call needs it. Smaller ones are kept, because launches may still use them. Each
    graph capture has its own buffer, which is kept: the graph may run on any stream, whose other work has another one.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._finding = free_in_children(threading.Lock())
        self._streams: dict[tuple[int, int], tuple[threading.RLock, list[Memory]]] = {}

    @contextmanager
    def of(self, stream: Stream | None, nbytes: int) -> Iterator[Memory]:
        """Yield memory of at least ``nbytes`` bytes, for the launches that the block issues on the stream only."""
        stream = stream or self._device.default_stream
        key = stream.handle, stream.capture()
        with self._finding:
            lock, pieces = self._streams.setdefault(key, (free_in_children(threading.RLock()), []))
        with lock:
            self._provide(pieces, nbytes)
            yield pieces[-1]

    def _provide(self, pieces: list[Memory], nbytes: int) -> None:
        """Ensure that the last buffer of a stream's list has at least ``nbytes`` bytes."""
        if not pieces or pieces[-1].nbytes < nbytes:
            pieces.append(self._device.allocate(max(MIN_BYTES, 1 << (nbytes - 1).bit_length())))


class ExactScratch(Scratch):
    """Own scratch memory of a device whose work is done when a call returns.

    Each call gets a new buffer of the exact size, so that accesses past its end and reads before writes are found.
    """

    def _provide(self, pieces: list[Memory], nbytes: int) -> None:
        pieces[:] = [self._device.allocate(nbytes)]
