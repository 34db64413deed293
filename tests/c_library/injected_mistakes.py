"""Inject a mistake into the C library's border before it is loaded; test_c_library_mistakes.py wants the suite to notice it.

python injected_mistakes.py MISTAKE ARGUMENT ...    # runs pytest with these arguments and the mistake
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dualdnn.api.abi import entry, marshalling
from dualdnn.api.abi.marshalling import Marshalling
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES


def rows_with(**changed: Callable[[Any], Any]) -> None:
    """Change fields of the rows that algorithm searches return."""
    right = Marshalling._rows

    def rows_of(self: Marshalling, rows: Any) -> bytes:
        return right(self, [row._replace(**{name: value(row) for name, value in changed.items()}) for row in rows])

    Marshalling._rows = rows_of  # type: ignore[method-assign]


def scalars_read_as(kind: Callable[[str, Any], Any]) -> None:
    """Read alpha, beta and the value of cudnnSetTensor as the type that kind(parameter, tensor) returns."""

    def scalar(self: Marshalling, function: Any, index: int) -> Any:
        parameter = function.parameters[index]
        place = [p.name for p in function.parameters].index(parameter.typed_by)

        def read(c: Any) -> Any:
            if not c[index]:
                return None
            spec = getattr(self.objects.get(c[place]), "spec", None)
            dtype = np.dtype(kind(parameter.name, spec))
            return np.frombuffer(ctypes.string_at(c[index], dtype.itemsize), dtype)[0].item()

        return read

    Marshalling._scalar = scalar


def right_type(name: str, spec: Any) -> Any:
    if name == "valuePtr":
        return NUMPY_TYPES[spec.scalar_type]
    return np.float64 if spec is not None and spec.data_type == marshalling.DOUBLE else np.float32


def arrays_read_as(change: Callable[[Any, Any, int, Any], Any]) -> None:
    """Change the entries of host arrays by change(name, C arguments, index, entries)."""
    right = Marshalling._array

    def array(self: Marshalling, function: Any, index: int) -> Any:
        read, name = right(self, function, index), function.parameters[index].name
        return lambda c: change(name, c, index, read(c))

    Marshalling._array = array


def two_more(name: str, c: Any, index: int, entries: Any) -> Any:
    if name == "foldA" and c[index]:
        assert ctypes.string_at(c[index], 4 * (len(entries) + 2))
    return entries


def reader_with(applies: Callable[[Any], bool], change: Callable[[Any, Any], Any]) -> None:
    """Change arguments of the parameters to which this applies, by change(C argument, value)."""
    right = Marshalling.reader

    def reader(self: Marshalling, function: Any, index: int) -> Any:
        read = right(self, function, index)
        return (lambda c: change(c[index], read(c))) if applies(function.parameters[index]) else read

    Marshalling.reader = reader


def without_user_data() -> None:
    right = Marshalling.callback

    def callback(self: Marshalling, address: int) -> Any:
        run = right(self, address)
        if run is None:
            return None

        def without(severity: int, udata: Any, debug: Any, text: str) -> None:
            run(severity, None, debug, text)

        without.address = run.address
        return without

    Marshalling.callback = callback


def with_another_clause() -> None:
    right = entry.Border.refuse
    entry.Border.refuse = lambda self, status, text: right(self, status, re.sub(r"\[\S+\]$", "[cudnnCreate/c01]", text))


def null_accepted() -> None:
    """Make BAD_PARAM, the only status with which the border itself refuses, equal SUCCESS."""
    entry.BAD_PARAM = 0


def size(parameter: Any) -> bool:
    return parameter.base_type == "size_t" and not parameter.is_pointer


def sizes_written_with(change: Callable[[int], int]) -> None:
    right = Marshalling.encoder

    def encoder(self: Marshalling, parameter: Any) -> Any:
        encode = right(self, parameter)
        return (lambda value: encode(change(value))) if parameter.base_type == "size_t" else encode

    Marshalling.encoder = encoder  # type: ignore[method-assign]


MISTAKES: dict[str, Callable[[], None]] = {
    "none": lambda: None,
    "time and memory of a row swapped": lambda: rows_with(
        time=lambda r: float(r.memory), memory=lambda r: int(max(r.time, 0))
    ),
    "determinism and mathType swapped": lambda: rows_with(
        determinism=lambda r: r.mathType, mathType=lambda r: r.determinism
    ),
    "scaling of DOUBLE read as float": lambda: scalars_read_as(
        lambda n, s: right_type(n, s) if n == "valuePtr" else np.float32
    ),
    "scaling of the tensor's own type": lambda: scalars_read_as(
        lambda n, s: NUMPY_TYPES[s.scalar_type] if s else np.float32
    ),
    "the value of cudnnSetTensor read as float": lambda: scalars_read_as(
        lambda n, s: np.float32 if n == "valuePtr" else right_type(n, s)
    ),
    "one entry too few in arrays": lambda: arrays_read_as(lambda n, c, i, entries: entries and entries[:-1]),
    "entries in reverse": lambda: arrays_read_as(lambda n, c, i, entries: entries and entries[::-1]),
    "NULL device pointer as address 0": lambda: reader_with(lambda p: p.memory == "device", lambda given, _: given),
    "sizes of 31 bits": lambda: reader_with(size, lambda _, value: value & 0x7FFFFFFF),
    "sizes of 31 bits as results": lambda: sizes_written_with(lambda value: value & 0x7FFFFFFF),
    "two fold factors too many read": lambda: arrays_read_as(two_more),
    "NULL outputs not refused": null_accepted,
    "user data of the log callback not handed on": without_user_data,
    "messages cite another clause": with_another_clause,
}

if __name__ == "__main__":
    MISTAKES[sys.argv[1]]()
    sys.exit(pytest.main(sys.argv[2:]))
