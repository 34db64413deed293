"""Define the C types of the function table: each parameter's type at the border and its spelling in cudnn.h."""

from __future__ import annotations

from ..document import Function, Parameter
from ..enumerations import ENUMERATIONS

NUMBERS = ("int", "unsigned", "int32_t", "uint32_t", "int64_t", "unsigned long long", "size_t", "float", "double")
# RESULTS maps a function to its return type if that is not a status.
RESULTS = {"cudnnGetVersion": "size_t", "cudnnGetCudartVersion": "size_t", "cudnnGetErrorString": "const char *"}

# STRUCTURES declares the structures that cross the border, as the document lays them out (5.1.2.2, 3.1.1.2,
# cudnnAlgorithm_t's union of enumerators).
STRUCTURES = """
typedef struct { int algo, status; float time; size_t memory; int determinism, mathType, reserved[3]; } perf_t;
typedef struct { unsigned cudnn_version; int cudnnStatus; unsigned time_sec, time_usec, time_delta;
    uintptr_t handle, stream; unsigned long long pid, tid; int cudaDeviceId, reserved[15]; } debug_t;
typedef struct { int algo; } algorithm_t;
"""


def depth(parameter: Parameter) -> int:
    """Return how many pointers the documented type has."""
    return parameter.ctype.count("*") + parameter.ctype.count("[]")


def border_type(parameter: Parameter) -> str:
    """Return the type that the border declares. A pointer that is only passed on is a uintptr_t: the same register, an
    integer in Python."""
    base, pointers = parameter.base_type, depth(parameter)
    if base.endswith("AlgoPerf_t"):
        return "perf_t *"
    if base == "cudnnAlgorithm_t":
        return "algorithm_t" + " *" * pointers
    element = "int" if base in ENUMERATIONS else base if base in NUMBERS else None
    if parameter.memory == "device":
        return "uintptr_t"
    if parameter.typed_by is not None:  # These are alpha and beta, which are usually floats.
        return "float *"
    if element is None:  # An opaque type is itself one pointer, and void is no type.
        pointers -= base == "void"
        element = "uintptr_t"
    return element + " *" * pointers


def result_type(function: Function) -> str:
    """Return the C type that the function returns: a status unless the document says otherwise."""
    return RESULTS.get(function.name, "int")


def destroys(function: Function) -> bool:
    """Return whether the function destroys an object."""
    return function.name.startswith(("cudnnDestroy", "cudnnBackendDestroy"))


def border_declaration(function: Function) -> str:
    """Return the declaration of the Python function behind an export."""
    types = ", ".join(map(border_type, function.parameters))
    return f"{result_type(function)} py_{function.name}({types or 'void'});"
