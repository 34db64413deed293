"""Make calls give wrong answers.

Each function takes (the border, the break, the function's name, the function, its arguments).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from dualdnn.api.descriptors import BackendDescriptor, Descriptor, TensorDescriptor, TensorTransformDescriptor
from dualdnn.api.document import functions
from dualdnn.api.enumerations import cudnnFoldingDirection_t, cudnnSeverity_t
from dualdnn.api.handle import Handle
from dualdnn.api.miopen.document import functions as miopen_functions
from dualdnn.api.miopen.objects import Descriptor as MiopenDescriptor
from dualdnn.api.miopen.objects import MiopenHandle
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import FLOAT, NHWC, TransformSpec
from dualdnn.api.status import BAD_PARAM, EXECUTION_FAILED, CudnnError

from .border import REFUSALS, Border, Call, parameters_of
from .demands import is_due, is_of_parameter
from .operands import position
from .rules import Break
from .values import neighbours, others

# Size queries may return more than needed, so their fault is one byte less.
SIZES = re.compile(r"Get.*(Work[sS]pace|TempSpace|Reserve|AlgorithmSpace|AttnBuffers)|MakeFusedOpsPlan")
# A setter leaves these in a descriptor; a new descriptor does not have them.
PRESETS: Mapping[type, Any] = {
    TensorDescriptor: TensorSpec.packed(FLOAT, (1, 1, 1, 1)),
    TensorTransformDescriptor: TransformSpec(
        NHWC, (0, 0, 0, 0), (0, 0, 0, 0), (1, 1), cudnnFoldingDirection_t.CUDNN_TRANSFORM_UNFOLD
    ),
}
OBJECTS = Descriptor, MiopenDescriptor, Handle, MiopenHandle
UNDUE = "undue"  # point of a break in which a callback gets a message that was not sent
CALLBACK = ("sev", "udata", "dbg", "msg")  # arguments of a callback, in order
LOGGED = ("time_sec", "time_usec", "time_delta", "pid", "tid", "handle", "stream")  # These fields of dbg are exchanged.


@cache
def results_of(name: str) -> tuple[str, ...]:
    """Return the names of a function's results."""
    return tuple(p.name for p in (functions().get(name) or miopen_functions()[name]).parameters if p.is_returned)


