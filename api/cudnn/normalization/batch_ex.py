"""Implement batch normalization with a fused activation: its calls and the sizes of their buffers (4.1.3, 4.1.5, 4.1.8 to 4.1.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions import SameMemory, computing, documented
from ...operations import BatchNormalizationBackwardEx, BatchNormalizationForwardTrainingEx
from ...operations.specs import HALF
from ...relations import scaling, writable_layout
from ...status import INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .statistics import (
    TRAINING_TYPES,
    Clauses,
    demanded,
    four_or_five,
    large_enough,
    min_epsilon,
    packed_nhwc,
    rectified,
    reserve_bytes,
    supported_types,
    together,
)

if TYPE_CHECKING:
    from ...descriptors import ActivationDescriptor, TensorDescriptor
    from ...enumerations import cudnnBatchNormMode_t, cudnnBatchNormOps_t
    from ...handle import Handle
    from ...operations.specs import ActivationSpec, TensorSpec

FORWARD = Clauses(
    "cudnnBatchNormalizationForwardTrainingEx", "c46", "c47", "c48", "c52", "c53", "c44", "c44", "c22", "c37"
)
BACKWARD = Clauses("cudnnBatchNormalizationBackwardEx", "c45", "c46", "c47", "c50", "c51", "c43", "c19", "c24", "c36")
FORWARD_SIZE = Clauses(
    "cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize",
    "c10",
    "c11",
    "c11",
    "c12",
    "c12",
    "c09",
    "c09",
    "c04",
    "c07",
)
BACKWARD_SIZE = Clauses(
    "cudnnGetBatchNormalizationBackwardExWorkspaceSize", "c10", "c11", "c11", "c12", "c12", "c09", "c09", "c04", "c07"
)
RESERVE_SIZE = Clauses(
    "cudnnGetBatchNormalizationTrainingExReserveSpaceSize",
    "c08",
    "c07",
    "c07",
    "c07",
    "c07",
    "c07",
    "c07",
    "c07",
    "c05",
)


def _spec(descriptor: Any) -> Any:
    return None if descriptor is None else descriptor.spec


def added_types(cites: Clauses, ops: int, x: Any) -> None:
    """Raise NOT_SUPPORTED if z is added (``ops`` is 2) and x is not HALF, as Table 11 requires."""
    clause = "c41" if x.data_type.name == "CUDNN_DATA_FLOAT" else "c42"
    clause = clause if cites is FORWARD else cites.unsupported
    expect(ops < 2 or x.data_type == HALF, NOT_SUPPORTED, cites.cite(clause),
           f"xDesc has data type {x.data_type.name}, z is added to {HALF.name} only")  # fmt: skip


@documented()
def cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    handle: Handle, mode: cudnnBatchNormMode_t, bnOps: cudnnBatchNormOps_t, xDesc: TensorDescriptor, zDesc: TensorDescriptor | None, yDesc: TensorDescriptor, bnScaleBiasMeanVarDesc: TensorDescriptor, activationDesc: ActivationDescriptor | None,
) -> int:  # fmt: skip
    """Return the bytes of workspace of cudnnBatchNormalizationForwardTrainingEx, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.9.
    """
    x, tensors = xDesc.spec, {"xDesc": xDesc.spec, "yDesc": yDesc.spec}
    statistics = {"bnScaleBiasMeanVarDesc": bnScaleBiasMeanVarDesc.spec}
    demanded(
        FORWARD_SIZE,
        TRAINING_TYPES,
        mode,
        bnOps,
        tensors,
        statistics,
        {"zDesc": _spec(zDesc)},
        {},
        _spec(activationDesc),
    )
    added_types(FORWARD_SIZE, bnOps, x)
    return 0


@documented()
def cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    handle: Handle, mode: cudnnBatchNormMode_t, bnOps: cudnnBatchNormOps_t, xDesc: TensorDescriptor, yDesc: TensorDescriptor | None, dyDesc: TensorDescriptor, dzDesc: TensorDescriptor | None, dxDesc: TensorDescriptor, dBnScaleBiasDesc: TensorDescriptor, activationDesc: ActivationDescriptor | None,
) -> int:  # fmt: skip
    """Return the bytes of workspace of cudnnBatchNormalizationBackwardEx, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.8.
    """
    tensors = {"xDesc": xDesc.spec, "dyDesc": dyDesc.spec, "dxDesc": dxDesc.spec}
    added, others = {"dzDesc": _spec(dzDesc)}, {"yDesc": _spec(yDesc)}
    statistics = {"dBnScaleBiasDesc": dBnScaleBiasDesc.spec}
    demanded(BACKWARD_SIZE, TRAINING_TYPES, mode, bnOps, tensors, statistics, added, others, _spec(activationDesc))
    return 0


@documented()
def cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    bnOps: cudnnBatchNormOps_t,
    activationDesc: ActivationDescriptor | None,
    xDesc: TensorDescriptor,
) -> int:
    """Return the bytes of reserve space: one per element of x with CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, else 0.

    Errors: BAD_PARAM for other than 4 or 5 dimensions (c08), a fused operation without an activation (c05);
    NOT_SUPPORTED for data types, activations and layouts that the calls do not support (c07). Source: 4.1.10.
    """
    x, cites = xDesc.spec, RESERVE_SIZE
    four_or_five(cites.cite(cites.rank), xDesc=x)
    supported_types(cites.cite(cites.unsupported), TRAINING_TYPES, xDesc=x)
    if bnOps:
        rectified(cites, _spec(activationDesc))
        packed_nhwc(cites.cite(cites.layout), xDesc=x)
    return reserve_bytes(bnOps, x)


@computing(
    invalid=dict.fromkeys(("alpha", "beta", "xData", "yData", "bnScaleData", "bnBiasData"), "c45"),
    memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=lambda o: o.x == o.y)],
    optional=("reserveSpace",),
)
def cudnnBatchNormalizationForwardTrainingEx(
    handle: Handle, mode: cudnnBatchNormMode_t, bnOps: cudnnBatchNormOps_t, alpha: float, beta: float, xDesc: TensorSpec, xData: Any, zDesc: TensorSpec | None, zData: Any, yDesc: TensorSpec, yData: Any, bnScaleBiasMeanVarDesc: TensorSpec, bnScaleData: Any, bnBiasData: Any,
    exponentialAverageFactor: float, resultRunningMeanData: Any, resultRunningVarianceData: Any, epsilon: float, saveMean: Any, saveInvVariance: Any, activationDesc: ActivationSpec | None,
    workspace: Any, workSpaceSizeInBytes: int, reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> BatchNormalizationForwardTrainingEx:  # fmt: skip
    """Do the same as cudnnBatchNormalizationForwardTraining, optionally followed by a ReLU, or by adding z and a ReLU.

    bnOps selects the steps: y = alpha * relu(n + z) + beta * y with all of them.
    For fused operations x, y and z are packed NHWC tensors with equal dimensions and data types: HALF, FLOAT, DOUBLE,
    or only HALF with z. Every mode supports them.
    workspace is not used. reserveSpace has the bytes that the query returns, and records for the backward call which
    elements the ReLU passes. Both may be NULL if they have no bytes.
    Errors: those of cudnnBatchNormalizationForwardTraining; BAD_PARAM for a missing or different z (c22), a missing
    activation (c37), a reserve space that is too small (c39); NOT_SUPPORTED for other activations and layouts (c44), z
    of other types (c41, c42).
    Source: 4.1.5; docs/errata.md, D153, D154, D167.
    """
    c, statistics = FORWARD, bnScaleBiasMeanVarDesc
    tensors, added = {"xDesc": xDesc, "yDesc": yDesc}, {"zDesc": zDesc if zData is not None else None}
    demanded(c, TRAINING_TYPES, mode, bnOps, tensors, {"bnScaleBiasMeanVarDesc": statistics}, added, {}, activationDesc)
    added_types(c, bnOps, xDesc)
    together(c.cite("c49"), saveMean=saveMean, saveInvVariance=saveInvVariance)
    together(
        c.cite("c50"), resultRunningMeanData=resultRunningMeanData, resultRunningVarianceData=resultRunningVarianceData
    )
    min_epsilon(c.cite("c51"), epsilon)
    writable_layout(yDesc=yDesc)
    needed = reserve_bytes(bnOps, xDesc)
    large_enough(c.cite("c39"), reserveSpaceSizeInBytes, needed)
    return BatchNormalizationForwardTrainingEx(
        mode, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc, statistics, statistics, exponentialAverageFactor,
        None if resultRunningMeanData is None else statistics, epsilon, None if saveMean is None else statistics, 0, needed, bnOps,
        zDesc if bnOps > 1 else None, activationDesc if bnOps else None,
    )  # fmt: skip


@computing(
    invalid=dict.fromkeys(
        ("alphaDataDiff", "betaDataDiff", "alphaParamDiff", "betaParamDiff", "xData", "dyData", "dxData", "bnScaleData", "dBnScaleData",
         "dBnBiasData"), "c44",
    ),
    memory=[
        SameMemory("dx", "dy", INCORRECT_PARAMETER, allowed=lambda o: o.dx == o.dy),
        SameMemory("dx", "x", INCORRECT_PARAMETER, allowed=lambda o: o.dx == o.x),
    ],
    optional=("reserveSpace", "bnBiasData"),
)  # fmt: skip
def cudnnBatchNormalizationBackwardEx(
    handle: Handle, mode: cudnnBatchNormMode_t, bnOps: cudnnBatchNormOps_t, alphaDataDiff: float, betaDataDiff: float, alphaParamDiff: float, betaParamDiff: float, xDesc: TensorSpec, xData: Any, yDesc: TensorSpec | None, yData: Any, dyDesc: TensorSpec, dyData: Any, dzDesc: TensorSpec | None,
    dzData: Any, dxDesc: TensorSpec, dxData: Any, dBnScaleBiasDesc: TensorSpec, bnScaleData: Any, bnBiasData: Any, dBnScaleData: Any, dBnBiasData: Any, epsilon: float, savedMean: Any,
    savedInvVariance: Any, activationDesc: ActivationSpec | None, workspace: Any, workSpaceSizeInBytes: int, reserveSpace: Any, reserveSpaceSizeInBytes: int,
) -> BatchNormalizationBackwardEx:  # fmt: skip
    """Do the same as cudnnBatchNormalizationBackward; with bnOps, dz replaces dy. dz is dy where the ReLU passed its
    argument, else 0.

    Without z, the argument is computed again from x, the statistics, bnScaleData and bnBiasData. With z, reserveSpace
    records it, as cudnnBatchNormalizationForwardTrainingEx left it. y is not read. bnBiasData may be NULL with
    CUDNN_BATCHNORM_OPS_BN. dz is overwritten.
    Types and layouts: as in that call; dz supports every type.
    Errors: those of cudnnBatchNormalizationBackward; BAD_PARAM for a missing or different y or dz (c24), a missing
    activation (c36) or bias (c44), a reserve space that is too small (c38); NOT_SUPPORTED for other activations (c43),
    layouts (c19).
    Source: 4.1.3; docs/errata.md, D155, D156.
    """
    c, statistics = BACKWARD, dBnScaleBiasDesc
    tensors = {"xDesc": xDesc, "dyDesc": dyDesc, "dxDesc": dxDesc}
    added, others = {"dzDesc": dzDesc if dzData is not None else None}, {"yDesc": yDesc if yData is not None else None}
    demanded(c, TRAINING_TYPES, mode, bnOps, tensors, {"dBnScaleBiasDesc": statistics}, added, others, activationDesc)
    together(c.cite("c48"), savedMean=savedMean, savedInvVariance=savedInvVariance)
    min_epsilon(c.cite("c49"), epsilon)
    writable_layout(dxDesc=dxDesc)
    needed = reserve_bytes(bnOps, xDesc)
    large_enough(c.cite("c38"), reserveSpaceSizeInBytes, needed)
    factors = (scaling(value, dxDesc) for value in (alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff))
    return BatchNormalizationBackwardEx(
        mode, *factors, xDesc, dyDesc, dxDesc, statistics, statistics, epsilon, None if savedMean is None else statistics, 0, needed,
        bnOps, yDesc if bnOps else None, dzDesc if bnOps > 1 else None, activationDesc if bnOps else None,
    )  # fmt: skip
