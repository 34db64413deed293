"""Convert arguments and results, one ``Slot`` per C parameter.

``encode`` turns the Python argument into C, and ``decode`` turns C storage into a result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from dualdnn.api.document import Parameter
from dualdnn.api.enumerations import cudnnDataType_t, cudnnStatus_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT, scalar_type, vector_length
from dualdnn.reference.view import NUMPY_TYPES

from .memory import Buffer
from .objects import Library, Opaque
from .queries import size_in_bytes, status_number, tensor_data_type
from .tables import INPUT_LENGTHS, OUTPUT_LENGTHS, Length
from .types import (
    PERFORMANCE_ALGORITHMS,
    AlgorithmUnion,
    Crashes,
    NotExpressible,
    NothingCreated,
    PerformanceStruct,
    SpansMore,
    element_type,
    performance_record,
    python_value,
    scalar,
)

# Host output arrays never need more entries: ranks are at most 8 and batches of descriptors are small.
MAX_OUTPUT = 1 << 20


@dataclass
class Call:
    """Hold one call in progress: the Python arguments and their C storage, by parameter name."""

    library: Library
    function: str
    values: dict[str, Any]
    storage: dict[str, Any]
    succeeded: bool = False

    def where(self, name: str) -> str:
        """Return the function and parameter for messages."""
        return f"{self.function}: {name}"

    def place(self, name: str, kind: Any, *values: Any) -> Any:
        """Return host memory of this C type for a parameter, filled with these values."""
        self.storage[name] = placed = self.library.host.place(kind)
        for index, value in enumerate(values):
            placed[index] = value
        return placed

    def place_number(self, name: str, value: Any, dtype: Any, components: int = 1) -> Any:
        """Return a number of a NumPy type, in every component of a vector.

        Libraries that read too far find the number there too.
        """
        content = np.full(components if self.library.guarded else 32, value, dtype).tobytes()
        placed = self.place(name, ctypes.c_char * len(content))
        placed.raw = content
        return placed

    def count(self, length: Length) -> int:
        """Return the number of entries that the caller's arguments mean; 0 if only the library knows it,
        because it has the tensor.
        """
        value = self.values[length.count]
        if value is None or isinstance(value, Opaque):
            return 0
        return (int(sum(value)) if hasattr(value, "__len__") else int(value)) - length.less


class Slot:
    """Convert one C parameter.

    ``passed``: the caller gives a value for it. ``returned``: it is part of the result.
    """

    passed = True
    returned = False

    def __init__(self, parameter: Parameter) -> None:
        self.name = parameter.name
        self.ctype = parameter.ctype
        self.base = parameter.base_type

    def encode(self, call: Call) -> Any:
        """Return the ctypes value to pass; what it points to stays in ``call.storage``."""
        raise NotExpressible(f"{call.function} cannot be called: there is no rule for its parameter {self.name}")

    def decode(self, call: Call) -> Any:
        """Return this part of the result."""
        raise NotExpressible(f"{call.function} cannot be called: there is no rule for its result {self.name}")

    def finish(self, call: Call) -> None:
        """Run after every call that reached the library."""


class Unasked(Slot):
    """Pass NULL for an output that is not asked for."""

    passed = False

    def __init__(self, slot: Slot) -> None:
        self.name, self.ctype, self.base = slot.name, slot.ctype, slot.base

    def encode(self, call: Call) -> Any:
        return ctypes.c_void_p(None)


class Scalar(Slot):
    """Convert a number or enumerator."""

    def encode(self, call: Call) -> Any:
        value, where = call.values[self.name], call.where(self.name)
        if self.base == "cudnnStatus_t" and isinstance(value, cudnnStatus_t):
            return ctypes.c_int(status_number(call.library, value))
        return scalar(element_type(self.base), value, where)


class OpaqueIn(Slot):
    """Convert a descriptor or handle."""

    def encode(self, call: Call) -> Any:
        return ctypes.c_void_p(call.library.opaque_address(call.values[self.name], self.base, call.function, self.name))


class Destroyed(OpaqueIn):
    """Convert a descriptor or handle that the call destroys."""

    def finish(self, call: Call) -> None:
        value = call.values[self.name]
        if call.succeeded and value is not None:
            value.alive = False
            call.library.objects.pop(value.address, None)


class OpaqueArray(Slot):
    """Convert a host array of descriptors, one per time step."""

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
        return call.place(self.name, ctypes.c_void_p * len(addresses), *addresses)


class ArrayIn(Slot):
    """Convert a host array of numbers or enumerators."""

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
        numbers = [scalar(kind, value, f"{where}[{index}]").value for index, value in enumerate(values)]
        return call.place(self.name, kind * len(numbers), *numbers)


class DevicePointer(Slot):
    """Convert device memory. ``descriptor`` is the preceding tensor or filter descriptor, which gives its size."""

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
                raise SpansMore(
                    call.function,
                    f"{self.name}: {self.descriptor.name} spans {needed} bytes, the buffer has {value.nbytes}",
                )
        return ctypes.c_void_p(address)


class HostMemory(Slot):
    """Convert host memory of the caller; the parameter ``size`` gives its size."""

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
        kind = ctypes.c_char * view.nbytes
        call.storage[self.name] = memory = kind.from_buffer_copy(view) if view.readonly else kind.from_buffer(view)
        return memory


class Scaling(Slot):
    """Convert alpha, beta, or the value of cudnnSetTensor to the type that the destination tensor requires.

    A scaling parameter is a float, or a double if the tensor is DOUBLE. cudnnSetTensor's value has the tensor's own
    type.
    """

    def __init__(self, parameter: Parameter, descriptor: Parameter | None) -> None:
        super().__init__(parameter)
        self.descriptor = descriptor

    def encode(self, call: Call) -> Any:
        value = call.values[self.name]
        if value is None:
            return ctypes.c_void_p(None)
        data_type, components = self.data_type(call), 1
        if self.name == "valuePtr":
            dtype, components = element_dtype(data_type), components_of(data_type)
        else:
            dtype = element_dtype(DOUBLE if data_type == DOUBLE else FLOAT)
        if np.ndim(value) != 0 or isinstance(value, str | bytes):
            raise NotExpressible(f"{call.where(self.name)}: a number is needed, not {value!r}")
        return call.place_number(self.name, value, dtype, components)

    def data_type(self, call: Call) -> int:
        """Return the data type of the destination tensor."""
        if self.descriptor is None:
            return FLOAT
        name, ctype = self.descriptor.name, self.descriptor.base_type
        address = call.library.opaque_address(call.values[name], ctype, call.function, name)
        return tensor_data_type(call.library, ctype, address)


class ScalarOut(Slot):
    """Return a number or enumerator that the call writes."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        return ctypes.byref(call.place(self.name, element_type(self.base)))

    def decode(self, call: Call) -> Any:
        return python_value(self.base, call.storage[self.name].value)


