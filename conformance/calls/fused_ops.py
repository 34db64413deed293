"""Turn a fused operation into its parameter packs and its plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dualdnn.api.enumerations import (
    cudnnBatchNormMode_t,
    cudnnFusedOpsConstParamLabel_t,
    cudnnFusedOpsPointerPlaceHolder_t,
)
from dualdnn.api.operations import (
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    ConvScaleBiasAddActivation,
    DactivationForkDbatchnorm,
    Operation,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ScaleBiasAddActivationGenBitmask,
)
from dualdnn.api.support.fused_ops import (
    CONST,
    CONV_ADD,
    CONV_BNSTATS,
    COUNT,
    DBATCHNORM,
    EPSILON,
    FACTOR,
    FINALIZE_INFERENCE,
    FINALIZE_TRAINING,
    GEN_BITMASK,
    OPERANDS,
    VARIANT,
    WGRAD,
    WORKSPACE_SIZE,
    const_type,
    promise_of,
)

from .descriptors import made

KINDS: dict[type[Operation], Any] = {
    BnFinalizeStatisticsTraining: FINALIZE_TRAINING,
    BnFinalizeStatisticsInference: FINALIZE_INFERENCE,
    ScaleBiasAddActivationGenBitmask: GEN_BITMASK,
    DactivationForkDbatchnorm: DBATCHNORM,
    ScaleBiasActivationConvBnstats: CONV_BNSTATS,
    ScaleBiasActivationWgrad: WGRAD,
    ConvScaleBiasAddActivation: CONV_ADD,
}
NULL, ELEMENT, _ = cudnnFusedOpsPointerPlaceHolder_t
MODE = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
# descriptor -> fields of the operation that it may describe
FIELDS = {
    "XDESC": ("x",),
    "BN_EQSCALEBIAS_DESC": ("eqScale", "eqBias"),
    "ACTIVATION_DESC": ("activation",),
    "CONV_DESC": ("convolution",),
    "WDESC": ("w",),
    "DWDESC": ("dw",),
    "YDESC": ("y",),
    "DYDESC": ("dy",),
    "YSTATS_DESC": ("ySum", "ySqSum"),
    "BN_SCALEBIAS_MEANVAR_DESC": (
        "scale", "bias", "runningMean", "runningVar", "savedMean", "savedInvStd", "dScale", "dBias",
    ),
    "ZDESC": ("z",),
    "BN_Z_EQSCALEBIAS_DESC": ("zEqScale", "zEqBias"),
    "ACTIVATION_BITMASK_DESC": ("bitMask",),
    "DXDESC": ("dx",),
    "DZDESC": ("dz",),
}  # fmt: skip
SCALARS = {COUNT: "count", FACTOR: "factor", EPSILON: "epsilon"}


def const_pack(make: Any, operation: Operation, _memory: Mapping[str, Any] | None = None, **attributes: Any) -> Any:
    """Return the constant parameter pack of an operation.

    ``attributes`` overrides values by their names without CUDNN_PARAM_.
    """
    ops = KINDS[type(operation)]
    pack = make.cudnn.cudnnCreateFusedOpsConstParamPack(ops)
    promises = {promise_of(pointer): name for pointer, name in OPERANDS.items()}
    for label in CONST[ops]:
        name = label.name.removeprefix("CUDNN_PARAM_")
        if name in attributes:
            value = attributes[name]
        elif label in promises:
            value = ELEMENT if promises[label] in operation.operands else NULL
        elif name == "BN_MODE":
            value = MODE
        else:
            found = (getattr(operation, field, None) for field in FIELDS[name])
            value = next((spec for spec in found if spec is not None), None)
        if value is not None and const_type(label).endswith("Descriptor_t"):
            value = made(make.cudnn, value)
        make.cudnn.cudnnSetFusedOpsConstParamPackAttribute(pack, cudnnFusedOpsConstParamLabel_t(label), value)
    return pack


def variant_pack(make: Any, operation: Any, memory: Mapping[str, Any]) -> Any:
    """Return the variant parameter pack with this memory and the operation's scalars."""
    ops = KINDS[type(operation)]
    pack = make.cudnn.cudnnCreateFusedOpsVariantParamPack(ops)
    needed = make.workspace_bytes(operation) if "workSpace" in operation.raw else 0
    if needed and needed > operation.workspace_bytes:  # The subject needs more than the operation has.
        memory = {**memory, "workSpace": make.handle.allocate(needed)}
        make.keep(pack, memory["workSpace"])
    for label in VARIANT[ops]:
        if label in OPERANDS:
            value = memory.get(OPERANDS[label])
        elif label == WORKSPACE_SIZE:
            value = max(getattr(operation, "workspace_bytes", 0), needed)
        else:
            value = getattr(operation, SCALARS[label], 0)
        make.cudnn.cudnnSetFusedOpsVariantParamPackAttribute(pack, label, value)
    return pack


def plan(make: Any, operation: Any, _memory: Mapping[str, Any] | None = None, **attributes: Any) -> Any:
    """Return the plan of an operation, with these attributes in place of others."""
    found = make.cudnn.cudnnCreateFusedOpsPlan(KINDS[type(operation)])
    make.cudnn.cudnnMakeFusedOpsPlan(make.handle, found, const_pack(make, operation, **attributes))
    return found


ARGUMENTS: dict[str, Any] = {"plan": plan, "constPack": const_pack, "varPack": variant_pack}
