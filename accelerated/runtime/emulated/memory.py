"""Allocates memory between inaccessible pages.

The end of an allocation (its size rounded up to 16 bytes) touches an inaccessible page, so that an access after it
faults at once. Before it there may be up to one page of padding, which is checked after each launch. With
`at_start` the start touches an inaccessible page instead. New memory is filled with poison, which is NaN in every
floating-point type. Freed memory stays inaccessible for a while.
"""

from __future__ import annotations

import bisect
import collections
import ctypes
import mmap
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dualdnn.api.operations.forks import awaited_by_forks

from ..errors import DeviceError
from ..memory import Memory

POISON = 0xFF  # value of each byte of new memory
ALIGNMENT = 16  # bytes to which sizes are rounded up
MAX_BYTES = 2**63 - 1  # upper bound of the bytes of a mapping
QUARANTINED = 256  # freed allocations whose addresses stay inaccessible
PAGE = mmap.PAGESIZE

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_FIXED = 0x10  # MAP_FIXED
_MAP_FAILED = ctypes.c_void_p(-1).value


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


@dataclass(frozen=True)
class Allocation:
    """Describe an allocation inside accessible pages (addresses first to last) between two inaccessible ones."""

    address: int
    nbytes: int
    first: int
    last: int

    @property
    def base(self) -> int:
        return self.first - PAGE

    @property
    def mapped_bytes(self) -> int:
        return self.last - self.first + 2 * PAGE

    def contains(self, address: int, nbytes: int = 1) -> bool:
        return self.address <= address and address + nbytes <= self.address + self.nbytes

    def describe(self, address: int) -> str:
        """Return the position of an address of the mapping relative to the allocation, as text."""
        allocation = f"of the {self.nbytes} bytes at {self.address:#x}"
        if address < self.address:
            return f"{self.address - address} bytes before the start {allocation}"
        if not self.contains(address):
            return f"{address - self.address - self.nbytes} bytes behind the end {allocation}"
        return f"at byte {address - self.address} {allocation}"

    def changed_padding(self) -> int | None:
        """Return the address of the nearest padding byte that was written, or None. Restore the padding."""
        for start, end in ((self.first, self.address), (self.address + self.nbytes, self.last)):
            content = ctypes.string_at(start, end - start)
            if content.count(POISON) == len(content):
                continue
            ctypes.memset(start, POISON, end - start)
            changed = [start + i for i, byte in enumerate(content) if byte != POISON]
            return changed[-1] if end == self.address else changed[0]
        return None


class GuardedMemory(Memory):
    def __init__(self, pool: GuardedPool, allocation: Allocation) -> None:
        self.address, self.nbytes = allocation.address, allocation.nbytes
        self._pool, self._allocation = pool, allocation

    def _release(self) -> None:
        self._pool.release(self._allocation)


class GuardedPool:
    """Hold all allocations and find them by address.

    The garbage collector may release memory between any two steps of a method, in the thread that holds the lock. Such
    memory waits in a queue until the method ends.
    """

    def __init__(self) -> None:
        self._lock = awaited_by_forks(threading.Lock())
        self._bases: list[int] = []
        self._allocations: dict[int, Allocation] = {}
        self._released: collections.deque[Allocation] = collections.deque()  # released, and still in the lists
        self._freed: collections.deque[Allocation] = collections.deque()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock. Forget memory that was released before, and at the end what was released meanwhile."""
        with self._lock:
            self._forget()
            yield
        self._forget_unless_locked()

    def _forget_unless_locked(self) -> None:
        while self._released and self._lock.acquire(blocking=False):
            try:
                self._forget()
            finally:
                self._lock.release()

    def _forget(self) -> None:
        while self._released:
            allocation = self._released.popleft()
            del self._allocations[allocation.base]
            del self._bases[bisect.bisect_left(self._bases, allocation.base)]
            self._freed.append(allocation)
            if len(self._freed) > QUARANTINED:
                oldest = self._freed.popleft()
                _libc.munmap(oldest.base, oldest.mapped_bytes)

    def allocate(self, nbytes: int, at_start: bool) -> GuardedMemory:
        usable = _round_up(nbytes, PAGE)
        if usable + 2 * PAGE > MAX_BYTES:  # ctypes would pass the number modulo 2**64.
            raise DeviceError(f"allocating {nbytes} bytes: more than an address space holds")
        base = _libc.mmap(None, usable + 2 * PAGE, 0, _PRIVATE, -1, 0)
        if base == _MAP_FAILED or _libc.mprotect(base + PAGE, usable, mmap.PROT_READ | mmap.PROT_WRITE):
            error = os.strerror(ctypes.get_errno())
            if base != _MAP_FAILED:
                _libc.munmap(base, usable + 2 * PAGE)
            raise DeviceError(f"allocating {nbytes} bytes: {error}")
        first, last = base + PAGE, base + PAGE + usable
        ctypes.memset(first, POISON, usable)
        allocation = Allocation(first if at_start else last - _round_up(nbytes, ALIGNMENT), nbytes, first, last)
        with self._locked():
            bisect.insort(self._bases, base)
            self._allocations[base] = allocation
        return GuardedMemory(self, allocation)

    def release(self, allocation: Allocation) -> None:
        # A new inaccessible mapping replaces the pages: their memory is released, and the addresses stay reserved.
        _libc.mmap(allocation.base, allocation.mapped_bytes, 0, _PRIVATE | _FIXED, -1, 0)
        self._released.append(allocation)
        self._forget_unless_locked()

    def find(self, address: int) -> Allocation | None:
        """Return the allocation whose mapping, guard pages included, contains the address; None without one."""
        with self._locked():
            i = bisect.bisect_right(self._bases, address) - 1
            found = self._allocations[self._bases[i]] if i >= 0 else None
        return found if found and address < found.base + found.mapped_bytes else None

    def check(self, address: int, nbytes: int, action: str) -> None:
        """Raise DeviceError unless the range is inside one allocation."""
        found = self.find(address)
        if not found or not found.contains(address, nbytes):
            raise DeviceError(f"{action}: {nbytes} bytes at {address:#x} are not allocated: {self.describe(address)}")

    def describe(self, address: int) -> str:
        if found := self.find(address):
            return found.describe(address)
        with self._locked():
            freed = next((a for a in reversed(self._freed) if a.base <= address < a.base + a.mapped_bytes), None)
        if freed:
            return f"in the freed {freed.nbytes} bytes at {freed.address:#x}"
        return "in no allocation"
