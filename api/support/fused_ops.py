"""Hold the attributes of each fused sequence's parameter packs and their values (6.1.3.2, 6.1.3.4, tables 23 to 35).

The tables omit two sequences, GEN_BITMASK and DACTIVATION_FORK_DBATCHNORM; their attributes follow NVIDIA's library
(docs/errata.md, D257).
"""

from __future__ import annotations

from enum import IntEnum

from ..enumerations import cudnnBatchNormMode_t, cudnnFusedOps_t, cudnnFusedOpsPointerPlaceHolder_t
from ..enumerations import cudnnFusedOpsConstParamLabel_t as Const
from ..enumerations import cudnnFusedOpsVariantParamLabel_t as Variant

CONV_BNSTATS = cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS
WGRAD = cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD
FINALIZE_TRAINING = cudnnFusedOps_t.CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING
FINALIZE_INFERENCE = cudnnFusedOps_t.CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE
CONV_ADD = cudnnFusedOps_t.CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION
GEN_BITMASK = cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK
DBATCHNORM = cudnnFusedOps_t.CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM

# _CONST maps a sequence to the attributes of its constant parameter pack, without CUDNN_PARAM_.
_CONST = {
    CONV_BNSTATS: "XDESC XDATA_PLACEHOLDER BN_MODE BN_EQSCALEBIAS_DESC BN_EQSCALE_PLACEHOLDER BN_EQBIAS_PLACEHOLDER ACTIVATION_DESC"
    " CONV_DESC WDESC WDATA_PLACEHOLDER YDESC YDATA_PLACEHOLDER YSTATS_DESC YSUM_PLACEHOLDER YSQSUM_PLACEHOLDER",
    WGRAD: "XDESC XDATA_PLACEHOLDER BN_MODE BN_EQSCALEBIAS_DESC BN_EQSCALE_PLACEHOLDER BN_EQBIAS_PLACEHOLDER ACTIVATION_DESC"
    " CONV_DESC DWDESC DWDATA_PLACEHOLDER DYDESC DYDATA_PLACEHOLDER",
    FINALIZE_TRAINING: "BN_MODE YSTATS_DESC YSUM_PLACEHOLDER YSQSUM_PLACEHOLDER BN_SCALEBIAS_MEANVAR_DESC BN_SCALE_PLACEHOLDER"
    " BN_BIAS_PLACEHOLDER BN_SAVED_MEAN_PLACEHOLDER BN_SAVED_INVSTD_PLACEHOLDER BN_RUNNING_MEAN_PLACEHOLDER"
    " BN_RUNNING_VAR_PLACEHOLDER BN_EQSCALEBIAS_DESC BN_EQSCALE_PLACEHOLDER BN_EQBIAS_PLACEHOLDER",
    FINALIZE_INFERENCE: "BN_MODE BN_SCALEBIAS_MEANVAR_DESC BN_SCALE_PLACEHOLDER BN_BIAS_PLACEHOLDER BN_RUNNING_MEAN_PLACEHOLDER"
    " BN_RUNNING_VAR_PLACEHOLDER BN_EQSCALEBIAS_DESC BN_EQSCALE_PLACEHOLDER BN_EQBIAS_PLACEHOLDER",
    CONV_ADD: "XDESC XDATA_PLACEHOLDER CONV_DESC WDESC WDATA_PLACEHOLDER BN_EQSCALEBIAS_DESC BN_EQSCALE_PLACEHOLDER ZDESC"
    " ZDATA_PLACEHOLDER BN_Z_EQSCALEBIAS_DESC BN_Z_EQSCALE_PLACEHOLDER BN_Z_EQBIAS_PLACEHOLDER ACTIVATION_DESC YDESC"
    " YDATA_PLACEHOLDER",
    GEN_BITMASK: "XDESC XDATA_PLACEHOLDER BN_MODE BN_EQSCALEBIAS_DESC BN_EQSCALE_PLACEHOLDER BN_EQBIAS_PLACEHOLDER ACTIVATION_DESC"
    " YDESC YDATA_PLACEHOLDER ZDESC ZDATA_PLACEHOLDER BN_Z_EQSCALEBIAS_DESC BN_Z_EQSCALE_PLACEHOLDER BN_Z_EQBIAS_PLACEHOLDER"
    " ACTIVATION_BITMASK_DESC ACTIVATION_BITMASK_PLACEHOLDER",
    DBATCHNORM: "XDESC XDATA_PLACEHOLDER BN_MODE ACTIVATION_DESC DYDESC DYDATA_PLACEHOLDER BN_SCALEBIAS_MEANVAR_DESC"
    " BN_SCALE_PLACEHOLDER BN_BIAS_PLACEHOLDER BN_SAVED_MEAN_PLACEHOLDER BN_SAVED_INVSTD_PLACEHOLDER ACTIVATION_BITMASK_DESC"
    " ACTIVATION_BITMASK_PLACEHOLDER DXDESC DXDATA_PLACEHOLDER DZDESC DZDATA_PLACEHOLDER BN_DSCALE_PLACEHOLDER"
    " BN_DBIAS_PLACEHOLDER",
}  # fmt: skip
CONST = {ops: tuple(Const[f"CUDNN_PARAM_{name}"] for name in names.split()) for ops, names in _CONST.items()}

