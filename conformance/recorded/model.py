"""Hold recordings in memory, and read and write their files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from dualdnn.api.document import functions
from dualdnn.api.enumerations import ENUMERATIONS, cudnnStatus_t
from dualdnn.api.files import write as write_file

Block = np.ndarray[Any, np.dtype[np.uint8]]

FORMAT = "dualdnn recorded calls"
VERSION = 1  # version of the format
ENUMERATORS = {member.name: member for kind in ENUMERATIONS.values() for member in kind}
_RECORD_KEYS = {"id", "function", "status", "arguments", "memory", "result", "note", "probe", "arrays"}
_VALUE_KEYS = (
    {"handle"}, {"descriptor", "calls"}, {"memory", "offset", "bytes"}, {"memory_of"}, {"required", "was"}, {"unrecorded"},
)  # fmt: skip
# Version 9 groups its statuses: the thousands give the documented status.
_FAMILIES = {1: "NOT_INITIALIZED", 2: "BAD_PARAM", 3: "NOT_SUPPORTED", 4: "INTERNAL_ERROR", 5: "EXECUTION_FAILED"}


class RecordingError(ValueError):
    """Report a file that is not a recording, or an invalid record, by file, record and value."""


@dataclass(frozen=True)
class Record:
    """Hold one recorded call. ``arguments`` is None for an experiment that is not a single documented call."""

    id: str
    function: str
    status: int
    arguments: Mapping[str, Any] | None
    memory: tuple[tuple[Block | None, Block | None], ...] = ()
    result: Any = None
    note: str = ""
    probe: Any = None
    arrays: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @cached_property
    def functions(self) -> tuple[str, ...]:
        """Return the documented functions that the call and its preparation need."""
        return tuple(dict.fromkeys((self.function, *_setters(self.arguments))))

    @cached_property
    def incomplete(self) -> str:
        """Return what was not kept of the call; empty if it can be repeated."""
        return next(iter(_unrecorded(self.arguments)), "")

    def __str__(self) -> str:
        """Return the call on one line."""
        if self.arguments is None:
            return f"{self.function}, probe {json.dumps(self.probe)}"
        return f"{self.function}({', '.join(f'{name}={value_text(value)}' for name, value in self.arguments.items())})"


def _unrecorded(value: Any) -> Iterable[str]:
    """Yield the reason of each missing part of a value."""
    if isinstance(value, Mapping):
        if "unrecorded" in value:
            yield str(value["unrecorded"])
        for name, inner in value.items():
            yield from (f"{name}: {text}" for text in _unrecorded(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _unrecorded(inner)


def _setters(value: Any) -> Iterable[str]:
    """Yield the functions that fill the descriptors inside a value."""
    if isinstance(value, Mapping):
        if "calls" in value:
            yield from (name for name, _ in value["calls"])
        for inner in value.values():
            yield from _setters(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _setters(inner)


@dataclass(frozen=True)
class Recording:
    """Hold the records of one file."""

    name: str
    library: str
    library_version: int
    device: str
    records: tuple[Record, ...]

    def status(self, record: Record) -> cudnnStatus_t:
        return status_of(record.status, self.library_version)

    def find(self, record_id: str) -> Record:
        """Return the record with this id. Raises ``RecordingError`` if there is none."""
        for record in self.records:
            if record.id == record_id:
                return record
        raise RecordingError(f"{self.name} has no record {record_id!r}")


def status_of(number: int, library_version: int) -> cudnnStatus_t:
    """Return the documented status for a library version's number: 2xxx is BAD_PARAM from version 9 on."""
    if number == 0 or library_version < 90000:
        try:
            return cudnnStatus_t(number)
        except ValueError:
            raise RecordingError(f"status {number} is not one of cudnnStatus_t") from None
    family = _FAMILIES.get(number // 1000)
    if family is None:
        raise RecordingError(f"status {number} of library version {library_version} belongs to no documented status")
    return cudnnStatus_t[f"CUDNN_STATUS_{family}"]


def value_text(value: Any) -> str:
    """Return a value of a record as readable text."""
    if not isinstance(value, dict):
        return str(value).replace("'", "")
    if "descriptor" in value:
        calls = (
            f"{name.removeprefix('cudnn')}({', '.join(map(value_text, given.values()))})"
            for name, given in value["calls"]
        )
        return " ".join(calls) or "not initialised"
    if "memory" in value:
        return f"memory {value['memory']}" + (f"+{value['offset']}" if value["offset"] else "")
    if "required" in value:
        return f"required{value['required']:+}"
    return next(iter(value))


@cache
def load_recording(path: str | Path) -> Recording:
    """Return the recording in a file. Raises ``RecordingError`` that says what is wrong with it."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not a file: a recording is an .npz file of dualdnn conformance --record")
    if not is_zipfile(path):  # NumPy would advise to load it unsafely.
        raise RecordingError(f"{path.name} is not a recording: not an .npz file")
    try:
        with np.load(path, allow_pickle=False) as archive:
            calls, memory, offsets = (archive[name] for name in ("calls", "memory", "offsets"))
        header = json.loads(calls.tobytes().decode("utf-8"))
    except Exception as error:  # NumPy, zip files and JSON raise many errors for damaged files.
        raise RecordingError(f"{path.name} is not a recording: {error}") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RecordingError(f"{path.name} is not a recording: its format is not {FORMAT!r}")
    if header.get("version") != VERSION:
        raise RecordingError(f"{path.name} has format version {header.get('version')!r}, version {VERSION} can be read")
    blocks = _Blocks(path.name, memory, offsets)
    try:
        records = tuple(_decoded(entry, blocks, f"{path.name}, record {entry['id']}") for entry in header["records"])
        made = Recording(
            path.stem, str(header["library"]), int(header["library_version"]), str(header["device"]), records
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise RecordingError(f"{path.name} lacks or misspells {error}") from None
    if len({record.id for record in records}) != len(records):
        raise RecordingError(f"{path.name} has two records with the same id")
    for record in records:
        if record.arguments is not None:
            status_of(record.status, made.library_version)
    return made


def packaged_recordings() -> list[Path]:
    """Return the recordings that come with the package."""
    return sorted(Path(__file__).parent.glob("*.npz"))


class _Blocks:
    """Hold the distinct blocks of a file."""

    def __init__(self, name: str, memory: Block, offsets: np.ndarray[Any, Any]) -> None:
        ordered = offsets.ndim == 1 and offsets.size > 0 and offsets[0] == 0 and bool(np.all(np.diff(offsets) >= 0))
        if memory.dtype != np.uint8 or not ordered or offsets[-1] != memory.size:
            raise RecordingError(f"{name}: offsets do not divide the memory of {memory.size} bytes")
        memory.setflags(write=False)
        self.memory, self.offsets = memory, offsets

    def __call__(self, index: Any, where: str) -> Block | None:
        if index is None:
            return None
        if not isinstance(index, int) or not 0 <= index < self.offsets.size - 1:
            raise RecordingError(
                f"{where}: block {index!r} is not one of the {self.offsets.size - 1} blocks of the file"
            )
        return self.memory[self.offsets[index] : self.offsets[index + 1]]


def _decoded(entry: dict[str, Any], blocks: _Blocks, where: str) -> Record:
    unknown = set(entry) - _RECORD_KEYS
    if unknown or ("arguments" in entry) == ("probe" in entry):
        raise RecordingError(f"{where}: needs arguments or probe, and has the unknown keys {sorted(unknown)}")
    memory = tuple((blocks(before, where), blocks(after, where)) for before, after in entry.get("memory", ()))
    arrays = {}
    for name, (kind, shape, block) in entry.get("arrays", {}).items():
        try:
            arrays[name] = np.frombuffer(blocks(block, where), np.dtype(kind)).reshape(shape)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise RecordingError(f"{where}: array {name} of {kind!r}, {shape}: {error}") from None
    arguments = entry.get("arguments")
    if arguments is not None:
        _check_call(entry["function"], arguments, memory, where)
    return Record(
        entry["id"], entry["function"], entry["status"], arguments, memory, entry.get("result"), entry.get("note", ""),
        entry.get("probe"), arrays,
    )  # fmt: skip


def _check_call(function: str, arguments: Any, memory: tuple[Any, ...], where: str, own: int = 0) -> None:
    """Check that a call has each documented name once. ``own`` is 1 if the filled descriptor is left out."""
    if function not in functions():
        raise RecordingError(f"{where}: {function!r} is not a function of the document")
    documented = {parameter.name for parameter in functions()[function].arguments}
    if set(arguments) - documented or len(documented) - len(arguments) != own:
        raise RecordingError(f"{where}: {function} takes {sorted(documented)}, the record has {sorted(arguments)}")
    for name, value in arguments.items():
        _check_value(value, memory, f"{where}, {name}")


def _check_value(value: Any, memory: tuple[Any, ...], where: str) -> None:
    if isinstance(value, str) and value not in ENUMERATORS:
        raise RecordingError(f"{where}: {value!r} is not an enumerator of the document")
    if isinstance(value, list):
        for item in value:
            _check_value(item, memory, where)
    if not isinstance(value, dict):
        return
    if set(value) not in _VALUE_KEYS:
        raise RecordingError(f"{where}: {value!r} is not one of the values that a record can have")
    for function, arguments in value.get("calls", ()):
        _check_call(function, arguments, memory, where, own=1)
    if "memory" in value:
        index, offset, size = value["memory"], value["offset"], value["bytes"]
        kept = [block.size for block in memory[index] if block is not None] if index in range(len(memory)) else None
        if kept is None or offset < 0 or size < 0 or any(offset + size > kept_size for kept_size in kept):
            raise RecordingError(f"{where}: {value!r} lies outside the record's memory")


class BlockWriter:
    """Collect distinct blocks of memory."""

    def __init__(self) -> None:
        self.blocks: list[bytes] = []
        self.index: dict[bytes, int] = {}

    def __call__(self, block: Block | None) -> int | None:
        if block is None:
            return None
        content = block.tobytes()
        if content not in self.index:
            self.index[content] = len(self.blocks)
            self.blocks.append(content)
        return self.index[content]


def save_recording(
    path: str | Path, library: str, library_version: int, device: str, records: Iterable[Record]
) -> None:
    """Write records to a file; equal blocks of memory are stored once."""
    write = BlockWriter()
    entries = [_encoded(record, write) for record in records]
    header = {
        "format": FORMAT, "version": VERSION, "library": library, "library_version": library_version, "device": device,
        "records": entries,
    }  # fmt: skip
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    offsets = np.cumsum([0, *map(len, write.blocks)], dtype=np.int64)
    memory = np.frombuffer(b"".join(write.blocks), np.uint8)
    content = BytesIO()
    np.savez_compressed(content, calls=np.frombuffer(text, np.uint8), memory=memory, offsets=offsets)
    write_file(Path(path), content.getvalue())


def _encoded(record: Record, write: BlockWriter) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": record.id, "function": record.function, "status": record.status}
    if record.arguments is None:
        entry["probe"] = record.probe
    else:
        entry["arguments"] = record.arguments
    if record.memory:
        entry["memory"] = [[write(before), write(after)] for before, after in record.memory]
    if record.arrays:
        entry["arrays"] = {name: [a.dtype.str, list(a.shape), write(a)] for name, a in record.arrays.items()}
    entry.update(
        {name: value for name, value in (("result", record.result), ("note", record.note)) if value not in (None, "")}
    )
    return entry