class ArrayOut(Slot):
    """Return a host array that the call writes, as a tuple of the requested entries that exist."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        asked = min(max(0, call.count(self.length(call))), MAX_OUTPUT)
        return call.place(self.name, element_type(self.base) * asked)

    def decode(self, call: Call) -> Any:
        length = self.length(call)
        stop = max(0, call.count(length))
        if length.filled is not None:
            stop = min(stop, max(0, call.storage[length.filled].value))
        return tuple(python_value(self.base, number) for number in call.storage[self.name][:stop])

    def length(self, call: Call) -> Length:
        """Return which arguments give the length of the array."""
        return OUTPUT_LENGTHS[call.function][self.name]


def created(function: str, output: str, address: int | None) -> None:
    """Raise ``NothingCreated`` if a Create function answered SUCCESS and left NULL."""
    if not address:
        raise NothingCreated(f"{function}: the answer is CUDNN_STATUS_SUCCESS, and {output} is NULL")


class OpaqueOut(Slot):
    """Return a descriptor or handle from the call: new from a Create function, known from a getter."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        return ctypes.byref(call.place(self.name, ctypes.c_void_p))

    def decode(self, call: Call) -> Any:
        address = call.storage[self.name].value
        if call.function.startswith(("cudnnCreate", "cudnnBackendCreate")):
            created(call.function, self.name, address)
            call.library.objects.pop(address, None)
        return call.library.adopt(self.base, address)


