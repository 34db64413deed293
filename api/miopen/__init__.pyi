"""The calls of the MIOpen Porting Guide, with its enumerators.

Made by ``make stubs`` from the function table and the enumerations; not to be edited.
"""

from enum import IntEnum
from typing import Any, Final, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

from .enumerations import (
    miopenActivationMode_t as miopenActivationMode_t,
    miopenBatchNormMode_t as miopenBatchNormMode_t,
    miopenConvBwdDataAlgorithm_t as miopenConvBwdDataAlgorithm_t,
    miopenConvBwdWeightsAlgorithm_t as miopenConvBwdWeightsAlgorithm_t,
    miopenConvFwdAlgorithm_t as miopenConvFwdAlgorithm_t,
    miopenConvolutionMode_t as miopenConvolutionMode_t,
    miopenDataType_t as miopenDataType_t,
    miopenLRNMode_t as miopenLRNMode_t,
    miopenPoolingMode_t as miopenPoolingMode_t,
    miopenStatus_t as miopenStatus_t,
    miopenTensorOp_t as miopenTensorOp_t,
)
from .objects import (
    ActivationDescriptor as ActivationDescriptor,
    ConvolutionDescriptor as ConvolutionDescriptor,
    LRNDescriptor as LRNDescriptor,
    PoolingDescriptor as PoolingDescriptor,
    TensorDescriptor as TensorDescriptor,
)
from .objects import MiopenHandle as MiopenHandle
from .status import MiopenError as MiopenError

# A buffer of the handle, an array, an object with __cuda_array_interface__ or DLPack, an address.
Memory: TypeAlias = object

def miopenCreate(*, backend: str | None = None, device: str | None = None) -> MiopenHandle:
    """Return a handle; backend and device as for cudnnCreate. Errors: NotInitialized without a usable GPU. Source: row 1."""

class miopenConvAlgoPerf_t(NamedTuple):
    """Hold one result of Find; the three names of the algorithm are members of a union in C."""

    algorithm: IntEnum
    time: float
    memory: int
    @property
    def fwd_algo(self) -> miopenConvFwdAlgorithm_t: ...
    @property
    def bwd_data_algo(self) -> miopenConvBwdDataAlgorithm_t: ...
    @property
    def bwd_weights_algo(self) -> miopenConvBwdWeightsAlgorithm_t: ...

def miopenDestroy(handle: MiopenHandle) -> None:
    """Wait for the handle's work, then release the handle and its results of Find.

    Errors: BadParm for NULL. Source: row 2.
    """

def miopenSetStream(handle: MiopenHandle, streamID: Any) -> None:
    """Launch the handle's later work on this stream. Errors: BadParm for a value that is not a stream. Source: row 3."""

def miopenGetStream(handle: MiopenHandle) -> Any:
    """Return the stream that was set, or None. Source: row 4."""

def miopenCreateTensorDescriptor() -> TensorDescriptor:
    """Return a new descriptor of a tensor or a filter, to be filled by miopenSet4dTensorDescriptor. Source: rows 5 and 13."""

def miopenSet4dTensorDescriptor(
    tensorDesc: TensorDescriptor,
    dataType: miopenDataType_t,
    n: SupportsIndex,
    c: SupportsIndex,
    h: SupportsIndex,
    w: SupportsIndex,
) -> None:
    """Describe a packed NCHW tensor of float (or a filter: n is its number of output channels).

    Errors: UnsupportedOp for another data type than miopenFloat (miopenGuide/c03); BadParm for sizes below 1 or of more
    than 2 Gi elements. Source: row 6.
    """

class _miopenGet4dTensorDescriptor(NamedTuple):
    dataType: miopenDataType_t
    n: int
    c: int
    h: int
    w: int
    nStride: int
    cStride: int
    hStride: int
    wStride: int

def miopenGet4dTensorDescriptor(tensorDesc: TensorDescriptor) -> _miopenGet4dTensorDescriptor:
    """Return (dataType, n, c, h, w, nStride, cStride, hStride, wStride). Source: row 7."""

