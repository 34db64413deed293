"""Return values that a wrong implementation might use for an argument, a field or a result."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from itertools import chain
from typing import Any

from dualdnn.api.operations import TensorSpec

HUGE = 2**24  # larger numbers are not increased, because nothing is made in such amounts
# A clause of this kind changes these fields of specifications first, in this order.
FIELDS = {
    "layout": ("strides", "format", "axes", "layout"),
    "shape": ("dims", "pad_before", "pad_after", "hidden", "layers"),
    "dtype": ("data_type", "compute_type", "precision"),
    "support": ("data_type", "compute_type", "precision", "strides"),
    "": ("record",),  # what a descriptor of the backend describes; other records have no such field
}


def neighbours(member: Enum) -> list[Any]:
    """Return the other enumerators of the type, the next one first."""
    members = list(type(member))
    at = members.index(member)
    return members[at + 1 :] + members[:at]


def others(value: Any, kind: str = "") -> Iterator[Any]:
    """Yield values that a wrong implementation might use instead of this one; nothing for an unknown type.

    kind: the clause's kind; the fields it is about change first.
    """
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, Enum):
        yield from neighbours(value)
    elif isinstance(value, int):
        yield from (value + 1, value - 1, 2 * value + 2) if abs(value) < HUGE else (0, 1)
    elif isinstance(value, float):
        yield from (value + 0.5, 2 * value + 1, 0.0)
    elif isinstance(value, str):
        yield f"{value}?"
    elif isinstance(value, tuple | list):
        yield from _other_sequences(value, kind)
    elif is_dataclass(value):
        yield from _other_records(value, kind)


def _other_sequences(values: Any, kind: str) -> Iterator[Any]:
    """Yield sequences with one entry changed, the last entry first, and the reversed sequence."""
    for at in reversed(range(len(values))):
        for other in others(values[at], kind):
            yield _with(values, at, other)
            break
    if list(values) != list(reversed(values)):
        yield type(values)(reversed(values))


def _with(values: Any, at: int, other: Any) -> Any:
    changed = [*values[:at], other, *values[at + 1 :]]
    return type(values)(*changed) if hasattr(values, "_fields") else type(values)(changed)


def _other_records(record: Any, kind: str) -> Iterator[Any]:
    """Yield specifications with one field changed; a tensor's strides follow its dimensions."""
    names = [field.name for field in fields(record)]
    first = [name for name in FIELDS.get(kind, ()) if name in names]
    for name in chain(first, (name for name in names if name not in first)):
        yield from of_field(record, name, kind)


def of_field(record: Any, name: str, kind: str) -> Iterator[Any]:
    """Yield specifications that differ in one field."""
    for other in _values_of(record, name, kind):
        try:
            yield replace(record, **{name: other})
        except Exception:  # The specification may be impossible.
            continue


def _values_of(record: Any, name: str, kind: str) -> Iterator[Any]:
    value = getattr(record, name)
    if isinstance(record, TensorSpec) and name == "strides":
        packed = TensorSpec.packed(record.data_type, record.dims).strides
        yield from (strides for strides in (packed, packed[::-1]) if strides != value)
    else:
        yield from others(value, kind)


def substituted(value: Any, old: Enum, new: Any) -> Any:
    """Return the value with one enumerator replaced by another wherever it occurs, or the same object if it
    does not.
    """
    if value is old:
        return new
    if isinstance(value, tuple | list):
        changed = [substituted(part, old, new) for part in value]
        if all(one is other for one, other in zip(changed, value, strict=True)):
            return value
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if is_dataclass(value) and not isinstance(value, type):
        parts = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        changes = {name: made for name, part in parts.items() if (made := substituted(part, old, new)) is not part}
        return replace(value, **changes) if changes else value
    return value
