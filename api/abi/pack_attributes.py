"""Convert attributes of fused operations' packs behind a C ``void *``; the label gives the type (6.1.3.2, 6.1.3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..descriptors import DESCRIPTORS
from ..document import Function
from ..enumerations import cudnnFusedOpsConstParamLabel_t, cudnnFusedOpsVariantParamLabel_t
from ..status import BAD_PARAM, INCORRECT_PARAMETER, CudnnError
from ..support.fused_ops import const_type, scalar_type
from .c_types import element, packed, read
from .objects import Objects

LABEL = 1  # the index of the label's parameter
PLACES = {
    ("cudnnSetFusedOpsConstParamPackAttribute", "param"),
    ("cudnnGetFusedOpsConstParamPackAttribute", "param"),
    ("cudnnSetFusedOpsVariantParamPackAttribute", "ptr"),
    ("cudnnGetFusedOpsVariantParamPackAttribute", "ptr"),
}


def _type(function: Function, label: int) -> str | None:
    """Return the type of an attribute, or None for device memory and for an invalid label, which the call refuses."""
    try:
        if "Const" in function.name:
            return const_type(cudnnFusedOpsConstParamLabel_t(label))
        return scalar_type(cudnnFusedOpsVariantParamLabel_t(label))
    except ValueError:
        return None


def reader(function: Function, index: int, objects: Objects) -> Callable[[tuple[Any, ...]], Any]:
    """Return the rule for a setter's value: a descriptor, a pointer to an enumerator or scalar, or device memory."""

    def attribute(c: tuple[Any, ...]) -> Any:
        kind, address = _type(function, c[LABEL]), c[index]
        if not address or kind is None:
            return address or None
        if kind in DESCRIPTORS:
            return objects.get(address)
        return read(element(kind), address)[0]

    return attribute


def writer(function: Function, index: int, objects: Objects) -> Callable[[tuple[Any, ...], Any], bytes | None]:
    """Return the rule for a getter's result: a descriptor's contents go into the caller's descriptor, other values
    behind its pointer."""

    def write(c: tuple[Any, ...], value: Any) -> bytes | None:
        kind = _type(function, c[LABEL]) or "void"
        if kind not in DESCRIPTORS:
            return packed(element(kind), (getattr(value, "address", value) or 0,))
        if value is not None:
            target = objects.get(c[index])
            if type(target) is not DESCRIPTORS[kind]:
                raise CudnnError(BAD_PARAM, INCORRECT_PARAMETER, f"param is {target!r}, not a {kind}")
            target.take(value.spec)
        return None

    return write
