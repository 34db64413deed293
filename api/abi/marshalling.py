"""Convert the C arguments of documented functions to Python arguments, and store results behind the caller's pointers.

The function table selects one rule per parameter: a reader makes a Python argument from the C arguments, and a writer
stores a result. Callbacks have a rule by name, because the table cannot describe them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..descriptors import DESCRIPTORS, AlgorithmPerformance
from ..document import Function, Length, Parameter
from ..enumerations import CUDNN_DIM_MAX, ENUMERATIONS
from ..operations.numpy_layout import NUMPY_TYPES
from ..operations.specs import DOUBLE, FLOAT, HALF
from . import backend_attributes, pack_attributes
from .faces import Face, face
from .objects import Objects

Read = Callable[[tuple[Any, ...]], Any]
# A Write takes all C arguments and a value, and stores the value behind one argument.
Write = Callable[[tuple[Any, ...], Any], None]
MOST_ENTRIES = 1 << 20  # entries per array that is not sized by a rank; larger arrays are not read
DEBUG_FIELDS = ("cudnn_version", "cudnnStatus", "time_sec", "time_usec", "time_delta", "pid", "tid", "cudaDeviceId")


class Marshalling:
    """Hold the rules of one library; ``ffi`` is its cffi object."""

    def __init__(self, ffi: Any, objects: Objects, lib: Any = None, chosen: Face | None = None) -> None:
        self.ffi, self.objects, self.lib, self.face = ffi, objects, lib, chosen or face(8)

    # The following methods read arguments.

    def reader(self, function: Function, index: int) -> Read:
        """Return the rule that makes a Python argument of the C arguments."""
        parameter = function.parameters[index]
        base, name = parameter.base_type, parameter.name
        if (function.name, name) in pack_attributes.PLACES:
            return pack_attributes.reader(function, index, self.ffi, self.objects)
        if name == "paddingFill":
            return self._fill(function, index)
        if parameter.memory == "device" or base in ("cudaStream_t", "cudnnRuntimeTag_t") or name == "udata":
            return lambda c: c[index] or None
        if name in ("loWinIdx", "hiWinIdx"):
            return self._windows(function, index)
        if base == "cudnnCallback_t":
            return lambda c: self.callback(c[index])
        if name == "arrayOfElements":
            return backend_attributes.reader(function, index, self.ffi, self.objects)
        if parameter.typed_by is not None:
            return self._scalar(function, index)
        if parameter.length is not None:
            return self._array(function, index)
        if base in DESCRIPTORS or base == "cudnnHandle_t":
            return self.objects.reader(index)
        if base == "cudnnAlgorithm_t":
            return lambda c: c[index].algo
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
        own_type, ffi, get = parameter.name == "valuePtr", self.ffi, self.objects.get

        def read(c: tuple[Any, ...]) -> Any:
            given = c[index]
            if not given:
                return None
            spec: Any = getattr(get(c[place]), "spec", None)
            data_type = getattr(spec, "data_type", None)  # A descriptor of another kind has none; the call refuses it.
            if data_type is None or (data_type is not DOUBLE and not own_type):
                return given[0]
            if data_type is DOUBLE:
                return ffi.cast("double *", c[index])[0]
            dtype = NUMPY_TYPES[spec.scalar_type]
            return np.frombuffer(ffi.buffer(ffi.cast("char *", c[index]), dtype.itemsize), dtype)[0].item()

        return read

    def _fill(self, function: Function, index: int) -> Read:
        """Return the rule for paddingFill, a number of the data type in another argument. For an unknown data type the
        value is the address."""
        place, ffi = [p.name for p in function.parameters].index("dataType"), self.ffi

        def read(c: tuple[Any, ...]) -> Any:
            dtype = {DOUBLE: np.float64, FLOAT: np.float32, HALF: np.float16}.get(c[place])
            if not c[index] or dtype is None:
                return c[index] or None
            size = np.dtype(dtype).itemsize
            return float(np.frombuffer(ffi.buffer(ffi.cast("char *", c[index]), size), dtype)[0])

        return read

    def _windows(self, function: Function, index: int) -> Read:
        """Return the rule for attention windows, with one entry per time-step of the queries; a call with currIdx reads
        only its own entry.

        More steps than the attention descriptor allows are not read, and the call refuses them later.
        """
        names = [p.name for p in function.parameters]
        queries = names.index("qDesc" if "qDesc" in names else "dqDesc")
        current = names.index("currIdx") if "currIdx" in names else None
        attention = names.index("attnDesc")

        def read(c: tuple[Any, ...]) -> Any:
            dims = getattr(getattr(self.objects.get(c[queries]), "spec", None), "dims", None)
            if not c[index] or not dims:
                return () if c[index] else None
            longest = getattr(getattr(self.objects.get(c[attention]), "spec", None), "qo_longest", 0)
            step, steps = -1 if current is None else c[current], dims[0]
            if steps > longest:
                return ()
            if step < 0:
                return tuple(c[index][0:steps])
            return (0,) * step + (c[index][step],) if step < steps else ()

        return read

    def _host_memory(self, function: Function, index: int) -> Read:
        """Return the rule for host memory whose size in bytes is another argument."""
        size = [p.name for p in function.parameters].index(f"{function.parameters[index].name}SizeInBytes")
        ffi = self.ffi
        return lambda c: ffi.buffer(ffi.cast("char *", c[index]), min(c[size], sys.maxsize)) if c[index] else None

    def _array(self, function: Function, index: int) -> Read:
        """Return the rule for a host array, sized by other arguments. An array with an impossible count is not read,
        and the call refuses it later."""
        parameter, names = function.parameters[index], [p.name for p in function.parameters]
        assert parameter.length is not None
        less, count = parameter.length.less, self._count(function, parameter.length)
        most = CUDNN_DIM_MAX if parameter.length.count in ("nbDims", "arrayLength") else MOST_ENTRIES
        described = parameter.base_type in DESCRIPTORS
        assert parameter.length.count in names

        def read(c: tuple[Any, ...]) -> Any:
            if not c[index]:
                return None
            asked = count(c)
            if asked > MOST_ENTRIES:
                return ()
            entries = tuple(c[index][0 : max(0, min(asked, most) - less)])
            return tuple(map(self.objects.get, entries)) if described else entries

        return read

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
        ffi, call_back = self.ffi, self.lib.dualdnn_call_back

        def run(severity: int, udata: int | None, debug: Any, text: str) -> None:
            known = {name: getattr(debug, name) for name in DEBUG_FIELDS}
            known["cudnnStatus"] = self.face.status(known["cudnnStatus"])
            handle = self.objects.pointers.get(id(debug.handle), 0)
            record = ffi.new("debug_t *", {**known, "handle": handle, "stream": getattr(debug.stream, "address", 0)})
            if call_back(address, severity, udata or 0, record, text.encode()):
                print("dualdnn: the log callback threw an exception, which ends here", file=sys.stderr, flush=True)

        run.address = address  # type: ignore[attr-defined]
        return run

    # The following methods write results.

    def writer(self, function: Function, index: int) -> Write:
        """Return the rule that stores a result behind the caller's pointer, the argument with this index."""
        if function.parameters[index].name == "arrayOfElements":
            return backend_attributes.writer(function, index, self.ffi, self.objects)
        if (function.name, function.parameters[index].name) in pack_attributes.PLACES:
            return pack_attributes.writer(function, index, self.ffi, self.objects)
        write = self._writer(function.parameters[index])
        return (lambda c, value: write(c[index], value)) if write else (lambda c, value: c[index].__setitem__(0, value))

    def _writer(self, parameter: Parameter) -> Callable[[Any, Any], None] | None:
        """Return the rule for a value that is not stored unchanged, or None."""
        base, objects = parameter.base_type, self.objects
        if parameter.name == "perfResults" and base == AlgorithmPerformance.type_name:
            return self._fill_performances
        if parameter.length is not None and base in DESCRIPTORS:
            return lambda place, values: _write_entries(place, [objects.add(value) for value in values])
        if parameter.length is not None:
            return _write_entries
        if base == "cudnnAlgorithm_t":
            return lambda place, value: setattr(place[0], "algo", int(value))
        if parameter.name == "paddingFill":
            # The value has the container's data type; a sequence data descriptor never has one.
            return self._write_fill
        if base.endswith("AlgoPerf_t"):
            return self._write_rows
        if base in DESCRIPTORS or base == "cudnnHandle_t":
            return lambda place, value: place.__setitem__(0, objects.add(value))
        if base in ("cudnnCallback_t", "cudaStream_t", "void"):
            return lambda place, value: place.__setitem__(0, getattr(value, "address", value) or 0)
        if base == "cudnnStatus_t":
            return lambda place, value: place.__setitem__(0, self.face.status(value))
        return lambda place, value: place.__setitem__(0, value)

    def _write_rows(self, place: Any, rows: Any) -> None:
        """Store the rows of a search for algorithms."""
        for i, row in enumerate(rows):
            target = place[i]
            target.algo, target.status, target.time, target.memory = (
                row.algo,
                self.face.status(row.status),
                row.time,
                row.memory,
            )
            target.determinism, target.mathType, target.reserved = row.determinism, row.mathType, row.reserved

    def _fill_performances(self, place: Any, values: Any) -> None:
        """Store the results of a search in the objects that the caller created for them."""
        for i, value in enumerate(values):
            known = self.objects.get(int(self.ffi.cast("uintptr_t", place[i])))
            if isinstance(known, AlgorithmPerformance) and known.alive:
                known.algorithm, known.spec = value.algorithm, value.spec
            else:
                place[i] = self.objects.add(value)

    def _write_fill(self, place: Any, value: Any) -> None:
        if value is not None:
            self.ffi.memmove(self.ffi.cast("char *", place), value.tobytes(), value.nbytes)


def _write_entries(place: Any, values: Any) -> None:
    place[0 : len(values)] = values
