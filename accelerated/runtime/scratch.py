"""Memory of the library's own, for launches whose call has no workspace in the document."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dualdnn.api.operations.forks import free_in_children

if TYPE_CHECKING:
    from .device import Device, Memory, Stream

LEAST_BYTES = 1 << 16


class Scratch:
    """Scratch memory of a device, one piece for each stream: its launches follow each other, so that they share it.

    It grows as calls need it. What was outgrown is kept, because launches may still use it. What a graph captures from
    a stream has a piece of its own, which stays: the graph may run on any stream, beside whatever that stream does.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._finding = free_in_children(threading.Lock())
        self._streams: dict[tuple[int, int], tuple[threading.RLock, list[Memory]]] = {}

    @contextmanager
    def of(self, stream: Stream | None, nbytes: int) -> Iterator[Memory]:
        """Yield memory of at least ``nbytes`` bytes. Launches on the stream that are issued in this scope have it to
        themselves."""
        stream = stream or self._device.default_stream
        key = stream.handle, stream.capture()
        with self._finding:
            lock, pieces = self._streams.setdefault(key, (free_in_children(threading.RLock()), []))
        with lock:
            self._provide(pieces, nbytes)
            yield pieces[-1]

    def _provide(self, pieces: list[Memory], nbytes: int) -> None:
        """Make the last one of a stream's pieces one of at least ``nbytes`` bytes."""
        if not pieces or pieces[-1].nbytes < nbytes:
            pieces.append(self._device.allocate(max(LEAST_BYTES, 1 << (nbytes - 1).bit_length())))


class ExactScratch(Scratch):
    """Scratch memory of a device whose work is done when a call returns: new for each call, and no larger than it asks
    for, so that an access behind it, and a read of what no launch has written, are noticed."""

    def _provide(self, pieces: list[Memory], nbytes: int) -> None:
        pieces[:] = [self._device.allocate(nbytes)]