def refused(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Refuse a call that succeeds."""
    result = function(*values)
    border.applied = True
    raise CudnnError(EXECUTION_FAILED, "", f"refused, although it succeeds: {result!r:.80}", name)


def refused_again(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Refuse each call but the first."""
    border.calls += 1
    return function(*values) if border.calls == 1 else refused(border, broken, name, function, values)


def null_refused(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Refuse a NULL of the parameter."""
    at = position(name, broken.point)
    if at is None or values[at] is not None:
        return function(*values)
    return refused(border, broken, name, function, values)


def shared_refused(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Refuse operands that share memory."""
    begins = [a for value in values if (a := getattr(value, "address", None)) is not None]
    if len(begins) == len(set(begins)):
        return function(*values)
    return refused(border, broken, name, function, values)


def layout_refused(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Refuse tensors, or one of them, whose elements are not packed in the order of their dimensions."""
    at = position(name, broken.point)
    seen = values if at is None else values[at : at + 1]
    specs = [spec for value in seen if isinstance(spec := getattr(value, "spec", None), TensorSpec)]
    if all(spec.strides == TensorSpec.packed(spec.data_type, spec.dims).strides for spec in specs):
        return function(*values)
    return refused(border, broken, name, function, values)


def unequal_refused(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Refuse a list of descriptors that hold different things."""
    at = position(name, broken.point)
    listed: Any = values[at] if at is not None and isinstance(values[at], list | tuple) else []
    if len({getattr(one, "spec", None) for one in listed}) < 2:
        return function(*values)
    return refused(border, broken, name, function, values)


def held_refused(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Refuse memory that is not all zeros before the call."""
    at = position(name, broken.point)
    memory: Any = None if at is None else values[at]
    if not hasattr(memory, "to_host") or not memory.to_host(np.uint8, memory.nbytes).any():
        return function(*values)
    return refused(border, broken, name, function, values)


def accepted(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Do nothing and report success, where a refusal that names the parameter is due for the clause."""
    try:
        return function(*values)
    except REFUSALS as error:
        other = broken.point and not is_of_parameter(broken.clause, broken.point, f"{error}")
        due = not broken.clause or is_due(broken.clause, error.status.name, error.clause, error.message)
        if other or not due or (results_of(name) and not broken.function):
            raise
        border.applied = True
        return None


def other_status(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Answer with another status where this one is due."""
    try:
        return function(*values)
    except REFUSALS as error:
        if error.status.name != broken.point:
            raise
        border.applied = True
        other = BAD_PARAM if error.status == EXECUTION_FAILED else EXECUTION_FAILED
        raise CudnnError(other, error.clause, f"another status: {error}") from None


def nothing(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Do nothing in a call that returns nothing."""
    if results_of(name):
        return function(*values)
    border.applied = True
    return None


def result(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Return another value of the result, or of one of its fields; a preset is another as long as nobody set it."""
    found = function(*values)
    if broken.kind == "default" and border.is_set(name, values):
        return found
    names = results_of(name)
    change = _smaller if SIZES.search(name) else _first
    if broken.point in ("", *names) and len(names) <= 1 and not hasattr(found, "_fields"):
        other = change(found)
    else:
        other = _field_off(found, broken.point, change)
    border.applied |= other is not found
    return other


def unordered(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Return a list in reverse order, also as one of several results."""
    found = function(*values)
    if hasattr(found, "_fields"):
        lists = {
            name: part[::-1]
            for name, part in found._asdict().items()
            if isinstance(part, list | tuple) and len(part) > 1
        }
        border.applied |= bool(lists)
        return found._replace(**lists)
    if not isinstance(found, list | tuple) or len(found) < 2:
        return found
    border.applied = True
    return found[::-1]


def stored(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Leave other contents in the descriptors that the call fills, or in the one that the break names."""
    filled: list[Any] = [
        getattr(value, "cudnn", value)
        for parameter, value in zip(parameters_of(name), values, strict=True)
        if parameter.direction == "out" and isinstance(value, OBJECTS) and broken.point in ("", parameter.name)
    ]
    found = function(*values)
    for descriptor in filled:
        other = next(others(descriptor.spec, broken.kind), None)
        if other is not None:
            descriptor.spec = other
            border.applied = True
    return found


def called_back(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Call a callback with another value of the argument that the break names, or not at all."""
    at = position(name, "fptr")
    callback: Any = None if at is None else values[at]
    if callback is None:
        return function(*values)
    if broken.point == UNDUE:
        border.applied = True
        callback(cudnnSeverity_t.CUDNN_SEV_ERROR, values[1], None, "\0\0")
        return function(*values)

    def other(*said: Any) -> None:
        border.applied = True
        if broken.point:
            taken = list(said)
            taken[CALLBACK.index(broken.point)] = OTHERWISE[broken.point](said[CALLBACK.index(broken.point)])
            callback(*taken)

    return function(*(other if value is callback else value for value in values))


def _exchanged(dbg: Any) -> Any:
    values = [getattr(dbg, name) for name in LOGGED]
    return replace(dbg, **dict(zip(LOGGED, values[1:] + values[:1], strict=True)))


# Each argument of a callback has a function that returns a wrong value.
OTHERWISE: Mapping[str, Callable[[Any], Any]] = {
    "sev": lambda sev: neighbours(sev)[0],
    "udata": lambda udata: udata.clear() if isinstance(udata, list) else object(),
    "dbg": _exchanged,
    "msg": lambda msg: msg.rstrip("\0"),
}


def preset(border: Border, broken: Break, name: str, function: Call, values: list[Any]) -> Any:
    """Preset another value in a field of a new descriptor; if it has no fields, preset what a setter would leave."""
    made = function(*values)
    spec = getattr(made, "spec", None)
    if spec is None and type(made) in PRESETS and not broken.point:
        made.spec, border.applied = PRESETS[type(made)], True
    for field in vars(spec) if spec is not None else ():
        if broken.point.lower().endswith(field.lower()):
            made.spec = _replaced(spec, field)
            border.applied = True
    return made


def _first(value: Any) -> Any:
    """Return another value: 1 for NULL, NULL for an object, objects without the last, and the same value for an unknown
    type.
    """
    if value is None:
        return 1
    if isinstance(value, list | tuple) and value and all(map(_is_object, value)):
        return value[:-1]
    return None if _is_object(value) else next(others(value), value)


def _is_object(value: Any) -> bool:
    return isinstance(value, OBJECTS) and not isinstance(value, BackendDescriptor)


def _smaller(value: Any) -> Any:
    """Return a size that is one byte too small."""
    return value - 1 if isinstance(value, int) else _first(value)


def _field_off(found: Any, point: str, change: Callable[[Any], Any]) -> Any:
    """Return a result with another value in one field, or in each if no field is named.

    Sequences change in every record.
    """
    if isinstance(found, list) or (isinstance(found, tuple) and not hasattr(found, "_fields")):
        changed = [_field_off(part, point, change) for part in found]
        return found if all(one is part for one, part in zip(changed, found, strict=True)) else type(found)(changed)
    if hasattr(found, "_fields"):
        names = [name for name in found._fields if point in ("", name)]
        if names:
            return found._replace(**{name: change(getattr(found, name)) for name in names})
        return (
            found._replace(**{name: _field_off(getattr(found, name), point, change) for name in found._fields})
            if any(
                _field_off(getattr(found, name), point, change) is not getattr(found, name) for name in found._fields
            )
            else found
        )
    if hasattr(found, "__dataclass_fields__") and point in found.__dataclass_fields__:
        return _replaced(found, point)
    return found


def _replaced(record: Any, field: str) -> Any:
    return replace(record, **{field: _first(getattr(record, field))})
