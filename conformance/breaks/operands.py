"""Make calls use wrong arguments or memory.

Each function stands between a case and a documented call. It takes (the border, the break, the name of the call, the
call, its arguments), makes the call wrongly, and returns its result. ``border.applied`` says that something changed.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from itertools import islice
from typing import Any

import numpy as np
from dualdnn.api.descriptors import BackendDescriptor, Descriptor
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.miopen.enumerations import ENUMERATIONS as MIOPEN_ENUMERATIONS
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES

from .border import REFUSALS, Border, Call, parameters_of
from .rules import Break
from .values import FIELDS, neighbours, of_field, others, substituted

TRIED = 4  # other values of an argument to try until a call accepts one
DIMENSION = re.compile(r"dimension (\d)")  # kind of a break of one dimension alone
WIDTH = "width"  # kind of a break of the second dimension alone
BIASES = "biases"  # kind of a break of the flag of projection biases alone, which is this bit of an attention's mode:
BIASES_BIT = 2
WHOLE = "whole"  # kind of a break that searches the whole space of algorithms
ORDER = "order"  # kind of a break that reverses a list
FILL = 0x3C  # byte of unset memory, about 0.01 in every floating type
# These functions only store or read back a descriptor's contents; other functions show what a value means.
STORES = re.compile(
    r"(?:Set|Get|Restore)\w*Descriptor|cudnnSet(RNN|Convolution|CTC)|RNN[SG]etClip|Create|Destroy|(Set|Get)\w*(Attribute|Algorithm)"
)


def position(name: str, point: str) -> int | None:
    """Return the index of a parameter among a function's arguments."""
    return next((i for i, p in enumerate(parameters_of(name)) if p.name == point), None)


