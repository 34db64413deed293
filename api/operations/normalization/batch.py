"""Operations of batch normalization (3.2.3, 4.1.2 to 4.1.5) and of cudnnNormalization* (3.2.66, 4.1.15, 4.1.16).

Both generations compute the same: the records of the calls differ in the names of their parameters and in what else they take.
A statistic is that of one channel, over images and spatial positions, or of one activation, over images.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...enumerations import cudnnBatchNormMode_t, cudnnBatchNormOps_t, cudnnNormAlgo_t, cudnnNormMode_t, cudnnNormOps_t
from ..operation import Operation
from ..records import record
from ..specs import ActivationSpec, TensorSpec

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
    saved: TensorSpec | None
    # Of the calls that fuse an activation, and an addition before it.
    z: TensorSpec | None = None
    dz: TensorSpec | None = None
    activation: ActivationSpec | None = None

    @property
    def savedMean(self) -> TensorSpec | None:
        return self.saved

    savedInvVariance = savedMean

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        """Return the dimensions of x that a statistic is taken over."""
        return (0,) if self.mode in PER_ACTIVATION else (0, *range(2, self.x.rank))

    @property
    def scale(self) -> TensorSpec:
        return self.scaleBias

    bias = scale


@dataclass(frozen=True, eq=False, repr=False)
class NormalizationInference(BatchStatistics):
    """Compute y = alpha * (scale * (x - mean) / sqrt(variance + epsilon) + bias) + beta * y with statistics that are given."""

    mode: Mode
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec
    scaleBias: TensorSpec
    meanVariance: TensorSpec
    epsilon: float

    inputs: ClassVar[tuple[str, ...]] = ("x", "scale", "bias", "mean", "variance")
    outputs: ClassVar[tuple[str, ...]] = ("y",)

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


@dataclass(frozen=True, eq=False, repr=False)
class NormalizationTraining(BatchStatistics):
    """Compute y = alpha * (scale * (x - mean) / sqrt(variance + epsilon) + bias) + beta * y with the mean and the biased variance of x.

    running' = (1 - exponentialAverageFactor) * running + exponentialAverageFactor * the mean, or the unbiased variance;
    savedMean and savedInvVariance are the mean and 1 / sqrt(variance + epsilon). running, saved: None where the call has none.
    """

    mode: Mode
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec
    scaleBias: TensorSpec
    meanVariance: TensorSpec
    exponentialAverageFactor: float
    running: TensorSpec | None
    epsilon: float
    saved: TensorSpec | None

    inputs: ClassVar[tuple[str, ...]] = ("x", "scale", "bias", "z", "runningMean", "runningVariance")
    outputs: ClassVar[tuple[str, ...]] = ("y", "runningMean", "runningVariance", "savedMean", "savedInvVariance")
    optional: ClassVar[tuple[str, ...]] = ("z", "runningMean", "runningVariance", "savedMean", "savedInvVariance")
    blends: ClassVar = dict.fromkeys(("runningMean", "runningVariance", "savedMean", "savedInvVariance"))

    @property
    def runningMean(self) -> TensorSpec | None:
        return self.running

    runningVariance = runningMean


@record
class BatchNormalizationForwardTraining(NormalizationTraining):
    """cudnnBatchNormalizationForwardTraining (4.1.4)."""

    parameters: ClassVar = {
        "bnScaleBiasMeanVarDesc": "scaleBias", "bnScale": "scale", "bnBias": "bias", "resultRunningMean": "runningMean",
        "resultRunningVariance": "runningVariance", "resultSaveMean": "savedMean", "resultSaveInvVariance": "savedInvVariance",
    }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class FusedTraining(NormalizationTraining):
    """Training that may be followed by an activation, and by the addition of z before it; z, activation: None where it is not.

    The reserve space keeps, with z, which elements the activation passes.
    """

    workspace_bytes: int
    reserve_bytes: int

    outputs: ClassVar[tuple[str, ...]] = (*NormalizationTraining.outputs, "reserveSpace")
    raw: ClassVar = {"workspace": "workspace_bytes", "reserveSpace": "reserve_bytes"}


SIZES = {"workSpaceSizeInBytes": "workspace_bytes", "reserveSpaceSizeInBytes": "reserve_bytes"}


@record
class BatchNormalizationForwardTrainingEx(FusedTraining):
    """cudnnBatchNormalizationForwardTrainingEx (4.1.5)."""

    bnOps: cudnnBatchNormOps_t
    z: TensorSpec | None
    activation: ActivationSpec | None

    parameters: ClassVar = {
        "xData": "x", "zData": "z", "yData": "y", "bnScaleBiasMeanVarDesc": "scaleBias", "bnScaleData": "scale", "bnBiasData": "bias",
        "resultRunningMeanData": "runningMean", "resultRunningVarianceData": "runningVariance", "saveMean": "savedMean",
        "saveInvVariance": "savedInvVariance", **SIZES,
    }  # fmt: skip


@record
class NormalizationForwardTraining(FusedTraining):
    """cudnnNormalizationForwardTraining (4.1.16)."""

    normOps: cudnnNormOps_t
    algo: cudnnNormAlgo_t
    z: TensorSpec | None
    activation: ActivationSpec | None

    parameters: ClassVar = {
        "xData": "x", "zData": "z", "yData": "y", "normScaleBiasDesc": "scaleBias", "normScale": "scale", "normBias": "bias",
        "normMeanVarDesc": "meanVariance", "resultRunningMean": "runningMean", "resultRunningVariance": "runningVariance",
        "resultSaveMean": "savedMean", "resultSaveInvVariance": "savedInvVariance", **SIZES,
    }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class NormalizationGradient(BatchStatistics):
    """The gradients of x, scale and bias, with m elements of a statistic and n = (x - mean) * inverse:

    dBias = sum of dy, dScale = sum of dy * n, dx = scale * inverse * (dy - (dBias + n * dScale) / m), each blended.
    mean and inverse are the saved ones, or those of x where saved is None.
    """

    mode: Mode
    alphaDataDiff: float
    betaDataDiff: float
    alphaParamDiff: float
    betaParamDiff: float
    x: TensorSpec
    dy: TensorSpec
    dx: TensorSpec
    scaleBias: TensorSpec
    meanVariance: TensorSpec
    epsilon: float
    saved: TensorSpec | None

    inputs: ClassVar[tuple[str, ...]] = ("x", "dy", "scale", "bias", "savedMean", "savedInvVariance")
    outputs: ClassVar[tuple[str, ...]] = ("dx", "dScale", "dBias", "dz")
    optional: ClassVar[tuple[str, ...]] = ("bias", "savedMean", "savedInvVariance", "dz")
    blends: ClassVar = {
        "dx": ("alphaDataDiff", "betaDataDiff"),
        "dScale": ("alphaParamDiff", "betaParamDiff"),
        "dBias": ("alphaParamDiff", "betaParamDiff"),
        "dz": None,
    }

    @property
    def bias(self) -> TensorSpec | None:  # type: ignore[override]
        """Needed where an activation follows, whose argument is computed again."""
        return None if self.activation is None else self.scaleBias

    @property
    def dScale(self) -> TensorSpec:
        return self.scaleBias

    dBias = dScale


@record
class BatchNormalizationBackward(NormalizationGradient):
    """cudnnBatchNormalizationBackward (4.1.2)."""

    parameters: ClassVar = {
        "bnScaleBiasDiffDesc": "scaleBias", "bnScale": "scale", "resultBnScaleDiff": "dScale", "resultBnBiasDiff": "dBias",
    }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class FusedGradient(NormalizationGradient):
    """The gradient of training that was followed by an activation, and by the addition of z before it; dz: None where it was not.

    dy counts where the activation passed its argument, which is computed again, or kept in the reserve space with z. That is dz. y is
    what the forward call made: it is not needed.
    """

    workspace_bytes: int
    reserve_bytes: int

    inputs: ClassVar[tuple[str, ...]] = (*NormalizationGradient.inputs, "y", "reserveSpace")
    optional: ClassVar[tuple[str, ...]] = (*NormalizationGradient.optional, "y")
    raw: ClassVar = {"workspace": "workspace_bytes", "reserveSpace": "reserve_bytes"}


@record
class BatchNormalizationBackwardEx(FusedGradient):
    """cudnnBatchNormalizationBackwardEx (4.1.3)."""

    bnOps: cudnnBatchNormOps_t
    y: TensorSpec | None
    dz: TensorSpec | None
    activation: ActivationSpec | None

    parameters: ClassVar = {
        "xData": "x", "yData": "y", "dyData": "dy", "dzData": "dz", "dxData": "dx", "dBnScaleBiasDesc": "scaleBias",
        "bnScaleData": "scale", "bnBiasData": "bias", "dBnScaleData": "dScale", "dBnBiasData": "dBias", **SIZES,
    }  # fmt: skip


@record
class NormalizationBackward(FusedGradient):
    """cudnnNormalizationBackward (4.1.15)."""

    normOps: cudnnNormOps_t
    algo: cudnnNormAlgo_t
    y: TensorSpec | None
    dz: TensorSpec | None
    activation: ActivationSpec | None

    parameters: ClassVar = {
        "xData": "x", "yData": "y", "dyData": "dy", "dzData": "dz", "dxData": "dx", "dNormScaleBiasDesc": "scaleBias",
        "normScaleData": "scale", "normBiasData": "bias", "dNormScaleData": "dScale", "dNormBiasData": "dBias",
        "normMeanVarDesc": "meanVariance", "workSpace": "workspace", **SIZES,
    }  # fmt: skip
