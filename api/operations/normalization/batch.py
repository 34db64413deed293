"""Operations of batch normalization (3.2.3, 4.1.2 to 4.1.5) and of cudnnNormalization* (3.2.66, 4.1.15, 4.1.16).

Both generations compute the same: the records of the calls differ in the names of their parameters and in what else they take.
A statistic is that of one channel, over images and spatial positions, or of one activation, over images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...enumerations import cudnnBatchNormMode_t, cudnnNormAlgo_t, cudnnNormMode_t
from ..operation import Operation
from ..records import record
from ..specs import TensorSpec

Mode = cudnnBatchNormMode_t | cudnnNormMode_t
PER_ACTIVATION = (cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION, cudnnNormMode_t.CUDNN_NORM_PER_ACTIVATION)


class BatchStatistics(Operation):
    """What the operations share: which dimensions a statistic is taken over, and tensors that are described alike.

    scaleBias describes scale, bias and their gradients; meanVariance what is known of mean and variance.
    """

    mode: Mode
    x: TensorSpec
    scaleBias: TensorSpec
    meanVariance: TensorSpec

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        """The dimensions of x that a statistic is taken over."""
        return (0,) if self.mode in PER_ACTIVATION else (0, *range(2, self.x.rank))

    @property
    def scale(self) -> TensorSpec:
        return self.scaleBias

    bias = scale


@dataclass(frozen=True, eq=False, repr=False)
class NormalizationInference(BatchStatistics):
    """y = alpha * (scale * (x - mean) / sqrt(variance + epsilon) + bias) + beta * y with statistics that are given."""

    mode: Mode
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec
    scaleBias: TensorSpec
    meanVariance: TensorSpec
    epsilon: float

    inputs = ("x", "scale", "bias", "mean", "variance")
    outputs = ("y",)

    @property
    def mean(self) -> TensorSpec:
        return self.meanVariance

    variance = mean


@record
class BatchNormalizationForwardInference(NormalizationInference):
    """cudnnBatchNormalizationForwardInference (3.2.3)."""

    parameters: ClassVar = {
        "bnScaleBiasMeanVarDesc": "scaleBias", "bnScale": "scale", "bnBias": "bias", "estimatedMean": "mean",
        "estimatedVariance": "variance",
    }  # fmt: skip


@record
class NormalizationForwardInference(NormalizationInference):
    """cudnnNormalizationForwardInference (3.2.66), normalization alone."""

    algo: cudnnNormAlgo_t

    parameters: ClassVar = {
        "normScaleBiasDesc": "scaleBias", "normScale": "scale", "normBias": "bias", "normMeanVarDesc": "meanVariance",
        "estimatedMean": "mean", "estimatedVariance": "variance",
    }  # fmt: skip
