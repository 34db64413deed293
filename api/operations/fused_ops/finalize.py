"""Define the finalising of batch normalisation statistics into a scale and a bias:
CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING and _INFERENCE."""

from __future__ import annotations

from ..operation import Operation
from ..records import record
from ..specs import TensorSpec


@record
class BnFinalizeStatisticsTraining(Operation):
    """Compute scale, bias and statistics from the sums of y and of its squares over ``count`` elements per channel.

    mean = ySum / count, variance = max(ySqSum / count - mean^2, 0);
    savedMean = mean, savedInvStd = (variance + epsilon)^-1/2;
    eqScale = scale * savedInvStd, eqBias = bias - mean * eqScale.
    The running mean and variance become (1 - factor) * old + factor * new; the new variance is multiplied by count /
    (count - 1).
    """

    count: int
    factor: float
    epsilon: float
    ySum: TensorSpec
    ySqSum: TensorSpec
    scale: TensorSpec | None
    bias: TensorSpec | None
    runningMean: TensorSpec | None
    runningVar: TensorSpec | None
    savedMean: TensorSpec | None
    savedInvStd: TensorSpec | None
    eqScale: TensorSpec | None
    eqBias: TensorSpec | None

    inputs = ("ySum", "ySqSum", "scale", "bias", "runningMean", "runningVar")
    outputs = ("savedMean", "savedInvStd", "runningMean", "runningVar", "eqScale", "eqBias")
    optional = ("scale", "bias", "runningMean", "runningVar", "savedMean", "savedInvStd", "eqScale", "eqBias")


@record
class BnFinalizeStatisticsInference(Operation):
    """Compute eqScale = scale * (runningVar + epsilon)^-1/2, eqBias = bias - runningMean * eqScale."""

    epsilon: float
    scale: TensorSpec
    bias: TensorSpec | None
    runningMean: TensorSpec | None
    runningVar: TensorSpec
    eqScale: TensorSpec | None
    eqBias: TensorSpec | None

    inputs = ("scale", "bias", "runningMean", "runningVar")
    outputs = ("eqScale", "eqBias")
    optional = ("bias", "runningMean", "eqScale", "eqBias")
