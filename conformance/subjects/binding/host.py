"""Give calls host memory that ends before an inaccessible page, so that an access beyond it crashes."""

from __future__ import annotations

import ctypes
import mmap
import weakref
from typing import Any

PAGE = mmap.PAGESIZE
NO_ACCESS = 0  # PROT_NONE

# Libraries that are known to read too far get these zeroed entries after every array.
SPARE = 1024


class GuardedMemory:
    """Place values and arrays before an inaccessible page. A region is reused once nothing refers to it."""

    def __init__(self) -> None:
        self.free: dict[int, list[mmap.mmap]] = {}  # free regions by their number of pages
        self.protect = ctypes.CDLL(None, use_errno=True).mprotect

    def place(self, kind: Any) -> Any:
        """Return a zeroed object of a ctypes type that ends at the last readable byte."""
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
    """Place values and arrays with SPARE entries after them."""

    def place(self, kind: Any) -> Any:
        element, count = (kind._type_, kind._length_) if hasattr(kind, "_length_") else (kind, 1)
        array = (element * (count + SPARE))()
        return array if hasattr(kind, "_length_") else kind.from_buffer(array)
