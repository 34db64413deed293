"""Make the operation of each sequence from a constant parameter pack, with the checks of cudnnMakeFusedOpsPlan
(docs/errata.md, D298).

In every function ``a`` holds the attributes of the pack (attributes.py). A descriptor is None where its step becomes a
NOP."""

from __future__ import annotations

from typing import Any

from ...operations import (
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    ConvScaleBiasAddActivation,
    DactivationForkDbatchnorm,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ScaleBiasAddActivationGenBitmask,
)
from ...operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from ...relations import rank_between, writable_layout
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from ...support.convolution import (
    DOUBLE_CONFIG,
    FLOAT_CONFIG,
    IMPLICIT_GEMM,
    IMPLICIT_PRECOMP_GEMM,
    PSEUDO_BFLOAT16,
    PSEUDO_HALF,
    Problem,
    unsupported,
)
from ...support.convolution_gradients import FILTER_ALGO_0, FILTER_ALGO_1, FILTER_ALGO_3, filter_unsupported
from ...support.fused_ops import (
    CONV_ADD,
    CONV_BNSTATS,
    DBATCHNORM,
    FINALIZE_INFERENCE,
    FINALIZE_TRAINING,
    GEN_BITMASK,
    WGRAD,
)
from ..convolution import backward_filter, forward
from .attributes import UNSUPPORTED

FLOATING = (FLOAT, DOUBLE, HALF, BFLOAT16)
STATISTICS = (FLOAT, DOUBLE)
EQUIVALENTS = {
    FLOAT: (FLOAT, HALF, BFLOAT16),
    DOUBLE: (DOUBLE,),
}  # types of eqScale and eqBias for each type of the statistics


def _finalized(a: Any, first: Any) -> Any:
    """Return the descriptor of each operand by its name, for the sequences that finalise statistics.

    first: the descriptors, by name, that other descriptors must match in type and number of channels.
    """
    a.spatial()
    wants = {name: a.promises(name) for name in ("eqScale", "eqBias")}
    eq = a.descriptor("BN_EQSCALEBIAS_DESC") if any(wants.values()) else None
    others = [
        name for name in ("scale", "bias", "runningMean", "runningVar", "savedMean", "savedInvStd") if a.promises(name)
    ]
    parameters = a.descriptor("BN_SCALEBIAS_MEANVAR_DESC") if others else None
    kind = a.one_type(STATISTICS, **first, BN_SCALEBIAS_MEANVAR_DESC=parameters)
    if eq is not None:
        names = ", ".join(kind.name for kind in EQUIVALENTS[kind])
        expect(eq.data_type in EQUIVALENTS[kind], NOT_SUPPORTED, UNSUPPORTED,
               f"CUDNN_PARAM_BN_EQSCALEBIAS_DESC is {eq.data_type.name}, {names} are supported with {kind.name}")  # fmt: skip
    spec = next((spec for spec in (*first.values(), parameters) if spec is not None), None)
    if spec is not None:
        a.per_channel(spec.dims[1], spec.rank, **first, BN_SCALEBIAS_MEANVAR_DESC=parameters, BN_EQSCALEBIAS_DESC=eq)
        written = {"CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC": parameters, "CUDNN_PARAM_BN_EQSCALEBIAS_DESC": eq}
        writable_layout(**{name: found for name, found in written.items() if found is not None})
    needs = {"scale": wants["eqScale"] or wants["eqBias"], "bias": wants["eqBias"]}
    for name, needed in needs.items():
        expect(a.promises(name) or not needed, BAD_PARAM, INCORRECT_PARAMETER,
               f"the equivalent scale and bias are wanted, but CUDNN_PARAM_BN_{name.upper()}_PLACEHOLDER is CUDNN_PTR_NULL")  # fmt: skip
    described = {name: parameters if a.promises(name) and needs.get(name, True) else None
                 for name in ("scale", "bias", "runningMean", "runningVar", "savedMean", "savedInvStd")}  # fmt: skip
    return described | {name: eq if wanted else None for name, wanted in wants.items()}


def finalize_training(a: Any) -> BnFinalizeStatisticsTraining | None:
    sums = a.required("ySum", "YSTATS_DESC")
    a.required("ySqSum", "YSTATS_DESC")
    found = _finalized(a, {"YSTATS_DESC": sums})
    outputs = (*BnFinalizeStatisticsTraining.outputs,)
    if not any(found[name] for name in outputs):
        return None
    return BnFinalizeStatisticsTraining(count=1, factor=0.0, epsilon=0.0, ySum=sums, ySqSum=sums, **found)


def finalize_inference(a: Any) -> BnFinalizeStatisticsInference | None:
    found = _finalized(a, {})
    if found["eqScale"] is None and found["eqBias"] is None:
        return None
    a.required("runningVar", "BN_SCALEBIAS_MEANVAR_DESC")
    if found["eqBias"] is not None:
        a.required("runningMean", "BN_SCALEBIAS_MEANVAR_DESC")
    else:
        found["runningMean"] = None
    return BnFinalizeStatisticsInference(
        epsilon=0.0, **{name: spec for name, spec in found.items() if not name.startswith("saved")}
    )


