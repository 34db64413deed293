"""Call a built C library of this project from Python as a program in C would, with its messages and its memo's counts."""

from __future__ import annotations

import ctypes
import sys

ROOM_OF_TEXT = 8192  # bytes of the longest message that is read
Address = ctypes.c_size_t


class CLibrary:
    """Hold a loaded library. functions: its exports, by attribute."""

    def __init__(self, path: str) -> None:
        self.functions = ctypes.CDLL(path)

    def said(self) -> str:
        """Return the message of this thread's last refused call."""
        text = ctypes.create_string_buffer(ROOM_OF_TEXT)
        self.functions.cudnnGetLastErrorString(text, Address(ROOM_OF_TEXT))
        return text.value.decode()

    def counts(self) -> dict[str, int]:
        """Return what the memo has done, by name. A call must have been made before."""
        from dualdnn.api.abi.memo.keeping import COUNTS

        inside = sys.modules["_dualdnn_c"]
        found = inside.ffi.new("unsigned long long[8]")
        inside.lib.memo_counts(found)
        return dict(zip(COUNTS, found, strict=True))

    def made(self, kind: str) -> ctypes.c_size_t:
        """Return a new handle ("") or descriptor, as "TensorDescriptor"."""
        found = Address()
        status = getattr(self.functions, f"cudnnCreate{kind}")(ctypes.byref(found))
        assert status == 0, (status, self.said())
        return found
