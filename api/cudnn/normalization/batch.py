"""Batch normalization: its descriptor and calls (3.2.3, 3.2.18)."""

from __future__ import annotations

from ...functions import SameMemory, computing, documented
from ...operations import BatchNormalizationForwardInference
from ...relations import scaling, writable_layout
from ...status import INCORRECT_PARAMETER
from .statistics import (
    INFERENCE_TYPES,
    derived,
    described_alike,
    four_or_five,
    least_epsilon,
    of_statistics,
    supported_types,
)


@documented(invalid={"mode": "c12"})
def cudnnDeriveBNTensorDescriptor(derivedBnDesc, xDesc, mode):
    """Describe scale, bias, mean and variance of x, without gaps.

    Dimensions 1xCx1x1 (5-D: 1xCx1x1x1) in the spatial modes, 1xCxHxW (1xCxDxHxW) in CUDNN_BATCHNORM_PER_ACTIVATION; data type
    FLOAT for HALF, BFLOAT16 and INT8, else that of x (docs/errata.md, D042).
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
    handle, mode, alpha, beta, xDesc, x, yDesc, y, bnScaleBiasMeanVarDesc, bnScale, bnBias, estimatedMean, estimatedVariance,
    epsilon,
):  # fmt: skip
    """y = alpha * (bnScale * (x - estimatedMean) / sqrt(epsilon + estimatedVariance) + bnBias) + beta * y; beta == 0 does not read y.

    x, y: equal dimensions and data types (HALF, FLOAT, DOUBLE, INT8), 4 or 5 dimensions of any strides; in place where the
    descriptors are identical. bnScale, bnBias, estimatedMean, estimatedVariance: described by bnScaleBiasMeanVarDesc, which has the
    dimensions and data type of cudnnDeriveBNTensorDescriptor, and any strides. INT8 is rounded to the nearest even and saturates.
    Errors: BAD_PARAM for other numbers of dimensions (c23), of statistics (c24), epsilon below CUDNN_BN_MIN_EPSILON (c25), differing
    dimensions or data types (c26), NULL (c22); NOT_SUPPORTED for other data types (c21), an output whose strides overlap.
    Source: 3.2.3.
    """
    name = "cudnnBatchNormalizationForwardInference"
    four_or_five(f"{name}/c23", xDesc=xDesc, yDesc=yDesc)
    described_alike(f"{name}/c26", f"{name}/c26", xDesc=xDesc, yDesc=yDesc)
    supported_types(f"{name}/c21", INFERENCE_TYPES, xDesc=xDesc)
    of_statistics(f"{name}/c24", xDesc, mode, bnScaleBiasMeanVarDesc=bnScaleBiasMeanVarDesc)
    least_epsilon(f"{name}/c25", epsilon)
    writable_layout(yDesc=yDesc)
    statistics = bnScaleBiasMeanVarDesc
    return BatchNormalizationForwardInference(
        mode, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc, statistics, statistics, epsilon
    )