def _equivalents(a: Any, kind: Any, channels: Any, rank: Any, **tensors: Any) -> None:
    """Raise NOT_SUPPORTED or BAD_PARAM unless the equivalent scales and biases have one number per channel and one
    type: FLOAT or the data's type."""
    a.one_type((DOUBLE,) if kind == DOUBLE else tuple({kind: None, FLOAT: None}), **tensors)
    a.per_channel(channels, rank, **tensors)


def gen_bitmask(a: Any) -> ScaleBiasAddActivationGenBitmask:
    a.spatial()
    x, y, z = a.required("x", "XDESC"), a.required("y", "YDESC"), a.optional("z", "ZDESC")
    found = {
        "eqScale": a.optional("eqScale", "BN_EQSCALEBIAS_DESC"),
        "eqBias": a.optional("eqBias", "BN_EQSCALEBIAS_DESC"),
        "zEqScale": a.optional("zEqScale", "BN_Z_EQSCALEBIAS_DESC") if z is not None else None,
        "zEqBias": a.optional("zEqBias", "BN_Z_EQSCALEBIAS_DESC"),
    }
    kind = a.one_type(FLOATING, XDESC=x, ZDESC=z, YDESC=y)
    rank_between(UNSUPPORTED, 3, 5, XDESC=x)
    a.same_dims(XDESC=x, ZDESC=z, YDESC=y)
    _equivalents(a, kind, x.dims[1], x.rank, BN_EQSCALEBIAS_DESC=found["eqScale"] or found["eqBias"],
                 BN_Z_EQSCALEBIAS_DESC=found["zEqScale"] or found["zEqBias"])  # fmt: skip
    mask = a.operand("bitMask", "ACTIVATION_BITMASK_DESC")
    a.bit_mask(mask, y)
    writable_layout(CUDNN_PARAM_YDESC=y)
    return ScaleBiasAddActivationGenBitmask(activation=a.activation(), x=x, z=z, y=y, bitMask=mask, **found)


def dbatchnorm(a: Any) -> DactivationForkDbatchnorm | None:
    a.spatial()
    activation = a.activation()
    x, dy = a.required("x", "XDESC"), a.required("dy", "DYDESC")
    dx, dz = a.operand("dx", "DXDESC"), a.operand("dz", "DZDESC")
    kind = a.one_type(FLOATING, XDESC=x, DYDESC=dy, DXDESC=dx, DZDESC=dz)
    rank_between(UNSUPPORTED, 3, 5, XDESC=x)
    a.same_dims(XDESC=x, DYDESC=dy, DXDESC=dx, DZDESC=dz)
    saved = [a.operand(name, "BN_SCALEBIAS_MEANVAR_DESC") for name in ("savedMean", "savedInvStd")]
    expect((saved[0] is None) == (saved[1] is None), BAD_PARAM, INCORRECT_PARAMETER,
           "one of CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER and CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER is CUDNN_PTR_NULL, the other is not")  # fmt: skip
    scale = a.required("scale", "BN_SCALEBIAS_MEANVAR_DESC") if dx is not None else None
    wanted = [a.operand(name, "BN_SCALEBIAS_MEANVAR_DESC") for name in ("dScale", "dBias")]
    parameters = next((spec for spec in (*saved, scale, *wanted) if spec is not None), None)
    a.one_type((DOUBLE if kind == DOUBLE else FLOAT,), BN_SCALEBIAS_MEANVAR_DESC=parameters)
    a.per_channel(x.dims[1], x.rank, BN_SCALEBIAS_MEANVAR_DESC=parameters)
    mask = a.required("bitMask", "ACTIVATION_BITMASK_DESC") if activation is not None else None
    a.bit_mask(mask, dy)
    outputs = {"dx": dx, "dz": dz, "dScale": wanted[0], "dBias": wanted[1]}
    written = {f"CUDNN_PARAM_{name.upper()}DESC": spec for name, spec in (("dx", dx), ("dz", dz)) if spec is not None}
    writable_layout(**written)
    if parameters is not None:
        writable_layout(CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC=parameters)
    if not any(outputs.values()):
        return None
    return DactivationForkDbatchnorm(
        activation=activation, epsilon=0.0, workspace_bytes=0, x=x, dy=dy, bitMask=mask, scale=scale, savedMean=saved[0],
        savedInvStd=saved[1], **outputs,
    )  # fmt: skip


# These are the configurations that each convolution supports, and its algorithms in order of preference.
CONFIGURATIONS = (FLOAT_CONFIG, DOUBLE_CONFIG, PSEUDO_HALF, PSEUDO_BFLOAT16)
FORWARD_ALGORITHMS = (IMPLICIT_PRECOMP_GEMM, IMPLICIT_GEMM)
FILTER_ALGORITHMS = (FILTER_ALGO_1, FILTER_ALGO_0, FILTER_ALGO_3)


