"""Implement batch normalization: its descriptor and calls (3.2.3, 3.2.18, 4.1.2, 4.1.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions import SameMemory, computing, documented
from ...operations import (
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
)
from ...operations.normalization.batch import PER_ACTIVATION
from ...relations import scaling, writable_layout
from ...status import INCORRECT_PARAMETER
from .statistics import (
    INFERENCE_TYPES,
    TRAINING_TYPES,
    derived,
    described_alike,
    four_or_five,
    min_epsilon,
    of_statistics,
    supported_types,
    together,
)

if TYPE_CHECKING:
    from ...descriptors import TensorDescriptor
    from ...enumerations import cudnnBatchNormMode_t
    from ...handle import Handle
    from ...operations.specs import TensorSpec


@documented(invalid={"mode": "c12"})
def cudnnDeriveBNTensorDescriptor(
    derivedBnDesc: TensorDescriptor, xDesc: TensorDescriptor, mode: cudnnBatchNormMode_t
) -> None:
    """Describe scale, bias, mean and variance of x, packed.

    Dimensions are 1xCx1x1 (5-D: 1xCx1x1x1) in the spatial modes and 1xCxHxW (1xCxDxHxW) in
    CUDNN_BATCHNORM_PER_ACTIVATION. The data type is FLOAT for HALF, BFLOAT16 and INT8, else that of x (docs/errata.md,
    D042).
    Errors: BAD_PARAM for an unknown mode (c12), other than 4 or 5 dimensions (c08). Source: 3.2.18.
    """
    four_or_five("cudnnDeriveBNTensorDescriptor/c08", xDesc=xDesc.spec)
    derivedBnDesc.spec = derived(xDesc.spec, mode)


@computing(
    invalid={
        "alpha": "c22", "beta": "c22", "x": "c22", "y": "c22", "bnScale": "c22", "bnBias": "c22", "estimatedMean": "c22",
        "estimatedVariance": "c22",
    },
    memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=lambda o: o.x == o.y)],
)  # fmt: skip
def cudnnBatchNormalizationForwardInference(
    handle: Handle, mode: cudnnBatchNormMode_t, alpha: float, beta: float, xDesc: TensorSpec, x: Any, yDesc: TensorSpec, y: Any, bnScaleBiasMeanVarDesc: TensorSpec, bnScale: Any, bnBias: Any, estimatedMean: Any, estimatedVariance: Any,
    epsilon: float,
) -> BatchNormalizationForwardInference:  # fmt: skip
    """Compute y = alpha * (bnScale * (x - estimatedMean) / sqrt(epsilon + estimatedVariance) + bnBias) + beta * y; beta == 0 does not read y.

    x, y: equal dimensions and data types (HALF, FLOAT, DOUBLE, INT8), 4 or 5 dimensions of any strides; in place if
    the descriptors are identical. bnScale, bnBias, estimatedMean, estimatedVariance: described by bnScaleBiasMeanVarDesc, which has the
    dimensions and data type of cudnnDeriveBNTensorDescriptor, and any strides. INT8 is rounded to the nearest even and saturates.
    Errors: BAD_PARAM for other numbers of dimensions (c23), of statistics (c24), epsilon below CUDNN_BN_MIN_EPSILON
    (c25), differing dimensions or data types (c26), NULL (c22); NOT_SUPPORTED for other data types (c21), an output
    whose strides overlap.
    Source: 3.2.3.
    """
    name = "cudnnBatchNormalizationForwardInference"
    four_or_five(f"{name}/c23", xDesc=xDesc, yDesc=yDesc)
    described_alike(f"{name}/c26", f"{name}/c26", xDesc=xDesc, yDesc=yDesc)
    supported_types(f"{name}/c21", INFERENCE_TYPES, xDesc=xDesc)
    of_statistics(f"{name}/c24", xDesc, mode, bnScaleBiasMeanVarDesc=bnScaleBiasMeanVarDesc)
    min_epsilon(f"{name}/c25", epsilon)
    writable_layout(yDesc=yDesc)
    statistics = bnScaleBiasMeanVarDesc
    return BatchNormalizationForwardInference(
        mode, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc, statistics, statistics, epsilon
    )


@computing(
    invalid=dict.fromkeys(("alpha", "beta", "x", "y", "bnScale", "bnBias"), "c31"),
    memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=lambda o: o.x == o.y)],
)
def cudnnBatchNormalizationForwardTraining(
    handle: Handle, mode: cudnnBatchNormMode_t, alpha: float, beta: float, xDesc: TensorSpec, x: Any, yDesc: TensorSpec, y: Any, bnScaleBiasMeanVarDesc: TensorSpec, bnScale: Any, bnBias: Any, exponentialAverageFactor: float,
    resultRunningMean: Any, resultRunningVariance: Any, epsilon: float, resultSaveMean: Any, resultSaveInvVariance: Any,
) -> BatchNormalizationForwardTraining:  # fmt: skip
    """Compute y = alpha * (bnScale * (x - mean) / sqrt(variance + epsilon) + bnBias) + beta * y; beta == 0 does not
    read y.

    mean and the biased variance (1 / m) cover images and positions, or only images per activation.
    With f = exponentialAverageFactor, resultRunningMean becomes (1 - f) * itself + f * mean. resultRunningVariance
    likewise takes the unbiased variance (m / (m - 1); NaN for one element). Both are NULL if they are not wanted.
    resultSaveMean and resultSaveInvVariance receive the mean and 1 / sqrt(variance + epsilon), or are both NULL.
    x, y: equal dimensions and data types (HALF, FLOAT, DOUBLE), 4 or 5 dimensions of any strides; in place if the
    descriptors are identical. bnScaleBiasMeanVarDesc describes all other tensors; it has the dimensions and data type
    of cudnnDeriveBNTensorDescriptor, and any strides.
    CUDNN_BATCHNORM_SPATIAL_PERSISTENT gives the results of CUDNN_BATCHNORM_SPATIAL, without additional overflow.
    Errors: BAD_PARAM for NULL (c31), other numbers of dimensions (c32), of statistics (c33, c34), one of two results
    NULL (c35, c36), epsilon below CUDNN_BN_MIN_EPSILON (c37), differing dimensions (c38) or data types (c39);
    NOT_SUPPORTED for other data types (c30), an output whose strides overlap. Source: 4.1.4; docs/errata.md, D157,
    D158.
    """
    name = "cudnnBatchNormalizationForwardTraining"
    four_or_five(f"{name}/c32", xDesc=xDesc, yDesc=yDesc)
    described_alike(f"{name}/c38", f"{name}/c39", xDesc=xDesc, yDesc=yDesc)
    supported_types(f"{name}/c30", TRAINING_TYPES, xDesc=xDesc)
    statistics = bnScaleBiasMeanVarDesc
    clause = f"{name}/c34" if mode in PER_ACTIVATION else f"{name}/c33"
    of_statistics(clause, xDesc, mode, bnScaleBiasMeanVarDesc=statistics)
    together(f"{name}/c35", resultSaveMean=resultSaveMean, resultSaveInvVariance=resultSaveInvVariance)
    together(f"{name}/c36", resultRunningMean=resultRunningMean, resultRunningVariance=resultRunningVariance)
    min_epsilon(f"{name}/c37", epsilon)
    writable_layout(yDesc=yDesc)
    return BatchNormalizationForwardTraining(
        mode, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc, statistics, statistics, exponentialAverageFactor,
        None if resultRunningMean is None else statistics, epsilon, None if resultSaveMean is None else statistics,
    )  # fmt: skip


@computing(
    invalid=dict.fromkeys(
        ("alphaDataDiff", "betaDataDiff", "alphaParamDiff", "betaParamDiff", "x", "dy", "dx", "bnScale", "resultBnScaleDiff",
         "resultBnBiasDiff"), "c23",
    ),
    memory=[
        SameMemory("dx", "dy", INCORRECT_PARAMETER, allowed=lambda o: o.dx == o.dy),
        SameMemory("dx", "x", INCORRECT_PARAMETER, allowed=lambda o: o.dx == o.x),
    ],
)  # fmt: skip
def cudnnBatchNormalizationBackward(
    handle: Handle, mode: cudnnBatchNormMode_t, alphaDataDiff: float, betaDataDiff: float, alphaParamDiff: float, betaParamDiff: float, xDesc: TensorSpec, x: Any, dyDesc: TensorSpec, dy: Any, dxDesc: TensorSpec, dx: Any,
    bnScaleBiasDiffDesc: TensorSpec, bnScale: Any, resultBnScaleDiff: Any, resultBnBiasDiff: Any, epsilon: float, savedMean: Any, savedInvVariance: Any,
) -> BatchNormalizationBackward:  # fmt: skip
    """Compute the gradients of the training forward pass, with n = (x - mean) * inverse.

    resultBnBiasDiff = sum of dy, resultBnScaleDiff = sum of dy * n and dx = bnScale * inverse * (dy - (resultBnBiasDiff
    + n * resultBnScaleDiff) / m).
    alphaDataDiff and betaDataDiff blend dx; alphaParamDiff and betaParamDiff blend the other two. A beta of 0 reads
    nothing.
    mean and inverse are savedMean and savedInvVariance. If both are NULL, they are the mean and 1 / sqrt(variance +
    epsilon) of x.
    x, dy, dx: equal dimensions and data types (HALF, FLOAT, DOUBLE), 4 or 5 dimensions of any strides; dx may be dy or
    x if the descriptors are identical. bnScaleBiasDiffDesc describes all other tensors, as
    cudnnDeriveBNTensorDescriptor, with any strides.
    Errors: BAD_PARAM for NULL (c23), other numbers of dimensions (c24), of statistics (c25, c26), one of the saved NULL
    (c27), epsilon below CUDNN_BN_MIN_EPSILON (c28), differing dimensions (c29) or data types (c30); NOT_SUPPORTED for
    other data types (c22), an output whose strides overlap. Source: 4.1.2; formula: docs/errata.md, D146.
    """
    name = "cudnnBatchNormalizationBackward"
    tensors = {"xDesc": xDesc, "dyDesc": dyDesc, "dxDesc": dxDesc}
    four_or_five(f"{name}/c24", **tensors)
    described_alike(f"{name}/c29", f"{name}/c30", **tensors)
    supported_types(f"{name}/c22", TRAINING_TYPES, xDesc=xDesc)
    statistics = bnScaleBiasDiffDesc
    of_statistics(
        f"{name}/c26" if mode in PER_ACTIVATION else f"{name}/c25", xDesc, mode, bnScaleBiasDiffDesc=statistics
    )
    together(f"{name}/c27", savedMean=savedMean, savedInvVariance=savedInvVariance)
    min_epsilon(f"{name}/c28", epsilon)
    writable_layout(dxDesc=dxDesc)
    factors = (scaling(value, dxDesc) for value in (alphaDataDiff, betaDataDiff, alphaParamDiff, betaParamDiff))
    return BatchNormalizationBackward(
        mode,
        *factors,
        xDesc,
        dyDesc,
        dxDesc,
        statistics,
        statistics,
        epsilon,
        None if savedMean is None else statistics,
    )
