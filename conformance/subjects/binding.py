"""The C functions of the document as Python functions, generated from the function table.

One ``Slot`` per C parameter turns the Python argument into C (``encode``) and C storage into a result (``decode``).
Which slot a parameter gets follows from its type, direction and memory space; what the table cannot express is in
``binding_special``.
"""

from __future__ import annotations

import ctypes
import inspect
import re
from collections import namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from dualdnn.api.document import Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS, cudnnDataType_t, cudnnStatus_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT, scalar_type
from dualdnn.reference.view import NUMPY_TYPES

from .binding_memory import Buffer
from .binding_objects import Library
from .binding_tables import INPUT_LENGTHS, OUTPUT_LENGTHS, Length
from .binding_types import (
    PERFORMANCE_ALGORITHMS,
    RELEASE_9_NUMBERS,
    AlgorithmUnion,
    Crashes,
    LibraryError,
    NotExpressible,
    PerformanceStruct,
    element_type,
    performance_record,
    python_value,
    scalar,
)

# Zeroed entries behind every host array, so that a library which reads or writes too far meets memory of ours.
SPARE = 1024
# Host output arrays never need more entries: ranks are at most 8 and batches of descriptors are small.
LARGEST_OUTPUT = 1 << 20

OPAQUE = re.compile(r"cudnn\w*(Descriptor|Handle|Plan|ParamPack|AlgorithmPerformance)_t|cudnnHandle_t")


@cache
def function_table() -> dict[str, tuple[Parameter, ...]]:
    """The parameters of every documented function."""
    return {name: function.parameters for name, function in functions().items()}


@dataclass
class Call:
    """One call under way: the Python arguments and the C storage behind them, by parameter name."""

    library: Library
    function: str
    values: dict[str, Any]
    storage: dict[str, Any]
    succeeded: bool = False

    def where(self, name: str) -> str:
        """For messages."""
        return f"{self.function}: {name}"

    def count(self, length: Length) -> int:
        """The number of entries that the caller's arguments stand for."""
        value = self.values[length.count]
        if value is None:
            return 0
        return (int(sum(value)) if hasattr(value, "__len__") else int(value)) - length.less


class Slot:
    """One C parameter. ``passed``: the caller gives a value for it. ``returned``: it is part of the result."""

    passed = True
    returned = False

    def __init__(self, parameter: Parameter) -> None:
        self.name = parameter.name
        self.ctype = parameter.ctype
        self.base = parameter.base_type

    def encode(self, call: Call) -> Any:
        """The ctypes value that is passed; what it points to stays in ``call.storage``."""
        raise NotExpressible(f"{call.function} cannot be called: there is no rule for its parameter {self.name}")

    def decode(self, call: Call) -> Any:
        """The part of the result."""
        raise NotExpressible(f"{call.function} cannot be called: there is no rule for its result {self.name}")

    def finish(self, call: Call) -> None:
        """Runs after every call that reached the library."""


class Scalar(Slot):
    """A number or enumerator."""

    def encode(self, call: Call) -> Any:
        value, where = call.values[self.name], call.where(self.name)
        if self.base == "cudnnStatus_t" and isinstance(value, cudnnStatus_t):
            return ctypes.c_int(status_number(call.library, value))
        return scalar(element_type(self.base), value, where)


class OpaqueIn(Slot):
    """A descriptor or handle."""

    def encode(self, call: Call) -> Any:
        return ctypes.c_void_p(call.library.opaque_address(call.values[self.name], self.base, call.function, self.name))


class Destroyed(OpaqueIn):
    """A descriptor or handle that the call destroys."""

    def finish(self, call: Call) -> None:
        value = call.values[self.name]
        if call.succeeded and value is not None:
            value.alive = False
            call.library.objects.pop(value.address, None)


