"""Implement cudnnNormalization*: its descriptors and calls (3.2.19, 3.2.66), over the operations of batch normalization."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...enumerations import cudnnNormOps_t
from ...functions import SameMemory, computing, documented
from ...operations import NormalizationForwardInference
from ...relations import scaling, writable_layout
from ...status import INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .statistics import (
    NORM_INFERENCE_TYPES,
    algorithm_for,
    derived,
    described_alike,
    four_or_five,
    min_epsilon,
    of_statistics,
    one_group,
    supported_types,
)

if TYPE_CHECKING:
    from ...descriptors import TensorDescriptor
    from ...enumerations import cudnnNormAlgo_t, cudnnNormMode_t
    from ...handle import Handle
    from ...operations.specs import ActivationSpec, TensorSpec

NORM = cudnnNormOps_t.CUDNN_NORM_OPS_NORM


@documented(invalid={"mode": "c13"})
def cudnnDeriveNormTensorDescriptor(
    derivedNormScaleBiasDesc: TensorDescriptor,
    derivedNormMeanVarDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    mode: cudnnNormMode_t,
    groupCnt: int,
) -> None:
    """Describe scale and bias, and mean and variance of x, both identical and packed.

    Dimensions are 1xCx1x1 (5-D: 1xCx1x1x1) with CUDNN_NORM_PER_CHANNEL and 1xCxHxW (1xCxDxHxW) with
    CUDNN_NORM_PER_ACTIVATION; the section exchanges them (docs/errata.md, D043). The data type is FLOAT for HALF,
    BFLOAT16 and INT8, else that of x.
    Errors: BAD_PARAM for an unknown mode (c13), other than 4 or 5 dimensions (c09); NOT_SUPPORTED unless groupCnt is 1.
    Source: 3.2.19.
    """
    one_group("cudnnNormalizationForwardInference/c20", groupCnt)
    four_or_five("cudnnDeriveNormTensorDescriptor/c09", xDesc=xDesc.spec)
    derivedNormScaleBiasDesc.spec = derivedNormMeanVarDesc.spec = derived(xDesc.spec, mode)


@computing(
    invalid={
        "alpha": "c24", "beta": "c24", "x": "c24", "y": "c24", "normScale": "c24", "normBias": "c24", "estimatedMean": "c24",
        "estimatedVariance": "c24", "algo": ("c32", NOT_SUPPORTED),
    },
    memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=lambda o: o.x == o.y)],
    failed="c33",
)  # fmt: skip
def cudnnNormalizationForwardInference(
    handle: Handle, mode: cudnnNormMode_t, normOps: cudnnNormOps_t, algo: cudnnNormAlgo_t, alpha: float, beta: float, xDesc: TensorSpec, x: Any, normScaleBiasDesc: TensorSpec, normScale: Any, normBias: Any, normMeanVarDesc: TensorSpec, estimatedMean: Any,
    estimatedVariance: Any, zDesc: TensorSpec | None, z: Any, activationDesc: ActivationSpec | None, yDesc: TensorSpec, y: Any, epsilon: float, groupCnt: int,
) -> NormalizationForwardInference:  # fmt: skip
    """Compute y = alpha * (normScale * (x - estimatedMean) / sqrt(epsilon + estimatedVariance) + normBias) + beta * y; beta == 0 does not read y.

    x, y: equal dimensions and data types (HALF, BFLOAT16, FLOAT, DOUBLE, INT8), 4 or 5 dimensions of any strides; in place if
    the descriptors are identical. normScale, normBias: described by normScaleBiasDesc; estimatedMean, estimatedVariance: by
    normMeanVarDesc; both have the dimensions and data type of cudnnDeriveNormTensorDescriptor, and any strides. algo changes
    nothing. zDesc, z and activationDesc are not used.
    Errors: BAD_PARAM for other numbers of dimensions (c25), of statistics (c26, c27), a negative epsilon (c28),
    differing dimensions (c29) or data types (c30), NULL (c24); NOT_SUPPORTED for normOps other than CUDNN_NORM_OPS_NORM
    (c08), groupCnt other than 1 (c20), an unknown algo (c32), CUDNN_NORM_ALGO_PERSIST per activation
    (cudnnNormAlgo_t/c01), other data types (c31), an output whose strides overlap. Source: 3.2.66.
    """
    name = "cudnnNormalizationForwardInference"
    expect(normOps == NORM, NOT_SUPPORTED, f"{name}/c08", f"normOps is {normOps.name}, only {NORM.name} is supported")
    one_group(f"{name}/c20", groupCnt)
    algorithm_for(mode, algo)
    four_or_five(f"{name}/c25", xDesc=xDesc, yDesc=yDesc)
    described_alike(f"{name}/c29", f"{name}/c30", xDesc=xDesc, yDesc=yDesc)
    supported_types(f"{name}/c31", NORM_INFERENCE_TYPES, xDesc=xDesc)
    clause = f"{name}/c26" if mode.name == "CUDNN_NORM_PER_CHANNEL" else f"{name}/c27"
    of_statistics(clause, xDesc, mode, normScaleBiasDesc=normScaleBiasDesc, normMeanVarDesc=normMeanVarDesc)
    min_epsilon(f"{name}/c28", epsilon, 0.0)
    writable_layout(yDesc=yDesc)
    return NormalizationForwardInference(
        mode,
        scaling(alpha, yDesc),
        scaling(beta, yDesc),
        xDesc,
        yDesc,
        normScaleBiasDesc,
        normMeanVarDesc,
        epsilon,
        algo,
    )
