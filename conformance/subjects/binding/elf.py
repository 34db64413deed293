"""Find out from a file's headers why it is not a shared library for this process, before the loader maps it."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

MAGIC = b"\x7fELF"
IDENTITY = 20  # bytes of an ELF header up to the machine
WIDTHS = {1: "32-bit", 2: "64-bit"}  # ELF class
ORDERS = {1: "little-endian", 2: "big-endian"}
SHARED = 3  # type of shared libraries
TYPES = {1: "an object file", 2: "a program", 4: "a core dump"}
MACHINES = {3: "i386", 8: "MIPS", 21: "PowerPC64", 22: "S390", 40: "ARM", 62: "x86-64", 183: "AArch64", 243: "RISC-V"}


def fault_of(path: Path) -> str | None:
    """Return why this process cannot load a file, as the end of a sentence about it, or None if its headers fit."""
    if not path.is_file():
        return "is not a file"
    try:
        with path.open("rb") as file:
            start = file.read(64)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not start.startswith(MAGIC):
        return (
            "is not a shared library: it does not begin as an ELF file"
            if start
            else "is not a shared library: it is empty"
        )
    if len(start) < 64:
        return f"is cut short: it has {len(start)} bytes, fewer than its first header"
    with Path(sys.executable).open("rb") as file:
        theirs, ours = _identity(start), _identity(file.read(IDENTITY))
    if theirs != ours:
        return f"is a library for {theirs}, and this process runs on {ours}"
    kind = struct.unpack_from("<H", start, 16)[0]
    if kind != SHARED:
        return f"is {TYPES.get(kind, f'an ELF file of type {kind}')}, not a shared library"
    size, needed = path.stat().st_size, _end(path, start)
    return f"is cut short: it has {size} of {needed} bytes" if size < needed else None


def _identity(start: bytes) -> str:
    """Return machine, width and byte order that an ELF header names."""
    machine = struct.unpack_from(">H" if start[5] == 2 else "<H", start, 18)[0]
    name = MACHINES.get(machine, f"machine {machine}")
    return f"{name} ({WIDTHS.get(start[4], '?')}, {ORDERS.get(start[5], '?')})"


def _end(path: Path, start: bytes) -> int:
    """Return the bytes that a 64-bit little-endian file needs: its headers, and the segments that are loaded."""
    at, sections, _, _, width, count, section_width, section_count = struct.unpack_from("<QQIHHHHH", start, 32)
    with path.open("rb") as file:
        file.seek(at)
        rows = file.read(width * count)
    ends = [at + width * count, sections + section_width * section_count]
    for row in range(0, len(rows) - 39, max(width, 1)):
        offset, stored = struct.unpack_from("<Q16xQ", rows, row + 8)
        ends.append(offset + stored)
    return max(ends)
