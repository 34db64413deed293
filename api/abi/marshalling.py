"""Convert the words of a C call to Python arguments, and results to the bytes behind the caller's pointers.

The function table selects one rule per parameter: a reader makes a Python argument from the call's words, and a writer
makes bytes of a result. Callbacks have a rule by name, because the table cannot describe them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from ctypes import c_char, c_double, c_float, string_at
from struct import Struct
from typing import Any

import numpy as np

from ..descriptors import DESCRIPTORS, AlgorithmPerformance
from ..document import Function, Length, Parameter
from ..enumerations import ENUMERATIONS
from ..operations.numpy_layout import NUMPY_TYPES
from ..operations.specs import DOUBLE, FLOAT, HALF
from . import backend_attributes, pack_attributes
from .c_types import ADDRESS, DEBUG, MAX_ENTRIES, ROW, depth, element, is_object, packed, read, sized
from .faces import Face, face
from .objects import Objects

Read = Callable[[tuple[Any, ...]], Any]
# A Write takes a call's words and a value. It returns the bytes to store behind its argument, or stores the value itself.
Write = Callable[[tuple[Any, ...], Any], "bytes | None"]
FILLS = {DOUBLE: "d", FLOAT: "f", HALF: "e"}  # the code of a padding value, by the data type beside it


class Marshalling:
    """Hold the rules of one library."""

    def __init__(self, objects: Objects, lib: Any = None, chosen: Face | None = None) -> None:
        self.objects, self.lib, self.face = objects, lib, chosen or face(8)

    # The following methods read arguments.

    def reader(self, function: Function, index: int) -> Read:
        """Return the rule that makes a Python argument of a call's words."""
        parameter = function.parameters[index]
        base, name = parameter.base_type, parameter.name
        if (function.name, name) in pack_attributes.PLACES:
            return pack_attributes.reader(function, index, self.objects)
        if name == "paddingFill":
            return self._fill(function, index)
        if parameter.memory == "device" or base in ("cudaStream_t", "cudnnRuntimeTag_t") or name == "udata":
            return lambda c: c[index] or None
        if name in ("loWinIdx", "hiWinIdx"):
            return self._windows(function, index)
        if base == "cudnnCallback_t":
            return lambda c: self.callback(c[index])
        if name == "arrayOfElements":
            return backend_attributes.reader(function, index, self.objects)
        if parameter.typed_by is not None:
            return self._scalar(function, index)
        if parameter.length is not None:
            return self._array(function, index)
        if is_object(base):
            get = self.objects.get
            return lambda c: get(c[index])
        if name == "algoSpace":
            return self._host_memory(function, index)
        if base == "cudnnStatus_t" and self.face.numbers:
            documented = self.face.documented
            return lambda c: documented(c[index])
        if base in ENUMERATIONS and not parameter.is_pointer and name != "status":
            members = {member.value: member for member in ENUMERATIONS[base]}  # The log prints their names.
            return lambda c: members.get(c[index], c[index])
        return lambda c: c[index]

    def _scalar(self, function: Function, index: int) -> Read:
        """Return the rule for alpha and beta, which are doubles for a DOUBLE result and floats otherwise.
        cudnnSetTensor's value has the tensor's type."""
        parameter = function.parameters[index]
        place = [p.name for p in function.parameters].index(str(parameter.typed_by))
        own_type, get = parameter.name == "valuePtr", self.objects.get

        def scalar(c: tuple[Any, ...]) -> Any:
            if not c[index]:
                return None
            spec: Any = getattr(get(c[place]), "spec", None)
            data_type = getattr(spec, "data_type", None)  # A descriptor of another kind has none; the call refuses it.
            if data_type is None or data_type is DOUBLE or not own_type:
                return (c_double if data_type is DOUBLE else c_float).from_address(c[index]).value
            dtype = NUMPY_TYPES[spec.scalar_type]
            return np.frombuffer(string_at(c[index], dtype.itemsize), dtype)[0].item()

        return scalar

    def _fill(self, function: Function, index: int) -> Read:
        """Return the rule for paddingFill, a number of the data type in another argument. For an unknown data type the
        value is the address."""
        place = [p.name for p in function.parameters].index("dataType")

        def fill(c: tuple[Any, ...]) -> Any:
            code = FILLS.get(c[place])
            return read(code, c[index])[0] if c[index] and code else c[index] or None

        return fill

    def _windows(self, function: Function, index: int) -> Read:
        """Return the rule for attention windows, with one entry per time-step of the queries; a call with currIdx reads
        only its own entry.

        More steps than the attention descriptor allows are not read, and the call refuses them later.
        """
        names = [p.name for p in function.parameters]
        queries = names.index("qDesc" if "qDesc" in names else "dqDesc")
        current = names.index("currIdx") if "currIdx" in names else None
        attention = names.index("attnDesc")

        def windows(c: tuple[Any, ...]) -> Any:
            dims = getattr(getattr(self.objects.get(c[queries]), "spec", None), "dims", None)
            if not c[index] or not dims:
                return () if c[index] else None
            longest = getattr(getattr(self.objects.get(c[attention]), "spec", None), "qo_longest", 0)
            step, steps = -1 if current is None else c[current], dims[0]
            if steps > longest:
                return ()
            if step < 0:
                return read("i", c[index], steps)
            return (0,) * step + read("i", c[index] + 4 * step) if step < steps else ()

        return windows

    def _host_memory(self, function: Function, index: int) -> Read:
        """Return the rule for host memory whose size in bytes is another argument."""
        size = [p.name for p in function.parameters].index(f"{function.parameters[index].name}SizeInBytes")
        return lambda c: (c_char * min(c[size], sys.maxsize)).from_address(c[index]) if c[index] else None

    def _array(self, function: Function, index: int) -> Read:
        """Return the rule for a host array, sized by other arguments. An array with an impossible count is not read,
        and the call refuses it later."""
        parameter = function.parameters[index]
        assert parameter.length is not None
        array, count = sized(function, index), self._count(function, parameter.length)
        get = self.objects.get if parameter.base_type in DESCRIPTORS else None

        def entries(c: tuple[Any, ...]) -> Any:
            if not c[index]:
                return None
            asked = count(c)
            if asked > MAX_ENTRIES:
                return ()
            found = read(array.code, c[index], max(0, min(asked, array.most) - array.less))
            return tuple(map(get, found)) if get else found

        return entries

    def _count(self, function: Function, length: Length) -> Read:
        """Return the rule for a count: the parameter itself, the sum of an array, or a dimension of a tensor."""
        index = [p.name for p in function.parameters].index(length.count)
        if function.parameters[index].base_type in DESCRIPTORS:
            get, dimension = self.objects.get, length.dimension
            return lambda c: (*getattr(getattr(get(c[index]), "spec", None), "dims", ()), *(0,) * 8)[dimension]
        if not function.parameters[index].is_pointer:
            return lambda c: c[index]
        entries = self._array(function, index)
        return lambda c: sum(entries(c) or ())

    def callback(self, address: int) -> Any:
        """Return a C log callback as a Python function; the function keeps the address for cudnnGetCallback."""
        if not address:
            return None

        def run(severity: int, udata: int | None, debug: Any, text: str) -> None:
            handle, stream = self.objects.pointers.get(id(debug.handle), 0), getattr(debug.stream, "address", 0)
            times = debug.time_sec, debug.time_usec, debug.time_delta
            status = self.face.status(debug.cudnnStatus)
            record = DEBUG.pack(
                debug.cudnn_version, status, *times, handle, stream, debug.pid, debug.tid, debug.cudaDeviceId
            )
            if self.lib.dualdnn_call_back(address, severity, udata or 0, record, text.encode()):
                print("dualdnn: the log callback threw an exception, which ends here", file=sys.stderr, flush=True)

        run.address = address  # type: ignore[attr-defined]
        return run

    # The following methods write results.

    def writer(self, function: Function, index: int) -> Write:
        """Return the rule that stores a result behind the caller's pointer, the argument with this index."""
        parameter = function.parameters[index]
        if parameter.name == "arrayOfElements":
            return backend_attributes.writer(function, index, self.objects)
        if (function.name, parameter.name) in pack_attributes.PLACES:
            return pack_attributes.writer(function, index, self.objects)
        if parameter.name == "perfResults" and parameter.base_type == AlgorithmPerformance.type_name:
            return lambda c, values: self._performances(read(ADDRESS, c[index], len(values)), values)
        encode = self.encoder(parameter)
        return lambda c, value: encode(value)

    def encoder(self, parameter: Parameter) -> Callable[[Any], bytes]:
        """Return the rule that makes bytes of a result."""
        base, add, is_array = parameter.base_type, self.objects.add, parameter.length is not None
        code = element(base) if depth(parameter) == 1 else ADDRESS
        pack = Struct(code).pack
        if base.endswith("AlgoPerf_t"):
            return self._rows
        if parameter.name == "paddingFill":
            # The value has the container's data type; a sequence data descriptor never has one.
            return lambda value: b"" if value is None else value.tobytes()
        if is_object(base):
            return lambda value: packed(ADDRESS, map(add, value)) if is_array else pack(add(value))
        if is_array:
            return lambda values: packed(code, values)
        if base in ("cudnnCallback_t", "cudaStream_t", "void"):
            return lambda value: pack(getattr(value, "address", value) or 0)
        if base == "cudnnStatus_t":
            return lambda value: pack(self.face.status(value))
        return pack

    def _rows(self, rows: Iterable[Any]) -> bytes:
        """Return the rows of a search for algorithms."""
        status = self.face.status
        return b"".join(
            ROW.pack(r.algo, status(r.status), r.time, r.memory, r.determinism, r.mathType, *r.reserved) for r in rows
        )

    def _performances(self, places: Iterable[int], values: Any) -> bytes:
        """Store the results of a search in the objects that the caller created for them; return all objects."""
        found = []
        for pointer, value in zip(places, values, strict=True):
            known = self.objects.get(pointer)
            if isinstance(known, AlgorithmPerformance) and known.alive:
                known.algorithm, known.spec = value.algorithm, value.spec
                found.append(pointer)
            else:
                found.append(self.objects.add(value))
        return packed(ADDRESS, found)
