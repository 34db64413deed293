"""Check relations between descriptors; argument names are passed as keywords and appear in the messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from .enumerations import cudnnDataType_t, cudnnStatus_t
from .operations import TensorSpec
from .operations.specs import DOUBLE
from .status import BAD_PARAM, NOT_SUPPORTED, expect


def same_dims(clause: str, status: cudnnStatus_t = BAD_PARAM, **tensors: TensorSpec) -> None:
    """Raise an error unless all tensors have the same dimensions."""
    _equal("dimensions", "dims", clause, status, tensors)


def same_data_type(clause: str, status: cudnnStatus_t = BAD_PARAM, **tensors: TensorSpec) -> None:
    """Raise an error unless all tensors have the same data type."""
    _equal("data types", "data_type", clause, status, tensors)


def same_strides(clause: str, status: cudnnStatus_t = BAD_PARAM, **tensors: TensorSpec) -> None:
    """Raise an error unless all tensors have the same strides."""
    _equal("strides", "strides", clause, status, tensors)


def data_type_among(
    clause: str, allowed: tuple[cudnnDataType_t, ...], status: cudnnStatus_t = NOT_SUPPORTED, **tensors: Any
) -> None:
    """Raise an error unless every tensor's data type is in ``allowed``."""
    for name, spec in tensors.items():
        if spec.data_type not in allowed:
            names, given = ", ".join(kind.name for kind in allowed), spec.data_type.name
            expect(False, status, clause, f"{name} has data type {given}, {names} are supported", data_type=given)


def rank_between(
    clause: str, lowest: int, highest: int, status: cudnnStatus_t = NOT_SUPPORTED, **tensors: TensorSpec
) -> None:
    """Raise an error unless every tensor has ``lowest`` to ``highest`` dimensions."""
    for name, spec in tensors.items():
        text = f"{name} has {spec.rank} dimensions {spec.dims}, {lowest} to {highest} are supported"
        expect(lowest <= spec.rank <= highest, status, clause, text)


def spatially_packed_beyond(rank: int, clause: str, **tensors: TensorSpec) -> None:
    """Raise an error unless tensors with more than ``rank`` dimensions have packed spatial dimensions."""
    for name, spec in tensors.items():
        text = f"{name} has {spec.rank} dimensions {spec.dims} and spatial dimensions that are not packed: strides {spec.strides}"
        expect(spec.rank <= rank or spec.spatially_packed, NOT_SUPPORTED, clause, text)


def writable_layout(**tensors: TensorSpec) -> None:
    """Raise an error if an output stores two elements at one address, which routines need not support (3.2.92)."""
    for name, spec in tensors.items():
        text = f"{name} is written, but its strides {spec.strides} put several elements of {spec.dims} in one place"
        expect(not spec.overlaps, NOT_SUPPORTED, "cudnnSetTensor4dDescriptorEx/c04", text)


def not_overlapping(clause: str, **tensors: TensorSpec) -> None:
    """Raise an error if a tensor stores two elements at one address."""
    for name, spec in tensors.items():
        text = f"{name} has strides {spec.strides} that put several elements of {spec.dims} in one place"
        expect(not spec.overlaps, NOT_SUPPORTED, clause, text)


def begin_together(handle: Any, first: Any, second: Any) -> bool:
    """Return whether two device arguments have the same address; False if one of them is not memory."""
    try:
        return bool(handle.backend.operand(first).address == handle.backend.operand(second).address)
    except (TypeError, ValueError):
        return False


def scaling(value: float, *tensors: TensorSpec) -> float:
    """Return a scaling factor as the library uses it: double for DOUBLE tensors, else rounded to float."""
    if DOUBLE in [tensor.data_type for tensor in tensors]:
        return value
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _equal(what: str, attribute: str, clause: str, status: cudnnStatus_t, tensors: dict[str, TensorSpec]) -> None:
    """Raise an error unless all tensors have an equal attribute."""
    values = {name: getattr(spec, attribute) for name, spec in tensors.items()}
    if len({*values.values()}) > 1:
        listed = ", ".join(f"{name} {getattr(value, 'name', value)}" for name, value in values.items())
        expect(False, status, clause, f"{what} differ: {listed}")
