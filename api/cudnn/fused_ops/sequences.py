"""The operation of each sequence, from a constant parameter pack: what cudnnMakeFusedOpsPlan demands (docs/errata.md, D298)."""

from __future__ import annotations

from ...operations import BnFinalizeStatisticsInference, BnFinalizeStatisticsTraining
from ...operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF
from ...relations import writable_layout
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from ...support.fused_ops import FINALIZE_INFERENCE, FINALIZE_TRAINING
from .attributes import UNSUPPORTED

STATISTICS = (FLOAT, DOUBLE)
EQUIVALENTS = {
    FLOAT: (FLOAT, HALF, BFLOAT16),
    DOUBLE: (DOUBLE,),
}  # types of eqScale and eqBias beside those of the statistics


def _finalized(a, first):
    """(scale, bias, eqScale, eqBias, their descriptors) of the sequences that finalise statistics. first: the descriptor that says
    how many channels there are."""
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
               f"CUDNN_PARAM_BN_EQSCALEBIAS_DESC is {eq.data_type.name}, beside {kind.name} supported are {names}")  # fmt: skip
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


def finalize_training(a):
    sums = a.required("ySum", "YSTATS_DESC")
    a.required("ySqSum", "YSTATS_DESC")
    found = _finalized(a, {"YSTATS_DESC": sums})
    outputs = (*BnFinalizeStatisticsTraining.outputs,)
    if not any(found[name] for name in outputs):
        return None
    return BnFinalizeStatisticsTraining(count=1, factor=0.0, epsilon=0.0, ySum=sums, ySqSum=sums, **found)


def finalize_inference(a):
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


# sequence -> a function of the attributes that returns the operation, with scalars that do not count; None where all that it would
# compute becomes a NOP
SEQUENCES = {FINALIZE_TRAINING: finalize_training, FINALIZE_INFERENCE: finalize_inference}
