"""Carry the tables' changes of tensors over to drawn operations, which are then refused, too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import cache
from itertools import zip_longest
from typing import Any

import numpy as np
from dualdnn.api.enumerations import (
    cudnnActivationMode_t,
    cudnnConvolutionMode_t,
    cudnnDataType_t,
    cudnnMathType_t,
    cudnnNanPropagation_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import Operation, TensorSpec
from dualdnn.api.operations.specs import NCHW, NHWC, vector_length
from dualdnn.api.status import CudnnError, cudnnStatus_t

from ..calls.caller import Caller, function_of
from ..trial import prepare
from . import FOLDER, Refusal, read

# Enumerators on which no table of support depends.
OPTIONS = (cudnnConvolutionMode_t, cudnnMathType_t, cudnnNanPropagation_t, cudnnActivationMode_t, cudnnReorderType_t)
MAX_CHANGE = 16  # elements by which a change may lengthen or shorten a drawn dimension
REFUSALS = tuple(cudnnStatus_t[f"CUDNN_STATUS_{name}"] for name in ("BAD_PARAM", "NOT_SUPPORTED", "INVALID_VALUE"))


class NotCarried(ValueError):
    """Report that a change means nothing for an operation."""


@cache
def rows() -> dict[type[Operation], dict[str, Refusal]]:
    """Return the rows that change operations alone, by the type of the operation and the row's name."""
    found: dict[type[Operation], dict[str, Refusal]] = {}
    for path in sorted(FOLDER.glob("*.toml")):
        for name, case in read(path).items():
            for parameter, several in case.rows.items():
                for number, row in enumerate(several):
                    if isinstance(row.accepted, Operation) and is_general(row):
                        found.setdefault(type(row.accepted), {})[f"{path.stem}/{name}[{parameter}]{number}"] = row
    return found


def is_general(row: Refusal) -> bool:
    """Return whether a row's call changes in its operation alone, on every subject."""
    return not (row.arguments or row.attributes or row.needs)


def carried(row: Refusal, drawn: Any) -> Any:
    """Return a drawn operation with a row's change. Raise NotCarried if the change means nothing for it."""
    if not _comparable(row, drawn):
        raise NotCarried
    moved = _moved(row.accepted, row.refused, drawn)
    for name, original in row.aliases.items():
        if {name, original} - {*moved.operands} | {name, original} & {*moved.raw} or _alike(
            moved, name, original
        ) != _alike(row.refused, name, original):
            raise NotCarried
    if moved == drawn and not row.aliases:
        raise NotCarried
    return moved


def kinds(value: Any, kind: Any) -> list[Any]:
    """Return the values of a type in an operation, in the order of its fields."""
    if isinstance(value, kind):
        return [value]
    return (
        [one for each in fields(value) for one in kinds(getattr(value, each.name), kind)] if is_dataclass(value) else []
    )


def _comparable(row: Refusal, drawn: Any) -> bool:
    """Return whether the rule that a row shows is also one for a drawn operation.

    What fits together may depend on the types if one of them changes. What is supported depends on the algorithm, the
    types and formats, and the numbers of dimensions.
    """
    if row.status == cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED:
        ranks = ([spec.rank for spec in kinds(one, TensorSpec)] for one in (row.accepted, drawn))
        of_tables = (
            [one for one in kinds(each, Enum) if not isinstance(one, OPTIONS)] for each in (row.accepted, drawn)
        )
        return next(of_tables) == next(of_tables) and next(ranks) == next(ranks)
    types = kinds(row.accepted, cudnnDataType_t)
    return types in (kinds(row.refused, cudnnDataType_t), kinds(drawn, cudnnDataType_t))


def _alike(operation: Any, *names: str) -> bool:
    first, second = (operation.tensor(name) for name in names)
    return bool(first == second)


def applicable(operation: Operation) -> list[str]:
    """Return the names of the rows whose change means something for an operation."""
    found = []
    for name, row in rows().get(type(operation), {}).items():
        with suppress(NotCarried):
            carried(row, operation)
            found.append(name)
    return found


