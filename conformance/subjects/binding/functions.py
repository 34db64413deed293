"""Generate Python functions for the C functions of the document from the function table.

The slot of a parameter follows from its type, direction and memory space. ``special`` holds what the table cannot
express.
"""

from __future__ import annotations

import ctypes
import inspect
import os
import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from dualdnn.api.document import Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.status import BAD_PARAM

from .objects import Library, end_copy_of
from .queries import failure_text, status_number
from .slots import (
    AddressOut,
    AlgorithmIn,
    AlgorithmOut,
    ArrayIn,
    ArrayOut,
    Call,
    Destroyed,
    DevicePointer,
    FillIn,
    FillOut,
    HostMemory,
    NullOnly,
    OpaqueArray,
    OpaqueIn,
    OpaqueOut,
    PerformanceOut,
    Scalar,
    ScalarOut,
    Scaling,
    Slot,
    StreamIn,
    StreamOut,
    Unasked,
)
from .tables import OUTPUT_LENGTHS
from .types import PERFORMANCE_ALGORITHMS, Crashes, LibraryError, NullAccepted


@cache
def function_table() -> dict[str, tuple[Parameter, ...]]:
    """Return the parameters of every documented function."""
    return {name: function.parameters for name, function in functions().items()}


OPAQUE = re.compile(r"cudnn\w*(Descriptor|Handle|Plan|ParamPack|AlgorithmPerformance)_t|cudnnHandle_t")


def depth(ctype: str) -> int:
    """Return how many pointers a C type has."""
    return ctype.count("*") + ctype.count("[]")


def is_tensor(parameter: Parameter) -> bool:
    """Return whether the parameter is a single tensor or filter descriptor."""
    return parameter.base_type in ("cudnnTensorDescriptor_t", "cudnnFilterDescriptor_t") and depth(parameter.ctype) == 0


def slot_of(function: str, index: int, parameters: Sequence[Parameter]) -> Slot:
    """Return the slot of one parameter, from its type, direction and memory space."""
    parameter = parameters[index]
    base, pointers = parameter.base_type, depth(parameter.ctype)
    opaque = OPAQUE.fullmatch(base) is not None and base not in ENUMERATIONS
    written = parameter.is_returned
    if parameter.memory == "device":
        before = parameters[index - 1] if index and is_tensor(parameters[index - 1]) else None
        return DevicePointer(parameter, before)
    if base == "cudaStream_t":
        return (StreamOut if written else StreamIn)(parameter)
    if base == "cudnnAlgorithm_t":
        return (AlgorithmOut if written else AlgorithmIn)(parameter)
    if base in PERFORMANCE_ALGORITHMS:
        return PerformanceOut(parameter)
    if parameter.name == "paddingFill":
        return (FillOut if written else FillIn)(parameter)
    if opaque and pointers == 0:
        destroys = function.startswith(("cudnnDestroy", "cudnnBackendDestroy"))
        return (Destroyed if destroys else OpaqueIn)(parameter)
    if opaque:
        return (OpaqueOut if written else OpaqueArray)(parameter)
    if base == "void" and pointers == 2:
        return AddressOut(parameter)
    if base == "void" and parameter.name == "algoSpace":
        return HostMemory(parameter, "algoSpaceSizeInBytes")
    if parameter.typed_by is not None:
        return Scaling(parameter, next(p for p in parameters if p.name == parameter.typed_by))
    if base == "cudnnRuntimeTag_t":
        return NullOnly(parameter)
    if base != "void" and pointers == 0:
        return Scalar(parameter)
    if base != "void" and written:
        is_array = parameter.name in OUTPUT_LENGTHS.get(function, {})
        return (ArrayOut if is_array else ScalarOut)(parameter)
    if base != "void" and parameter.direction == "in":
        return ArrayIn(parameter)
    return Slot(parameter)


RESULT_TYPES = {
    "cudnnGetVersion": ctypes.c_size_t,
    "cudnnGetCudartVersion": ctypes.c_size_t,
    "cudnnGetErrorString": ctypes.c_char_p,
}


