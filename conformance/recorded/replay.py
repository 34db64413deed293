"""Repeat recorded calls through the documented functions of a subject."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from dualdnn.api.document import Parameter, functions
from dualdnn.api.enumerations import cudnnStatus_t
from dualdnn.api.operations import Operation
from dualdnn.api.status import CudnnError

from ..trial import GUARD, PATTERN, POISON
from .model import ENUMERATORS, Block, Record

CREATORS = {"cudnnBackendDescriptor_t": "cudnnBackendCreateDescriptor"}  # all other types use cudnnCreate + type - _t
# size argument -> query of the needed size; the query takes the call's arguments
REQUIREMENTS = {
    ("cudnnReduceTensor", "indicesSizeInBytes"): "cudnnGetReductionIndicesSize",
    ("cudnnReduceTensor", "workspaceSizeInBytes"): "cudnnGetReductionWorkspaceSize",
}
# memory without useful contents before or after the call -> its size argument
SCRATCH = {("cudnnReduceTensor", "workspace"): "workspaceSizeInBytes"}
for _call in ("ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardFilter"):
    REQUIREMENTS[f"cudnn{_call}", "workSpaceSizeInBytes"] = f"cudnnGet{_call}WorkspaceSize"
    SCRATCH[f"cudnn{_call}", "workSpace"] = "workSpaceSizeInBytes"
REQUIREMENTS["cudnnConvolutionBiasActivationForward", "workSpaceSizeInBytes"] = (
    "cudnnGetConvolutionForwardWorkspaceSize"
)
SCRATCH["cudnnConvolutionBiasActivationForward", "workSpace"] = "workSpaceSizeInBytes"


for _call, _size in (("cudnnCTCLoss", "workspaceSizeInBytes"), ("cudnnCTCLoss_v8", "workSpaceSizeInBytes")):
    REQUIREMENTS[_call, _size] = _call.replace("CTCLoss", "GetCTCLossWorkspaceSize")
    SCRATCH[_call, "workspace"] = _size


def asked(query: str, function: str, given: Mapping[str, Any]) -> list[Any]:
    """Return the arguments of a size query: the call's arguments of the same names (with or without "host") or types."""
    types = {p.base_type: given[p.name] for p in functions()[function].arguments if p.name in given}
    found = []
    for parameter in functions()[query].arguments:
        of_host = f"host{parameter.name[0].upper()}{parameter.name[1:]}"
        found.append(given.get(parameter.name, given.get(of_host, types.get(parameter.base_type))))
    return found


TOO_SMALL = re.compile(r"\d+ bytes, .*needed")


class NotReplayable(Exception):
    """Say what the record or the subject lacks for the call."""


@dataclass
class Outcome:
    """Hold what a subject did with a recorded call.

    before, after: documented parameter name -> bytes; parameters that share memory share the array. operation: what the
    call asked of the backend, None for host calls and refused calls.
    """

    status: cudnnStatus_t
    error: CudnnError | None = None
    result: Any = None
    before: dict[str, Block] = field(default_factory=dict)
    after: dict[str, Block] = field(default_factory=dict)
    operation: Operation | None = None
    problems: list[str] = field(default_factory=list)