class OpaqueArray(Slot):
    """A host array of descriptors, one per time step."""

    def encode(self, call: Call) -> Any:
        values = call.values[self.name]
        if values is None:
            return ctypes.c_void_p(None)
        if not isinstance(values, Sequence):
            raise NotExpressible(f"{call.where(self.name)}: a sequence of {self.base} is needed, not {values!r}")
        needed = int(call.values.get("seqLength", 0))
        if len(values) < needed:
            raise NotExpressible(f"{call.where(self.name)}: {len(values)} descriptors for seqLength {needed}")
        addresses = [call.library.opaque_address(v, self.base, call.function, self.name) for v in values]
        if None in addresses:
            raise Crashes(call.function, f"{self.name}: the array holds a NULL descriptor")
        call.storage[self.name] = array = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        return array


class ArrayIn(Slot):
    """A host array of numbers or enumerators."""

    def encode(self, call: Call) -> Any:
        values, where = call.values[self.name], call.where(self.name)
        if values is None:
            return ctypes.c_void_p(None)
        if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
            raise NotExpressible(f"{where}: a sequence is needed, not {values!r}")
        length = INPUT_LENGTHS.get(call.function, {}).get(self.name)
        if length is not None and len(values) < call.count(length):
            raise NotExpressible(f"{where}: {len(values)} entries, but {length.count} asks for {call.count(length)}")
        kind = element_type(self.base)
        array = (kind * (len(values) + SPARE))()
        for index, value in enumerate(values):
            array[index] = scalar(kind, value, f"{where}[{index}]").value
        call.storage[self.name] = array
        return array


class DevicePointer(Slot):
    """Device memory. ``descriptor`` names the tensor or filter descriptor just before it, which tells its size."""

    def __init__(self, parameter: Parameter, descriptor: Parameter | None) -> None:
        super().__init__(parameter)
        self.descriptor = descriptor

    def encode(self, call: Call) -> Any:
        value = call.values[self.name]
        address = call.library.device_address(value, call.function, self.name)
        if isinstance(value, Buffer) and self.descriptor is not None:
            owner = call.values[self.descriptor.name]
            needed = size_in_bytes(call.library, owner.ctype, owner.address) if owner is not None else 0
            if needed > value.nbytes:
                raise Crashes(
                    call.function,
                    f"{self.name}: {self.descriptor.name} spans {needed} bytes, the buffer has {value.nbytes}",
                )
        return ctypes.c_void_p(address)


class HostMemory(Slot):
    """Host memory of the caller, of the size that the parameter ``size`` gives."""

    def __init__(self, parameter: Parameter, size: str) -> None:
        super().__init__(parameter)
        self.size = size

    def encode(self, call: Call) -> Any:
        value = call.values[self.name]
        if value is None:
            return ctypes.c_void_p(None)
        view = memoryview(value).cast("B")
        if call.values[self.size] > view.nbytes:
            raise NotExpressible(
                f"{call.where(self.name)}: {view.nbytes} bytes, but {self.size} is {call.values[self.size]}"
            )
        call.storage[self.name] = memory = (ctypes.c_char * view.nbytes).from_buffer(view)
        return memory


class Scaling(Slot):
    """alpha, beta, or the value of cudnnSetTensor, in the type that the destination tensor calls for.

    A scaling parameter is a float, or a double where the tensor is DOUBLE; cudnnSetTensor's value has the tensor's
    own type. The value fills the storage, so that vectorised types find it in every component.
    """

    def __init__(self, parameter: Parameter, descriptor: Parameter | None) -> None:
        super().__init__(parameter)
        self.descriptor = descriptor

    def encode(self, call: Call) -> Any:
        value = call.values[self.name]
        if value is None:
            return ctypes.c_void_p(None)
        data_type = self.data_type(call)
        if self.name == "valuePtr":
            dtype = element_dtype(data_type)
        else:
            dtype = element_dtype(DOUBLE if data_type == DOUBLE else FLOAT)
        if np.ndim(value) != 0 or isinstance(value, str | bytes):
            raise NotExpressible(f"{call.where(self.name)}: a number is needed, not {value!r}")
        call.storage[self.name] = array = np.full(32, value, dtype)
        return ctypes.c_void_p(array.ctypes.data)

    def data_type(self, call: Call) -> int:
        """The data type of the destination tensor."""
        if self.descriptor is None:
            return FLOAT
        name, ctype = self.descriptor.name, self.descriptor.base_type
        address = call.library.opaque_address(call.values[name], ctype, call.function, name)
        return tensor_data_type(call.library, ctype, address)


