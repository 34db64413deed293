"""Define the operations of batch normalization (3.2.3, 4.1.2 to 4.1.5) and of cudnnNormalization* (3.2.66, 4.1.15,
4.1.16).

Both generations of calls compute the same; their records differ in parameter names and in additional operands. A
statistic covers one channel over images and spatial positions, or one activation over images.
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
    """Define what the operations share: the dimensions of a statistic and the tensors with a common description.

    scaleBias describes scale, bias and their gradients. meanVariance describes given statistics.
    """

    mode: Mode
    x: TensorSpec
    scaleBias: TensorSpec
    meanVariance: TensorSpec
    saved: TensorSpec | None
    # Only calls that fuse an activation, and an addition before it, have these.
    z: TensorSpec | None = None
    dz: TensorSpec | None = None
    activation: ActivationSpec | None = None

    @property
    def savedMean(self) -> TensorSpec | None:
        return self.saved

    savedInvVariance = savedMean

    @property
    def reduced_dims(self) -> tuple[int, ...]:
        """Return the dimensions of x that a statistic covers."""
        return (0,) if self.mode in PER_ACTIVATION else (0, *range(2, self.x.rank))

    @property
    def scale(self) -> TensorSpec:
        return self.scaleBias

    bias = scale


@dataclass(frozen=True, eq=False, repr=False)
class NormalizationInference(BatchStatistics):
    """Compute y = alpha * (scale * (x - mean) / sqrt(variance + epsilon) + bias) + beta * y with given statistics."""

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
    """Describe a call of cudnnBatchNormalizationForwardInference (3.2.3)."""

    parameters: ClassVar = {
        "bnScaleBiasMeanVarDesc": "scaleBias", "bnScale": "scale", "bnBias": "bias", "estimatedMean": "mean",
        "estimatedVariance": "variance",
    }  # fmt: skip


@record
class NormalizationForwardInference(NormalizationInference):
    """Describe a call of cudnnNormalizationForwardInference (3.2.66) without addition and activation."""

    algo: cudnnNormAlgo_t

    parameters: ClassVar = {
        "normScaleBiasDesc": "scaleBias", "normScale": "scale", "normBias": "bias", "normMeanVarDesc": "meanVariance",
        "estimatedMean": "mean", "estimatedVariance": "variance",
    }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class NormalizationTraining(BatchStatistics):
    """Compute y = alpha * (scale * (x - mean) / sqrt(variance + epsilon) + bias) + beta * y with the mean and biased
    variance of x.

    running' = (1 - exponentialAverageFactor) * running + exponentialAverageFactor * (the mean, or the unbiased
    variance).
    savedMean and savedInvVariance are the mean and 1 / sqrt(variance + epsilon).
    running and saved are None if the call has none.
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
    """Describe a call of cudnnBatchNormalizationForwardTraining (4.1.4)."""

    parameters: ClassVar = {
        "bnScaleBiasMeanVarDesc": "scaleBias", "bnScale": "scale", "bnBias": "bias", "resultRunningMean": "runningMean",
        "resultRunningVariance": "runningVariance", "resultSaveMean": "savedMean", "resultSaveInvVariance": "savedInvVariance",
    }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class FusedTraining(NormalizationTraining):
    """Define training with an optional activation and an optional addition of z before it; both are None if absent.

    With z, the reserve space stores which elements the activation passes.
    """

    workspace_bytes: int
    reserve_bytes: int

    outputs: ClassVar[tuple[str, ...]] = (*NormalizationTraining.outputs, "reserveSpace")
    raw: ClassVar = {"workspace": "workspace_bytes", "reserveSpace": "reserve_bytes"}


SIZES = {"workSpaceSizeInBytes": "workspace_bytes", "reserveSpaceSizeInBytes": "reserve_bytes"}


@record
class BatchNormalizationForwardTrainingEx(FusedTraining):
    """Describe a call of cudnnBatchNormalizationForwardTrainingEx (4.1.5)."""

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
    """Describe a call of cudnnNormalizationForwardTraining (4.1.16)."""

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
    """Compute the gradients of x, scale and bias. A statistic covers m elements, and n = (x - mean) * inverse.

    dBias = sum of dy, dScale = sum of dy * n, dx = scale * inverse * (dy - (dBias + n * dScale) / m), each blended.
    mean and inverse are the saved ones, or they are computed from x if saved is None.
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
        """Return the bias if an activation follows, because its argument is computed again; else None."""
        return None if self.activation is None else self.scaleBias

    @property
    def dScale(self) -> TensorSpec:
        return self.scaleBias

    dBias = dScale


@record
class BatchNormalizationBackward(NormalizationGradient):
    """Describe a call of cudnnBatchNormalizationBackward (4.1.2)."""

    parameters: ClassVar = {
        "bnScaleBiasDiffDesc": "scaleBias", "bnScale": "scale", "resultBnScaleDiff": "dScale", "resultBnBiasDiff": "dBias",
    }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class FusedGradient(NormalizationGradient):
    """Define the gradient of training with an optional activation and an optional addition of z before it; dz is None
    without z.

    dz is dy where the activation passed its argument, else 0. That argument is computed again or, with z, read from the
    reserve space. The output y of the forward call is not needed.
    """

    workspace_bytes: int
    reserve_bytes: int

    inputs: ClassVar[tuple[str, ...]] = (*NormalizationGradient.inputs, "y", "reserveSpace")
    optional: ClassVar[tuple[str, ...]] = (*NormalizationGradient.optional, "y")
    raw: ClassVar = {"workspace": "workspace_bytes", "reserveSpace": "reserve_bytes"}


@record
class BatchNormalizationBackwardEx(FusedGradient):
    """Describe a call of cudnnBatchNormalizationBackwardEx (4.1.3)."""

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
    """Describe a call of cudnnNormalizationBackward (4.1.15)."""

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
