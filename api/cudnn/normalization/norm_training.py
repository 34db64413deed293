"""Implement cudnnNormalization* in training: calls and the sizes of their buffers (4.1.11 to 4.1.13, 4.1.15, 4.1.16)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions import SameMemory, computing, documented
from ...operations import NormalizationBackward, NormalizationForwardTraining
from ...relations import scaling, writable_layout
from ...status import INCORRECT_PARAMETER, NOT_SUPPORTED
from .statistics import (
    NORM_TRAINING_TYPES,
    Clauses,
    algorithm_for,
    demanded,
    four_or_five,
    large_enough,
    min_epsilon,
    one_group,
    packed_nhwc,
    rectified,
    reserve_bytes,
    supported_types,
    together,
)

if TYPE_CHECKING:
    from ...descriptors import ActivationDescriptor, TensorDescriptor
    from ...enumerations import cudnnNormAlgo_t, cudnnNormMode_t, cudnnNormOps_t
    from ...handle import Handle
    from ...operations.specs import ActivationSpec, TensorSpec

FORWARD = Clauses("cudnnNormalizationForwardTraining", "c40", "c41", "c41", "c45", "c45", "c38", "c18", "c21", "c33")
BACKWARD = Clauses("cudnnNormalizationBackward", "c40", "c41", "c41", "c44", "c44", "c38", "c17", "c21", "c33")
FORWARD_SIZE = Clauses(
    "cudnnGetNormalizationForwardTrainingWorkspaceSize", "c15", "c16", "c16", "c17", "c17", "c14", "c03", "c06", "c09"
)
BACKWARD_SIZE = Clauses(
    "cudnnGetNormalizationBackwardWorkspaceSize", "c15", "c16", "c16", "c17", "c17", "c14", "c03", "c06", "c09"
)
RESERVE_SIZE = Clauses(
    "cudnnGetNormalizationTrainingReserveSpaceSize", "c11", "c10", "c10", "c10", "c10", "c10", "c04", "c10", "c07"
)


def _spec(descriptor: Any) -> Any:
    return None if descriptor is None else descriptor.spec


@documented(invalid={"algo": ("c14", NOT_SUPPORTED)})
def cudnnGetNormalizationForwardTrainingWorkspaceSize(
    handle: Handle, mode: cudnnNormMode_t, normOps: cudnnNormOps_t, algo: cudnnNormAlgo_t, xDesc: TensorDescriptor, zDesc: TensorDescriptor | None, yDesc: TensorDescriptor, normScaleBiasDesc: TensorDescriptor, activationDesc: ActivationDescriptor | None, normMeanVarDesc: TensorDescriptor, groupCnt: int,
) -> int:  # fmt: skip
    """Return the bytes of workspace of cudnnNormalizationForwardTraining, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.12.
    """
    one_group(FORWARD_SIZE.cite("c12"), groupCnt)
    algorithm_for(mode, algo)
    tensors, added = {"xDesc": xDesc.spec, "yDesc": yDesc.spec}, {"zDesc": _spec(zDesc)}
    statistics = {"normScaleBiasDesc": normScaleBiasDesc.spec, "normMeanVarDesc": normMeanVarDesc.spec}
    demanded(FORWARD_SIZE, NORM_TRAINING_TYPES, mode, normOps, tensors, statistics, added, {}, _spec(activationDesc))
    return 0


@documented(invalid={"algo": ("c14", NOT_SUPPORTED)})
def cudnnGetNormalizationBackwardWorkspaceSize(
    handle: Handle, mode: cudnnNormMode_t, normOps: cudnnNormOps_t, algo: cudnnNormAlgo_t, xDesc: TensorDescriptor, yDesc: TensorDescriptor | None, dyDesc: TensorDescriptor, dzDesc: TensorDescriptor | None, dxDesc: TensorDescriptor, dNormScaleBiasDesc: TensorDescriptor, activationDesc: ActivationDescriptor | None, normMeanVarDesc: TensorDescriptor, groupCnt: int,
) -> int:  # fmt: skip
    """Return the bytes of workspace of cudnnNormalizationBackward, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.11.
    """
    one_group(BACKWARD_SIZE.cite("c12"), groupCnt)
    algorithm_for(mode, algo)
    tensors = {"xDesc": xDesc.spec, "dyDesc": dyDesc.spec, "dxDesc": dxDesc.spec}
    added, others = {"dzDesc": _spec(dzDesc)}, {"yDesc": _spec(yDesc)}
    statistics = {"dNormScaleBiasDesc": dNormScaleBiasDesc.spec, "normMeanVarDesc": normMeanVarDesc.spec}
    demanded(
        BACKWARD_SIZE, NORM_TRAINING_TYPES, mode, normOps, tensors, statistics, added, others, _spec(activationDesc)
    )
    return 0


@documented(invalid={"algo": ("c10", NOT_SUPPORTED)})
def cudnnGetNormalizationTrainingReserveSpaceSize(
    handle: Handle,
    mode: cudnnNormMode_t,
    normOps: cudnnNormOps_t,
    algo: cudnnNormAlgo_t,
    activationDesc: ActivationDescriptor | None,
    xDesc: TensorDescriptor,
    groupCnt: int,
) -> int:
    """Return the bytes of reserve space: one per element of x with CUDNN_NORM_OPS_NORM_ADD_ACTIVATION, else 0.

    Errors: BAD_PARAM for other than 4 or 5 dimensions (c11), a fused operation without an activation (c07);
    NOT_SUPPORTED for groupCnt other than 1 (c08), data types and activations that the calls do not support (c10),
    layouts (c04). Source: 4.1.13.
    """
    x, cites = xDesc.spec, RESERVE_SIZE
    one_group(cites.cite("c08"), groupCnt)
    algorithm_for(mode, algo)
    four_or_five(cites.cite(cites.rank), xDesc=x)
    supported_types(cites.cite(cites.unsupported), NORM_TRAINING_TYPES, xDesc=x)
    if normOps:
        rectified(cites, _spec(activationDesc))
        packed_nhwc(cites.cite(cites.layout), xDesc=x)
    return reserve_bytes(normOps, x)


@computing(
    invalid={
        **dict.fromkeys(("alpha", "beta", "xData", "yData", "normScale", "normBias"), "c39"),
        "algo": ("c38", NOT_SUPPORTED),
    },
    memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=lambda o: o.x == o.y)],
    optional=("reserveSpace",),
)
def cudnnNormalizationForwardTraining(
    handle: Handle, mode: cudnnNormMode_t, normOps: cudnnNormOps_t, algo: cudnnNormAlgo_t, alpha: float, beta: float, xDesc: TensorSpec, xData: Any, normScaleBiasDesc: TensorSpec, normScale: Any, normBias: Any, exponentialAverageFactor: float,
    normMeanVarDesc: TensorSpec, resultRunningMean: Any, resultRunningVariance: Any, epsilon: float, resultSaveMean: Any, resultSaveInvVariance: Any, activationDesc: ActivationSpec | None, zDesc: TensorSpec | None,
    zData: Any, yDesc: TensorSpec, yData: Any, workspace: Any, workSpaceSizeInBytes: int, reserveSpace: Any, reserveSpaceSizeInBytes: int, groupCnt: int,
) -> NormalizationForwardTraining:  # fmt: skip
    """Do the same as cudnnBatchNormalizationForwardTrainingEx, with separate descriptors for scale and bias and for the
    statistics.

    BFLOAT16 is supported too, and z of every type. algo does not affect the result. The smallest epsilon is 0.
    Errors: BAD_PARAM for NULL (c39), other numbers of dimensions (c40), of statistics (c41), one of two results NULL
    (c42, c43), a negative epsilon (c44), differing dimensions or data types (c45), a missing or different z (c21), a
    missing activation (c33), a reserve space that is too small (c35); NOT_SUPPORTED for groupCnt other than 1 (c36),
    CUDNN_NORM_ALGO_PERSIST per activation (cudnnNormAlgo_t/c01), layouts of fused operations (c18), other data types
    and activations (c38). Source: 4.1.16.
    """
    c = FORWARD
    one_group(c.cite("c36"), groupCnt)
    algorithm_for(mode, algo)
    tensors, added = {"xDesc": xDesc, "yDesc": yDesc}, {"zDesc": zDesc if zData is not None else None}
    statistics = {"normScaleBiasDesc": normScaleBiasDesc, "normMeanVarDesc": normMeanVarDesc}
    demanded(c, NORM_TRAINING_TYPES, mode, normOps, tensors, statistics, added, {}, activationDesc)
    together(c.cite("c42"), resultSaveMean=resultSaveMean, resultSaveInvVariance=resultSaveInvVariance)
    together(c.cite("c43"), resultRunningMean=resultRunningMean, resultRunningVariance=resultRunningVariance)
    min_epsilon(c.cite("c44"), epsilon, 0.0)
    writable_layout(yDesc=yDesc)
    needed = reserve_bytes(normOps, xDesc)
    large_enough(c.cite("c35"), reserveSpaceSizeInBytes, needed)
    return NormalizationForwardTraining(
        mode, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc, normScaleBiasDesc, normMeanVarDesc, exponentialAverageFactor,
        None if resultRunningMean is None else normMeanVarDesc, epsilon, None if resultSaveMean is None else normMeanVarDesc, 0, needed,
        normOps, algo, zDesc if normOps > 1 else None, activationDesc if normOps else None,
    )  # fmt: skip


@computing(
    invalid={
        **dict.fromkeys(
            ("alphaDataDiff", "betaDataDiff", "alphaParamDiff", "betaParamDiff", "xData", "dyData", "dxData", "normScaleData",
             "dNormScaleData", "dNormBiasData"), "c39",
        ),
        "algo": ("c38", NOT_SUPPORTED),
    },
    memory=[
        SameMemory("dx", "dy", INCORRECT_PARAMETER, allowed=lambda o: o.dx == o.dy),
        SameMemory("dx", "x", INCORRECT_PARAMETER, allowed=lambda o: o.dx == o.x),
    ],
    optional=("reserveSpace",),
)  # fmt: skip
def cudnnNormalizationBackward(
    handle: Handle, mode: cudnnNormMode_t, normOps: cudnnNormOps_t, algo: cudnnNormAlgo_t, alphaDataDiff: float, betaDataDiff: float, alphaParamDiff: float, betaParamDiff: float, xDesc: TensorSpec, xData: Any, yDesc: TensorSpec | None, yData: Any, dyDesc: TensorSpec, dyData: Any,
    dzDesc: TensorSpec | None, dzData: Any, dxDesc: TensorSpec, dxData: Any, dNormScaleBiasDesc: TensorSpec, normScaleData: Any, normBiasData: Any, dNormScaleData: Any, dNormBiasData: Any, epsilon: float,
    normMeanVarDesc: TensorSpec, savedMean: Any, savedInvVariance: Any, activationDesc: ActivationSpec | None, workSpace: Any, workSpaceSizeInBytes: int, reserveSpace: Any,
    reserveSpaceSizeInBytes: int, groupCnt: int,
) -> NormalizationBackward:  # fmt: skip
    """Do the same as cudnnBatchNormalizationBackwardEx, with separate descriptors for scale and bias and for the
    statistics.

    BFLOAT16 is supported too.
    Errors: BAD_PARAM for NULL (c39), other numbers of dimensions (c40), of statistics (c41), one of the saved NULL
    (c42), a negative epsilon (c43), differing dimensions or data types (c44), a missing or different y or dz (c21), a
    missing activation (c33), a reserve space that is too small (c35); NOT_SUPPORTED for groupCnt other than 1 (c36),
    CUDNN_NORM_ALGO_PERSIST per activation (cudnnNormAlgo_t/c01), layouts of fused operations (c17), other data types
    and activations (c38). Source: 4.1.15.
    """
    c = BACKWARD
    one_group(c.cite("c36"), groupCnt)
    algorithm_for(mode, algo)
    tensors = {"xDesc": xDesc, "dyDesc": dyDesc, "dxDesc": dxDesc}
    added, others = {"dzDesc": dzDesc if dzData is not None else None}, {"yDesc": yDesc if yData is not None else None}
    statistics = {"dNormScaleBiasDesc": dNormScaleBiasDesc, "normMeanVarDesc": normMeanVarDesc}
    demanded(c, NORM_TRAINING_TYPES, mode, normOps, tensors, statistics, added, others, activationDesc)
    together(c.cite("c42"), savedMean=savedMean, savedInvVariance=savedInvVariance)
    min_epsilon(c.cite("c43"), epsilon, 0.0)
    writable_layout(dxDesc=dxDesc)
    needed = reserve_bytes(normOps, xDesc)
    large_enough(c.cite("c35"), reserveSpaceSizeInBytes, needed)
    factors = (scaling(value, dxDesc) for value in (alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff))
    return NormalizationBackward(
        mode, *factors, xDesc, dyDesc, dxDesc, dNormScaleBiasDesc, normMeanVarDesc, epsilon,
        None if savedMean is None else normMeanVarDesc, 0, needed, normOps, algo, yDesc if normOps else None,
        dzDesc if normOps > 1 else None, activationDesc if normOps else None,
    )  # fmt: skip