def _algorithm(problem: Any, algorithms: Any, reason: Any) -> Any:
    """Return the first algorithm that supports a problem; raise NOT_SUPPORTED if there is none.

    reason(problem, algorithm) returns why an algorithm does not support the problem, or None if it does.
    """
    names = ", ".join(configuration.name for configuration in CONFIGURATIONS)
    expect(problem.configuration in CONFIGURATIONS, NOT_SUPPORTED, UNSUPPORTED,
           f"the data types of x, the filter, CUDNN_PARAM_CONV_DESC and y must be those of one of {names}")  # fmt: skip
    reasons = [reason(problem, algorithm) for algorithm in algorithms]
    expect(None in reasons, NOT_SUPPORTED, UNSUPPORTED, str(reasons[0]))
    return algorithms[reasons.index(None)]


def _forward(a: Any) -> Any:
    """Return the fields of an operation that describe its forward convolution: descriptors, algorithm, workspace."""
    problem = Problem(
        a.descriptor("CONV_DESC"), a.required("x", "XDESC"), a.required("w", "WDESC"), a.required("y", "YDESC")
    )
    forward.check_problem(problem, dict.fromkeys(forward.CLAUSES, INCORRECT_PARAMETER))
    algorithm = _algorithm(problem, FORWARD_ALGORITHMS, unsupported)
    forward.check_support(problem, algorithm, dict.fromkeys(forward.CLAUSES, UNSUPPORTED))
    return {
        "convolution": problem.convolution,
        "x": problem.x,
        "w": problem.w,
        "y": problem.y,
        "algo": algorithm,
        "workspace_bytes": 0,
    }


def _scaled_x(a: Any, x: Any) -> Any:
    """Return the fields eqScale and eqBias of a sequence that first scales x and adds a bias."""
    scale, bias = a.optional("eqScale", "BN_EQSCALEBIAS_DESC"), a.optional("eqBias", "BN_EQSCALEBIAS_DESC")
    _equivalents(a, x.data_type, x.dims[1], x.rank, BN_EQSCALEBIAS_DESC=scale or bias)
    return {"eqScale": scale, "eqBias": bias}


def conv_bnstats(a: Any) -> ScaleBiasActivationConvBnstats:
    a.spatial()
    found = _forward(a)
    x, y = found["x"], found["y"]
    statistics = [a.optional(name, "YSTATS_DESC") for name in ("ySum", "ySqSum")]
    if None in statistics:  # If either is missing, the generation of statistics becomes a NOP.
        statistics = [None, None]
    a.one_type((DOUBLE if y.data_type == DOUBLE else FLOAT,), YSTATS_DESC=statistics[0])
    a.per_channel(y.dims[1], y.rank, YSTATS_DESC=statistics[0])
    sums = dict(zip(("ySum", "ySqSum"), statistics, strict=True))
    return ScaleBiasActivationConvBnstats(activation=a.activation(), **found, **_scaled_x(a, x), **sums)


def wgrad(a: Any) -> ScaleBiasActivationWgrad:
    a.spatial()
    x, dy, dw = a.required("x", "XDESC"), a.required("dy", "DYDESC"), a.required("dw", "DWDESC")
    problem = Problem(a.descriptor("CONV_DESC"), x, dw, dy)
    clauses = dict.fromkeys(backward_filter.CLAUSES, INCORRECT_PARAMETER)
    backward_filter.check_filter_problem(problem, clauses)
    rank_between(UNSUPPORTED, 4, 5, XDESC=x)
    algorithm = _algorithm(problem, FILTER_ALGORITHMS, filter_unsupported)
    return ScaleBiasActivationWgrad(
        convolution=problem.convolution, activation=a.activation(), algo=algorithm, workspace_bytes=0, x=x, dy=dy, dw=dw,
        **_scaled_x(a, x),
    )  # fmt: skip


def conv_add(a: Any) -> ConvScaleBiasAddActivation:
    found = _forward(a)
    y, z = found["y"], a.optional("z", "ZDESC")
    scale, bias = a.optional("eqScale", "BN_EQSCALEBIAS_DESC"), a.optional("zEqBias", "BN_Z_EQSCALEBIAS_DESC")
    z_scale = a.optional("zEqScale", "BN_Z_EQSCALEBIAS_DESC") if z is not None else None
    a.one_type((y.data_type,), ZDESC=z)
    a.same_dims(YDESC=y, ZDESC=z)
    described = {"BN_EQSCALEBIAS_DESC": scale, "BN_Z_EQSCALEBIAS_DESC": z_scale or bias}
    _equivalents(a, y.data_type, y.dims[1], y.rank, **described)
    return ConvScaleBiasAddActivation(
        activation=a.activation(), **found, eqScale=scale, z=z, zEqScale=z_scale, zEqBias=bias
    )  # fmt: skip


# SEQUENCES maps a sequence to a function of the attributes. It returns the operation with placeholder scalars, or None
# if every step becomes a NOP.
SEQUENCES = {
    CONV_BNSTATS: conv_bnstats,
    WGRAD: wgrad,
    CONV_ADD: conv_add,
    FINALIZE_TRAINING: finalize_training,
    FINALIZE_INFERENCE: finalize_inference,
    GEN_BITMASK: gen_bitmask,
    DBATCHNORM: dbatchnorm,
}
