"""Derive the arguments of a call from the function table and the operation's operands and fields.

A parameter is the handle, the memory of the operand with its name, or the descriptor that its name or type selects. It
may also be the size of a raw operand, the only enumerator of its type, or the field with its name. ``exceptions`` lists
all other parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from dualdnn.api.document import Parameter, functions
from dualdnn.api.enumerations import ENUMERATIONS
from dualdnn.api.operations import Operation

from .descriptors import SPECIFICATIONS
from .exceptions import VALUES

OPERANDS = ("TensorSpec", "FilterSpec")
SIZE = "SizeInBytes"


@dataclass(frozen=True)
class Argument:
    """Compute one argument from (the caller, the operation, the memory of its operands)."""

    value: Callable[[Any, Any, Mapping[str, Any]], Any]
    is_descriptor: bool = False

    def __call__(self, make: Any, operation: Operation, memory: Mapping[str, Any]) -> Any:
        return self.value(make, operation, memory)


@cache
def arguments(function: str, kind: type[Operation]) -> tuple[Argument, ...]:
    """Return the arguments of a documented function for this kind of operation.

    Raises LookupError for an underivable parameter.
    """
    return tuple(_argument(function, parameter, kind) for parameter in functions()[function].arguments)


def _argument(function: str, parameter: Parameter, kind: type[Operation]) -> Argument:
    name = parameter.name
    exceptions = VALUES.get(kind, {})
    if name in exceptions:
        told = exceptions[name]
        return Argument(told if callable(told) else lambda make, o, memory: told)
    if parameter.base_type == "cudnnHandle_t":
        return Argument(lambda make, o, memory: make.handle)
    operand = kind.parameters.get(name, name)
    if parameter.memory == "device" and operand in {*kind.inputs, *kind.outputs, *kind.raw}:
        return Argument(lambda make, o, memory: memory.get(operand))
    field = _field(parameter, kind)
    if parameter.base_type in SPECIFICATIONS and field is not None:
        return Argument(lambda make, o, memory: _described(make, getattr(o, field)), is_descriptor=True)
    raw = name.removesuffix(SIZE)
    if name.endswith(SIZE) and raw in kind.raw:
        return Argument(lambda make, o, memory: o.nbytes(raw))
    enumerators = tuple(ENUMERATIONS.get(parameter.base_type, ()))
    if len(enumerators) == 1:
        return Argument(lambda make, o, memory: enumerators[0])
    if parameter.memory == "host" and field is not None:
        return Argument(lambda make, o, memory: getattr(o, field))
    raise LookupError(
        f"{function}: nothing tells {name} of a {kind.__name__}; say it in conformance/calls/exceptions.py"
    )


def _described(make: Any, spec: Any) -> Any:
    """Return the descriptor, NULL for an absent optional operand, or a list of several descriptors."""
    if isinstance(spec, tuple):
        return [make.descriptor(part) for part in spec]
    return None if spec is None else make.descriptor(spec)


def _field(parameter: Parameter, kind: type[Operation]) -> str | None:
    """Return the field of the operation that the parameter passes."""
    if parameter.name in kind.parameters:
        return kind.parameters[parameter.name]
    types = {field.name: str(field.type) for field in fields(kind)}  # type: ignore[arg-type]  # records are data classes
    specification = SPECIFICATIONS.get(parameter.base_type)
    if specification is None:
        return _among(types, (parameter.name, re.sub(r"([A-Z])", lambda m: f"_{m[1].lower()}", parameter.name)))
    held = {name for name, type_ in types.items() if specification in type_}
    stem = parameter.name.removesuffix("Desc")
    if specification in OPERANDS:
        return _among(held, (stem, stem.upper(), f"{stem}Data"))
    return next(iter(held)) if len(held) == 1 else _among(held, (stem,))


def _among(names: Iterable[str], candidates: Iterable[str]) -> str | None:
    known = set(names)
    return next((name for name in candidates if name in known), None)
