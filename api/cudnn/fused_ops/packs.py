"""Implement parameter packs of fused operations (6.2.3, 6.2.5, 6.2.6, 6.2.8, 6.2.15, 6.2.16, 6.2.18, 6.2.19)."""

from __future__ import annotations

import operator
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from ...descriptors import DESCRIPTORS, FusedOpsConstParamPack, FusedOpsVariantParamPack
from ...enumerations import ENUMERATIONS
from ...functions import INTEGERS, documented
from ...operations.specs import FusedOpsParamsSpec
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, CudnnError, expect
from ...support.fused_ops import CONST, PRESETS, VARIANT, const_type, scalar_type

if TYPE_CHECKING:
    from ...enumerations import cudnnFusedOps_t, cudnnFusedOpsConstParamLabel_t, cudnnFusedOpsVariantParamLabel_t

_SC = "cudnnSetFusedOpsConstParamPackAttribute"
_GC = "cudnnGetFusedOpsConstParamPackAttribute"
_SV = "cudnnSetFusedOpsVariantParamPackAttribute"
_GV = "cudnnGetFusedOpsVariantParamPackAttribute"


@documented(invalid={"ops": ("c05", NOT_SUPPORTED)})
def cudnnCreateFusedOpsConstParamPack(ops: cudnnFusedOps_t) -> FusedOpsConstParamPack:
    """Return a constant parameter pack of a sequence, without descriptors, with CUDNN_PTR_NULL and
    CUDNN_BATCHNORM_PER_ACTIVATION.

    Errors: NOT_SUPPORTED for an unknown sequence (c05). Source: 6.2.3, the tables of 6.1.3.2.
    """
    pack, labels = FusedOpsConstParamPack(), CONST[ops]
    pack.spec = FusedOpsParamsSpec(ops, labels, tuple(PRESETS.get(const_type(label)) for label in labels))
    return pack


@documented()
def cudnnDestroyFusedOpsConstParamPack(constPack: FusedOpsConstParamPack) -> None:
    """Destroy the pack; any later use is BAD_PARAM. Plans that were made from it stay valid. Source: 6.2.6."""
    constPack.destroy()


@documented(invalid={"constPack": "c05", "paramLabel": "c06"}, unchecked=["param"])
def cudnnSetFusedOpsConstParamPackAttribute(
    constPack: FusedOpsConstParamPack, paramLabel: cudnnFusedOpsConstParamLabel_t, param: Any
) -> None:
    """Copy a descriptor's contents or a value into the pack; None is recorded as NULL.

    param: depends on the label.

    - Labels that end with DESC take a descriptor: of an activation for CUDNN_PARAM_ACTIVATION_DESC, of a convolution
    for CUDNN_PARAM_CONV_DESC, of a filter for CUDNN_PARAM_WDESC and CUDNN_PARAM_DWDESC, else of a tensor.
    - CUDNN_PARAM_BN_MODE takes a cudnnBatchNormMode_t.
    - Placeholders take a cudnnFusedOpsPointerPlaceHolder_t.

    Later changes of the descriptor do not affect the pack.
    Errors: BAD_PARAM for NULL (c05), an unknown label (c06) or one that the pack's sequence does not have (c07), a
    param of another type, a descriptor that has not been initialised (cudnnStatus_t/c05). Source: 6.2.18.
    """
    _known(paramLabel, constPack, f"{_SC}/c07")
    value = None if param is None else _value(const_type(paramLabel), paramLabel, param)
    constPack.spec = constPack.spec.changed(paramLabel, value)


class ConstParam(NamedTuple):
    param: Any
    isNULL: int


@documented(invalid={"constPack": "c06", "paramLabel": "c09"})
def cudnnGetFusedOpsConstParamPackAttribute(
    constPack: FusedOpsConstParamPack, paramLabel: cudnnFusedOpsConstParamLabel_t
) -> ConstParam:
    """Return (param, isNULL): a new descriptor with the pack's contents, or the value, and 0. If the pack holds NULL,
    return (None, 1).

    Errors: BAD_PARAM for NULL (c06), an unknown label or one that the pack's sequence does not have (c09).
    Source: 6.2.15.
    """
    _known(paramLabel, constPack, f"{_GC}/c09")
    value, kind = constPack.spec.get(paramLabel), DESCRIPTORS.get(const_type(paramLabel))
    if value is None or kind is None:
        return ConstParam(value, int(value is None))
    copy = kind()
    copy.take(value)
    return ConstParam(copy, 0)