def fault(caller: Caller, operation: Operation, name: str) -> str:
    """Make the call with a row's change, and return why it was not refused as a table demands, or an empty text."""
    row = rows()[type(operation)][name]
    wrong = carried(row, operation)
    told = f"{function_of(type(wrong))} with the change {name} of {type(wrong).__name__}"
    error, said = refusal(caller, wrong, row.aliases)
    if error is None:
        return f"{told} succeeded, expected {row.status.name} [{row.clause}]: {wrong}"
    return f"{told}: {said}, expected {row.status.name} [{row.clause}]" if said else ""


def refusal(
    caller: Caller, operation: Operation, aliases: Mapping[str, str], inputs: Any = "normal"
) -> tuple[CudnnError | None, str]:
    """Make one call. Return its error, or None if it is accepted, and what is wrong with that error, or an empty text.

    A refusal has a documented status, cites a clause, and changes no operand. Raise NotCarried if no call means the
    operation, because its call computes another one.
    """
    memory = prepare(operation, inputs, 0, aliases)
    buffers = {operand: caller.handle.to_device(memory[operand]) for operand in memory if operand not in aliases}
    asked, prepared = list[Operation](), caller.handle.backend.prepare
    caller.handle.answers.clear()

    def prepare_noted(one: Operation) -> Any:
        asked.append(one)
        return prepared(one)

    caller.handle.backend.prepare = prepare_noted
    try:
        caller(operation, {operand: buffers[aliases.get(operand, operand)] for operand in memory})
    except CudnnError as error:
        if not is_refusal(error):
            return error, f"got {error}"
        touched = [n for n, b in buffers.items() if bytes(b.to_host(np.uint8, b.nbytes)) != bytes(memory[n])]
        return error, f"the refused call changed {', '.join(touched)}" if touched else ""
    finally:
        del caller.handle.backend.prepare
    if operation not in asked:
        raise NotCarried(f"the call means {asked}")
    return None, ""


def is_refusal(error: CudnnError) -> bool:
    """Return whether an error has a status that refuses a call, and cites a clause."""
    return error.status in REFUSALS and bool(error.clause)


def _moved(right: Any, wrong: Any, drawn: Any) -> Any:
    parts = {}
    for name in (field.name for field in fields(right)):
        before, after, now = (getattr(one, name) for one in (right, wrong, drawn))
        if before == after:
            continue
        if not isinstance(before, TensorSpec) or not type(before) is type(after) is type(now):
            raise NotCarried
        others = [
            one
            for other in fields(drawn)
            if other.name != name
            for one in kinds(getattr(drawn, other.name), TensorSpec)
        ]
        parts[name] = _tensor(before, after, now, others)
    return replace(drawn, **parts)


def _tensor(right: TensorSpec, wrong: TensorSpec, drawn: TensorSpec, others: list[TensorSpec]) -> TensorSpec:
    """Move a tensor's dimensions or strides by the same differences, or give it the same other type or layout."""
    if right.rank != wrong.rank:
        raise NotCarried
    dims = _raised(drawn.dims, right.dims, wrong.dims)
    if dims[1] % vector_length(wrong.data_type):
        raise NotCarried
    for axis, (now, was) in enumerate(zip(dims, drawn.dims, strict=True)):
        # A dimension that became 1, or that of another tensor, may fit.
        fits = now < 2 or any(now in one.dims[axis : axis + 1] for one in others)
        if now != was and (fits or abs(now - was) > MAX_CHANGE):
            raise NotCarried
    if wrong.data_type != right.data_type or dims != drawn.dims:
        return TensorSpec.packed(wrong.data_type, dims, NHWC if drawn.strides[1] == 1 else NCHW)
    if wrong == TensorSpec.packed(wrong.data_type, wrong.dims, NHWC):
        return TensorSpec.packed(drawn.data_type, dims, NHWC)
    strides = _raised(drawn.strides, right.strides, wrong.strides)
    for now, was, extent in zip(strides, drawn.strides, dims, strict=True):
        if now < was or (now > was and extent == 1):
            raise NotCarried
    return replace(drawn, strides=strides)


def _raised(drawn: tuple[int, ...], right: tuple[int, ...], wrong: tuple[int, ...]) -> tuple[int, ...]:
    """Add the differences of two tuples to the drawn one, which may be longer. Raise NotCarried if it lacks one."""
    steps = [there - here for here, there in zip(right, wrong, strict=True)]
    if any(steps[len(drawn) :]):
        raise NotCarried
    return tuple(number + step for number, step in zip_longest(drawn, steps[: len(drawn)], fillvalue=0))