_SCALARS = {
    Variant.CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES: "size_t",
    Variant.CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT: "int64_t",
    Variant.CUDNN_SCALAR_DOUBLE_BN_EXP_AVG_FACTOR: "double",
    Variant.CUDNN_SCALAR_DOUBLE_BN_EPSILON: "double",
}
WORKSPACE = Variant.CUDNN_PTR_WORKSPACE
WORKSPACE_SIZE, COUNT, FACTOR, EPSILON = _SCALARS
# _VARIANT_SCALARS maps a sequence to the scalars of its variant parameter pack, besides the workspace size that every
# sequence has.
_VARIANT_SCALARS = {
    FINALIZE_TRAINING: (COUNT, FACTOR, EPSILON),
    FINALIZE_INFERENCE: (EPSILON,),
    DBATCHNORM: (EPSILON,),
}


def promise_of(pointer: Variant) -> Const | None:
    """Return the placeholder that describes a device pointer of a variant parameter pack, or None for the workspace and
    scalars."""
    return Const.__members__.get(f"CUDNN_PARAM_{pointer.name.removeprefix('CUDNN_PTR_')}_PLACEHOLDER")


# VARIANT maps a sequence to the attributes of its variant parameter pack: one pointer per placeholder, the workspace,
# the scalars.
VARIANT = {
    ops: (
        *(label for label in Variant if promise_of(label) in labels),
        WORKSPACE,
        WORKSPACE_SIZE,
        *_VARIANT_SCALARS.get(ops, ()),
    )
    for ops, labels in CONST.items()
}

_DESCRIPTORS = {
    Const.CUDNN_PARAM_ACTIVATION_DESC: "cudnnActivationDescriptor_t",
    Const.CUDNN_PARAM_CONV_DESC: "cudnnConvolutionDescriptor_t",
    Const.CUDNN_PARAM_WDESC: "cudnnFilterDescriptor_t",
    Const.CUDNN_PARAM_DWDESC: "cudnnFilterDescriptor_t",
}
PRESETS: dict[str, IntEnum] = {  # initial values of attributes that are not descriptors.
    "cudnnBatchNormMode_t": cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION,
    "cudnnFusedOpsPointerPlaceHolder_t": cudnnFusedOpsPointerPlaceHolder_t.CUDNN_PTR_NULL,
}


def const_type(label: Const) -> str:
    """Return the type of a constant parameter pack's attribute: a descriptor type or an enumeration."""
    if label == Const.CUDNN_PARAM_BN_MODE:
        return "cudnnBatchNormMode_t"
    if label.name.endswith("_PLACEHOLDER"):
        return "cudnnFusedOpsPointerPlaceHolder_t"
    return _DESCRIPTORS.get(label, "cudnnTensorDescriptor_t")


def scalar_type(label: Variant) -> str | None:
    """Return the C type of a variant parameter pack's scalar, or None for a device pointer."""
    return _SCALARS.get(label)