@documented(invalid={"*": "c03"})
def cudnnCreateFusedOpsVariantParamPack(ops: cudnnFusedOps_t) -> FusedOpsVariantParamPack:
    """Return a variant parameter pack of a sequence, with NULL pointers and zeros.

    Errors: BAD_PARAM for an unknown sequence (c03). Source: 6.2.5.
    """
    pack, labels = FusedOpsVariantParamPack(), VARIANT[ops]
    presets = {None: None, "double": 0.0}
    pack.spec = FusedOpsParamsSpec(ops, labels, tuple(presets.get(scalar_type(label), 0) for label in labels))
    return pack


@documented()
def cudnnDestroyFusedOpsVariantParamPack(varPack: FusedOpsVariantParamPack) -> None:
    """Destroy the pack, but not the memory that it points to; any later use is BAD_PARAM. Source: 6.2.8."""
    varPack.destroy()


@documented(invalid={"varPack": "c03", "paramLabel": "c04"}, unchecked=["ptr"])
def cudnnSetFusedOpsVariantParamPackAttribute(
    varPack: FusedOpsVariantParamPack, paramLabel: cudnnFusedOpsVariantParamLabel_t, ptr: Any
) -> None:
    """Store a device pointer or a scalar in the pack; None is NULL, and 0 for scalars.

    ptr: device memory for CUDNN_PTR labels, which is checked when the operations run. For CUDNN_SCALAR labels it is a
    number, which is copied: an integer (size_t, int64_t) or a real number (double).
    Errors: BAD_PARAM for NULL (c03), an unknown label or one that the pack's sequence does not have (c04), a
    value that is not a number of the scalar's type (cudnnStatus_t/c05). Source: 6.2.19.
    """
    _known(paramLabel, varPack, f"{_SV}/c04")
    kind = scalar_type(paramLabel)
    value = ptr if kind is None else _value(kind, paramLabel, 0 if ptr is None else ptr)
    varPack.spec = varPack.spec.changed(paramLabel, value)


@documented(invalid={"varPack": "c04", "paramLabel": "c06"})
def cudnnGetFusedOpsVariantParamPackAttribute(
    varPack: FusedOpsVariantParamPack, paramLabel: cudnnFusedOpsVariantParamLabel_t
) -> Any:
    """Return the device memory that was set, None for NULL, or the scalar.

    Errors: BAD_PARAM for NULL (c04), an unknown label or one that the pack's sequence does not have (c06).
    Source: 6.2.16.
    """
    _known(paramLabel, varPack, f"{_GV}/c06")
    return varPack.spec.get(paramLabel)


def _known(label: Any, pack: Any, clause: Any) -> None:
    expect(
        label in pack.spec.labels,
        BAD_PARAM,
        clause,
        f"paramLabel is {label.name}, which {pack.spec.ops.name} does not have",
    )


def _value(kind: Any, label: Any, value: Any) -> Any:
    """Return a copy of the value for an attribute of this type; raise BAD_PARAM if it does not fit."""
    text = f"{label.name} takes {kind}, not {value!r:.200}"
    if kind in DESCRIPTORS:
        right = type(value) is DESCRIPTORS[kind] and value.spec is not None
        expect(right, BAD_PARAM, INCORRECT_PARAMETER, f"{text}, or one that has not been initialised or was destroyed")
        return value.spec
    try:
        if kind == "double":
            return float(value)
        if isinstance(value, Enum) and type(value) is not ENUMERATIONS.get(kind):
            raise TypeError("of another type")
        number = operator.index(value)
        if kind in ENUMERATIONS:
            return ENUMERATIONS[kind](number)
        lowest, highest = INTEGERS[kind]
        expect(lowest <= number <= highest, BAD_PARAM, INCORRECT_PARAMETER, text)
        return number
    except (TypeError, ValueError):
        raise CudnnError(BAD_PARAM, INCORRECT_PARAMETER, text) from None
