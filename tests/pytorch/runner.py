"""Make the calls of calls.txt through the C library, and report which operations were judged and what they left in memory.

Run ``python runner.py LIBRARY`` with DUALDNN_DEVICE=emulated. A crosscheck handle makes the calls once, and holds each result to the
reference. Then an accelerated handle makes them three times, and must leave the same bytes. The program prints a JSON object: calls
(of a step), judged (operation -> count), digests (of the memory after each step). ``python runner.py LIBRARY once`` makes the calls
once, on the handle that the environment asks for, and prints nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import json
import os
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn import reference
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.api.abi.faces import face

FACE = face(9)
TYPES = {
    "half": np.float16,
    "float": np.float32,
    "positive": np.float32,
    "zeros": np.uint8,
    "bytes": np.uint8,
    "int32": np.int32,
}
WIDTHS: dict[str, Any] = {
    "size_t": ctypes.c_size_t, "float": ctypes.c_float, "double": ctypes.c_double, "unsigned long long": ctypes.c_ulonglong,
}  # fmt: skip
PLACE = 4096  # bytes of memory for the result of a call


class Row(ctypes.Structure):
    """Describe a row that a search for algorithms returns."""

    _fields_ = [
        ("algo", ctypes.c_int), ("status", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int), ("mathType", ctypes.c_int), ("reserved", ctypes.c_int * 3),
    ]  # fmt: skip


def lines(text: str) -> list[str]:
    """Return the lines of a table, with each ``repeat`` written out."""
    return list(written_out([line for line in text.splitlines() if line.strip() and not line.startswith("#")]))


def written_out(table: list[str]) -> Iterator[str]:
    """Yield the lines of a table. The lines after ``repeat`` and its rows come once for each row."""
    while table:
        line = table.pop(0)
        if line.strip() != "repeat":
            yield line.strip()
            continue
        indent = len(line) - len(line.lstrip())
        rows = list(taken(table, " " * indent + "|"))
        body = list(taken(table, " " * (indent + 1)))
        for row in rows:
            values = [pair.split("=", 1) for pair in row.strip("| ").split()]
            for chosen in itertools.product(*(counted(value) for _, value in values)):
                names = {name: value for (name, _), value in zip(values, chosen, strict=True)}
                yield from written_out([Braces(names).put_in(other) for other in body])


def taken(table: list[str], beginning: str) -> Iterator[str]:
    """Remove and yield the first lines of a table that begin with this text."""
    while table and table[0].startswith(beginning):
        yield table.pop(0)


def counted(value: str) -> list[str]:
    """Return the numbers from a to b - 1 for "a:b", and any other value alone."""
    begin, colon, end = value.partition(":")
    return [str(i) for i in range(int(begin), int(end))] if colon and "{" not in value else [value]


class Braces(dict[str, str]):
    """Map names in braces to values, and leave other names to an inner ``repeat``."""

    def __missing__(self, name: str) -> str:
        return "{" + name + "}"

    def put_in(self, line: str) -> str:
        return line.format_map(self)


class Program:
    """Hold the state of one run: results and memory by name."""

    def __init__(self, library: Any) -> None:
        self.library, self.device = library, open_device("emulated")
        self.results: dict[str, tuple[Any, str]] = {}
        self.memory: dict[str, tuple[str, Any]] = {}
        self.left = hashlib.sha256()

    def step(self, table: list[str]) -> str:
        """Make every call, and return a digest of what the calls left in memory."""
        for line in table:
            name, *given = line.split()
            if name.startswith("@"):
                self.take(name[1:], given)
            else:
                self.call(name, dict(pair.split("=", 1) for pair in given))
        for name in list(self.memory):
            self.forget(name)
        return self.left.hexdigest()

    def take(self, name: str, given: list[str]) -> None:
        """Allocate device memory with listed or seeded numbers."""
        self.forget(name)
        kind, count = given[0], given[-1]
        if "=" in given:
            content = np.array(count.split(","), TYPES[kind])
        else:
            size = (
                int(count)
                if count.isdigit()
                else int(self.value(count)) // (1 if kind in ("bytes", "zeros") else np.dtype(TYPES[kind]).itemsize)
            )
            content = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(size) / 2
            content = {"positive": np.abs(content) + 0.5, "zeros": 0 * content, "bytes": 0 * content}.get(
                kind, content
            ).astype(TYPES[kind])
        if content.nbytes:
            made = self.device.allocate(content.nbytes)
            self.device.upload(made.address, content)
            self.memory[name] = kind, made

    def forget(self, name: str) -> None:
        """Free device memory. The digest takes its contents, unless only the library can read them."""
        kind, made = self.memory.pop(name, ("bytes", None))
        if kind != "bytes":
            self.left.update(self.device.download(made.address, made.nbytes))

    def value(self, name: str) -> Any:
        """Return an earlier result, or one field of it."""
        name, _, part = name.partition(".")
        place, kind = self.results[name]
        if part:
            rows = ctypes.cast(place, ctypes.POINTER(Row))
            return getattr(next(rows[i] for i in range(8) if rows[i].status == 0), part)
        return ctypes.cast(place, ctypes.POINTER(width(kind)))[0]

    def call(self, name: str, given: dict[str, str]) -> None:
        """Make one call. Every parameter must be named, and the call must succeed."""
        parameters = FACE.functions[name].parameters
        if [p.name for p in parameters] != list(given):
            raise SystemExit(f"{name} has the parameters {[p.name for p in parameters]}, not {list(given)}")
        status = getattr(self.library, name)(*(self.argument(p, given[p.name]) for p in parameters))
        if status:
            text = ctypes.create_string_buffer(8192)
            self.library.cudnnGetLastErrorString(text, ctypes.c_size_t(8192))
            raise SystemExit(f"{name}({given}): {status}: {text.value.decode()}")

    def argument(self, parameter: Any, text: str) -> Any:
        """Return the C argument that a text stands for."""
        kind = parameter.base_type
        if text == "NULL":
            return ctypes.c_void_p(None)
        if text.startswith("&"):
            place = ctypes.create_string_buffer(PLACE)
            self.results[text[1:]] = place, kind
            return place
        if text.startswith("@"):
            return (
                ctypes.c_void_p(self.memory[text[1:]][1].address) if text[1:] in self.memory else ctypes.c_void_p(None)
            )
        if parameter.typed_by is not None:
            return ctypes.byref(ctypes.c_float(float(text)))
        if parameter.is_pointer and parameter.memory == "host" and "," in text:
            numbers = [int(number) for number in text.split(",")]
            return (ctypes.c_int * len(numbers))(*numbers)
        if text.partition(".")[0] in self.results:
            return width(kind)(self.value(text))
        named = FACE.values(kind) if kind.startswith("cudnn") and not text.isdigit() else {}
        found = named.get(f"CUDNN_{text}", text)
        made = width(kind)
        return made(float(found) if made in (ctypes.c_float, ctypes.c_double) else int(found))


def width(kind: str) -> Any:
    """Return the C type of a value. Objects and addresses are integers."""
    if kind in WIDTHS:
        return WIDTHS[kind]
    is_address = kind == "void" or kind == "cudnnHandle_t" or kind.endswith("Descriptor_t") or kind == "cudaStream_t"
    return ctypes.c_size_t if is_address else ctypes.c_int


def main(library: str, how: str = "") -> None:
    loaded = ctypes.CDLL(library)
    table = lines(Path(__file__).with_name("calls.txt").read_text())
    if how == "once":
        Program(loaded).step(table)
        return
    judged = Counter[str]()
    judge = reference.judge

    def count(operation: Any, *arguments: Any, **options: Any) -> Any:
        judged[type(operation).__name__] += 1
        return judge(operation, *arguments, **options)

    reference.judge = count
    digests = []
    for backend in ("crosscheck", *["accelerated"] * 3):
        os.environ["DUALDNN_BACKEND"] = backend
        digests.append(Program(loaded).step(table))
    print(json.dumps({"calls": len(table), "judged": judged, "digests": digests}))


if __name__ == "__main__":
    main(*sys.argv[1:])