def miopenDestroyTensorDescriptor(tensorDesc: TensorDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 8."""

def miopenOpTensor(
    handle: MiopenHandle,
    tensorOp: miopenTensorOp_t,
    alpha1: Any,
    aDesc: TensorDescriptor,
    A: Memory,
    alpha2: Any,
    bDesc: TensorDescriptor,
    B: Memory,
    beta: Any,
    cDesc: TensorDescriptor,
    C: Memory,
) -> None:
    """Compute C = op(alpha1 * A, alpha2 * B) + beta * C; only B is broadcast along its dimensions of extent 1.

    tensorOp: addition, multiplication, minimum, maximum. In place (A is C) when the descriptors are equal.
    Errors: BadParm for dimensions of A other than C's (c02) or of B that are neither C's nor 1. Source: rows 9 and 10.
    """

def miopenSetTensor(handle: MiopenHandle, yDesc: TensorDescriptor, y: Memory, alpha: Any) -> None:
    """Set every element of y to alpha. Source: row 11."""

def miopenScaleTensor(handle: MiopenHandle, yDesc: TensorDescriptor, y: Memory, alpha: Any) -> None:
    """Compute y = alpha * y in place. Source: row 12."""

def miopenCreateConvolutionDescriptor() -> ConvolutionDescriptor:
    """Return a new convolution descriptor, to be filled by miopenInitConvolutionDescriptor. Source: row 14."""

def miopenInitConvolutionDescriptor(
    convDesc: ConvolutionDescriptor,
    mode: miopenConvolutionMode_t,
    pad_h: SupportsIndex,
    pad_w: SupportsIndex,
    u: SupportsIndex,
    v: SupportsIndex,
    upscalex: SupportsIndex,
    upscaley: SupportsIndex,
) -> None:
    """Describe a 2-D cross-correlation: zero padding, strides u and v, dilations upscalex (of h) and upscaley (of w).

    Errors: NotImplemented for miopenTranspose (c02); BadParm for negative padding, strides or dilations below 1.
    Source: row 15; the names: docs/errata.md, M002.
    """

class _miopenGetConvolutionDescriptor(NamedTuple):
    mode: miopenConvolutionMode_t
    pad_h: int
    pad_y: int
    u: int
    v: int
    upscalex: int
    upscaley: int

def miopenGetConvolutionDescriptor(convDesc: ConvolutionDescriptor) -> _miopenGetConvolutionDescriptor:
    """Return (mode, pad_h, pad_y, u, v, upscalex, upscaley) as they were set. Source: row 16."""

class _miopenGetConvolutionForwardOutputDim(NamedTuple):
    n: int
    c: int
    h: int
    w: int

def miopenGetConvolutionForwardOutputDim(
    convDesc: ConvolutionDescriptor,
    inputTensorDesc: TensorDescriptor,
    filterDesc: TensorDescriptor,
) -> _miopenGetConvolutionForwardOutputDim:
    """Return (n, c, h, w) of the result. Errors: BadParm for channels that differ. Source: row 17."""

def miopenDestroyConvolutionDescriptor(convDesc: ConvolutionDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 18."""

class _miopenFindConvolutionForwardAlgorithm(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[miopenConvAlgoPerf_t, ...]

def miopenFindConvolutionForwardAlgorithm(
    handle: MiopenHandle,
    xDesc: TensorDescriptor,
    x: Memory,
    wDesc: TensorDescriptor,
    w: Memory,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
    y: Memory,
    requestAlgoCount: SupportsIndex,
    workSpace: Memory,
    workSpaceSize: SupportsIndex,
    exhaustiveSearch: bool,
) -> _miopenFindConvolutionForwardAlgorithm:
    """Return (returnedAlgoCount, perfResults), ordered by speed; the kernels run, so y is overwritten.

    Algorithms that need more workspace than given are omitted.
    Errors: BadParm for requestAlgoCount below 1 or without miopenConvolutionForwardGetWorkSpaceSize before (c02).
    Source: row 19.
    """

def miopenConvolutionForwardGetWorkSpaceSize(
    handle: MiopenHandle,
    wDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
) -> int:
    """Return the bytes of workspace for Find and the convolution with any algorithm; w comes first. Source: row 20."""

def miopenConvolutionForward(
    handle: MiopenHandle,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    wDesc: TensorDescriptor,
    w: Memory,
    convDesc: ConvolutionDescriptor,
    algo: miopenConvFwdAlgorithm_t,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Memory,
    workSpace: Memory,
    workSpaceSize: SupportsIndex,
) -> None:
    """Compute y = x convolved with w. Errors: UnknownError without Find before (miopenGuide/c05); BadParm for an algorithm that Find
    did not return (c02) or less workspace than it needs (c04); NotImplemented unless alpha is 1 and beta 0 (c03).
    Source: row 21.
    """

def miopenConvolutionBackwardBias(
    handle: MiopenHandle,
    alpha: Any,
    dyDesc: TensorDescriptor,
    dy: Memory,
    beta: Any,
    dbDesc: TensorDescriptor,
    db: Memory,
) -> None:
    """Compute db = sums of dy over images and positions. Errors: NotImplemented unless alpha is 1, beta 0 (c02). Source: row 22."""

class _miopenFindConvolutionBackwardWeightsAlgorithm(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[miopenConvAlgoPerf_t, ...]

def miopenFindConvolutionBackwardWeightsAlgorithm(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    convDesc: ConvolutionDescriptor,
    dwDesc: TensorDescriptor,
    dw: Memory,
    requestAlgoCount: SupportsIndex,
    workSpace: Memory,
    workSpaceSize: SupportsIndex,
    exhaustiveSearch: bool,
) -> _miopenFindConvolutionBackwardWeightsAlgorithm:
    """Do the same as miopenFindConvolutionForwardAlgorithm; dw is overwritten. Source: row 23."""

def miopenConvolutionBackwardWeightsGetWorkSpaceSize(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dwDesc: TensorDescriptor,
) -> int:
    """Return the bytes of workspace for Find and the gradient of the filter; dy comes first. Source: row 24."""

def miopenConvolutionBackwardWeights(
    handle: MiopenHandle,
    alpha: Any,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    convDesc: ConvolutionDescriptor,
    algo: miopenConvBwdWeightsAlgorithm_t,
    beta: Any,
    dwDesc: TensorDescriptor,
    dw: Memory,
    workSpace: Memory,
    workSpaceSize: SupportsIndex,
) -> None:
    """Compute dw = the gradient of the filter; errors as miopenConvolutionForward. dy comes before x. Source: row 25."""

def miopenConvolutionBackwardDataGetWorkSpaceSize(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    wDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
) -> int:
    """Return the bytes of workspace for Find and the gradient of the input; dy comes first. Source: row 26."""

class _miopenFindConvolutionBackwardDataAlgorithm(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[miopenConvAlgoPerf_t, ...]

def miopenFindConvolutionBackwardDataAlgorithm(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    dy: Memory,
    wDesc: TensorDescriptor,
    w: Memory,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
    dx: Memory,
    requestAlgoCount: SupportsIndex,
    workSpace: Memory,
    workSpaceSize: SupportsIndex,
    exhaustiveSearch: bool,
) -> _miopenFindConvolutionBackwardDataAlgorithm:
    """Do the same as miopenFindConvolutionForwardAlgorithm; dx is overwritten (docs/errata.md, M003). Source: row 27."""

def miopenConvolutionBackwardData(
    handle: MiopenHandle,
    alpha: Any,
    dyDesc: TensorDescriptor,
    dy: Memory,
    wDesc: TensorDescriptor,
    w: Memory,
    convDesc: ConvolutionDescriptor,
    algo: miopenConvBwdDataAlgorithm_t,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Memory,
    workSpace: Memory,
    workSpaceSize: SupportsIndex,
) -> None:
    """Compute dx = the gradient of the input; errors as miopenConvolutionForward. dy comes before w. Source: row 28."""

def miopenSoftmaxForward(
    handle: MiopenHandle,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = softmax(x) over C. Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for differing
    dimensions. Source: row 29; docs/errata.md, M004.
    """

def miopenSoftmaxBackward(
    handle: MiopenHandle,
    alpha: Any,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Memory,
) -> None:
    """Compute dx = y * (dy - sum(y * dy)) over C. Errors: as miopenSoftmaxForward (c02). Source: row 30."""

def miopenCreatePoolingDescriptor() -> PoolingDescriptor:
    """Return a new pooling descriptor, to be filled by miopenSet2dPoolingDescriptor. Source: row 31."""

def miopenSet2dPoolingDescriptor(
    poolDesc: PoolingDescriptor,
    mode: miopenPoolingMode_t,
    windowHeight: SupportsIndex,
    windowWidth: SupportsIndex,
    pad_h: SupportsIndex,
    pad_w: SupportsIndex,
    u: SupportsIndex,
    v: SupportsIndex,
) -> None:
    """Describe a pooling of images: mode, window, padding, strides u (vertical) and v.

    Errors: BadParm for windows or strides below 1, for negative padding (c02). Source: row 32.
    """

class _miopenGet2dPoolingDescriptor(NamedTuple):
    mode: miopenPoolingMode_t
    windowHeight: int
    windowWidth: int
    pad_h: int
    pad_w: int
    u: int
    v: int

def miopenGet2dPoolingDescriptor(poolDesc: PoolingDescriptor) -> _miopenGet2dPoolingDescriptor:
    """Return (mode, windowHeight, windowWidth, pad_h, pad_w, u, v) as they were set. Source: row 33."""

class _miopenGetPoolingForwardOutputDim(NamedTuple):
    n: int
    c: int
    h: int
    w: int

def miopenGetPoolingForwardOutputDim(
    poolDesc: PoolingDescriptor,
    tensorDesc: TensorDescriptor,
) -> _miopenGetPoolingForwardOutputDim:
    """Return (n, c, h, w) of the pooled tensor. Source: row 34."""

def miopenDestroyPoolingDescriptor(poolDesc: PoolingDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 35."""

def miopenPoolingForward(
    handle: MiopenHandle,
    poolDesc: PoolingDescriptor,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Memory,
    do_backward: bool,
    workSpace: Memory,
    workSpaceSize: SupportsIndex,
) -> None:
    """Compute y = pool(x); with do_backward the workspace keeps the positions of the maxima for miopenPoolingBackward.

    The position of a window's maximum is one byte, counted along the window's rows; averages store nothing
    (docs/errata.md, M010).
    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); for maxima with do_backward BadParm for less workspace
    than miopenPoolingGetWorkSpaceSize says (c03) or a window whose places one byte cannot tell (c04).
    Source: row 36.
    """

def miopenPoolingGetWorkSpaceSize(yDesc: TensorDescriptor) -> int:
    """Return the bytes of workspace of a pooling with this output: one per element. Source: row 37."""

def miopenPoolingBackward(
    handle: MiopenHandle,
    poolDesc: PoolingDescriptor,
    alpha: Any,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Memory,
    workspace: Memory,
) -> None:
    """Compute dx = the gradient of pooling; for maxima it uses the positions in the workspace, whatever x and y
    contain.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); for maxima BadParm for a workspace without the places that
    miopenPoolingForward stored for these descriptors (c03). Source: row 38.
    """

def miopenCreateActivationDescriptor() -> ActivationDescriptor:
    """Return a new activation descriptor, to be filled by miopenSetActivationDescriptor. Source: row 39."""

def miopenSetActivationDescriptor(
    activDesc: ActivationDescriptor,
    mode: miopenActivationMode_t,
    activAlpha: SupportsFloat,
    activBeta: SupportsFloat,
    activPower: SupportsFloat,
) -> None:
    """Set the function and its attributes.

    TANH is activBeta * tanh(activAlpha * x), CLIPPEDRELU is limited by activAlpha, ELU is activAlpha * (exp(x) - 1)
    below zero. The other functions ignore the attributes.
    Errors: NotImplemented for modes that no operation of cuDNN computes (c02). Source: row 40; docs/errata.md, M006.
    """

class _miopenGetActivationDescriptor(NamedTuple):
    mode: miopenActivationMode_t
    activAlpha: float
    activBeta: float
    activPower: float

def miopenGetActivationDescriptor(activDesc: ActivationDescriptor) -> _miopenGetActivationDescriptor:
    """Return (mode, activAlpha, activBeta, activPower) as they were set. Source: row 41."""

def miopenDestroyActivationDescriptor(activDesc: ActivationDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 42."""

def miopenActivationForward(
    handle: MiopenHandle,
    activDesc: ActivationDescriptor,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = f(x), element by element; in place if the descriptors are equal.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for differing dimensions. Source: row 43.
    """

def miopenActivationBackward(
    handle: MiopenHandle,
    activDesc: ActivationDescriptor,
    alpha: Any,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Memory,
) -> None:
    """Compute dx = f'(x) * dy, element by element.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for differing dimensions. Source: row 44.
    """

def miopenCreateLRNDescriptor() -> LRNDescriptor:
    """Return a new descriptor, to be filled by miopenSetLRNDescriptor. Source: row 45."""

def miopenSetLRNDescriptor(
    lrnDesc: LRNDescriptor,
    mode: miopenLRNMode_t,
    lrnN: SupportsIndex,
    lrnAlpha: SupportsFloat,
    lrnBeta: SupportsFloat,
    lrnK: SupportsFloat,
) -> None:
    """Set window and parameters. Errors: NotImplemented for miopenLRNWithinChannel (c02); BadParm for an even window
    (c03) and for values that cudnnSetLRNDescriptor refuses. Source: row 46.
    """

class _miopenGetLRNDescriptor(NamedTuple):
    mode: miopenLRNMode_t
    lrnN: int
    lrnAlpha: float
    lrnBeta: float
    lrnK: float

def miopenGetLRNDescriptor(lrnDesc: LRNDescriptor) -> _miopenGetLRNDescriptor:
    """Return (mode, lrnN, lrnAlpha, lrnBeta, lrnK) as they were set. Source: row 47."""

def miopenDestroyLRNDescriptor(lrnDesc: LRNDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 48."""

def miopenLRNForward(
    handle: MiopenHandle,
    lrnDesc: LRNDescriptor,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Memory,
    do_backward: bool,
    workspace: Memory,
) -> None:
    """Compute y = LRN(x); with do_backward the workspace keeps the scales for miopenLRNBackward (docs/errata.md, M011).

    Errors: NotImplemented unless alpha is 1 and beta 0, which the library does not read (c02); BadParm for do_backward
    without workspace (c03). Source: row 49.
    """

def miopenLRNBackward(
    handle: MiopenHandle,
    lrnDesc: LRNDescriptor,
    alpha: Any,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Memory,
    workspace: Memory,
) -> None:
    """Compute dx = the gradient of LRN, from y, dy, x and the workspace that miopenLRNForward filled.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for a workspace without the scales that
    miopenLRNForward stored for these descriptors (c03). Source: row 50.
    """

def miopenLRNGetWorkSpaceSize(yDesc: TensorDescriptor) -> int:
    """Return the bytes of workspace of a normalisation with this output: the bytes of the output. Source: row 51."""

def miopenDeriveBNTensorDescriptor(
    derivedBnDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    bn_mode: miopenBatchNormMode_t,
) -> None:
    """Describe scale, bias, mean and variance of x: 1 x C x 1 x 1 (spatial) or 1 x C x H x W. Source: row 52."""

def miopenBatchNormalizationForwardTraining(
    handle: MiopenHandle,
    bn_mode: miopenBatchNormMode_t,
    alpha: Any,
    beta: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    yDesc: TensorDescriptor,
    y: Memory,
    bnScaleBiasMeanVarDesc: TensorDescriptor,
    bnScale: Memory,
    bnBias: Memory,
    expAvgFactor: SupportsFloat,
    resultRunningMean: Memory,
    resultRunningVariance: Memory,
    epsilon: SupportsFloat,
    resultSaveMean: Memory,
    resultSaveInvVariance: Memory,
) -> None:
    """Compute y = scale * (x - mean) / sqrt(variance + epsilon) + bias with the statistics of this batch, and update
    the running statistics.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02). Source: row 53.
    """

def miopenBatchNormalizationForwardInference(
    handle: MiopenHandle,
    bn_mode: miopenBatchNormMode_t,
    alpha: Any,
    beta: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    yDesc: TensorDescriptor,
    y: Memory,
    bnScaleBiasMeanVarDesc: TensorDescriptor,
    bnScale: Memory,
    bnBias: Memory,
    estimatedMean: Memory,
    estimatedVariance: Memory,
    epsilon: SupportsFloat,
) -> None:
    """Compute y = scale * (x - mean) / sqrt(variance + epsilon) + bias with the given statistics.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02). Source: row 54.
    """

def miopenBatchNormalizationBackward(
    handle: MiopenHandle,
    bn_mode: miopenBatchNormMode_t,
    alphaDataDiff: Any,
    betaDataDiff: Any,
    alphaParamDiff: Any,
    betaParamDiff: Any,
    xDesc: TensorDescriptor,
    x: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    dxDesc: TensorDescriptor,
    dx: Memory,
    bnScaleBiasDiffDesc: TensorDescriptor,
    bnScale: Memory,
    resultBnScaleDiff: Memory,
    resultBnBiasDiff: Memory,
    epsilon: SupportsFloat,
    savedMean: Memory,
    savedInvVariance: Memory,
) -> None:
    """Compute the gradients of x, scale and bias. Errors: NotImplemented unless both alphas are 1 and both betas 0 (c02).
    Source: row 55.
    """

miopenStatusSuccess: Final = miopenStatus_t.miopenStatusSuccess
miopenStatusNotInitialized: Final = miopenStatus_t.miopenStatusNotInitialized
miopenStatusInvalidValue: Final = miopenStatus_t.miopenStatusInvalidValue
miopenStatusBadParm: Final = miopenStatus_t.miopenStatusBadParm
miopenStatusAllocFailed: Final = miopenStatus_t.miopenStatusAllocFailed
miopenStatusInternalError: Final = miopenStatus_t.miopenStatusInternalError
miopenStatusNotImplemented: Final = miopenStatus_t.miopenStatusNotImplemented
miopenStatusUnknownError: Final = miopenStatus_t.miopenStatusUnknownError
miopenStatusUnsupportedOp: Final = miopenStatus_t.miopenStatusUnsupportedOp
miopenStatusGpuOperationsSkipped: Final = miopenStatus_t.miopenStatusGpuOperationsSkipped
miopenStatusVersionMismatch: Final = miopenStatus_t.miopenStatusVersionMismatch
miopenHalf: Final = miopenDataType_t.miopenHalf
miopenFloat: Final = miopenDataType_t.miopenFloat
miopenInt32: Final = miopenDataType_t.miopenInt32
miopenInt8: Final = miopenDataType_t.miopenInt8
miopenBFloat16: Final = miopenDataType_t.miopenBFloat16
miopenDouble: Final = miopenDataType_t.miopenDouble
miopenTensorOpAdd: Final = miopenTensorOp_t.miopenTensorOpAdd
miopenTensorOpMul: Final = miopenTensorOp_t.miopenTensorOpMul
miopenTensorOpMin: Final = miopenTensorOp_t.miopenTensorOpMin
miopenTensorOpMax: Final = miopenTensorOp_t.miopenTensorOpMax
miopenConvolution: Final = miopenConvolutionMode_t.miopenConvolution
miopenTranspose: Final = miopenConvolutionMode_t.miopenTranspose
miopenConvolutionFwdAlgoGEMM: Final = miopenConvFwdAlgorithm_t.miopenConvolutionFwdAlgoGEMM
miopenConvolutionFwdAlgoDirect: Final = miopenConvFwdAlgorithm_t.miopenConvolutionFwdAlgoDirect
miopenConvolutionFwdAlgoFFT: Final = miopenConvFwdAlgorithm_t.miopenConvolutionFwdAlgoFFT
miopenConvolutionFwdAlgoWinograd: Final = miopenConvFwdAlgorithm_t.miopenConvolutionFwdAlgoWinograd
miopenConvolutionFwdAlgoImplicitGEMM: Final = miopenConvFwdAlgorithm_t.miopenConvolutionFwdAlgoImplicitGEMM
miopenConvolutionBwdDataAlgoGEMM: Final = miopenConvBwdDataAlgorithm_t.miopenConvolutionBwdDataAlgoGEMM
miopenConvolutionBwdDataAlgoDirect: Final = miopenConvBwdDataAlgorithm_t.miopenConvolutionBwdDataAlgoDirect
miopenConvolutionBwdDataAlgoFFT: Final = miopenConvBwdDataAlgorithm_t.miopenConvolutionBwdDataAlgoFFT
miopenConvolutionBwdDataAlgoWinograd: Final = miopenConvBwdDataAlgorithm_t.miopenConvolutionBwdDataAlgoWinograd
miopenConvolutionBwdDataAlgoImplicitGEMM: Final = miopenConvBwdDataAlgorithm_t.miopenConvolutionBwdDataAlgoImplicitGEMM
miopenConvolutionBwdWeightsAlgoGEMM: Final = miopenConvBwdWeightsAlgorithm_t.miopenConvolutionBwdWeightsAlgoGEMM
miopenConvolutionBwdWeightsAlgoDirect: Final = miopenConvBwdWeightsAlgorithm_t.miopenConvolutionBwdWeightsAlgoDirect
miopenConvolutionBwdWeightsAlgoWinograd: Final = miopenConvBwdWeightsAlgorithm_t.miopenConvolutionBwdWeightsAlgoWinograd
miopenConvolutionBwdWeightsAlgoImplicitGEMM: Final = (
    miopenConvBwdWeightsAlgorithm_t.miopenConvolutionBwdWeightsAlgoImplicitGEMM
)
miopenPoolingMax: Final = miopenPoolingMode_t.miopenPoolingMax
miopenPoolingAverage: Final = miopenPoolingMode_t.miopenPoolingAverage
miopenPoolingAverageInclusive: Final = miopenPoolingMode_t.miopenPoolingAverageInclusive
miopenActivationPASTHRU: Final = miopenActivationMode_t.miopenActivationPASTHRU
miopenActivationLOGISTIC: Final = miopenActivationMode_t.miopenActivationLOGISTIC
miopenActivationTANH: Final = miopenActivationMode_t.miopenActivationTANH
miopenActivationRELU: Final = miopenActivationMode_t.miopenActivationRELU
miopenActivationSOFTRELU: Final = miopenActivationMode_t.miopenActivationSOFTRELU
miopenActivationABS: Final = miopenActivationMode_t.miopenActivationABS
miopenActivationPOWER: Final = miopenActivationMode_t.miopenActivationPOWER
miopenActivationCLIPPEDRELU: Final = miopenActivationMode_t.miopenActivationCLIPPEDRELU
miopenActivationLEAKYRELU: Final = miopenActivationMode_t.miopenActivationLEAKYRELU
miopenActivationELU: Final = miopenActivationMode_t.miopenActivationELU
miopenLRNWithinChannel: Final = miopenLRNMode_t.miopenLRNWithinChannel
miopenLRNCrossChannel: Final = miopenLRNMode_t.miopenLRNCrossChannel
miopenBNPerActivation: Final = miopenBatchNormMode_t.miopenBNPerActivation
miopenBNSpatial: Final = miopenBatchNormMode_t.miopenBNSpatial
