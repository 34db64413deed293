"""Measures the static shared memory of kernels compiled for the host; a GPU's compiler allows 48 KiB."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np

MAX_BYTES = 48 << 10  # ptxas refuses a kernel with more on every architecture
SYMBOL_TABLE = 2  # type of a section
THREAD_LOCAL = 6  # type of a symbol
SECTION = np.dtype(
    {"names": ["type", "offset", "bytes", "link"], "formats": ["<u4", "<u8", "<u8", "<u4"], "offsets": [4, 24, 32, 40],
     "itemsize": 64}
)  # fmt: skip
SYMBOL = np.dtype(
    {"names": ["name", "info", "bytes"], "formats": ["<u4", "u1", "<u8"], "offsets": [0, 4, 16], "itemsize": 24}
)
VARIABLE = re.compile(rb"_ZZ\d*(.*)E\d+\w+")  # mangled name of a function's variable


def static_shared_bytes(library: Path) -> Counter[str]:
    """Return the bytes of the __shared__ variables of each function, by mangled name.

    The library is 64-bit ELF. A kernel's own entry lacks the variables of the device functions that it calls.
    """
    data = library.read_bytes()
    start, count = int.from_bytes(data[40:48], "little"), int.from_bytes(data[60:62], "little")
    sections = np.frombuffer(data, SECTION, count, start)
    found: Counter[str] = Counter()
    for table in sections[sections["type"] == SYMBOL_TABLE]:
        symbols = np.frombuffer(data, SYMBOL, int(table["bytes"]) // SYMBOL.itemsize, int(table["offset"]))
        names = int(sections[table["link"]]["offset"])
        for symbol in symbols[symbols["info"] % 16 == THREAD_LOCAL]:
            name = data[(at := names + int(symbol["name"])) : data.index(b"\0", at)]
            if variable := VARIABLE.match(name):
                found[variable[1].decode()] += int(symbol["bytes"])
    return found


def excess(library: Path) -> str:
    """Return an error that names the functions with too much static shared memory; empty without such a function."""
    large = ((name, nbytes) for name, nbytes in static_shared_bytes(library).items() if nbytes > MAX_BYTES)
    return "\n".join(f"{name}: {nbytes} bytes of static shared memory, at most {MAX_BYTES}" for name, nbytes in large)
