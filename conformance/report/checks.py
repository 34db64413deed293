"""Check everything that enters a report, with one kind of error."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class ReportError(ValueError):
    """Say that a report, or a part of one, violates the format."""


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ReportError(message)


def one_of(value: Any, allowed: Collection[str], what: str) -> None:
    require(isinstance(value, str) and value in allowed, f"{what} is {value!r}, expected one of {', '.join(allowed)}")


def text(value: Any, what: str, *, empty: bool = False) -> None:
    require(isinstance(value, str), f"{what} is {value!r}, expected a string")
    require(empty or bool(value.strip()), f"{what} is empty")


def texts(value: Any, what: str) -> tuple[str, ...]:
    """Return `value` as a tuple of distinct non-empty strings."""
    require(isinstance(value, (list, tuple)), f"{what} is {value!r}, expected a list of strings")
    for entry in value:
        text(entry, f"an entry of {what}")
    require(len(set(value)) == len(value), f"{what} names something twice: {list(value)!r}")
    return tuple(value)


def number(value: Any, what: str) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    require(is_number and math.isfinite(value) and value >= 0, f"{what} is {value!r}, expected a finite number >= 0")


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    """Return `value` itself, a mapping whose keys are strings."""
    if not isinstance(value, Mapping):
        raise ReportError(f"{what} is {value!r:.80}, expected an object")
    for key in value:
        text(key, f"a key of {what}")
    return value


def keys(value: Mapping[str, Any], required: Collection[str], optional: Collection[str], what: str) -> None:
    missing = [key for key in required if key not in value]
    unknown = [key for key in value if key not in required and key not in optional]
    require(not missing, f"{what} lacks {', '.join(missing)}")
    require(not unknown, f"{what} has unknown keys: {', '.join(unknown)}")


def decode(kind: type[T], value: Any, what: str) -> T:
    """Return an instance of the dataclass `kind` from a mapping with the names of its fields."""
    fields = dataclasses.fields(kind)  # type: ignore[arg-type]
    required = [f.name for f in fields if f.default is dataclasses.MISSING]
    keys(mapping(value, what), required, [f.name for f in fields], what)
    return kind(**value)
