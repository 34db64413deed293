"""Define the C types of the function table, and read and write numbers of these types in the caller's memory.

A code is a letter of the struct module. An opaque type, a pointer and device memory are addresses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ctypes import c_char, c_double, c_float, c_int, c_int64, c_uint, c_uint64
from typing import Any, NamedTuple

from ..descriptors import DESCRIPTORS
from ..document import Function, Parameter
from ..enumerations import CUDNN_DIM_MAX, ENUMERATIONS

# CODES maps a C type to its code.
CODES = {
    "int": "i", "int32_t": "i", "unsigned": "I", "uint32_t": "I", "int64_t": "q", "size_t": "Q", "unsigned long long": "Q", "float": "f",
    "double": "d",
}  # fmt: skip
NUMBERS = tuple(CODES)
ADDRESS = "Q"
NATIVE: dict[str, Any] = dict(zip("iIqQfd", (c_int, c_uint, c_int64, c_uint64, c_float, c_double), strict=True))
C_TYPES = {"i": "int", "I": "unsigned", "q": "int64_t", "Q": "uint64_t", "f": "float", "d": "double"}
WORDS = {"i": "i4x", "I": "I4x", "f": "f4x"}  # how a word of 8 bytes holds a number
# RESULTS maps a function to its return type if that is not a status.
RESULTS = {"cudnnGetVersion": "size_t", "cudnnGetCudartVersion": "size_t", "cudnnGetErrorString": "const char *"}
ROW = struct.Struct("@iifNii3i0N")  # a row of an algorithm search (5.1.2.2); the last item pads it
# DEBUG is cudnnDebug_t (3.1.1.2), whose last 15 integers are reserved.
DEBUG = struct.Struct("@IiIIINNQQi60x")
MAX_ENTRIES = 1 << 20  # entries per array that is not sized by a rank; larger arrays are not read


def depth(parameter: Parameter) -> int:
    """Return how many pointers the documented type has."""
    return parameter.ctype.count("*") + parameter.ctype.count("[]")


def element(base: str) -> str:
    """Return the code of a type without its pointers. cudnnAlgorithm_t is a union of enumerators."""
    return "i" if base in ENUMERATIONS or base == "cudnnAlgorithm_t" else CODES.get(base, ADDRESS)


def code_of(parameter: Parameter) -> str:
    """Return the code of an argument as it is passed: an address or a number."""
    return ADDRESS if depth(parameter) or parameter.memory == "device" else element(parameter.base_type)


def border_type(parameter: Parameter) -> str:
    """Return the type of an argument in the exports. A pointer is an integer there, in the same register."""
    return C_TYPES[code_of(parameter)]


def result_type(function: Function) -> str:
    """Return the C type that the function returns: a status unless the document says otherwise."""
    return RESULTS.get(function.name, "int")


def destroys(function: Function) -> bool:
    """Return whether the function destroys an object."""
    return function.name.startswith(("cudnnDestroy", "cudnnBackendDestroy"))


def is_query(function: Function) -> bool:
    """Return whether the function only reads descriptors, and writes numbers."""
    written = (p.base_type for p in function.parameters if p.direction != "in")
    return function.name.startswith("cudnnGet") and not any(base in DESCRIPTORS or base == "void" for base in written)


def words_of(function: Function) -> struct.Struct:
    """Return the layout of a call's arguments in words of 8 bytes."""
    return struct.Struct("=" + "".join(WORDS.get(code, code) for code in map(code_of, function.parameters)))


class Sized(NamedTuple):
    """Describe a host array by the index of the parameter that counts it.

    It has ``less`` entries fewer than the count. If the count is a rank, at most ``most`` entries are read.
    Other arrays with a count above ``most`` are not read.
    """

    counter: int
    less: int
    most: int
    code: str


def sized(function: Function, index: int) -> Sized:
    """Return how many entries the host array at an index has."""
    parameter, names = function.parameters[index], [p.name for p in function.parameters]
    assert parameter.length is not None
    most = CUDNN_DIM_MAX if parameter.length.count in ("nbDims", "arrayLength") else MAX_ENTRIES
    return Sized(names.index(parameter.length.count), parameter.length.less, most, element(parameter.base_type))


def is_object(base: str) -> bool:
    """Return whether a type is a handle or a descriptor."""
    return base in DESCRIPTORS or base == "cudnnHandle_t"


def read(code: str, address: int, count: int = 1) -> tuple[Any, ...]:
    """Return numbers behind an address."""
    memory = (c_char * (count * struct.calcsize(code))).from_address(address)
    return struct.unpack(f"={count}{code}", memory)


def packed(code: str, values: Iterable[Any]) -> bytes:
    """Return the bytes of numbers."""
    given = (*values,)
    return struct.pack(f"={len(given)}{code}", *given)
