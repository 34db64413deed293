"""Define immutable records with a text form, the base of every specification and operation.

``repr`` of a record is Python-like text that ``parse`` reads back. The text reproduces a failing case, keys plan caches
and logs a call. Each hash is computed once, because every call uses records as dictionary keys.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, fields
from enum import IntEnum
from functools import cache, cached_property
from typing import Any, TypeVar, dataclass_transform

from ..enumerations import ENUMERATIONS
from ..lazy import load
from .answers import Answers

T = TypeVar("T")


RECORDS: dict[str, type] = {}
_ENUMERATORS = {member.name: member for enumeration in ENUMERATIONS.values() for member in enumeration}
_MARKS = Answers()
_CONSTANTS = {"nan": float("nan"), "inf": float("inf"), **_ENUMERATORS}


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Return ``cls`` as a frozen dataclass that prints as parseable text and caches its hash. Equality distinguishes
    -0.0 from 0.0 and treats NaN as equal to NaN.

    ``mark`` stands for the record in keys of dictionaries, where its hash would cost more. Records with one mark are equal.
    """
    made: Any = dataclass(frozen=True, repr=False, eq=False)(cls)
    names = tuple(field.name for field in fields(made))

    def identity(self: Any) -> tuple[Any, ...]:
        found = self.__dict__.get("_identity")
        if found is None:
            # The text distinguishes -0.0 from 0.0, and the text of NaN equals itself.
            values = [v if (v := getattr(self, name)) and v == v else repr(v) for name in names]
            found = self.__dict__["_identity"] = tuple(values)
        return found

    def cached_hash(self: Any) -> int:
        try:
            return self._hash
        except AttributeError:
            value = self.__dict__["_hash"] = hash(identity(self))
            return value

    def equal(self: Any, other: Any) -> bool:
        return self is other or (type(other) is made and identity(self) == identity(other))

    def mark(self: Any) -> object:
        return _MARKS.of((made, identity(self)), object)

    made.__hash__, made.__eq__, made.mark = cached_hash, equal, cached_property(mark)
    made.mark.__set_name__(made, "mark")
    made.__repr__ = made.__str__ = _text
    RECORDS[cls.__name__] = made
    return made


def _text(self: Any) -> str:
    listed = ", ".join(f"{field.name}={_value_text(getattr(self, field.name))}" for field in fields(self))
    return f"{type(self).__name__}({listed})"


def _value_text(value: Any) -> str:
    if isinstance(value, IntEnum):
        return value.name
    if isinstance(value, tuple):
        listed = ", ".join(_value_text(item) for item in value)
        return f"({listed},)" if len(value) == 1 else f"({listed})"
    return repr(value)


def parse(text: str) -> Any:
    """Return the record that printed as ``text``; raise ValueError if the text describes no record."""
    _define_all()
    try:
        return _build(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, TypeError, KeyError) as error:
        raise ValueError(f"not the text of an operation: {text!r} ({error})") from error


@cache
def _define_all() -> None:
    """Import every record, because a text may name any of them."""
    from . import HOMES

    load(__package__, HOMES)


def _build(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _CONSTANTS[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_build(operand)
        case ast.Tuple(elts=items):
            return tuple(_build(item) for item in items)
        case ast.Call(func=ast.Name(id=name), args=[], keywords=keywords):
            return _made(RECORDS[name], {keyword.arg: _build(keyword.value) for keyword in keywords if keyword.arg})
    raise ValueError(f"unexpected {ast.unparse(node)}")


def _made(kind: Any, values: dict[str, Any]) -> Any:
    """Return a record with these field values; raise TypeError if a field that holds a record gets another type."""
    for field in fields(kind):
        allowed = [part.strip() for part in str(field.type).split("|")]
        records = tuple(RECORDS[name] for name in allowed if name in RECORDS)
        value = values.get(field.name)
        if (
            records
            and field.name in values
            and not (isinstance(value, records) or (value is None and "None" in allowed))
        ):
            raise TypeError(f"{field.name} of {kind.__name__} is {value!r}, not {field.type}")
    return kind(**values)