class Replayer:
    """Repeat recorded calls on one of our backends.

    ``compute`` False stops before the backend runs, and gives the API's answer (status, operation, result) without the
    work.
    """

    def __init__(self, cudnn: Any, handle: Any, compute: bool = True) -> None:
        self.cudnn, self.handle = cudnn, handle
        self.observer = _Observer(handle.backend, compute)
        handle.backend = self.observer

    def __call__(self, record: Record) -> Outcome:
        """Make the call. Raises ``NotReplayable`` if it cannot be made."""
        return _Call(self, record).run()

    def function(self, name: str) -> Any:
        if not hasattr(self.cudnn, name):
            raise NotReplayable(f"{name} is not implemented")
        return getattr(self.cudnn, name)

    def descriptor(self, type_name: str, calls: list[Any]) -> Any:
        """Return a descriptor that these calls have filled."""
        descriptor = self.function(
            CREATORS.get(type_name, f"cudnnCreate{type_name.removeprefix('cudnn').removesuffix('_t')}")
        )()
        for name, given in calls:
            arguments = [
                self.value(given[p.name]) if p.name in given else descriptor for p in functions()[name].arguments
            ]
            self.function(name)(*arguments)
        return descriptor

    def value(self, value: Any) -> Any:
        """Return a host argument."""
        if isinstance(value, str):
            return ENUMERATORS[value]
        if isinstance(value, list):
            return tuple(self.value(item) for item in value)
        if not isinstance(value, dict):
            return value
        if "handle" in value:
            return self.handle
        if "descriptor" in value:
            return self.descriptor(value["descriptor"], value["calls"])
        raise NotReplayable(f"{value.get('unrecorded', value)!r} was not recorded as a value")


class LibraryReplayer(Replayer):
    """Repeat recorded calls on a shared library.

    Our documented functions tell which operation a call means, without computing it. knows_sizes: whether the library
    refuses memory that is too small, so that it may receive it.
    """

    def __init__(self, cudnn: Any, handle: Any, dry: Replayer, knows_sizes: bool) -> None:
        self.cudnn, self.handle, self.dry, self.knows_sizes = cudnn, handle, dry, knows_sizes
        self.observer = _Observer(None, compute=True)

    def __call__(self, record: Record) -> Outcome:
        expected = self.dry(record)
        if expected.error is not None and TOO_SMALL.search(expected.error.message) and not self.knows_sizes:
            raise NotReplayable(f"the library does not see that {expected.error.message}")
        outcome = super().__call__(record)
        if outcome.error is None:
            outcome.operation = expected.operation
        return outcome


class _Call:
    """Hold one recorded call in progress."""

    def __init__(self, replayer: Replayer, record: Record) -> None:
        if record.arguments is None:
            raise NotReplayable("the record is a probe, not one documented call with all its arguments")
        self.replayer, self.record = replayer, record
        self.arguments: Mapping[str, Any] = record.arguments
        self.parameters = {p.name: p for p in functions()[record.function].arguments}
        self.host: dict[str, Any] = {}

    def run(self) -> Outcome:
        call = self.replayer.function(self.record.function)
        buffers: list[tuple[Any, Block]] = []
        outcome = Outcome(cudnnStatus_t.CUDNN_STATUS_SUCCESS)
        self.replayer.observer.operation = None
        try:
            described = [
                name for name, value in self.arguments.items() if not _is_size(value) and not _is_memory(value)
            ]
            for name in described:
                self.host[name] = self.replayer.value(self.arguments[name])
            for name, value in self.arguments.items():
                if _is_size(value):
                    self.host[name] = self.required(self.parameters[name], value)
            buffers, placed = self.place()
            outcome.result = call(*[{**self.host, **placed}[name] for name in self.parameters])
        except CudnnError as error:
            outcome.status, outcome.error = error.status, error
        outcome.operation = self.replayer.observer.operation
        self.collect(buffers, outcome)
        return outcome

    def required(self, parameter: Parameter, value: Mapping[str, int]) -> int:
        """Return our required size plus the recorded difference."""
        query = REQUIREMENTS.get((self.record.function, parameter.name))
        if query is None:
            raise NotReplayable(f"{parameter.name}: no query is known for it")
        call = self.replayer.function(query)
        try:
            needed = call(*asked(query, self.record.function, self.host))
        except CudnnError:  # The call itself must be refused, and says why.
            return value["was"]
        return max(0, needed + value["required"])

    def memories(self) -> list[Block]:
        """Return the record's memory before the call.

        Memory that was not kept is poison. If nothing is computed, it is what the recorded call left, because gaps may
        have held anything.
        """

        def unknown(after: Block | None) -> Block:
            if after is not None and not self.replayer.observer.compute:
                return after.copy()
            return np.full(0 if after is None else after.size, POISON, np.uint8)

        return [unknown(after) if before is None else before.copy() for before, after in self.record.memory]

    def place(self) -> tuple[list[tuple[Any, Block]], dict[str, Any]]:
        """Place device memory between guard zones. Return (allocation, its bytes) of each, and the device arguments."""
        handle = self.replayer.handle
        buffers = [(handle.to_device(whole), whole) for whole in map(_guarded, self.memories())]
        placed: dict[str, Any] = {}
        for name, value in self.arguments.items():
            if not _is_memory(value):
                continue
            if "memory_of" in value:
                size = self.host[value["memory_of"]]
                placed[name] = handle.to_device(np.full(max(1, size), POISON, np.uint8)).slice(0, size)
            else:
                placed[name] = buffers[value["memory"]][0].slice(GUARD + value["offset"], value["bytes"])
        return buffers, placed

    def collect(self, buffers: list[tuple[Any, Block]], outcome: Outcome) -> None:
        """Collect the bytes before and after, and what changed around them."""
        before, after = self.memories(), []
        for index, (buffer, whole) in enumerate(buffers):
            now = buffer.to_host(np.uint8, whole.size)
            if not np.array_equal(now[:GUARD], whole[:GUARD]) or not np.array_equal(now[-GUARD:], whole[-GUARD:]):
                outcome.problems.append(f"bytes around memory {index} changed")
            after.append(now[GUARD:-GUARD])
            buffer.free()
        outcome.before = self.by_parameter(before)
        outcome.after = self.by_parameter(after) if after else outcome.before

    def by_parameter(self, memories: list[Block]) -> dict[str, Block]:
        """Return parameter -> its part of the memory; the same part is the same array."""
        parts: dict[tuple[int, int, int], Block] = {}
        named = {}
        for name, value in self.arguments.items():
            if isinstance(value, dict) and "memory" in value:
                index, offset, size = value["memory"], value["offset"], value["bytes"]
                named[name] = parts.setdefault((index, offset, size), memories[index][offset : offset + size])
        return named