class ScalarOut(Slot):
    """A number or enumerator that the call writes."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        call.storage[self.name] = storage = element_type(self.base)()
        return ctypes.byref(storage)

    def decode(self, call: Call) -> Any:
        return python_value(self.base, call.storage[self.name].value)


class ArrayOut(Slot):
    """A host array that the call writes: a tuple of the entries that were asked for and exist."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        asked = min(max(0, call.count(self.length(call))), LARGEST_OUTPUT)
        call.storage[self.name] = array = (element_type(self.base) * (asked + SPARE))()
        return array

    def decode(self, call: Call) -> Any:
        length = self.length(call)
        stop = max(0, call.count(length))
        if length.filled is not None:
            stop = min(stop, max(0, call.storage[length.filled].value))
        return tuple(python_value(self.base, number) for number in call.storage[self.name][:stop])

    def length(self, call: Call) -> Length:
        """Which arguments say how long the array is."""
        return OUTPUT_LENGTHS[call.function][self.name]


class OpaqueOut(Slot):
    """A descriptor or handle that the call returns: new from a Create function, known from a getter."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        call.storage[self.name] = storage = ctypes.c_void_p()
        return ctypes.byref(storage)

    def decode(self, call: Call) -> Any:
        if call.function.startswith("cudnnCreate"):
            call.library.objects.pop(call.storage[self.name].value, None)
        return call.library.adopt(self.base, call.storage[self.name].value)


class AddressOut(Slot):
    """A device pointer that the call returns, as the buffer or the part of a buffer that it points to."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        call.storage[self.name] = storage = ctypes.c_void_p()
        return ctypes.byref(storage)

    def decode(self, call: Call) -> Any:
        return call.library.memory_at(call.storage[self.name].value)


class PerformanceOut(Slot):
    """The rows of an algorithm search: requestedAlgoCount of them, cut to returnedAlgoCount."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        asked = min(max(0, int(call.values["requestedAlgoCount"])), LARGEST_OUTPUT)
        call.storage[self.name] = rows = (PerformanceStruct * (asked + SPARE))()
        return rows

    def decode(self, call: Call) -> Any:
        count = min(int(call.values["requestedAlgoCount"]), call.storage["returnedAlgoCount"].value)
        rows = call.storage[self.name][: max(0, count)]
        return tuple(performance_record(row, PERFORMANCE_ALGORITHMS[self.base]) for row in rows)


class FillIn(Slot):
    """The padding vector's fill value, of the type that the argument dataType names."""

    def encode(self, call: Call) -> Any:
        if call.values[self.name] is None:
            return ctypes.c_void_p(None)
        dtype = element_dtype(call.values["dataType"])
        call.storage[self.name] = array = np.full(32, call.values[self.name], dtype)
        return ctypes.c_void_p(array.ctypes.data)


class FillOut(Slot):
    """The padding vector's fill value, of the type that the result dataType names."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        call.storage[self.name] = storage = (ctypes.c_char * 64)()
        return storage

    def decode(self, call: Call) -> Any:
        dtype = element_dtype(call.storage["dataType"].value)
        return np.frombuffer(bytes(call.storage[self.name]), dtype, 1)[0].item()


class AlgorithmIn(Slot):
    """cudnnAlgorithm_t: any algorithm enumerator."""

    def encode(self, call: Call) -> Any:
        return AlgorithmUnion(scalar(ctypes.c_int, call.values[self.name], call.where(self.name)))


class AlgorithmOut(Slot):
    """cudnnAlgorithm_t, as the number: the union does not tell which enumeration it is of."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        call.storage[self.name] = storage = AlgorithmUnion()
        return ctypes.byref(storage)

    def decode(self, call: Call) -> Any:
        return call.storage[self.name].algo