class AddressOut(Slot):
    """Return a device pointer from the call, as the buffer or the part of a buffer that it points to."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        return ctypes.byref(call.place(self.name, ctypes.c_void_p))

    def decode(self, call: Call) -> Any:
        return call.library.memory_at(call.storage[self.name].value)


class PerformanceOut(Slot):
    """Return the rows of an algorithm search: requestedAlgoCount of them, cut to returnedAlgoCount."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        asked = min(max(0, int(call.values["requestedAlgoCount"])), MAX_OUTPUT)
        return call.place(self.name, PerformanceStruct * asked)

    def decode(self, call: Call) -> Any:
        count = min(int(call.values["requestedAlgoCount"]), call.storage["returnedAlgoCount"].value)
        rows = call.storage[self.name][: max(0, count)]
        return tuple(performance_record(row, PERFORMANCE_ALGORITHMS[self.base]) for row in rows)


class FillIn(Slot):
    """Convert the padding vector's fill value, with the type in the argument dataType."""

    def encode(self, call: Call) -> Any:
        if call.values[self.name] is None:
            return ctypes.c_void_p(None)
        return call.place_number(self.name, call.values[self.name], element_dtype(call.values["dataType"]))


class FillOut(Slot):
    """Return the padding vector's fill value, with the type in the result dataType."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        call.storage[self.name] = storage = (ctypes.c_char * 64)()
        return storage

    def decode(self, call: Call) -> Any:
        dtype = element_dtype(call.storage["dataType"].value)
        return np.frombuffer(bytes(call.storage[self.name]), dtype, 1)[0].item()


class AlgorithmIn(Slot):
    """Convert any algorithm enumerator to cudnnAlgorithm_t."""

    def encode(self, call: Call) -> Any:
        return AlgorithmUnion(scalar(ctypes.c_int, call.values[self.name], call.where(self.name)))


class AlgorithmOut(Slot):
    """Return cudnnAlgorithm_t as a number, because the union does not tell its enumeration."""

    passed, returned = False, True

    def encode(self, call: Call) -> Any:
        call.storage[self.name] = storage = AlgorithmUnion()
        return ctypes.byref(storage)

    def decode(self, call: Call) -> Any:
        return call.storage[self.name].algo


class StreamIn(Slot):
    """Convert a CUDA stream:

    None, one from ``Handle.new_stream``, or the legacy (1) or per-thread (2) default stream.
    """

    def encode(self, call: Call) -> Any:
        value = call.values[self.name]
        address = getattr(value, "handle", value)
        if address is not None and address not in (0, 1, 2) and address not in call.library.streams:
            raise Crashes(call.function, f"{self.name}: {value!r} is not a stream of this library's handles")
        return ctypes.c_void_p(address)

    def finish(self, call: Call) -> None:
        if call.succeeded and call.values["handle"] is not None:
            call.values["handle"].stream = call.values[self.name]


class StreamOut(OpaqueOut):
    """Return a CUDA stream: the object that was set, or the bare pointer; None is the default stream."""

    def decode(self, call: Call) -> Any:
        address = call.storage[self.name].value
        return call.library.streams.get(address, address) if address else None


class NullOnly(Slot):
    """Accept only NULL for a pointer that the document reserves."""

    def encode(self, call: Call) -> Any:
        if call.values[self.name] is not None:
            raise Crashes(call.function, f"{self.name}: reserved, None is the only value that can be passed")
        return ctypes.c_void_p(None)


def components_of(data_type: int) -> int:
    """Return how many scalars an element of a data type has; one for a type that the document does not know."""
    return vector_length(cudnnDataType_t(data_type)) if data_type in cudnnDataType_t.__members__.values() else 1


def element_dtype(data_type: int) -> np.dtype[Any]:
    """Return the NumPy type of one scalar of a data type; FLOAT's for a type that the document does not know."""
    known = data_type in cudnnDataType_t.__members__.values()
    return NUMPY_TYPES[scalar_type(cudnnDataType_t(data_type)) if known else FLOAT]
