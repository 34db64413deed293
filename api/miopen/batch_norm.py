"""Implement batch normalisation (rows 52 to 55)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..enumerations import cudnnBatchNormMode_t
from .calls import call, cudnn, unscaled
from .enumerations import miopenBatchNormMode_t
from .tensors import describe

if TYPE_CHECKING:
    from .objects import MiopenHandle, TensorDescriptor

MODES = {
    miopenBatchNormMode_t.miopenBNPerActivation: cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION,
    miopenBatchNormMode_t.miopenBNSpatial: cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL,
}


@call("cudnnDeriveBNTensorDescriptor")
def miopenDeriveBNTensorDescriptor(
    derivedBnDesc: TensorDescriptor, xDesc: TensorDescriptor, bn_mode: miopenBatchNormMode_t
) -> None:
    """Describe scale, bias, mean and variance of x: 1 x C x 1 x 1 (spatial) or 1 x C x H x W. Source: row 52."""
    derived = cudnn("cudnnCreateTensorDescriptor")()
    cudnn("cudnnDeriveBNTensorDescriptor")(derived, xDesc.cudnn, MODES[bn_mode])
    describe(derivedBnDesc, derived.spec.dims)


@call("cudnnBatchNormalizationForwardTraining")
def miopenBatchNormalizationForwardTraining(
    handle: MiopenHandle, bn_mode: miopenBatchNormMode_t, alpha: Any, beta: Any, xDesc: TensorDescriptor, x: Any, yDesc: TensorDescriptor, y: Any, bnScaleBiasMeanVarDesc: TensorDescriptor, bnScale: Any, bnBias: Any, expAvgFactor: float,
    resultRunningMean: Any, resultRunningVariance: Any, epsilon: float, resultSaveMean: Any, resultSaveInvVariance: Any,
) -> None:  # fmt: skip
    """Compute y = scale * (x - mean) / sqrt(variance + epsilon) + bias with the statistics of this batch, and update
    the running statistics.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02). Source: row 53.
    """
    unscaled("miopenBatchNormalizationForwardTraining/c02", alpha, beta)
    cudnn("cudnnBatchNormalizationForwardTraining")(
        handle.cudnn, MODES[bn_mode], 1.0, 0.0, xDesc.cudnn, x, yDesc.cudnn, y, bnScaleBiasMeanVarDesc.cudnn, bnScale, bnBias,
        expAvgFactor, resultRunningMean, resultRunningVariance, epsilon, resultSaveMean, resultSaveInvVariance,
    )  # fmt: skip


@call("cudnnBatchNormalizationForwardInference")
def miopenBatchNormalizationForwardInference(
    handle: MiopenHandle, bn_mode: miopenBatchNormMode_t, alpha: Any, beta: Any, xDesc: TensorDescriptor, x: Any, yDesc: TensorDescriptor, y: Any, bnScaleBiasMeanVarDesc: TensorDescriptor, bnScale: Any, bnBias: Any, estimatedMean: Any,
    estimatedVariance: Any, epsilon: float,
) -> None:  # fmt: skip
    """Compute y = scale * (x - mean) / sqrt(variance + epsilon) + bias with the given statistics.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02). Source: row 54.
    """
    unscaled("miopenBatchNormalizationForwardInference/c02", alpha, beta)
    cudnn("cudnnBatchNormalizationForwardInference")(
        handle.cudnn, MODES[bn_mode], 1.0, 0.0, xDesc.cudnn, x, yDesc.cudnn, y, bnScaleBiasMeanVarDesc.cudnn, bnScale, bnBias,
        estimatedMean, estimatedVariance, epsilon,
    )  # fmt: skip


@call("cudnnBatchNormalizationBackward")
def miopenBatchNormalizationBackward(
    handle: MiopenHandle, bn_mode: miopenBatchNormMode_t, alphaDataDiff: Any, betaDataDiff: Any, alphaParamDiff: Any, betaParamDiff: Any, xDesc: TensorDescriptor, x: Any, dyDesc: TensorDescriptor, dy: Any, dxDesc: TensorDescriptor, dx: Any,
    bnScaleBiasDiffDesc: TensorDescriptor, bnScale: Any, resultBnScaleDiff: Any, resultBnBiasDiff: Any, epsilon: float, savedMean: Any, savedInvVariance: Any,
) -> None:  # fmt: skip
    """Compute the gradients of x, scale and bias. Errors: NotImplemented unless both alphas are 1 and both betas 0 (c02).
    Source: row 55."""
    unscaled("miopenBatchNormalizationBackward/c02", alphaDataDiff, betaDataDiff)
    unscaled("miopenBatchNormalizationBackward/c02", alphaParamDiff, betaParamDiff)
    cudnn("cudnnBatchNormalizationBackward")(
        handle.cudnn, MODES[bn_mode], 1.0, 0.0, 1.0, 0.0, xDesc.cudnn, x, dyDesc.cudnn, dy, dxDesc.cudnn, dx,
        bnScaleBiasDiffDesc.cudnn, bnScale, resultBnScaleDiff, resultBnBiasDiff, epsilon, savedMean, savedInvVariance,
    )  # fmt: skip
