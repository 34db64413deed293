"""Define the enumeration types that the porting guide names, with the values of the public header (docs/errata.md,
M001)."""

from __future__ import annotations

from enum import IntEnum


class miopenStatus_t(IntEnum):
    """List the results of calls."""

    miopenStatusSuccess = 0
    miopenStatusNotInitialized = 1
    miopenStatusInvalidValue = 2
    miopenStatusBadParm = 3
    miopenStatusAllocFailed = 4
    miopenStatusInternalError = 5
    miopenStatusNotImplemented = 6
    miopenStatusUnknownError = 7
    miopenStatusUnsupportedOp = 8
    miopenStatusGpuOperationsSkipped = 9
    miopenStatusVersionMismatch = 10


class miopenDataType_t(IntEnum):
    """List the data types; the guide uses miopenFloat, and the others are refused."""

    miopenHalf = 0
    miopenFloat = 1
    miopenInt32 = 2
    miopenInt8 = 3
    miopenBFloat16 = 5
    miopenDouble = 6


class miopenTensorOp_t(IntEnum):
    """List the operations of miopenOpTensor (rows 9 and 10)."""

    miopenTensorOpAdd = 0
    miopenTensorOpMul = 1
    miopenTensorOpMin = 2
    miopenTensorOpMax = 3


class miopenConvolutionMode_t(IntEnum):
    """List the modes of a convolution (row 15); miopenConvolution is a cross-correlation."""

    miopenConvolution = 0
    miopenTranspose = 1


class miopenConvFwdAlgorithm_t(IntEnum):
    """List the algorithms of miopenConvolutionForward (row 21)."""

    miopenConvolutionFwdAlgoGEMM = 0
    miopenConvolutionFwdAlgoDirect = 1
    miopenConvolutionFwdAlgoFFT = 2
    miopenConvolutionFwdAlgoWinograd = 3
    miopenConvolutionFwdAlgoImplicitGEMM = 5


class miopenConvBwdDataAlgorithm_t(IntEnum):
    """List the algorithms of miopenConvolutionBackwardData (row 28)."""

    miopenConvolutionBwdDataAlgoGEMM = 0
    miopenConvolutionBwdDataAlgoDirect = 1
    miopenConvolutionBwdDataAlgoFFT = 2
    miopenConvolutionBwdDataAlgoWinograd = 3
    miopenConvolutionBwdDataAlgoImplicitGEMM = 5


class miopenConvBwdWeightsAlgorithm_t(IntEnum):
    """List the algorithms of miopenConvolutionBackwardWeights (row 25)."""

    miopenConvolutionBwdWeightsAlgoGEMM = 0
    miopenConvolutionBwdWeightsAlgoDirect = 1
    miopenConvolutionBwdWeightsAlgoWinograd = 3
    miopenConvolutionBwdWeightsAlgoImplicitGEMM = 5


class miopenPoolingMode_t(IntEnum):
    """List the modes of pooling (row 32); miopenPoolingAverage excludes the padding."""

    miopenPoolingMax = 0
    miopenPoolingAverage = 1
    miopenPoolingAverageInclusive = 2


class miopenActivationMode_t(IntEnum):
    """List the activation functions (row 40)."""

    miopenActivationPASTHRU = 0
    miopenActivationLOGISTIC = 1
    miopenActivationTANH = 2
    miopenActivationRELU = 3
    miopenActivationSOFTRELU = 4
    miopenActivationABS = 5
    miopenActivationPOWER = 6
    miopenActivationCLIPPEDRELU = 7
    miopenActivationLEAKYRELU = 8
    miopenActivationELU = 9


class miopenLRNMode_t(IntEnum):
    """List the modes of local response normalisation (row 46)."""

    miopenLRNWithinChannel = 0
    miopenLRNCrossChannel = 1


class miopenBatchNormMode_t(IntEnum):
    """List the modes of batch normalisation (row 52)."""

    miopenBNPerActivation = 0
    miopenBNSpatial = 1


ENUMERATIONS: dict[str, type[IntEnum]] = {
    kind.__name__: kind for kind in IntEnum.__subclasses__() if kind.__module__ == __name__
}
