"""Record the calls that cases make on a subject, in the format of the package."""

from __future__ import annotations

import functools
import json
import math
import operator
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api.document import Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.status import CudnnError

from .model import Block, Record, load_recording, save_recording
from .replay import REQUIREMENTS, SCRATCH, asked, encoded

# These calls make or destroy the handle, or differ between libraries by nature.
NOT_RECORDED = ("cudnnCreate", "cudnnDestroy", "cudnnGetVersion", "cudnnGetCudartVersion", "cudnnGetProperty")
SETTERS = ("cudnnSet", "cudnnInit", "cudnnDerive", "cudnnRestore")


class Recorder:
    """Wrap the functions of a subject, and record every documented call.

    Identical calls are kept once. Arguments that cannot be written (a destroyed descriptor, a callback) are recorded as
    such.
    """

    def __init__(self, cudnn: Any) -> None:
        self._cudnn = cudnn
        self._records: dict[str, Record] = {}
        self._filled: dict[int, tuple[Any, list[Any]]] = {}  # id of a descriptor -> (descriptor, its setter calls)

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._cudnn, name)
        if name not in functions() or name in NOT_RECORDED:
            return function
        return functools.partial(self.call, name, function)

    @property
    def records(self) -> list[Record]:
        return list(self._records.values())

    def forget(self, arguments: Iterable[Any]) -> None:
        """Forget how descriptors were set, because a call changed them that no record can hold."""
        for value in arguments:
            self._filled.pop(id(value), None)

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Make a documented call and record it. Raises CudnnError as the call does."""
        parameters = functions()[name].arguments
        given = dict(zip((p.name for p in parameters), args, strict=False)) | kwargs
        if len(args) + len(kwargs) != len(parameters) or len(given) != len(parameters):
            return function(*args, **kwargs)  # This is not a documented call.
        call = _Call(self, name, parameters, given)
        try:
            result = function(*args, **kwargs)
        except CudnnError as error:
            self._keep(call.record(getattr(error, "number", int(error.status)), None))
            raise
        self._keep(call.record(0, result))
        self._remember(call, result)
        return result

    def _remember(self, call: _Call, result: Any) -> None:
        """Note the setter calls of the descriptors after a successful call."""
        if call.name.startswith(("cudnnCreate", "cudnnBackendCreate")) and result is not None:
            self._filled[id(result)] = (result, [])
        if call.name.startswith("cudnnDestroy"):
            for value in call.given.values():
                self._filled.pop(id(value), None)
        if not call.name.startswith(SETTERS):
            return
        for name in call.filled():
            known = self._filled.get(id(call.given[name]))
            if known is None:
                continue
            given = {other: _portable(value) for other, value in call.arguments.items() if other != name}
            step = [call.name, given]
            # A library may keep an earlier call's setting where the argument is NULL.
            replaces = None not in given.values()
            if replaces and known[1] and known[1][-1][0] == call.name:
                known[1].pop()
            known[1].append(step)

    def _keep(self, record: Record) -> None:
        memory = [[hash(b.tobytes()) if b is not None else None for b in pair] for pair in record.memory]
        key = json.dumps([record.function, record.arguments, record.status, memory, record.result])
        self._records.setdefault(key, record)

    def described(self, value: Any, parameter: Parameter) -> Any:
        """Return the record of a descriptor argument."""
        known = self._filled.get(id(value))
        if known is None or known[0] is not value:
            return {"unrecorded": "a descriptor that was destroyed or not made by this subject"}
        return {"descriptor": parameter.base_type, "calls": [[name, dict(given)] for name, given in known[1]]}

    def required(self, function: str, parameter: Parameter, given: dict[str, Any]) -> int | None:
        """Return the size that the subject's own query asks for."""
        query = REQUIREMENTS.get((function, parameter.name))
        if query is None:
            return None
        try:
            return int(getattr(self._cudnn, query)(*asked(query, function, given)))
        except (CudnnError, TypeError):
            return None


