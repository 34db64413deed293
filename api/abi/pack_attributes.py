"""Attributes of the packs of fused operations behind a ``void *`` of C, whose type the label says (6.1.3.2, 6.1.3.4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..descriptors import DESCRIPTORS
from ..document import Function
from ..enumerations import ENUMERATIONS, cudnnFusedOpsConstParamLabel_t, cudnnFusedOpsVariantParamLabel_t
from ..status import BAD_PARAM, INCORRECT_PARAMETER, CudnnError
from ..support.fused_ops import const_type, scalar_type
from .objects import Objects

LABEL = 1  # the parameter
PLACES = {
    ("cudnnSetFusedOpsConstParamPackAttribute", "param"),
    ("cudnnGetFusedOpsConstParamPackAttribute", "param"),
    ("cudnnSetFusedOpsVariantParamPackAttribute", "ptr"),
    ("cudnnGetFusedOpsVariantParamPackAttribute", "ptr"),
}


def _type(function: Function, label: int) -> str | None:
    """Return the type of an attribute; None for device memory, and for what is no label, which the call refuses."""
    try:
        if "Const" in function.name:
            return const_type(cudnnFusedOpsConstParamLabel_t(label))
        return scalar_type(cudnnFusedOpsVariantParamLabel_t(label))
    except ValueError:
        return None


def reader(function: Function, index: int, ffi: Any, objects: Objects) -> Callable[[tuple[Any, ...]], Any]:
    """Return the rule of what a setter is given: a descriptor itself, a pointer to an enumerator or a scalar, device memory itself."""

    def read(c: tuple[Any, ...]) -> Any:
        kind, address = _type(function, c[LABEL]), c[index]
        if not address or kind is None:
            return address or None
        if kind in DESCRIPTORS:
            return objects.get(address)
        return ffi.cast(f"{'int' if kind in ENUMERATIONS else kind} *", address)[0]

    return read


def writer(function: Function, index: int, ffi: Any, objects: Objects) -> Callable[[tuple[Any, ...], Any], None]:
    """Return the rule of what a getter returns: a descriptor's contents go into the caller's own, anything else behind its pointer."""

    def write(c: tuple[Any, ...], value: Any) -> None:
        kind, address = _type(function, c[LABEL]) or "uintptr_t", c[index]
        if kind not in DESCRIPTORS:
            element = "int" if kind in ENUMERATIONS else kind
            ffi.cast(f"{element} *", address)[0] = getattr(value, "address", value) or 0
        elif value is not None:
            target = objects.get(address)
            if type(target) is not DESCRIPTORS[kind]:
                raise CudnnError(BAD_PARAM, INCORRECT_PARAMETER, f"param is {target!r}, not a {kind}")
            target.take(value.spec)

    return write