class StreamIn(Slot):
    """A CUDA stream: None, one of ``Handle.new_stream``, or the legacy (1) or per-thread (2) default stream."""

    def encode(self, call: Call) -> Any:
        value = call.values[self.name]
        address = getattr(value, "handle", value)
        if address is not None and address not in (0, 1, 2) and address not in call.library.streams:
            raise Crashes(call.function, f"{self.name}: {value!r} is no stream of this library's handles")
        return ctypes.c_void_p(address)

    def finish(self, call: Call) -> None:
        if call.succeeded and call.values["handle"] is not None:
            call.values["handle"].stream = call.values[self.name]


class StreamOut(OpaqueOut):
    """A CUDA stream: the object that was set, or the bare pointer; None is the default stream."""

    def decode(self, call: Call) -> Any:
        address = call.storage[self.name].value
        return call.library.streams.get(address, address) if address else None


class NullOnly(Slot):
    """A pointer that the document reserves: only NULL can be passed."""

    def encode(self, call: Call) -> Any:
        if call.values[self.name] is not None:
            raise Crashes(call.function, f"{self.name}: reserved, None is the only value that can be passed")
        return ctypes.c_void_p(None)


def element_dtype(data_type: int) -> np.dtype[Any]:
    """The NumPy type of one scalar of a data type; FLOAT's for numbers that the document does not know."""
    known = data_type in cudnnDataType_t.__members__.values()
    return NUMPY_TYPES[scalar_type(cudnnDataType_t(data_type)) if known else FLOAT]


def depth(ctype: str) -> int:
    """How many pointers a C type has."""
    return ctype.count("*") + ctype.count("[]")


def is_tensor(parameter: Parameter) -> bool:
    """Whether the parameter is a single tensor or filter descriptor."""
    return parameter.base_type in ("cudnnTensorDescriptor_t", "cudnnFilterDescriptor_t") and depth(parameter.ctype) == 0


def destination(parameters: Sequence[Parameter]) -> Parameter | None:
    """The descriptor of the tensor that a computing call writes: the last one before its last device output."""
    outputs = [i for i, p in enumerate(parameters) if p.memory == "device" and p.direction != "in"]
    tensors = [p for p in parameters[: outputs[-1]] if is_tensor(p)] if outputs else []
    return tensors[-1] if tensors else None


