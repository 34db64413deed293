"""Change one thing of an operation that a domain drew. The call is then refused, or computes what it should."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.specs import NCHW, NCHW_VECT_C, NHWC, vector_length

from .pieces import LARGE, Drawn, Source, need

MAX_BYTES = 1 << 22  # bytes of all operands of a changed operation; larger ones are only described
MIN_RANK = 3  # dimensions of a tensor descriptor; memory without one has fewer
Path = tuple[str, ...]


def varied(source: Source, drawn: Drawn) -> Drawn:
    """Return the drawn operations up to one of them, with a change of it: a field, equal fields, or shared memory."""
    at = source.integer(0, len(drawn.steps) - 1)
    operation: Any = drawn.steps[at]
    aliases = drawn.aliases
    operands = [name for name in operation.operands if name not in operation.raw]
    if len(operands) > 1 and source.chance(15):
        into = source.pick([name for name in operands if name in operation.outputs] or operands)
        other = source.pick([name for name in operands if name != into])
        aliases = ((into, other),) if operands.index(into) > operands.index(other) else ((other, into),)
        if source.chance(50):
            return Drawn((*drawn.steps[:at], operation), drawn.inputs, (), aliases, varied=True)
    changed = _changed(source, operation)
    need(changed != operation)
    return Drawn((*drawn.steps[:at], changed), drawn.inputs, (), aliases, varied=True)


def _changed(source: Source, operation: Any) -> Any:
    """Return the operation with another value of one field, or of all fields that are equal to it."""
    places = [*_places(operation, ())]
    tensors = [place for place in places if isinstance(place[1], TensorSpec)]
    own = [place for place in places if len(place[0]) == 1 and place not in tensors]
    path, value = source.pick(source.pick([group for group in (tensors, tensors, own, places) if group]))
    other = _other(source, value, operation)
    alike = [p for p, v in _places(operation, ()) if isinstance(v, TensorSpec) and v == value]
    for place in alike if alike and source.chance(40) else [path]:
        operation = _put(operation, place, other)
    return operation


def _places(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield each field of a record, and of the records in it, with its value."""
    for field in fields(value):
        found = getattr(value, field.name)
        if is_dataclass(found) and not isinstance(found, TensorSpec):
            yield from _places(found, (*path, field.name))
        elif (found is not None and not isinstance(found, TensorSpec)) or len(getattr(found, "dims", ())) >= MIN_RANK:
            yield (*path, field.name), found


def _put(value: Any, path: Path, part: Any) -> Any:
    name, *rest = path
    return replace(value, **{name: _put(getattr(value, name), tuple(rest), part) if rest else part})


def _other(source: Source, value: Any, operation: Operation) -> Any:
    """Return another value of the same kind."""
    if isinstance(value, TensorSpec):
        return _tensor(
            source, value, [v for _, v in _places(operation, ()) if isinstance(v, TensorSpec) and v != value]
        )
    if isinstance(value, Enum):
        return source.pick([one for one in type(value) if one != value] or [value])
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = (
            value + 1,
            value - 1,
            2 * value,
            0,
            1,
            -value,
            -1,
            source.pick(LARGE),
            *[source.pick(_numbers(operation)) for _ in range(2)],
        )
        return source.pick([number for number in near if abs(number) < 2**31])
    if isinstance(value, float):
        return source.pick((0.0, 1.0, -1.0, 2 * value, 0.25))
    if isinstance(value, tuple) and value:
        at = source.integer(0, len(value) - 1)
        kind = source.pick(("entry", "entry", "entry", "swapped", "shorter", "longer"))
        if kind == "entry":
            return (*value[:at], _other(source, value[at], operation), *value[at + 1 :])
        if kind == "swapped":
            return (*value[at:], *value[:at])
        return value[:-1] if kind == "shorter" else (*value, value[at])
    return value


def _numbers(operation: Operation) -> list[int]:
    """Return the whole numbers of an operation: sizes and strides, at which the range of another number may end."""
    values = [value for _, value in _places(operation, ())]
    listed = [v.dims if isinstance(v, TensorSpec) else v if isinstance(v, tuple) else (v,) for v in values]
    return [one for each in listed for one in each if type(one) is int] or [1]


def _tensor(source: Source, spec: TensorSpec, others: list[TensorSpec]) -> TensorSpec:
    """Return a tensor with another extent, other strides, another type or rank, or one of the others."""
    kind = source.pick(("extent", "extent", "layout", "layout", "close", "close", "far", "type", "rank", "like"))
    if kind == "like" and others:
        return source.pick(others)
    dims, order = spec.dims, NHWC if spec.strides[1] == 1 and spec.dims[1] > 1 else NCHW
    at = source.integer(0, len(dims) - 1)
    if kind == "type":
        other = source.pick(tuple(cudnnDataType_t))
        if vector_length(other) > 1:
            return TensorSpec.packed(other, dims, NCHW_VECT_C)
        return replace(spec, data_type=other) if spec.vector_length == 1 else TensorSpec.packed(other, dims)
    if kind == "rank":
        dims = (*dims, 1) if source.chance(50) else dims[:-1]
    elif kind == "extent":
        extent = source.pick((dims[at] + 1, dims[at] - 1, 2 * dims[at], 1))
        dims = (*dims[:at], extent, *dims[at + 1 :])
    if spec.vector_length > 1:
        return TensorSpec.packed(spec.data_type, dims, NCHW_VECT_C)
    if kind == "layout":
        return replace(spec, strides=source.layout(dims))
    if kind == "far":
        return replace(spec, strides=(*spec.strides[:at], source.pick(LARGE), *spec.strides[at + 1 :]))
    if kind == "close":  # Elements of two rows are in one place, or just not.
        inner = sorted((step, d) for d, step in enumerate(spec.strides) if dims[d] > 1)
        need(len(inner) > 1)
        first = source.integer(0, len(inner) - 2)
        (step, near), (_, at) = inner[first : first + 2]
        step = max(1, step * (dims[near] - 1) + source.pick((0, 0, 1, -1)))
        return replace(spec, strides=(*spec.strides[:at], step, *spec.strides[at + 1 :]))
    return TensorSpec.packed(spec.data_type, dims, order)