def with_handle(change: Call) -> Call:
    """Apply a change only to calls that have a handle, because memory comes from it."""

    def checked(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
        if not any(hasattr(value, "to_device") for value in values):
            return function(*values)
        return change(border, broken, name, function, values)

    return checked


def argument(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Call with another value of the parameter: the first that the call accepts, or else a refused one."""
    at = position(name, broken.point)
    if at is None:
        return function(*values)
    refusal: Exception | None = None
    ways = _other_fields(values[at], broken.kind) if broken.how == "field" else _others(values[at], broken.kind)
    for other in islice(ways, TRIED):
        try:
            result = function(*values[:at], other, *values[at + 1 :])
        except REFUSALS as error:
            refusal = refusal or error
            continue
        border.applied = True
        return result
    if refusal is None:
        return function(*values)
    border.applied = border.refuses = True
    raise refusal


def meaning(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Show computing calls a descriptor that was set with another value of the parameter; getters see the original."""
    if not STORES.search(name):
        taken = [_twin(border, value) for value in values]
        border.applied |= any(one is not other for one, other in zip(taken, values, strict=True))
        return function(*taken)
    at = next((i for i, value in enumerate(values) if isinstance(value, Descriptor)), None)
    if at is None or isinstance(values[at], BackendDescriptor):
        return function(*values)
    before = copy.copy(values[at])
    result = function(*values)
    if name == broken.function and border.names(broken, name, values):
        _set_twin(border, broken, name, function, values, at, before)
    elif id(values[at]) in border.twins:
        with suppress(*REFUSALS):
            function(*values[:at], border.twins[id(values[at])][1], *values[at + 1 :])
    return result


def _set_twin(
    border: Border, broken: Break, name: str, function: Call, values: list[Any], which: int, before: Any
) -> None:
    """Set a twin of the descriptor ``values[which]`` with another value of the parameter."""
    at = position(name, broken.point)
    if at is None or at == which:
        return
    for other in islice(_others(values[at], broken.kind), 2 * TRIED):
        twin = copy.copy(before)
        try:
            function(*(twin if i == which else other if i == at else value for i, value in enumerate(values)))
        except REFUSALS:
            continue
        if twin.spec != values[which].spec:
            border.twins[id(values[which])] = values[which], twin
            return


def _twin(border: Border, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_twin(border, part) for part in value]
    return border.twins.get(id(value), (None, value))[1]


def fewer(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Call with one iteration less: a smaller number, and shorter lists of that many descriptors."""
    at = position(name, broken.point)
    count = values[at] if at is not None else 0
    if count < 2:
        return function(*values)
    border.applied = True
    lists = (value[:-1] if isinstance(value, tuple | list) and len(value) == count else value for value in values)
    return function(*(count - 1 if i == at else value for i, value in enumerate(lists)))


def stale(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Call with the value that the parameter had in the first call under this break."""
    at = position(name, broken.point)
    if at is None:
        return function(*values)
    first = border.first.setdefault(name, values[at])
    border.applied |= first is not values[at]
    return function(*values[:at], first, *values[at + 1 :])


def enumerator(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Call with another enumerator wherever the arguments contain this one.

    Setters and getters of descriptors see the original.
    """
    if STORES.search(name) and not broken.function:
        return function(*values)
    for member in _members(broken.point, broken.type, values):
        refusal: Exception | None = None
        ways = neighbours(member)[:: broken.step or 1]
        for other in ways[: 1 if broken.step else TRIED]:
            taken = [_substituted(value, member, other) for value in values]
            if all(one is value for one, value in zip(taken, values, strict=True)):
                break
            try:
                result = function(*taken)
            except REFUSALS as error:
                refusal = refusal or error
                continue
            border.applied = True
            return result
        if refusal is not None:
            border.applied = border.refuses = True
            raise refusal
    return function(*values)


@with_handle
def unread(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Call with zeros instead of the contents of an input."""
    at = position(name, broken.point)
    memory: Any = None if at is None else values[at]
    if at is None or not hasattr(memory, "to_host") or sum(value is memory for value in values) > 1:
        return function(*values)
    held = memory.to_host(np.uint8, memory.nbytes)
    if not held.any():
        return function(*values)
    border.applied = True
    return function(*values[:at], placed(border, values, np.zeros_like(held)), *values[at + 1 :])


@with_handle
def misread(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Call with the contents of one input, or of each, shifted by one element."""
    taken = list(values)
    for at, parameter in enumerate(parameters_of(name)):
        wanted = parameter.memory == "device" and parameter.direction != "out"
        if not wanted or broken.point not in ("", parameter.name) or not hasattr(values[at], "to_host"):
            continue
        held = values[at].to_host(np.uint8, values[at].nbytes)
        moved = np.roll(held, _bytes_of_element(name, parameter.name, values))
        if sum(value is values[at] for value in values) == 1 and (moved != held).any():
            taken[at], border.applied = placed(border, values, moved), True
    return function(*taken)


def _bytes_of_element(name: str, point: str, values: list[Any]) -> int:
    """Return the bytes per element of an operand according to its descriptor, or 4 without a data type."""
    found = (spec for at in described_by(name, point) for spec in _specs(values[at]))
    kind = next((spec.data_type for spec in found if hasattr(spec, "data_type")), None)
    return NUMPY_TYPES[kind].itemsize if kind in NUMPY_TYPES else np.dtype(np.float32).itemsize


def _specs(value: Any) -> list[Any]:
    """Return the specifications of a descriptor, or of each descriptor in a list."""
    parts = value if isinstance(value, tuple | list) else [value]
    return [part.spec for part in parts if getattr(part, "spec", None) is not None]


def described_by(name: str, point: str) -> list[int]:
    """Return the positions of the descriptors that may describe a parameter, its own first."""
    names = (f"{point}Desc", f"{point.lstrip('d')[:1]}Desc", "xDesc")
    return [place for one in names if (place := position(name, one)) is not None]


@with_handle
def unwritten(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Let the call write one output, or all, to other memory."""
    taken, written = list(values), []
    for at, parameter in enumerate(parameters_of(name)):
        out = parameter.memory == "device" and parameter.direction != "in"
        if out and broken.point in ("", parameter.name) and hasattr(values[at], "to_host"):
            held = values[at].to_host(np.uint8, values[at].nbytes)
            taken[at] = placed(border, values, held)
            written.append((taken[at], held))
    result = function(*taken)
    border.applied |= any((made.to_host(np.uint8, held.size) != held).any() for made, held in written)
    return result


def unsteady(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Leave out the outputs in every second call."""
    border.calls += 1
    return function(*values) if border.calls % 2 else unwritten(border, broken, name, function, values)


@with_handle
def filled(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Pass memory with nonzero numbers instead of NULL."""
    at = position(name, broken.point)
    specs = (getattr(values[place], "spec", None) for place in described_by(name, broken.point))
    spec = next((spec for spec in specs if spec is not None), None)
    if at is None or values[at] is not None or spec is None:
        return function(*values)
    border.applied = True
    made = placed(border, values, np.full(spec.nbytes, FILL, np.uint8))
    return function(*values[:at], made, *values[at + 1 :])


def placed(border: Border, values: list[Any], held: Any) -> Any:
    handle = next(value for value in values if hasattr(value, "to_device"))
    made = handle.to_device(held)
    border.made.append(made)
    return made


def with_spec(descriptor: Any, spec: Any) -> Any:
    made = copy.copy(descriptor)
    made.spec = spec
    return made


def _others(value: Any, kind: str) -> Iterator[Any]:
    """Yield other arguments; for a descriptor, descriptors with other contents."""
    if kind == WIDTH:
        dims = value.spec.dims
        yield with_spec(value, TensorSpec.packed(value.spec.data_type, (dims[0], dims[1] + 1, *dims[2:])))
    elif kind == BIASES:
        yield value ^ BIASES_BIT
    elif kind == WHOLE:
        yield 1.0
    elif found := DIMENSION.fullmatch(kind):
        dims = tuple(size + (at == int(found[1])) for at, size in enumerate(value.spec.dims))
        packed = isinstance(value.spec, TensorSpec)
        made = TensorSpec.packed(value.spec.data_type, dims) if packed else replace(value.spec, dims=dims)
        yield with_spec(value, made)
    elif kind == ORDER:
        yield value[::-1]
    elif isinstance(value, Descriptor) and value.spec is not None:
        yield from (with_spec(value, spec) for spec in others(value.spec, kind))
    elif isinstance(value, tuple | list) and any(isinstance(part, Descriptor) for part in value):
        for at in reversed(range(len(value))):
            yield from ([*value[:at], other, *value[at + 1 :]] for other in _others(value[at], kind))
    elif not hasattr(value, "to_host"):
        yield from others(value, kind)


def _other_fields(value: Any, kind: str) -> Iterator[Any]:
    """Yield descriptors that differ in the fields of this kind of clause alone."""
    spec: Any = getattr(value, "spec", None)
    names = [
        name for name in FIELDS[kind] if hasattr(spec, "__dataclass_fields__") and name in spec.__dataclass_fields__
    ]
    yield from (with_spec(value, other) for name in names for other in of_field(spec, name, kind))


def _members(point: str, kind: str, values: list[Any]) -> list[Any]:
    """Return the enumerators that a break replaces: the one that it names, or all of its type."""
    enumeration = ENUMERATIONS.get(kind) or MIOPEN_ENUMERATIONS.get(kind)
    if enumeration is None:
        return []
    return [enumeration[point]] if point else list(enumeration)


def _substituted(value: Any, old: Enum, new: Any) -> Any:
    if isinstance(value, Descriptor) and not isinstance(value, BackendDescriptor):
        spec = value.spec
        with suppress(Exception):  # The specification may be impossible.
            changed = substituted(spec, old, new)
            return value if changed is spec else with_spec(value, changed)
        return value
    if isinstance(value, tuple | list):
        parts = [_substituted(part, old, new) for part in value]
        return value if all(one is part for one, part in zip(parts, value, strict=True)) else parts
    return substituted(value, old, new)