def slot_of(function: str, index: int, parameters: Sequence[Parameter]) -> Slot:
    """The slot of one parameter, from its type, direction and memory space."""
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
    if base == "void" and re.match(r"alpha|beta|valuePtr", parameter.name):
        return Scaling(parameter, destination(parameters))
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
    """A documented function of a library that exports it."""

    def __init__(self, library: Library, name: str, slots: Sequence[Slot], null_crashes: Sequence[str]) -> None:
        self.library, self.slots, self.null_crashes = library, slots, null_crashes
        self.__name__ = self.__qualname__ = name
        self.__doc__ = f"{name} of {library.path.name}."
        self.symbol = library.symbol(name)
        self.symbol.restype = RESULT_TYPES.get(name, ctypes.c_int)
        self.returns_status = name not in RESULT_TYPES
        self.passed = [slot.name for slot in slots if slot.passed]
        self.returned = [slot for slot in slots if slot.returned]
        self.result_type = namedtuple(name.removeprefix("cudnn"), [s.name for s in self.returned])  # type: ignore[misc]
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in self.passed]
        )

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        call, encoded = self.encode(arguments, keywords)
        if self.library.cuda is not None:
            self.library.cuda.make_current()
        number = self.symbol(*encoded)
        if not self.returns_status:
            return number.decode() if isinstance(number, bytes) else number
        call.succeeded = number == 0
        for slot in self.slots:
            slot.finish(call)
        if number != 0:
            raise LibraryError(number, failure_text(self.library, number), self.__name__)
        results = [slot.decode(call) for slot in self.returned]
        return None if not results else results[0] if len(results) == 1 else self.result_type(*results)

    def prepare(self, *arguments: Any, **keywords: Any) -> Callable[[], None]:
        """The call with these arguments, to be made many times at the cost of the C call alone (for benchmarks).

        The objects and buffers of the call must live as long as it is used; results are not converted.
        """
        call, encoded = self.encode(arguments, keywords)
        symbol = self.symbol

        def repeat(_: Call = call) -> None:  # the default keeps what the C arguments point to
            if number := symbol(*encoded):
                raise LibraryError(number, failure_text(self.library, number), self.__name__)

        return repeat

    def encode(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> tuple[Call, list[Any]]:
        """The checked arguments as C has them."""
        if keywords or len(arguments) != len(self.passed):
            arguments = self.__signature__.bind(*arguments, **keywords).args
        call = Call(self.library, self.__name__, dict(zip(self.passed, arguments, strict=True)), {})
        for name in self.null_crashes:
            if call.values[name] is None:
                raise Crashes(self.__name__, f"{name}: None is NULL, which this library does not survive")
        return call, [slot.encode(call) for slot in self.slots]


def failure_text(library: Library, number: int) -> str:
    """What the library says about a status, with its number."""
    text = f"{library.path.name} returned {number}"
    name = library.symbol("cudnnGetErrorString")
    if name is not None:
        name.restype = ctypes.c_char_p
        text += f" ({(name(ctypes.c_int(number)) or b'').decode(errors='replace')})"
    last = library.symbol("cudnnGetLastErrorString")  # release 9
    if last is not None:
        message = ctypes.create_string_buffer(1024)
        last(message, ctypes.c_size_t(len(message)))
        text += f": {message.value.decode(errors='replace')}" if message.value else ""
    return text


def status_number(library: Library, status: cudnnStatus_t) -> int:
    """A documented status as the library counts it."""
    is_release_9 = (library.version() or 0) >= 90000
    return RELEASE_9_NUMBERS.get(status, int(status)) if is_release_9 else int(status)


def tensor_data_type(library: Library, ctype: str, address: int | None) -> int:
    """The data type of a tensor or filter descriptor as the library has it; FLOAT where it does not say."""
    is_filter = ctype == "cudnnFilterDescriptor_t"
    getter = library.symbol("cudnnGetFilterNdDescriptor" if is_filter else "cudnnGetTensorNdDescriptor")
    if getter is None or address is None:
        return FLOAT
    data_type, rank, layout = ctypes.c_int(0), ctypes.c_int(0), ctypes.c_int(0)
    dims, strides = (ctypes.c_int * 64)(), (ctypes.c_int * 64)()
    outputs = (
        (ctypes.byref(data_type), ctypes.byref(layout), ctypes.byref(rank), dims)
        if is_filter
        else (ctypes.byref(data_type), ctypes.byref(rank), dims, strides)
    )
    status = getter(ctypes.c_void_p(address), ctypes.c_int(1), *outputs)
    return data_type.value if status == 0 else FLOAT


def size_in_bytes(library: Library, ctype: str, address: int) -> int:
    """The bytes that a tensor or filter descriptor spans; 0 where the library does not say."""
    is_filter = ctype == "cudnnFilterDescriptor_t"
    getter = library.symbol("cudnnGetFilterSizeInBytes" if is_filter else "cudnnGetTensorSizeInBytes")
    size = ctypes.c_size_t(0)
    if getter is None or getter(ctypes.c_void_p(address), ctypes.byref(size)) != 0:
        return 0
    return size.value


def generate(
    library: Library,
    special: Mapping[tuple[str, str], Callable[[Parameter], Slot]],
    null_crashes: Mapping[str, Sequence[str]],
) -> dict[str, Function]:
    """Every documented function that the library exports."""
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
