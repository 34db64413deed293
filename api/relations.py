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
    expect(
        len({t.dims for t in tensors.values()}) == 1, status, clause, f"dimensions differ: {_listed('dims', tensors)}"
    )


def same_data_type(clause: str, status: cudnnStatus_t = BAD_PARAM, **tensors: TensorSpec) -> None:
    """Raise an error unless all tensors have the same data type."""
    kinds = {t.data_type for t in tensors.values()}
    expect(len(kinds) == 1, status, clause, f"data types differ: {_listed('data_type', tensors)}")


def same_strides(clause: str, status: cudnnStatus_t = BAD_PARAM, **tensors: TensorSpec) -> None:
    """Raise an error unless all tensors have the same strides."""
    expect(
        len({t.strides for t in tensors.values()}) == 1,
        status,
        clause,
        f"strides differ: {_listed('strides', tensors)}",
    )


def data_type_among(
    clause: str, allowed: tuple[cudnnDataType_t, ...], status: cudnnStatus_t = NOT_SUPPORTED, **tensors: Any
) -> None:
    """Raise an error unless every tensor's data type is in ``allowed``."""
    for name, spec in tensors.items():
        names = ", ".join(kind.name for kind in allowed)
        expect(
            spec.data_type in allowed,
            status,
            clause,
            f"{name} has data type {spec.data_type.name}, supported are {names}",
            data_type=spec.data_type.name,
        )


def rank_between(
    clause: str, lowest: int, highest: int, status: cudnnStatus_t = NOT_SUPPORTED, **tensors: TensorSpec
) -> None:
    """Raise an error unless every tensor has ``lowest`` to ``highest`` dimensions."""
    for name, spec in tensors.items():
        text = f"{name} has {spec.rank} dimensions {spec.dims}, supported are {lowest} to {highest}"
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
    if any(tensor.data_type == DOUBLE for tensor in tensors):
        return value
    with np.errstate(over="ignore"):
        return float(np.float32(value))


def _listed(attribute: str, tensors: dict[str, TensorSpec]) -> str:
    def shown(value: Any) -> str:
        return getattr(value, "name", None) or str(value)

    return ", ".join(f"{name} {shown(getattr(spec, attribute))}" for name, spec in tensors.items())