class _Call:
    """Hold one call: its arguments in the form of a record, and its memory before the call."""

    def __init__(self, recorder: Recorder, name: str, parameters: tuple[Parameter, ...], given: dict[str, Any]) -> None:
        self.recorder, self.name, self.given = recorder, name, given
        self.parameters = parameters
        self.handle = next((given[p.name] for p in parameters if p.base_type == "cudnnHandle_t"), None)
        self.pieces = self._pieces()
        self.spans = _merged((address, size) for address, size, _ in self.pieces.values())
        self.before = self._contents()
        self.arguments = {p.name: self._argument(p, given[p.name]) for p in parameters}

    def record(self, status: int, result: Any) -> Record:
        after = self._contents()
        kept = None if _unwritable(encoded(result)) else encoded(result)
        return Record("", self.name, status, self.arguments, tuple(zip(self.before, after, strict=True)), kept)

    def filled(self) -> list[str]:
        """Return the descriptors that this setter fills."""
        kinds = [p for p in self.parameters if p.base_type.startswith("cudnn") and p.base_type.endswith("Descriptor_t")]
        outputs = [p.name for p in kinds if p.direction != "in"]
        return outputs or [p.name for p in kinds[:1]]

    def _pieces(self) -> dict[str, tuple[int, int, Any]]:
        """Return device parameter -> (address, bytes, the argument), where both are known."""
        found = {}
        for parameter in self.parameters:
            value = self.given[parameter.name]
            if parameter.memory == "device" and value is not None and (self.name, parameter.name) not in SCRATCH:
                address, size = _place(value)
                if address is not None:
                    found[parameter.name] = (address, size, value)
        return found

    def _contents(self) -> list[Block]:
        """Return the bytes of every span of memory."""
        contents = [np.zeros(end - start, np.uint8) for start, end in self.spans]
        for address, size, value in self.pieces.values():
            index = next(i for i, (start, end) in enumerate(self.spans) if start <= address and address + size <= end)
            offset = address - self.spans[index][0]
            contents[index][offset : offset + size] = _read(value, address, size, self.handle)
        return contents

    def _argument(self, parameter: Parameter, value: Any) -> Any:
        if value is None:
            return None
        base = parameter.base_type
        if parameter.memory == "device":
            return self._memory(parameter)
        if base == "cudnnHandle_t":
            usable = hasattr(value, "to_device") and getattr(value, "alive", True)
            return {"handle": True} if usable else {"unrecorded": "a destroyed handle, or none"}
        if base.endswith("Descriptor_t") and not isinstance(value, (int, float, str, list, tuple)):
            return self.recorder.described(value, parameter)
        if (self.name, parameter.name) in REQUIREMENTS and isinstance(value, int):
            needed = self.recorder.required(self.name, parameter, self.given)
            return value if needed is None else {"required": value - needed, "was": value}
        if base in ENUMERATIONS:
            return _enumerator(base, value)
        return _plain(value)

    def _memory(self, parameter: Parameter) -> Any:
        if (self.name, parameter.name) in SCRATCH:
            return {"memory_of": SCRATCH[self.name, parameter.name]}
        if parameter.name not in self.pieces:
            return {"unrecorded": "memory of unknown size"}
        address, size, _ = self.pieces[parameter.name]
        index = next(i for i, (start, end) in enumerate(self.spans) if start <= address and address + size <= end)
        return {"memory": index, "offset": address - self.spans[index][0], "bytes": size}


def _merged(pieces: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return spans (start, end) of overlapping pieces (address, size)."""
    spans: list[tuple[int, int]] = []
    for address, size in sorted(pieces):
        if spans and address < spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], address + size))
        elif not spans or spans[-1] != (address, address + size):
            spans.append((address, address + size))
    return spans


def _place(value: Any) -> tuple[int | None, int]:
    """Return (address, bytes) of device memory; the address is None if the size is unknown."""
    if isinstance(value, np.ndarray):
        return value.ctypes.data, value.nbytes
    address, size = getattr(value, "address", None), getattr(value, "nbytes", None)
    return (None, 0) if address is None or size is None else (address, size)


def _read(value: Any, address: int, size: int, handle: Any) -> Block:
    """Return the bytes of device memory."""
    if isinstance(value, np.ndarray):
        return np.frombuffer(value.tobytes(), np.uint8)
    if hasattr(value, "to_host"):
        return np.asarray(value.to_host(np.uint8, size))
    handle.synchronize()
    return np.frombuffer(handle.backend.device.download(address, size), np.uint8)


def _enumerator(base: str, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_enumerator(base, item) for item in value]
    try:
        return ENUMERATIONS[base](operator.index(value)).name
    except (TypeError, ValueError):
        return _plain(value)


def _plain(value: Any) -> Any:
    """Return a number or numbers; everything else is marked as not recorded."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(value)
    return {"unrecorded": f"a {type(value).__name__}"}


def _portable(value: Any) -> Any:
    """Return an argument for another record, which does not have this call's memory."""
    lost = isinstance(value, dict) and ("memory" in value or "memory_of" in value)
    return {"unrecorded": "memory of an earlier call"} if lost else value


def _unwritable(value: Any) -> bool:
    """Return whether a result is anything but numbers, names, lists and objects of them (a created descriptor,
    a handle).
    """
    if isinstance(value, dict):
        return any(map(_unwritable, value.values()))
    if isinstance(value, list):
        return any(map(_unwritable, value))
    return not (value is None or isinstance(value, (str, int)) or (isinstance(value, float) and not math.isnan(value)))


def save(path: Path, subject: Any, records: Iterable[Record]) -> None:
    """Write what was recorded on a subject."""
    numbered = [
        Record(f"{n:05}", r.function, r.status, r.arguments, r.memory, r.result, r.note)
        for n, r in enumerate(records, 1)
    ]
    name, _, version = subject.name.rpartition("-")
    if subject.ours or not version.isdigit():
        name, version = subject.name, "8003"
    save_recording(path, name, int(version), subject.description, numbered)


def merge(path: Path, parts: list[Path]) -> int:
    """Merge the parts that several processes wrote into one recording, and remove them.

    Return the number of records.
    """
    loaded = [load_recording(part) for part in parts]
    if not loaded:
        return 0
    records = [
        Record(f"{p}-{r.id}", r.function, r.status, r.arguments, r.memory, r.result, r.note)
        for p, recording in enumerate(loaded)
        for r in recording.records
    ]
    save_recording(path, loaded[0].library, loaded[0].library_version, loaded[0].device, records)
    for part in parts:
        part.unlink()
    return len(records)
