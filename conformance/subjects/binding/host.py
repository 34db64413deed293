"""Host memory that calls are given: it ends where nothing can be read or written, so that a step beyond it shows as a crash."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE

# For libraries that are known to go further: zeroed entries behind every array.
SPARE = 1024


class GuardedMemory:
    """Values and arrays in front of a page without access. Regions are used again once nothing refers to what lay there."""

    def __init__(self) -> None:
        self.free: dict[int, list[mmap.mmap]] = {}  # by their pages
        self.protect = ctypes.CDLL(None, use_errno=True).mprotect

    def place(self, kind: Any) -> Any:
        """A zeroed object of a ctypes type whose last byte is the last one that can be read."""
        size = ctypes.sizeof(kind)
        pages = max(1, -(-size // PAGE))
        region = self.free.setdefault(pages, []).pop() if self.free.get(pages) else self._region(pages)
        placed = kind.from_buffer(region, pages * PAGE - size)
        ctypes.memset(ctypes.addressof(placed), 0, size)
        weakref.finalize(placed, self.free.setdefault(pages, []).append, region).atexit = False
        return placed

    def _region(self, pages: int) -> mmap.mmap:
        region = mmap.mmap(-1, (pages + 1) * PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(region))
        if self.protect(ctypes.c_void_p(start + pages * PAGE), ctypes.c_size_t(PAGE), NO_ACCESS) != 0:
            raise OSError(ctypes.get_errno(), "a page cannot be protected")
        return region


class SpareMemory:
    """Values and arrays with SPARE entries behind them."""

    def place(self, kind: Any) -> Any:
        element, count = (kind._type_, kind._length_) if hasattr(kind, "_length_") else (kind, 1)
        array = (element * (count + SPARE))()
        return array if hasattr(kind, "_length_") else kind.from_buffer(array)