def recorded_after(record: Record) -> dict[str, Block]:
    """Return parameter -> its bytes after the recorded call, where they were kept."""
    kept = {index: after for index, (_, after) in enumerate(record.memory) if after is not None}
    parts: dict[tuple[int, int, int], Block] = {}
    named = {}
    for name, value in (record.arguments or {}).items():
        if isinstance(value, dict) and value.get("memory") in kept:
            key = (value["memory"], value["offset"], value["bytes"])
            named[name] = parts.setdefault(key, kept[key[0]][key[1] : key[1] + key[2]])
    return named


def encoded(value: Any) -> Any:
    """Return a result in the form of records: enumerators by name, named tuples as objects, tuples as lists."""
    if isinstance(value, IntEnum):
        return value.name
    if hasattr(value, "_asdict"):
        return {name: encoded(item) for name, item in value._asdict().items()}
    if isinstance(value, (tuple, list)):
        return [encoded(item) for item in value]
    return value


class _Observer:
    """Remember the operation of the last launch on a backend, and forward everything to it."""

    def __init__(self, backend: Any, compute: bool) -> None:
        self.backend, self.compute = backend, compute
        self.operation: Operation | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)

    def prepare(self, operation: Operation) -> Any:
        launch = self.backend.prepare(operation)

        def observed(operands: Any, stream: Any) -> None:
            self.operation = operation
            if self.compute:
                launch(operands, stream)

        return observed


def _is_memory(value: Any) -> bool:
    return isinstance(value, dict) and ("memory" in value or "memory_of" in value)


def _is_size(value: Any) -> bool:
    return isinstance(value, dict) and "required" in value


def _guarded(block: Block) -> Block:
    whole = np.full(block.size + 2 * GUARD, PATTERN, np.uint8)
    whole[GUARD : GUARD + block.size] = block
    return whole
