"""Passes scalars of an operation as kernel arguments, so that calls that differ only in alpha share a plan.

A plan is made for an operation whose scalars are placeholders. A planner may ask whether one is 0 or 1, which is part
of the plan's key, and may divide it. ``fill`` notes the offsets at which kernel arguments hold it. Any other use of the
number (a conversion, a comparison, a text) raises ``ValueNeeded``, and the operation gets a plan for each value.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from math import nan
from typing import Any, NoReturn, TypeVar

from dualdnn.api.operations import Operation

S = TypeVar("S", bound=ctypes.Structure)


class ValueNeeded(Exception):
    """Report that a plan depends on the value of a scalar."""


class Scalar:
    """Represent the field ``name`` of an operation, divided by ``divisors``. known: its absolute value if 0 or 1."""

    __slots__ = ("divisors", "known", "name")

    def __init__(self, name: str, known: float | None, divisors: tuple[float, ...] = ()) -> None:
        self.name, self.known, self.divisors = name, known, divisors

    @property
    def shown(self) -> float:
        """Return the value that arguments hold until the call's value is known; NaN would show in the results."""
        return nan if self.known is None else self.known

    def of(self, values: Mapping[str, float]) -> float:
        """Return the number for the given values of the operation's scalars."""
        value = values[self.name]
        for divisor in self.divisors:
            value = value / divisor
        return value

    def _identity(self) -> tuple[Any, ...]:
        return (self.name, self.known, self.divisors)

    def __truediv__(self, divisor: float) -> Scalar:
        return Scalar(self.name, 0.0 if self.known == 0 else None, (*self.divisors, float(divisor)))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Scalar):
            return self._identity() == other._identity()
        if self.known is None and (self.divisors or other not in (0, 1)):
            raise ValueNeeded(self.name)
        return self.known is not None and self.known == other

    def __hash__(self) -> int:
        return hash(self._identity())

    def __bool__(self) -> bool:
        return self != 0

    def __repr__(self) -> str:
        return f"<{self.name} {self.known} {self.divisors}>"

    def _needed(self, *_: object) -> NoReturn:
        raise ValueNeeded(self.name)

    __float__ = __int__ = __index__ = __format__ = __neg__ = __abs__ = _needed  # noqa: RUF100
    __lt__ = __le__ = __gt__ = __ge__ = _needed  # noqa: RUF100
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __rtruediv__ = __pow__ = __rpow__ = _needed


Note = tuple[int, Any, Scalar]  # offset in bytes in the arguments, ctypes type, and the scalar


def fill(target: S, /, **values: Any) -> S:
    """Set fields of an argument structure, note the offsets of scalars that are not known yet, and return it."""
    notes, kind = [*scalars_of(target)], type(target)
    for name, value in values.items():
        if isinstance(value, Scalar):
            notes.append((getattr(kind, name).offset, dict(kind._fields_)[name], value))  # type: ignore[arg-type]
            value = value.shown
        for offset, of_type, scalar in scalars_of(value):
            notes.append((getattr(kind, name).offset + offset, of_type, scalar))
        setattr(target, name, value)
    target.scalars = notes
    return target


def scalars_of(arguments: Any) -> Sequence[Note]:
    """Return the notes that ``fill`` made about an argument structure."""
    return getattr(arguments, "scalars", ())


def with_values(template: bytes, notes: Sequence[Note], values: Mapping[str, float]) -> bytes:
    """Return packed arguments with the values of the noted scalars written into them."""
    packed = bytearray(template)
    for offset, kind, scalar in notes:
        packed[offset : offset + ctypes.sizeof(kind)] = bytes(kind(scalar.of(values)))
    return bytes(packed)


@cache
def _scalar_fields(operation_type: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(operation_type) if field.type == "float")


def without_values(operation: Operation) -> tuple[Operation, dict[str, float]]:
    """Return the operation with placeholders for its scalars, and their values by name."""
    kind: Any = type(operation)
    names = _scalar_fields(kind)
    if not names:
        return operation, {}
    values = {name: float(getattr(operation, name)) for name in names}
    parts = {field.name: getattr(operation, field.name) for field in fields(operation)}  # type: ignore[arg-type]
    parts |= {name: Scalar(name, abs(value) if value in (0, 1) else None) for name, value in values.items()}
    return kind(**parts), values
