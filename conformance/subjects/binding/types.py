"""Define the C types of the API in ctypes: scalars, structures, status numbers, and the results made from them."""

from __future__ import annotations

import ctypes
import operator
import re
from enum import IntEnum
from typing import Any, NamedTuple

from dualdnn.api.abi.faces import face
from dualdnn.api.enumerations import (
    ENUMERATIONS,
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnDeterminism_t,
    cudnnMathType_t,
    cudnnStatus_t,
)
from dualdnn.api.status import CudnnError

SCALARS: dict[str, Any] = {
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "unsigned long long": ctypes.c_ulonglong,
    "size_t": ctypes.c_size_t,
    "float": ctypes.c_float,
    "double": ctypes.c_double,
}


def scalar(kind: Any, value: object, where: str) -> Any:
    """Return the Python number as a ctypes scalar. Numbers that C would wrap silently are refused by name."""
    if kind in (ctypes.c_float, ctypes.c_double):
        if not isinstance(value, str) and hasattr(value, "__float__"):
            return kind(float(value))
        raise NotExpressible(f"{where}: a number is needed, not {value!r}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise NotExpressible(f"{where}: an integer is needed, not {value!r}") from None
    result = kind(number)
    if result.value != number:
        raise NotExpressible(f"{where}: {number} does not fit into {8 * ctypes.sizeof(kind)} bits of the C type")
    return result


def named(enumeration: type[IntEnum], number: int) -> int:
    """Return the enumerator of the number, or the bare number if the document lacks it (from a later release)."""
    try:
        return enumeration(number)
    except ValueError:
        return number


def documented_status(number: int) -> cudnnStatus_t:
    """Return the documented status for a library's return value.

    Release 9 numbers statuses in families of a thousand; ``LibraryError.number`` keeps the original number.
    """
    return face(9).documented(number)


CITED = re.compile(r"\[(\w+/c\d+)\]$")


class LibraryError(CudnnError):
    """Report a status from a foreign library, with its original ``number`` and the clause that its message cites."""

    def __init__(self, number: int, message: str, function: str) -> None:
        cited = CITED.search(message)
        super().__init__(documented_status(number), cited and cited[1], message, function)
        self.number = number


class NullAccepted(AssertionError):
    """Report that NULL for an output was not refused."""


class NothingCreated(AssertionError):
    """Report that a Create function succeeded and created no object."""


class NotRunnable(Exception):
    """Say that a call was not made, because this subject cannot be asked; the case is skipped with the reason."""


class Crashes(NotRunnable):
    """Say that the call would crash the process."""

    def __init__(self, function: str, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.function = function


class SpansMore(Crashes):
    """Say that by the library's answer a descriptor spans more bytes than the memory that is passed with it."""


class NotExpressible(NotRunnable, ValueError):
    """Say that no C caller could pass an argument: wrong kind, out of its type's range, or too short a sequence."""


class NotExported(NotRunnable, AttributeError):
    """Say that the library does not have a documented function."""


class DebugStruct(ctypes.Structure):
    """Mirror cudnnDebug_t of the public header."""

    _fields_ = (
        ("cudnn_version", ctypes.c_uint),
        ("cudnnStatus", ctypes.c_int),
        ("time_sec", ctypes.c_uint),
        ("time_usec", ctypes.c_uint),
        ("time_delta", ctypes.c_uint),
        ("handle", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
        ("pid", ctypes.c_ulonglong),
        ("tid", ctypes.c_ulonglong),
        ("cudaDeviceId", ctypes.c_int),
        ("reserved", ctypes.c_int * 15),
    )


class DebugRecord(NamedTuple):
    """Hold the data that a log callback gets besides the message."""

    cudnn_version: int
    cudnnStatus: cudnnStatus_t
    time_sec: int
    time_usec: int
    time_delta: int
    handle: int | None
    stream: int | None
    pid: int
    tid: int
    cudaDeviceId: int


def debug_record(structure: DebugStruct) -> DebugRecord:
    """Return the structure as plain Python."""
    values = {name: getattr(structure, name) for name in DebugRecord._fields}
    return DebugRecord(**{**values, "cudnnStatus": documented_status(structure.cudnnStatus)})


class PerformanceStruct(ctypes.Structure):
    """Mirror cudnnConvolution{Fwd,BwdData,BwdFilter}AlgoPerf_t: one layout, three algorithm enumerations."""

    _fields_ = (
        ("algo", ctypes.c_int),
        ("status", ctypes.c_int),
        ("time", ctypes.c_float),
        ("memory", ctypes.c_size_t),
        ("determinism", ctypes.c_int),
        ("mathType", ctypes.c_int),
        ("reserved", ctypes.c_int * 3),
    )


class AlgorithmPerformance(NamedTuple):
    """Hold one row of a Find or Get ... Algorithm answer, with the documented member names."""

    algo: int
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: int
    mathType: int
    reserved: tuple[int, ...]


PERFORMANCE_ALGORITHMS: dict[str, type[IntEnum]] = {
    "cudnnConvolutionFwdAlgoPerf_t": cudnnConvolutionFwdAlgo_t,
    "cudnnConvolutionBwdDataAlgoPerf_t": cudnnConvolutionBwdDataAlgo_t,
    "cudnnConvolutionBwdFilterAlgoPerf_t": cudnnConvolutionBwdFilterAlgo_t,
}


def performance_record(structure: PerformanceStruct, algorithms: type[IntEnum]) -> AlgorithmPerformance:
    """Return the structure as plain Python."""
    return AlgorithmPerformance(
        named(algorithms, structure.algo),
        documented_status(structure.status),
        structure.time,
        structure.memory,
        named(cudnnDeterminism_t, structure.determinism),
        named(cudnnMathType_t, structure.mathType),
        tuple(structure.reserved),
    )


class AlgorithmUnion(ctypes.Structure):
    """Mirror cudnnAlgorithm_t: a union of algorithm enumerations, all C ints, passed by value."""

    _fields_ = (("algo", ctypes.c_int),)


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(DebugStruct), ctypes.c_void_p)


def callback_text(address: int) -> str:
    """Return a log message unchanged: every line ends with NUL, and the whole message with one more."""
    text = ""
    while line := ctypes.string_at(address):
        text += line.decode(errors="replace") + "\0"
        address += len(line) + 1
    return text + "\0"


def element_type(base: str) -> Any:
    """Return the ctypes type of one element of a documented C type (enumerations are ints)."""
    return ctypes.c_int if base in ENUMERATIONS else SCALARS[base]


def python_value(base: str, number: Any) -> Any:
    """Return a C scalar in Python, as an enumerator if its type is an enumeration."""
    if base == "cudnnStatus_t":
        return documented_status(number)
    return named(ENUMERATIONS[base], number) if base in ENUMERATIONS else number