_C = "cudnnFusedOpsConstParamLabel_t"
_V = "cudnnFusedOpsVariantParamLabel_t"
# MODE_CLAUSES maps a sequence to the clauses on supported batch normalisation modes and activations.
MODE_CLAUSES = {
    CONV_BNSTATS: f"{_C}/c009",
    WGRAD: f"{_C}/c062",
    FINALIZE_TRAINING: f"{_C}/c100",
    FINALIZE_INFERENCE: f"{_C}/c141",
}
ACTIVATION_CLAUSES = {CONV_BNSTATS: f"{_C}/c022", WGRAD: f"{_C}/c075", CONV_ADD: f"{_C}/c193"}
# PROMISE_CLAUSES maps it to the clauses on pointers: NULL, aligned to their elements or aligned to 16 bytes, as the
# placeholders promise.
PROMISE_CLAUSES = {
    CONV_BNSTATS: ("c023", "c024", "c025"),
    WGRAD: ("c040", "c041", "c042"),
    FINALIZE_TRAINING: ("c076", "c077", "c078"),
    FINALIZE_INFERENCE: ("c098", "c099", "c100"),
    CONV_ADD: ("c119", "c120", "c121"),
}
# WORKSPACE_CLAUSES maps it to the clauses on the workspace and its size.
WORKSPACE_CLAUSES = {
    CONV_BNSTATS: ("c019", "c021"),
    WGRAD: ("c036", "c038"),
    FINALIZE_TRAINING: ("c072", "c074"),
    FINALIZE_INFERENCE: ("c094", "c096"),
    CONV_ADD: ("c115", "c117"),
}
EPSILON_CLAUSES = {FINALIZE_TRAINING: f"{_V}/c070", FINALIZE_INFERENCE: f"{_V}/c092"}
# SHAPE_CLAUSES maps (sequence, descriptor) to the clause on the descriptor's shape.
SHAPE_CLAUSES = {
    (CONV_BNSTATS, Const.CUDNN_PARAM_BN_EQSCALEBIAS_DESC): f"{_C}/c013",
    (CONV_BNSTATS, Const.CUDNN_PARAM_YSTATS_DESC): f"{_C}/c037",
    (WGRAD, Const.CUDNN_PARAM_BN_EQSCALEBIAS_DESC): f"{_C}/c066",
    (FINALIZE_TRAINING, Const.CUDNN_PARAM_YSTATS_DESC): f"{_C}/c104",
    (FINALIZE_TRAINING, Const.CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC): f"{_C}/c111",
    (FINALIZE_TRAINING, Const.CUDNN_PARAM_BN_EQSCALEBIAS_DESC): f"{_C}/c132",
    (FINALIZE_INFERENCE, Const.CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC): f"{_C}/c145",
    (FINALIZE_INFERENCE, Const.CUDNN_PARAM_BN_EQSCALEBIAS_DESC): f"{_C}/c156",
    (CONV_ADD, Const.CUDNN_PARAM_BN_EQSCALEBIAS_DESC): f"{_C}/c176",
}


def clause_of(listed: str) -> str:
    """Return the id of a clause of cudnnFusedOpsVariantParamLabel_t."""
    return f"{_V}/{listed}"


# OPERANDS maps a pointer to the operations' operand.
OPERANDS = {
    Variant.CUDNN_PTR_XDATA: "x",
    Variant.CUDNN_PTR_BN_EQSCALE: "eqScale",
    Variant.CUDNN_PTR_BN_EQBIAS: "eqBias",
    Variant.CUDNN_PTR_WDATA: "w",
    Variant.CUDNN_PTR_DWDATA: "dw",
    Variant.CUDNN_PTR_YDATA: "y",
    Variant.CUDNN_PTR_DYDATA: "dy",
    Variant.CUDNN_PTR_YSUM: "ySum",
    Variant.CUDNN_PTR_YSQSUM: "ySqSum",
    Variant.CUDNN_PTR_WORKSPACE: "workSpace",
    Variant.CUDNN_PTR_BN_SCALE: "scale",
    Variant.CUDNN_PTR_BN_BIAS: "bias",
    Variant.CUDNN_PTR_BN_SAVED_MEAN: "savedMean",
    Variant.CUDNN_PTR_BN_SAVED_INVSTD: "savedInvStd",
    Variant.CUDNN_PTR_BN_RUNNING_MEAN: "runningMean",
    Variant.CUDNN_PTR_BN_RUNNING_VAR: "runningVar",
    Variant.CUDNN_PTR_ZDATA: "z",
    Variant.CUDNN_PTR_BN_Z_EQSCALE: "zEqScale",
    Variant.CUDNN_PTR_BN_Z_EQBIAS: "zEqBias",
    Variant.CUDNN_PTR_ACTIVATION_BITMASK: "bitMask",
    Variant.CUDNN_PTR_DXDATA: "dx",
    Variant.CUDNN_PTR_DZDATA: "dz",
    Variant.CUDNN_PTR_BN_DSCALE: "dScale",
    Variant.CUDNN_PTR_BN_DBIAS: "dBias",
}