class Function:
    """Wrap a documented function that a library exports."""

    def __init__(self, library: Library, name: str, slots: Sequence[Slot], null_crashes: Sequence[str]) -> None:
        self.library, self.slots, self.null_crashes = library, slots, null_crashes
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{name} of {library.path.name}."
        self.symbol = library.symbol(name)
        self.symbol.restype = RESULT_TYPES.get(name, ctypes.c_int)
        self.returns_status = name not in RESULT_TYPES
        self.passed = [slot.name for slot in slots if slot.passed]
        required = [
            p.is_returned and (not p.nullable or p.null_with) and p.memory == "host" for p in function_table()[name]
        ]
        self.unasked = tuple(  # outputs for which NULL must be refused
            index for index, asked in enumerate(required) if asked and not isinstance(slots[index], Unasked)
        )
        self.returned = [slot for slot in slots if slot.returned]
        self.result_type = namedtuple(name.removeprefix("cudnn"), [s.name for s in self.returned])  # type: ignore[misc]
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.passed]
        )

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        call, encoded = self.encode(arguments, keywords)
        if self.library.cuda is not None:
            self.library.cuda.make_current()
        before = os.getpid()
        number = self.symbol(*encoded)
        end_copy_of(before)
        if not self.returns_status:
            return number.decode(errors="replace") if isinstance(number, bytes) else number
        call.succeeded = number == 0
        if call.succeeded and self.unasked and self.library.asks_null:
            self.ask_without_outputs(call, encoded)
        for slot in self.slots:
            slot.finish(call)
        if number != 0:
            raise LibraryError(number, failure_text(self.library, number), self.__name__)
        results = [slot.decode(call) for slot in self.returned]
        return None if not results else results[0] if len(results) == 1 else self.result_type(*results)

    def without(self, output: str) -> Callable[..., Any]:
        """Return the function with NULL for an output that may be NULL; the result lacks it."""
        nullable = [p.name for p in function_table()[self.__name__] if p.is_returned and p.nullable]
        if output not in nullable:
            raise ValueError(f"{self.__name__}: {output} is not one of the outputs that may be NULL, {nullable}")
        slots = [Unasked(slot) if slot.name == output else slot for slot in self.slots]
        return Function(self.library, self.__name__, slots, self.null_crashes)

    def ask_without_outputs(self, call: Call, encoded: list[Any]) -> None:
        """Repeat a successful call with NULL for each host output that must not be NULL, once per process.

        It must be refused.
        """
        unasked, self.unasked = self.unasked, ()
        for index in unasked:
            before = os.getpid()
            number = self.symbol(*encoded[:index], ctypes.c_void_p(None), *encoded[index + 1 :])
            end_copy_of(before)
            text = failure_text(call.library, number) if number else "CUDNN_STATUS_SUCCESS"
            if number != status_number(call.library, BAD_PARAM):
                raise NullAccepted(
                    f"{self.__name__}: {self.slots[index].name} is NULL, the answer is {text}, not BAD_PARAM"
                )

    def prepare(self, *arguments: Any, **keywords: Any) -> Callable[[], None]:
        """Return the call with these arguments, to be repeated at the cost of the C call alone (for benchmarks).

        The objects and buffers of the call must live as long as it is used; results are not converted.
        """
        call, encoded = self.encode(arguments, keywords)
        symbol = self.symbol

        def repeat(_: Call = call) -> None:  # The default argument keeps alive what the C arguments point to.
            if number := symbol(*encoded):
                raise LibraryError(number, failure_text(self.library, number), self.__name__)

        return repeat

    def encode(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Call, list[Any]]:
        """Return the checked arguments in C form."""
        if keywords or len(arguments) != len(self.passed):
            arguments = self.__signature__.bind(*arguments, **keywords).args
        call = Call(self.library, self.__name__, dict(zip(self.passed, arguments, strict=True)), {})
        for name in self.null_crashes:
            if call.values[name] is None:
                raise Crashes(self.__name__, f"{name}: None is NULL, which this library does not survive")
        return call, [slot.encode(call) for slot in self.slots]


def generate(
    library: Library,
    special: Mapping[tuple[str, str], Callable[[Parameter], Slot]],
    null_crashes: Mapping[str, Sequence[str]],
) -> dict[str, Function]:
    """Return every documented function that the library exports."""
    functions = {}
    for name, parameters in function_table().items():
        if library.symbol(name) is None:
            continue
        slots = [
            special[name, p.name](p) if (name, p.name) in special else slot_of(name, index, parameters)
            for index, p in enumerate(parameters)
        ]
        functions[name] = Function(library, name, slots, null_crashes.get(name, ()))
    return functions
