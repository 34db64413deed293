"""The documented calls of the cuDNN 8.0.3 API Reference, with all enumerators.

Made by ``make stubs`` from the function table and the enumerations; not to be edited.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias

from ..api_log import cudnnDebug_t
from ..descriptors import (
    ActivationDescriptor as ActivationDescriptor,
    AlgorithmDescriptor as AlgorithmDescriptor,
    AlgorithmPerformance as AlgorithmPerformance,
    AttnDescriptor as AttnDescriptor,
    BackendDescriptor as BackendDescriptor,
    CTCLossDescriptor as CTCLossDescriptor,
    ConvolutionDescriptor as ConvolutionDescriptor,
    DropoutDescriptor as DropoutDescriptor,
    FilterDescriptor as FilterDescriptor,
    FusedOpsConstParamPack as FusedOpsConstParamPack,
    FusedOpsPlan as FusedOpsPlan,
    FusedOpsVariantParamPack as FusedOpsVariantParamPack,
    LRNDescriptor as LRNDescriptor,
    OpTensorDescriptor as OpTensorDescriptor,
    PersistentRNNPlan as PersistentRNNPlan,
    PoolingDescriptor as PoolingDescriptor,
    RNNDataDescriptor as RNNDataDescriptor,
    RNNDescriptor as RNNDescriptor,
    ReduceTensorDescriptor as ReduceTensorDescriptor,
    SeqDataDescriptor as SeqDataDescriptor,
    SpatialTransformerDescriptor as SpatialTransformerDescriptor,
    TensorDescriptor as TensorDescriptor,
    TensorTransformDescriptor as TensorTransformDescriptor,
)
from ..enumerations import (
    CUDNN_ATTN_DISABLE_PROJ_BIASES as CUDNN_ATTN_DISABLE_PROJ_BIASES,
    CUDNN_ATTN_ENABLE_PROJ_BIASES as CUDNN_ATTN_ENABLE_PROJ_BIASES,
    CUDNN_ATTN_QUERYMAP_ALL_TO_ONE as CUDNN_ATTN_QUERYMAP_ALL_TO_ONE,
    CUDNN_ATTN_QUERYMAP_ONE_TO_ONE as CUDNN_ATTN_QUERYMAP_ONE_TO_ONE,
    CUDNN_ATTN_WKIND_COUNT as CUDNN_ATTN_WKIND_COUNT,
    CUDNN_BN_MIN_EPSILON as CUDNN_BN_MIN_EPSILON,
    CUDNN_DIM_MAX as CUDNN_DIM_MAX,
    CUDNN_LRN_MAX_N as CUDNN_LRN_MAX_N,
    CUDNN_LRN_MIN_BETA as CUDNN_LRN_MIN_BETA,
    CUDNN_LRN_MIN_K as CUDNN_LRN_MIN_K,
    CUDNN_LRN_MIN_N as CUDNN_LRN_MIN_N,
    CUDNN_SEQDATA_DIM_COUNT as CUDNN_SEQDATA_DIM_COUNT,
    CUDNN_SEV_ERROR_EN as CUDNN_SEV_ERROR_EN,
    CUDNN_SEV_INFO_EN as CUDNN_SEV_INFO_EN,
    CUDNN_SEV_WARNING_EN as CUDNN_SEV_WARNING_EN,
    cudnnActivationMode_t as cudnnActivationMode_t,
    cudnnBackendAttributeName_t as cudnnBackendAttributeName_t,
    cudnnBackendAttributeType_t as cudnnBackendAttributeType_t,
    cudnnBackendDescriptorType_t as cudnnBackendDescriptorType_t,
    cudnnBackendHeurMode_t as cudnnBackendHeurMode_t,
    cudnnBackendKnobType_t as cudnnBackendKnobType_t,
    cudnnBackendLayoutType_t as cudnnBackendLayoutType_t,
    cudnnBackendNumericalNote_t as cudnnBackendNumericalNote_t,
    cudnnBatchNormMode_t as cudnnBatchNormMode_t,
    cudnnBatchNormOps_t as cudnnBatchNormOps_t,
    cudnnCTCLossAlgo_t as cudnnCTCLossAlgo_t,
    cudnnConvolutionBwdDataAlgo_t as cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t as cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t as cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t as cudnnConvolutionMode_t,
    cudnnDataType_t as cudnnDataType_t,
    cudnnDeterminism_t as cudnnDeterminism_t,
    cudnnDirectionMode_t as cudnnDirectionMode_t,
    cudnnDivNormMode_t as cudnnDivNormMode_t,
    cudnnErrQueryMode_t as cudnnErrQueryMode_t,
    cudnnFoldingDirection_t as cudnnFoldingDirection_t,
    cudnnForwardMode_t as cudnnForwardMode_t,
    cudnnFusedOpsConstParamLabel_t as cudnnFusedOpsConstParamLabel_t,
    cudnnFusedOpsPointerPlaceHolder_t as cudnnFusedOpsPointerPlaceHolder_t,
    cudnnFusedOpsVariantParamLabel_t as cudnnFusedOpsVariantParamLabel_t,
    cudnnFusedOps_t as cudnnFusedOps_t,
    cudnnGenStatsMode_t as cudnnGenStatsMode_t,
    cudnnIndicesType_t as cudnnIndicesType_t,
    cudnnLRNMode_t as cudnnLRNMode_t,
    cudnnLossNormalizationMode_t as cudnnLossNormalizationMode_t,
    cudnnMathType_t as cudnnMathType_t,
    cudnnMultiHeadAttnWeightKind_t as cudnnMultiHeadAttnWeightKind_t,
    cudnnNanPropagation_t as cudnnNanPropagation_t,
    cudnnNormAlgo_t as cudnnNormAlgo_t,
    cudnnNormMode_t as cudnnNormMode_t,
    cudnnNormOps_t as cudnnNormOps_t,
    cudnnOpTensorOp_t as cudnnOpTensorOp_t,
    cudnnPointwiseMode_t as cudnnPointwiseMode_t,
    cudnnPoolingMode_t as cudnnPoolingMode_t,
    cudnnRNNAlgo_t as cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t as cudnnRNNBiasMode_t,
    cudnnRNNClipMode_t as cudnnRNNClipMode_t,
    cudnnRNNDataLayout_t as cudnnRNNDataLayout_t,
    cudnnRNNInputMode_t as cudnnRNNInputMode_t,
    cudnnRNNMode_t as cudnnRNNMode_t,
    cudnnRNNPaddingMode_t as cudnnRNNPaddingMode_t,
    cudnnReduceTensorIndices_t as cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t as cudnnReduceTensorOp_t,
    cudnnReorderType_t as cudnnReorderType_t,
    cudnnSamplerType_t as cudnnSamplerType_t,
    cudnnSeqDataAxis_t as cudnnSeqDataAxis_t,
    cudnnSeverity_t as cudnnSeverity_t,
    cudnnSoftmaxAlgorithm_t as cudnnSoftmaxAlgorithm_t,
    cudnnSoftmaxMode_t as cudnnSoftmaxMode_t,
    cudnnStatus_t as cudnnStatus_t,
    cudnnTensorFormat_t as cudnnTensorFormat_t,
    cudnnWgradMode_t as cudnnWgradMode_t,
    libraryPropertyType as libraryPropertyType,
)
from ..handle import Handle
from ..status import CudnnError as CudnnError

# A buffer of the handle, an array, an object with __cuda_array_interface__ or DLPack, an address.
Memory: TypeAlias = object
Callback: TypeAlias = Callable[[cudnnSeverity_t, Any, cudnnDebug_t, str], None]
FUNCTIONS: dict[str, Callable[..., Any]]

def cudnnCreate(
    *,
    backend: str | None = None,
    device: str | None = None,
    as_release: str | None = None,
    reproducible: str | None = None,
) -> Handle:
    """Return a new handle.

    backend: "reference", "accelerated" or "crosscheck". It defaults to DUALDNN_BACKEND, then to accelerated if a GPU is
    usable, then to reference.
    device: "gpu" or "emulated", for the accelerated backend.
    as_release: "8.9.7" or "9.19", the NVIDIA release whose declared differences the handle emulates. It defaults to
    DUALDNN_AS, then to the document, which is "8.0.3".
    reproducible: "run", "batch", "device" or "release", the level at which results are the same bits
    (docs/reproducibility.md). It defaults to DUALDNN_REPRODUCIBLE, then to "run".
    Errors: NOT_INITIALIZED without a usable GPU (c12), BAD_PARAM for an unknown backend, device, release or level.
    Source: 3.2.5.
    """

class cudnnConvolutionBwdDataAlgoPerf_t(NamedTuple):
    """Hold one result of a search (5.1.2.1)."""

    algo: cudnnConvolutionBwdDataAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t
    mathType: cudnnMathType_t
    reserved: tuple[int, int, int]

class cudnnConvolutionBwdFilterAlgoPerf_t(NamedTuple):
    """Hold one result of a search (6.1.2.1)."""

    algo: cudnnConvolutionBwdFilterAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t
    mathType: cudnnMathType_t
    reserved: tuple[int, int, int]

class cudnnConvolutionFwdAlgoPerf_t(NamedTuple):
    """Hold one result of a search (5.1.2.2)."""

    algo: cudnnConvolutionFwdAlgo_t
    status: cudnnStatus_t
    time: float
    memory: int
    determinism: cudnnDeterminism_t
    mathType: cudnnMathType_t
    reserved: tuple[int, int, int]

def cudnnActivationForward(
    handle: Handle,
    activationDesc: ActivationDescriptor,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * f(x) + beta * y, element by element; beta == 0 does not read y.

    x, y: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16, INT8), any strides up to 5 dimensions,
    spatially packed beyond. In place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for a mode that only convolution takes (c13), differing dimensions (c14) or types (c15), in place
    with differing strides (c16); NOT_SUPPORTED for other types (c12) or unpacked tensors of more than 5 dimensions
    (c09).
    Source: 3.2.1.
    """

def cudnnAddTensor(
    handle: Handle,
    alpha: SupportsFloat,
    aDesc: TensorDescriptor,
    A: Memory,
    beta: SupportsFloat,
    cDesc: TensorDescriptor,
    C: Memory,
) -> None:
    """Compute C = alpha * A + beta * C; A is broadcast along its dimensions of extent 1; beta == 0 does not read C.

    A, C: up to 5 dimensions, every dimension of A that of C or 1, equal data types (FLOAT, DOUBLE, HALF, BFLOAT16,
    INT8, INT8x4), any strides. In place (A is C) if the descriptors are identical.
    Errors: BAD_PARAM for dimensions of A that do not fit C (c10) or differing types (c11); NOT_SUPPORTED for other
    types (c09) or more than 5 dimensions (c05). Source: 3.2.2.
    """

def cudnnBatchNormalizationForwardInference(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    alpha: SupportsFloat,
    beta: SupportsFloat,
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
    """Compute y = alpha * (bnScale * (x - estimatedMean) / sqrt(epsilon + estimatedVariance) + bnBias) + beta * y; beta == 0 does not read y.

    x, y: equal dimensions and data types (HALF, FLOAT, DOUBLE, INT8), 4 or 5 dimensions of any strides; in place if
    the descriptors are identical. bnScale, bnBias, estimatedMean, estimatedVariance: described by bnScaleBiasMeanVarDesc, which has the
    dimensions and data type of cudnnDeriveBNTensorDescriptor, and any strides. INT8 is rounded to the nearest even and saturates.
    Errors: BAD_PARAM for other numbers of dimensions (c23), of statistics (c24), epsilon below CUDNN_BN_MIN_EPSILON
    (c25), differing dimensions or data types (c26), NULL (c22); NOT_SUPPORTED for other data types (c21), an output
    whose strides overlap.
    Source: 3.2.3.
    """

def cudnnCopyAlgorithmDescriptor(src: AlgorithmDescriptor, dest: AlgorithmDescriptor) -> None:
    """Set dest to the algorithm of src. Errors: BAD_PARAM where src has none. Source: 3.2.4."""

def cudnnCreateActivationDescriptor() -> ActivationDescriptor:
    """Return a new activation descriptor, to be filled by cudnnSetActivationDescriptor.

    Source: 3.2.6, cudnnCreateActivationDescriptor/c01.
    """

def cudnnCreateAlgorithmDescriptor() -> AlgorithmDescriptor:
    """Return a new algorithm descriptor, to be filled by cudnnSetAlgorithmDescriptor. Source: 3.2.7."""

def cudnnCreateAlgorithmPerformance(numberToCreate: SupportsIndex) -> tuple[AlgorithmPerformance, ...]:
    """Return a tuple of ``numberToCreate`` new objects.

    Errors: BAD_PARAM for a negative number, ALLOC_FAILED beyond 2^20 (c03). Source: 3.2.8.
    """

def cudnnCreateDropoutDescriptor() -> DropoutDescriptor:
    """Return a new dropout descriptor, to be filled by cudnnSetDropoutDescriptor. Source: 3.2.9."""

def cudnnCreateFilterDescriptor() -> FilterDescriptor:
    """Return a new filter descriptor, to be filled by cudnnSetFilter4dDescriptor or cudnnSetFilterNdDescriptor. Source: 3.2.10."""

def cudnnCreateLRNDescriptor() -> LRNDescriptor:
    """Return a new LRN descriptor with the preset parameters: lrnN 5, lrnAlpha 1e-4, lrnBeta 0.75, lrnK 2.0.

    Source: 3.2.11, cudnnCreateLRNDescriptor/c01, c02; presets 3.2.83.
    """

def cudnnCreateOpTensorDescriptor() -> OpTensorDescriptor:
    """Return a new descriptor of tensor pointwise math, to be filled by cudnnSetOpTensorDescriptor.

    Source: 3.2.12, cudnnCreateOpTensorDescriptor/c01.
    """

def cudnnCreatePoolingDescriptor() -> PoolingDescriptor:
    """Return a new pooling descriptor, to be filled by one of the setters.

    Source: 3.2.13, cudnnCreatePoolingDescriptor/c01.
    """

def cudnnCreateReduceTensorDescriptor() -> ReduceTensorDescriptor:
    """Return a new descriptor of a reduction, to be filled by cudnnSetReduceTensorDescriptor.

    Source: 3.2.14, cudnnCreateReduceTensorDescriptor/c01.
    """

def cudnnCreateSpatialTransformerDescriptor() -> SpatialTransformerDescriptor:
    """Return a new descriptor, to be filled by cudnnSetSpatialTransformerNdDescriptor. Source: 3.2.15."""

def cudnnCreateTensorDescriptor() -> TensorDescriptor:
    """Return a new tensor descriptor with all data zero. Source: 3.2.16."""

def cudnnCreateTensorTransformDescriptor() -> TensorTransformDescriptor:
    """Return a new transform descriptor with all data zero. Source: 3.2.17."""

def cudnnDeriveBNTensorDescriptor(
    derivedBnDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    mode: cudnnBatchNormMode_t,
) -> None:
    """Describe scale, bias, mean and variance of x, packed.

    Dimensions are 1xCx1x1 (5-D: 1xCx1x1x1) in the spatial modes and 1xCxHxW (1xCxDxHxW) in
    CUDNN_BATCHNORM_PER_ACTIVATION. The data type is FLOAT for HALF, BFLOAT16 and INT8, else that of x (docs/errata.md,
    D042).
    Errors: BAD_PARAM for an unknown mode (c12), other than 4 or 5 dimensions (c08). Source: 3.2.18.
    """

def cudnnDeriveNormTensorDescriptor(
    derivedNormScaleBiasDesc: TensorDescriptor,
    derivedNormMeanVarDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    mode: cudnnNormMode_t,
    groupCnt: SupportsIndex,
) -> None:
    """Describe scale and bias, and mean and variance of x, both identical and packed.

    Dimensions are 1xCx1x1 (5-D: 1xCx1x1x1) with CUDNN_NORM_PER_CHANNEL and 1xCxHxW (1xCxDxHxW) with
    CUDNN_NORM_PER_ACTIVATION; the section exchanges them (docs/errata.md, D043). The data type is FLOAT for HALF,
    BFLOAT16 and INT8, else that of x.
    Errors: BAD_PARAM for an unknown mode (c13), other than 4 or 5 dimensions (c09); NOT_SUPPORTED unless groupCnt is 1.
    Source: 3.2.19.
    """

def cudnnDestroy(handle: Handle) -> None:
    """Wait for the handle's work, then release the handle. Errors: BAD_PARAM for NULL (c05). Source: 3.2.20."""

def cudnnDestroyActivationDescriptor(activationDesc: ActivationDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.21."""

def cudnnDestroyAlgorithmDescriptor(algorithmDesc: AlgorithmDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.22."""

def cudnnDestroyAlgorithmPerformance(algoPerf: Sequence[AlgorithmPerformance], numberToDestroy: SupportsIndex) -> None:
    """Destroy the first ``numberToDestroy`` objects of a sequence; after an error, none is destroyed.

    Errors: BAD_PARAM for a number outside 0 to the sequence's length.

    Source: 3.2.23.
    """

def cudnnDestroyDropoutDescriptor(dropoutDesc: DropoutDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. The states stay the caller's. Source: 3.2.24."""

def cudnnDestroyFilterDescriptor(filterDesc: FilterDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.25."""

def cudnnDestroyLRNDescriptor(lrnDesc: LRNDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.26."""

def cudnnDestroyOpTensorDescriptor(opTensorDesc: OpTensorDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.27."""

def cudnnDestroyPoolingDescriptor(poolingDesc: PoolingDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.28."""

def cudnnDestroyReduceTensorDescriptor(tensorDesc: ReduceTensorDescriptor | None) -> None:
    """Destroy the descriptor; NULL does nothing. Source: 3.2.29."""

def cudnnDestroySpatialTransformerDescriptor(stDesc: SpatialTransformerDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.30."""

def cudnnDestroyTensorDescriptor(tensorDesc: TensorDescriptor | None) -> None:
    """Destroy the descriptor; NULL does nothing. Source: 3.2.31."""

def cudnnDestroyTensorTransformDescriptor(transformDesc: TensorTransformDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.32."""

def cudnnDivisiveNormalizationForward(
    handle: Handle,
    normDesc: LRNDescriptor,
    mode: cudnnDivNormMode_t,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    means: Memory,
    temp: Memory,
    temp2: Memory,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * x * (lrnK + lrnAlpha / lrnN^d * sum of (x - m)^2)^-lrnBeta + beta * y; beta == 0 does not
    read y.

    d is the number of spatial dimensions. The sum covers positions of the same channel inside the image, in a window of
    lrnN positions per spatial dimension. m is the element of means at the window's center.
    x, means, temp, temp2: described by xDesc; NULL means are zeros. y: the dimensions, data type (FLOAT, DOUBLE, HALF)
    and strides of x; 4 or 5 dimensions of any strides. In place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for other numbers of dimensions (c20), differing dimensions (c21), differing strides in place
    (c22), an unknown mode (c08); NOT_SUPPORTED for differing strides or data types, other data types (c26), overlapping
    strides (c05).
    Source: 3.2.33; formula: docs/errata.md, D050.
    """

def cudnnDropoutForward(
    handle: Handle,
    dropoutDesc: DropoutDescriptor,
    xdesc: TensorDescriptor,
    x: Memory,
    ydesc: TensorDescriptor,
    y: Memory,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Compute y = x / (1 - dropout) for kept elements and 0 for dropped ones; record in reserveSpace which are kept,
    and advance the states.

    x, y: equal numbers of elements, matched in row-major order, and equal data types (FLOAT, DOUBLE, HALF), any
    strides. In place (x is y) if the descriptors are identical. Each call draws new random numbers. Concurrent calls
    with the same states in several streams are not supported (c03).
    Errors: BAD_PARAM for differing numbers of elements (c11) or types (c12), in place with differing strides (c13), a
    reserve space that is too small (c14), a descriptor without states (c15); NOT_SUPPORTED for other types (c10).
    Source: 3.2.34.
    """

def cudnnDropoutGetReserveSpaceSize(xDesc: TensorDescriptor) -> int:
    """Return the bytes of reserve space for a tensor with the dimensions of xDesc: one bit per element, rounded up to
    words.

    Source: 3.2.35.
    """

def cudnnDropoutGetStatesSize(handle: Handle) -> int:
    """Return the bytes of the states, which are the same for every handle. Source: 3.2.36."""

class _cudnnGetActivationDescriptor(NamedTuple):
    mode: cudnnActivationMode_t
    reluNanOpt: cudnnNanPropagation_t
    coef: float

def cudnnGetActivationDescriptor(activationDesc: ActivationDescriptor) -> _cudnnGetActivationDescriptor:
    """Return (mode, reluNanOpt, coef) as they were set. Source: 3.2.37, c01 to c04; uninitialised is refused (c05)."""

def cudnnGetAlgorithmDescriptor(algoDesc: AlgorithmDescriptor) -> Any:
    """Return the algorithm that was set. Errors: BAD_PARAM if none was set. Source: 3.2.38."""

class _cudnnGetAlgorithmPerformance(NamedTuple):
    algoDesc: AlgorithmDescriptor
    status: cudnnStatus_t
    time: float
    memory: int

def cudnnGetAlgorithmPerformance(algoPerf: AlgorithmPerformance) -> _cudnnGetAlgorithmPerformance:
    """Return (algoDesc, status, time, memory) as they were set; algoDesc is the same descriptor.

    Errors: BAD_PARAM where nothing was set.

    Source: 3.2.39.
    """

def cudnnGetAlgorithmSpaceSize(handle: Handle, algoDesc: AlgorithmDescriptor) -> int:
    """Return the bytes of host memory that cudnnSaveAlgorithm writes.

    Errors: BAD_PARAM for NULL, and where no algorithm was set (c04).

    Source: 3.2.40.
    """

class _cudnnGetCallback(NamedTuple):
    mask: int
    udata: Any
    fptr: Callback | None

def cudnnGetCallback() -> _cudnnGetCallback:
    """Return (mask, udata, fptr); fptr is None while the built-in callback is in use. Source: 3.2.41."""

def cudnnGetCudartVersion() -> int:
    """Return the version of the CUDA headers that kernels are compiled against: 13000 for 13.0, or 0 if there are none.

    Source: 3.2.42.
    """

class _cudnnGetDropoutDescriptor(NamedTuple):
    dropout: float
    states: Any
    seed: int

def cudnnGetDropoutDescriptor(dropoutDesc: DropoutDescriptor, handle: Handle) -> _cudnnGetDropoutDescriptor:
    """Return (dropout, states, seed) as they were set last; states is None if there are none. A fresh descriptor
    returns zeros.

    Errors: BAD_PARAM for NULL (c06). Source: 3.2.43.
    """

def cudnnGetErrorString(status: cudnnStatus_t) -> str:
    """Return the name of a status, or CUDNN_UNKNOWN_STATUS for an unknown value. Source: 3.2.44."""

class _cudnnGetFilter4dDescriptor(NamedTuple):
    dataType: cudnnDataType_t
    format: cudnnTensorFormat_t
    k: int
    c: int
    h: int
    w: int

def cudnnGetFilter4dDescriptor(filterDesc: FilterDescriptor) -> _cudnnGetFilter4dDescriptor:
    """Return (dataType, format, k, c, h, w); a filter of another rank returns its first four dimensions. A fresh
    descriptor returns zeros.

    Source: 3.2.45.
    """

class _cudnnGetFilterNdDescriptor(NamedTuple):
    dataType: cudnnDataType_t
    format: cudnnTensorFormat_t
    nbDims: int
    filterDimA: tuple[int, ...]

def cudnnGetFilterNdDescriptor(wDesc: FilterDescriptor, nbDimsRequested: SupportsIndex) -> _cudnnGetFilterNdDescriptor:
    """Return (dataType, format, nbDims, filterDimA); the array holds min(nbDimsRequested, nbDims) entries.

    A fresh descriptor returns rank 0. Errors: BAD_PARAM for nbDimsRequested below 1 (c09); NOT_SUPPORTED above
    CUDNN_DIM_MAX (cudnnSetFilterNdDescriptor/c15). Source: 3.2.46.
    """

def cudnnGetFilterSizeInBytes(filterDesc: FilterDescriptor) -> int:
    """Return the bytes of memory that the filter occupies; 0 for a fresh descriptor.

    Errors: BAD_PARAM for NULL and for a filter whose bytes no size_t can count (c04). Source: 3.2.47.
    """

class _cudnnGetLRNDescriptor(NamedTuple):
    lrnN: int
    lrnAlpha: float
    lrnBeta: float
    lrnK: float

def cudnnGetLRNDescriptor(normDesc: LRNDescriptor) -> _cudnnGetLRNDescriptor:
    """Return (lrnN, lrnAlpha, lrnBeta, lrnK) as they were set, or the presets. Source: 3.2.48, c01 to c04."""

class _cudnnGetOpTensorDescriptor(NamedTuple):
    opTensorOp: cudnnOpTensorOp_t
    opTensorCompType: cudnnDataType_t
    opTensorNanOpt: cudnnNanPropagation_t

def cudnnGetOpTensorDescriptor(opTensorDesc: OpTensorDescriptor) -> _cudnnGetOpTensorDescriptor:
    """Return (opTensorOp, opTensorCompType, opTensorNanOpt) as they were set.

    Source: 3.2.49, c01 to c04; uninitialised is refused (c05).
    """

class _cudnnGetPooling2dDescriptor(NamedTuple):
    mode: cudnnPoolingMode_t
    maxpoolingNanOpt: cudnnNanPropagation_t
    windowHeight: int
    windowWidth: int
    verticalPadding: int
    horizontalPadding: int
    verticalStride: int
    horizontalStride: int

def cudnnGetPooling2dDescriptor(poolingDesc: PoolingDescriptor) -> _cudnnGetPooling2dDescriptor:
    """Return (mode, maxpoolingNanOpt, windowHeight, windowWidth, verticalPadding, horizontalPadding, verticalStride,
    horizontalStride) as they were set.

    Errors: BAD_PARAM for a descriptor that is not initialised or not 2-D (c09). Source: 3.2.50, c01 to c08.
    """

class _cudnnGetPooling2dForwardOutputDim(NamedTuple):
    outN: int
    outC: int
    outH: int
    outW: int

def cudnnGetPooling2dForwardOutputDim(
    poolingDesc: PoolingDescriptor,
    inputDesc: TensorDescriptor,
) -> _cudnnGetPooling2dForwardOutputDim:
    """Return (outN, outC, outH, outW) of a pooled 4-D input: n, c and 1 + (input + 2 * padding - window) / stride.

    Errors: BAD_PARAM for descriptors that are not initialised (c07, c05), poolingDesc not 2-D (c08), inputDesc not 4-D
    (c09), or a window larger than the padded input (D071). Source: 3.2.51.
    """

class _cudnnGetPoolingNdDescriptor(NamedTuple):
    mode: cudnnPoolingMode_t
    maxpoolingNanOpt: cudnnNanPropagation_t
    nbDims: int
    windowDimA: tuple[int, ...]
    paddingA: tuple[int, ...]
    strideA: tuple[int, ...]

def cudnnGetPoolingNdDescriptor(
    poolingDesc: PoolingDescriptor,
    nbDimsRequested: SupportsIndex,
) -> _cudnnGetPoolingNdDescriptor:
    """Return (mode, maxpoolingNanOpt, nbDims, windowDimA, paddingA, strideA).

    nbDims is the descriptor's own number of dimensions; the arrays hold min(nbDimsRequested, nbDims) entries.
    Errors: NOT_SUPPORTED for nbDimsRequested above CUDNN_DIM_MAX (c11); BAD_PARAM for a descriptor that is not
    initialised (c09). Source: 3.2.52.
    """

def cudnnGetPoolingNdForwardOutputDim(
    poolingDesc: PoolingDescriptor,
    inputDesc: TensorDescriptor,
    nbDims: SupportsIndex,
) -> tuple[int, ...]:
    """Return outDimA of nbDims entries: n, c and, per spatial dimension, 1 + (input + 2 * padding - window) / stride.

    nbDims: the number of dimensions of inputDesc, two more than those of poolingDesc.
    Errors: BAD_PARAM for descriptors that are not initialised (c05, c03), nbDims that does not fit them (c06), or a
    window larger than the padded input (D071). Source: 3.2.53.
    """

def cudnnGetProperty(type: libraryPropertyType) -> int:
    """Return the major version, minor version or patch level.

    Errors: INVALID_VALUE for an unknown type (c02). Source: 3.2.54.
    """

class _cudnnGetReduceTensorDescriptor(NamedTuple):
    reduceTensorOp: cudnnReduceTensorOp_t
    reduceTensorCompType: cudnnDataType_t
    reduceTensorNanOpt: cudnnNanPropagation_t
    reduceTensorIndices: cudnnReduceTensorIndices_t
    reduceTensorIndicesType: cudnnIndicesType_t

def cudnnGetReduceTensorDescriptor(reduceTensorDesc: ReduceTensorDescriptor) -> _cudnnGetReduceTensorDescriptor:
    """Return (reduceTensorOp, reduceTensorCompType, reduceTensorNanOpt, reduceTensorIndices, reduceTensorIndicesType).

    Source: 3.2.55, c01 to c05; NULL and uninitialised are refused (c08).
    """

def cudnnGetReductionIndicesSize(
    handle: Handle,
    reduceDesc: ReduceTensorDescriptor,
    aDesc: TensorDescriptor,
    cDesc: TensorDescriptor,
) -> int:
    """Return the bytes that ``indices`` of cudnnReduceTensor needs: one index of the descriptor's width per element of
    C.

    The result is 0 if the descriptor requests no indices. The shapes are not compared here; cudnnReduceTensor compares
    them.
    Source: 3.2.56, cudnnGetReductionIndicesSize/c01.
    """

def cudnnGetReductionWorkspaceSize(
    handle: Handle,
    reduceDesc: ReduceTensorDescriptor,
    aDesc: TensorDescriptor,
    cDesc: TensorDescriptor,
) -> int:
    """Return the bytes that ``workspace`` of cudnnReduceTensor needs on the handle's backend and device, never 0.

    For tensors that cudnnReduceTensor would refuse, the result is the minimum size.
    Source: 3.2.57, cudnnGetReductionWorkspaceSize/c01.
    """

def cudnnGetStream(handle: Handle) -> Any:
    """Return the stream that was set, or None. Errors: BAD_PARAM for NULL (c03). Source: 3.2.58."""

class _cudnnGetTensor4dDescriptor(NamedTuple):
    dataType: cudnnDataType_t
    n: int
    c: int
    h: int
    w: int
    nStride: int
    cStride: int
    hStride: int
    wStride: int

def cudnnGetTensor4dDescriptor(tensorDesc: TensorDescriptor) -> _cudnnGetTensor4dDescriptor:
    """Return (dataType, n, c, h, w, nStride, cStride, hStride, wStride); a tensor of another rank returns its first
    four dimensions.

    A fresh descriptor returns zeros.
    Source: 3.2.59.
    """

class _cudnnGetTensorNdDescriptor(NamedTuple):
    dataType: cudnnDataType_t
    nbDims: int
    dimA: tuple[int, ...]
    strideA: tuple[int, ...]

def cudnnGetTensorNdDescriptor(
    tensorDesc: TensorDescriptor,
    nbDimsRequested: SupportsIndex,
) -> _cudnnGetTensorNdDescriptor:
    """Return (dataType, nbDims, dimA, strideA); the arrays hold min(nbDimsRequested, nbDims) entries.

    A fresh descriptor returns rank 0. Errors: BAD_PARAM for NULL (c10). Source: 3.2.60.
    """

def cudnnGetTensorSizeInBytes(tensorDesc: TensorDescriptor) -> int:
    """Return the bytes of memory that the tensor occupies, gaps included; 0 for a fresh descriptor. Source: 3.2.61."""

class _cudnnGetTensorTransformDescriptor(NamedTuple):
    destFormat: cudnnTensorFormat_t
    padBeforeA: tuple[int, ...]
    padAfterA: tuple[int, ...]
    foldA: tuple[int, ...]
    direction: cudnnFoldingDirection_t

def cudnnGetTensorTransformDescriptor(
    transformDesc: TensorTransformDescriptor,
    nbDimsRequested: SupportsIndex,
) -> _cudnnGetTensorTransformDescriptor:
    """Return (destFormat, padBeforeA, padAfterA, foldA, direction): nbDimsRequested paddings, nbDimsRequested - 2 factors.

    Entries beyond the descriptor's own dimensions are 0; a fresh descriptor returns zeros.
    Errors: BAD_PARAM for NULL (c09), nbDimsRequested below 3 (c10) or above CUDNN_DIM_MAX (c11). Source: 3.2.62.
    """

def cudnnGetVersion() -> int:
    """Return the version of the specification as one number, 8003 (CUDNN_VERSION). Source: 3.2.63."""

def cudnnInitTransformDest(
    transformDesc: TensorTransformDescriptor,
    srcDesc: TensorDescriptor,
    destDesc: TensorDescriptor,
) -> int:
    """Describe in destDesc the result of applying transformDesc to srcDesc, packed in destFormat; return its size in
    bytes.

    Folding pads first and divides; unfolding multiplies and pads last (docs/errata.md, D077). The data type is
    unchanged.
    Errors: BAD_PARAM for NULL (c06, c07), a rank other than transformDesc's (c08), sizes that cropping leaves below 1;
    NOT_SUPPORTED for other ranks than 4 (c09) or from 2 Giga-elements. Source: 3.2.64.
    """

def cudnnLRNCrossChannelForward(
    handle: Handle,
    normDesc: LRNDescriptor,
    lrnMode: cudnnLRNMode_t,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * x * (lrnK + lrnAlpha / lrnN * sum of x^2)^-lrnBeta + beta * y; beta == 0 does not read y.

    The sum runs over the channels [c - floor((lrnN - 1) / 2), c + floor(lrnN / 2)] that exist; lrnAlpha is divided by lrnN at
    the edges too. Sums and powers are computed in float, in double for DOUBLE.
    x, y: equal dimensions and data types (FLOAT, DOUBLE, HALF); 4 dimensions of any strides, or 5 that are DHW-packed. In
    place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for 5 dimensions that are not DHW-packed (c16), an unknown lrnMode (c03); NOT_SUPPORTED for
    differing data types (c17) or dimensions (c18), other ranks or overlapping strides (c06), other data types (c20).
    Source: 3.2.65; formula: docs/errata.md, D079.
    """

def cudnnNormalizationForwardInference(
    handle: Handle,
    mode: cudnnNormMode_t,
    normOps: cudnnNormOps_t,
    algo: cudnnNormAlgo_t,
    alpha: SupportsFloat,
    beta: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    normScaleBiasDesc: TensorDescriptor,
    normScale: Memory,
    normBias: Memory,
    normMeanVarDesc: TensorDescriptor,
    estimatedMean: Memory,
    estimatedVariance: Memory,
    zDesc: TensorDescriptor | None,
    z: Memory,
    activationDesc: ActivationDescriptor | None,
    yDesc: TensorDescriptor,
    y: Memory,
    epsilon: SupportsFloat,
    groupCnt: SupportsIndex,
) -> None:
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

def cudnnOpsInferVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c04). Source: 3.2.67."""

def cudnnOpTensor(
    handle: Handle,
    opTensorDesc: OpTensorDescriptor,
    alpha1: SupportsFloat,
    aDesc: TensorDescriptor,
    A: Memory,
    alpha2: SupportsFloat,
    bDesc: TensorDescriptor,
    B: Memory,
    beta: SupportsFloat,
    cDesc: TensorDescriptor,
    C: Memory,
) -> None:
    """Compute C = op(alpha1 * A, alpha2 * B) + beta * C; B is broadcast along its dimensions of extent 1; beta == 0
    does not read C.

    op: addition, multiplication, minimum, maximum. Square root of alpha1 * A and 1 - alpha1 * A ignore the values of B,
    but its descriptor and memory must be valid. opTensorNanOpt decides whether a minimum or maximum with a NaN is the
    NaN or the other operand.
    A, B, C: up to 5 dimensions, A with the dimensions of C, each dimension of B equal to C's or 1, types of a row of
    Table 7, any strides. In place (A is C) if the descriptors are identical.
    Errors: BAD_PARAM for dimensions of A (c29) or B (c30), a type of C that is not a destination (c28), types outside
    Table 7 (c31); NOT_SUPPORTED for another opTensorCompType than the table's (c26) or more than 5 dimensions (c25).
    Source: 3.2.68.
    """

def cudnnPoolingForward(
    handle: Handle,
    poolingDesc: PoolingDescriptor,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * pool(x) + beta * y; beta == 0 does not read y.

    Output o covers the inputs o * stride - padding + [0, window) in every spatial dimension.
    Maximum: a NaN wins with CUDNN_PROPAGATE_NAN and is skipped otherwise. A window without any value gives the lowest
    finite value of the data type.
    Average: the sum of the inputs is divided by the number of positions inside the input (COUNT_EXCLUDE_PADDING), or
    inside the input and its padding (COUNT_INCLUDE_PADDING). A window without such positions gives NaN.
    x, y: equal n, c and data types (FLOAT, DOUBLE, HALF, INT8, INT8x4, INT8x32), any strides, 2 or 3 spatial dimensions
    of any extents. In place only if window and stride are 1 and padding is 0, with identical descriptors.
    Errors: BAD_PARAM for differing n or c (c16), data types (c17) or numbers of dimensions; NOT_SUPPORTED for spatial
    dimensions other than 2 or 3 (c04), other types (c11), window positions beyond 32 bits (c18). Source: 3.2.69.
    """

def cudnnQueryRuntimeError(handle: Handle, mode: cudnnErrQueryMode_t, tag: Any) -> cudnnStatus_t:
    """Return the error that the handle's kernels reported since the last query, and clear it.

    mode: RAWCODE reads at once. NONBLOCKING returns RUNTIME_IN_PROGRESS while work is pending. BLOCKING waits.
    tag: NULL.
    Errors: BAD_PARAM (c21); INTERNAL_ERROR when waiting fails (c22). Source: 3.2.70.
    """

def cudnnReduceTensor(
    handle: Handle,
    reduceTensorDesc: ReduceTensorDescriptor,
    indices: Memory,
    indicesSizeInBytes: SupportsIndex,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
    alpha: SupportsFloat,
    aDesc: TensorDescriptor,
    A: Memory,
    beta: SupportsFloat,
    cDesc: TensorDescriptor,
    C: Memory,
) -> None:
    """Compute C = alpha * reduce(A) + beta * C over the dimensions where C has extent 1; beta == 0 does not read C.

    A, C: any strides, 3 to 8 dimensions, each of C's equal to A's or 1. Types: DOUBLE for both, computed in DOUBLE, or
    FLOAT, HALF and INT8 (vectorised too) computed in FLOAT, where only FLOAT mixes with the others.
    indices: for MIN and MAX, if the descriptor requests them, one unsigned integer per element of C in row-major order.
    It is the row-major position of the first extremum inside the reduced dimensions. Otherwise indices is not touched
    and may be NULL.
    Errors: NOT_SUPPORTED for other types (c25), the type of the computation (c24), indices that their width cannot hold
    (c08); BAD_PARAM where nothing is reduced (c26), for dimensions that do not fit (c27), indices of another operation
    (c28), DOUBLE beside another type (c29), HALF beside INT8 (c13); INVALID_VALUE for indices (c30) or workspace (c31)
    that are too small. Source: 3.2.71.
    """

def cudnnRestoreAlgorithm(
    handle: Handle,
    algoSpace: Any,
    algoSpaceSizeInBytes: SupportsIndex,
    algoDesc: AlgorithmDescriptor,
) -> None:
    """Set algoDesc to the algorithm that cudnnSaveAlgorithm wrote; further bytes after it are ignored.

    Errors: BAD_PARAM for NULL (c08) and for data that is damaged, truncated or not written by cudnnSaveAlgorithm (c09);
    NOT_SUPPORTED for data of another version (c07). After an error algoDesc is unchanged. Source: 3.2.72.
    """

def cudnnRestoreDropoutDescriptor(
    dropoutDesc: DropoutDescriptor,
    handle: Handle,
    dropout: SupportsFloat,
    states: Memory,
    stateSizeInBytes: SupportsIndex,
    seed: SupportsIndex,
) -> None:
    """Set the probability and use states that an earlier call wrote, unchanged; the seed is only stored.

    Errors: INVALID_VALUE for stateSizeInBytes below cudnnDropoutGetStatesSize (c09), BAD_PARAM for a dropout outside
    [0, 1].
    Source: 3.2.73.
    """

def cudnnSaveAlgorithm(
    handle: Handle,
    algoDesc: AlgorithmDescriptor,
    algoSpace: Any,
    algoSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Write the algorithm to host memory. cudnnRestoreAlgorithm can read it in another process on any machine.

    algoSpace: an object with the buffer protocol (bytearray, NumPy array).
    Errors: BAD_PARAM for NULL (c07), for fewer bytes than cudnnGetAlgorithmSpaceSize (c08). Source: 3.2.74.
    """

def cudnnScaleTensor(handle: Handle, yDesc: TensorDescriptor, y: Memory, alpha: SupportsFloat) -> None:
    """Compute y = alpha * y in place.

    y: 4 or 5 dimensions, any strides; FLOAT, DOUBLE, HALF, BFLOAT16, INT8. alpha: one number for the whole tensor.
    Errors: BAD_PARAM for NULL (c06); NOT_SUPPORTED for other types or numbers of dimensions (c05). Source: 3.2.75.
    """

def cudnnSetActivationDescriptor(
    activationDesc: ActivationDescriptor,
    mode: cudnnActivationMode_t,
    reluNanOpt: cudnnNanPropagation_t,
    coef: SupportsFloat,
) -> None:
    """Set the function, its NaN propagation and its coefficient (limit of the clipped ReLU, alpha of the ELU).

    Errors: BAD_PARAM for an unknown mode (c07) or reluNanOpt (c08). Source: 3.2.76.
    """

def cudnnSetAlgorithmDescriptor(algorithmDesc: AlgorithmDescriptor, algorithm: Any) -> None:
    """Store an algorithm in the descriptor.

    algorithm: an enumerator of cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionBwdDataAlgo_t, cudnnRNNAlgo_t or cudnnCTCLossAlgo_t, or its number, because C passes a union.
    Errors: BAD_PARAM for anything else.
    Source: 3.2.77.
    """

def cudnnSetAlgorithmPerformance(
    algoPerf: AlgorithmPerformance,
    algoDesc: AlgorithmDescriptor,
    status: cudnnStatus_t,
    time: SupportsFloat,
    memory: SupportsIndex,
) -> None:
    """Store the result of running algoDesc's algorithm: its status, milliseconds (rounded to float) and bytes.

    The object refers to algoDesc, so a later change of algoDesc changes the object.
    Errors: BAD_PARAM for NULL or an unknown status. Source: 3.2.78.
    """

def cudnnSetCallback(mask: SupportsIndex, udata: Any, fptr: Callback | None | None) -> None:
    """Choose which messages are logged, and where.

    mask: the bits CUDNN_SEV_ERROR_EN, CUDNN_SEV_WARNING_EN, CUDNN_SEV_INFO_EN; other bits are ignored.
    udata: passed to the callback unchanged.
    fptr: a function (severity, udata, dbg: cudnnDebug_t, msg). None selects the built-in callback, which writes to the
    destination in CUDNN_LOGDEST_DBG. In msg every line ends with NUL, and the message with two.
    Source: 3.2.79.
    """

def cudnnSetDropoutDescriptor(
    dropoutDesc: DropoutDescriptor,
    handle: Handle,
    dropout: SupportsFloat,
    states: Memory,
    stateSizeInBytes: SupportsIndex,
    seed: SupportsIndex,
) -> None:
    """Set the probability, rounded to float. If states is given, initialise the states from the seed, in the handle's
    stream.

    states: device memory aligned to 4 bytes, which forward calls read and write. None keeps the descriptor's current
    states, if any. After an error the descriptor and the states are unchanged.
    Errors: INVALID_VALUE for stateSizeInBytes below cudnnDropoutGetStatesSize (c11), BAD_PARAM for a dropout outside
    [0, 1].
    Source: 3.2.80.
    """

def cudnnSetFilter4dDescriptor(
    filterDesc: FilterDescriptor,
    dataType: cudnnDataType_t,
    format: cudnnTensorFormat_t,
    k: SupportsIndex,
    c: SupportsIndex,
    h: SupportsIndex,
    w: SupportsIndex,
) -> None:
    """Describe a filter of k output and c input feature maps of h x w, without gaps.

    CUDNN_TENSOR_NCHW is the order KCRS, CUDNN_TENSOR_NHWC is KRSC. CUDNN_TENSOR_NCHW_VECT_C takes INT8x4, UINT8x4 or
    INT8x32 and c, which counts channels, a multiple of 4 or 32.
    Errors: BAD_PARAM for sizes below 1 (c08), unknown or mismatched dataType and format (c09, c10,
    cudnnTensorFormat_t/c06 to c08, cudnnDataType_t/c02 to c05). Source: 3.2.81.
    """

def cudnnSetFilterNdDescriptor(
    filterDesc: FilterDescriptor,
    dataType: cudnnDataType_t,
    format: cudnnTensorFormat_t,
    nbDims: SupportsIndex,
    filterDimA: Sequence[SupportsIndex],
) -> None:
    """Describe a filter of nbDims dimensions without gaps; filterDimA is [K, C, spatial ...] whatever the format.

    nbDims: 3 to CUDNN_DIM_MAX (8). Memory order: K, C, spatial for CUDNN_TENSOR_NCHW; K, spatial, C for NHWC.
    Errors: BAD_PARAM for sizes below 1 or too few entries (c12, c10), unknown dataType (c13) or format (c14), nbDims
    below 3; NOT_SUPPORTED for nbDims above 8 (c15). Source: 3.2.82.
    """

def cudnnSetLRNDescriptor(
    normDesc: LRNDescriptor,
    lrnN: SupportsIndex,
    lrnAlpha: SupportsFloat,
    lrnBeta: SupportsFloat,
    lrnK: SupportsFloat,
) -> None:
    """Describe a normalization by (lrnK + lrnAlpha / window * sum over the window)^-lrnBeta.

    lrnN: width of the window, CUDNN_LRN_MIN_N to CUDNN_LRN_MAX_N; it begins floor((lrnN - 1) / 2) elements before its
    center.
    lrnAlpha: any number; the calls divide it by lrnN (LRN), or by lrnN^d for d spatial dimensions (divisive).
    lrnBeta: at least CUDNN_LRN_MIN_BETA. lrnK: at least CUDNN_LRN_MIN_K.
    Errors: BAD_PARAM for lrnN (c16), lrnBeta (c17) or lrnK (c18) outside their ranges. Source: 3.2.83.
    """

def cudnnSetOpTensorDescriptor(
    opTensorDesc: OpTensorDescriptor,
    opTensorOp: cudnnOpTensorOp_t,
    opTensorCompType: cudnnDataType_t,
    opTensorNanOpt: cudnnNanPropagation_t,
) -> None:
    """Set the operation, the compute type (FLOAT, DOUBLE, HALF, BFLOAT16) and the NaN propagation.

    Errors: BAD_PARAM for an unknown opTensorOp, opTensorCompType or opTensorNanOpt or an integer type to compute in
    (c05). Source: 3.2.84.
    """

def cudnnSetPooling2dDescriptor(
    poolingDesc: PoolingDescriptor,
    mode: cudnnPoolingMode_t,
    maxpoolingNanOpt: cudnnNanPropagation_t,
    windowHeight: SupportsIndex,
    windowWidth: SupportsIndex,
    verticalPadding: SupportsIndex,
    horizontalPadding: SupportsIndex,
    verticalStride: SupportsIndex,
    horizontalStride: SupportsIndex,
) -> None:
    """Describe a pooling of images: mode, NaN rule of the maximum, window, padding, stride.

    Windows and strides are at least 1; paddings may be negative, which skips the input's border.
    Errors: BAD_PARAM for windows (c06) or strides (c07) below 1, an unknown mode (c08) or maxpoolingNanOpt (c09).
    Source: 3.2.85.
    """

def cudnnSetPoolingNdDescriptor(
    poolingDesc: PoolingDescriptor,
    mode: cudnnPoolingMode_t,
    maxpoolingNanOpt: cudnnNanPropagation_t,
    nbDims: SupportsIndex,
    windowDimA: Sequence[SupportsIndex],
    paddingA: Sequence[SupportsIndex],
    strideA: Sequence[SupportsIndex],
) -> None:
    """Describe a pooling of nbDims spatial dimensions: mode, NaN rule of the maximum, window, padding, stride.

    nbDims: 1 to CUDNN_DIM_MAX - 2 (the computing calls take 2 and 3). windowDimA, paddingA, strideA: at least nbDims
    entries; windows and strides at least 1, paddings may be negative.
    Errors: NOT_SUPPORTED for nbDims above CUDNN_DIM_MAX - 2 (c09); BAD_PARAM for nbDims below 1 (c10, c04), windows
    (c11, c05) or strides (c12, c07) below 1, too few entries, an unknown mode (c13) or maxpoolingNanOpt (c14).
    Source: 3.2.86.
    """

def cudnnSetReduceTensorDescriptor(
    reduceTensorDesc: ReduceTensorDescriptor,
    reduceTensorOp: cudnnReduceTensorOp_t,
    reduceTensorCompType: cudnnDataType_t,
    reduceTensorNanOpt: cudnnNanPropagation_t,
    reduceTensorIndices: cudnnReduceTensorIndices_t,
    reduceTensorIndicesType: cudnnIndicesType_t,
) -> None:
    """Set the operation, the compute type (FLOAT, DOUBLE, HALF), the NaN propagation and the indices.

    cudnnReduceTensor decides which of these it supports for which tensors.
    Errors: BAD_PARAM for NULL (c08), an unknown operation (c09), a type that nothing is computed in (c10), unknown NaN
    propagation (c11), indices (c12) or type of indices (c13). Source: 3.2.87.
    """

def cudnnSetSpatialTransformerNdDescriptor(
    stDesc: SpatialTransformerDescriptor,
    samplerType: cudnnSamplerType_t,
    dataType: cudnnDataType_t,
    nbDims: SupportsIndex,
    dimA: Sequence[SupportsIndex],
) -> None:
    """Describe a transformer of tensors of dataType (FLOAT, DOUBLE, HALF); the result has the dimensions dimA.

    nbDims: 3 to CUDNN_DIM_MAX; the calls support 4, (N, C, H, W).
    Errors: BAD_PARAM for NULL (c06, c07), for other types (c08) and samplers (c09), for other nbDims, for sizes below
    1. Source: 3.2.88.
    """

def cudnnSetStream(handle: Handle, streamId: Any) -> None:
    """Launch the handle's later work on this stream; NULL is the default stream. The call does not wait for earlier
    work.

    streamId: a stream of ``handle.new_stream()``, a PyCUDA stream or the number of a cudaStream_t.
    Errors: BAD_PARAM for NULL (c05) or a value that is not a stream; MAPPING_ERROR for a stream of another device
    (c06).
    Source: 3.2.89.
    """

def cudnnSetTensor(handle: Handle, yDesc: TensorDescriptor, y: Memory, valuePtr: SupportsFloat) -> None:
    """Set every element of y to the value.

    y: 4 or 5 dimensions, any strides; FLOAT, DOUBLE, HALF, BFLOAT16, INT8. valuePtr: one number, rounded to the type of
    y; for INT8 it is an integer from -128 to 127.
    Errors: BAD_PARAM for NULL (c07) or a value that INT8 does not have (c03); NOT_SUPPORTED for other types or numbers
    of dimensions (c06). Source: 3.2.90.
    """

def cudnnSetTensor4dDescriptor(
    tensorDesc: TensorDescriptor,
    format: cudnnTensorFormat_t,
    dataType: cudnnDataType_t,
    n: SupportsIndex,
    c: SupportsIndex,
    h: SupportsIndex,
    w: SupportsIndex,
) -> None:
    """Describe a 4-D tensor without gaps in the order of ``format``.

    n, c, h, w: images, feature maps, height, width; each at least 1. With CUDNN_TENSOR_NCHW_VECT_C the type must be
    INT8x4, UINT8x4 or INT8x32 and c, which counts channels, a multiple of 4 or 32.
    Errors: BAD_PARAM for sizes below 1 (c06), unknown or mismatched format and type (c07, c08, cudnnTensorFormat_t/c06,
    cudnnDataType_t/c02 to c05); NOT_SUPPORTED from 2 Giga-elements (c09). Source: 3.2.91.
    """

def cudnnSetTensor4dDescriptorEx(
    tensorDesc: TensorDescriptor,
    dataType: cudnnDataType_t,
    n: SupportsIndex,
    c: SupportsIndex,
    h: SupportsIndex,
    w: SupportsIndex,
    nStride: SupportsIndex,
    cStride: SupportsIndex,
    hStride: SupportsIndex,
    wStride: SupportsIndex,
) -> None:
    """Describe a 4-D tensor with explicit strides in elements: offset = n*nStride + c*cStride + h*hStride + w*wStride.

    Sizes and strides are at least 1; the stride of a dimension of size 1 may be 0. Strides may leave gaps, permute the
    dimensions and overlap; calls that cannot write such a layout refuse it.
    Errors: BAD_PARAM for sizes (c09), strides (c10), types (c11); NOT_SUPPORTED from 2 Giga-elements, gaps counted
    (c12). Source: 3.2.92.
    """

def cudnnSetTensorNdDescriptor(
    tensorDesc: TensorDescriptor,
    dataType: cudnnDataType_t,
    nbDims: SupportsIndex,
    dimA: Sequence[SupportsIndex],
    strideA: Sequence[SupportsIndex],
) -> None:
    """Describe a tensor of nbDims dimensions [N, C, (D,) H, W] with explicit strides in the same order.

    nbDims: 3 to CUDNN_DIM_MAX (8). dimA, strideA: at least nbDims entries, rules as in cudnnSetTensor4dDescriptorEx.
    Errors: BAD_PARAM for sizes below 1 or too few entries (c10), types (c11), strides; NOT_SUPPORTED for nbDims (c12)
    or from 2 Giga-elements (c13). Source: 3.2.93.
    """

def cudnnSetTensorNdDescriptorEx(
    tensorDesc: TensorDescriptor,
    format: cudnnTensorFormat_t,
    dataType: cudnnDataType_t,
    nbDims: SupportsIndex,
    dimA: Sequence[SupportsIndex],
) -> None:
    """Describe a tensor of nbDims dimensions without gaps in the order of ``format``; dimA is [N, C, spatial ...].

    Errors: BAD_PARAM for a wrong descriptor (c05) or input (c06); NOT_SUPPORTED for nbDims outside 3..8 or from 2
    Giga-elements (c07). Source: 3.2.94.
    """

def cudnnSetTensorTransformDescriptor(
    transformDesc: TensorTransformDescriptor,
    nbDims: SupportsIndex,
    destFormat: cudnnTensorFormat_t,
    padBeforeA: Sequence[SupportsIndex] | None,
    padAfterA: Sequence[SupportsIndex] | None,
    foldA: Sequence[SupportsIndex] | None,
    direction: cudnnFoldingDirection_t,
) -> None:
    """Describe a transform of tensors with nbDims dimensions [N, C, spatial ...].

    nbDims: 3 to CUDNN_DIM_MAX (8). destFormat: CUDNN_TENSOR_NCHW or CUDNN_TENSOR_NHWC. padBeforeA, padAfterA: nbDims
    entries; None means no padding, negative values crop. foldA: nbDims - 2 factors; None means no folding, and 0 counts
    as 1. direction has no effect if all factors are at most 1.
    Errors: BAD_PARAM for NULL (c13), direction (c14), nbDims below 3 (c15), too few entries (c04, c06, c08);
    NOT_SUPPORTED for nbDims above 8 (c16) or another format (c17). Source: 3.2.95.
    """

def cudnnSoftmaxForward(
    handle: Handle,
    algorithm: cudnnSoftmaxAlgorithm_t,
    mode: cudnnSoftmaxMode_t,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * softmax(x) + beta * y; beta == 0 does not read y.

    One softmax runs over C, H, W of each image (MODE_INSTANCE) or over C at each position (MODE_CHANNEL):
    FAST is exp(x) / sum(exp(x)), which may overflow; ACCURATE subtracts the maximum first; LOG is its logarithm.
    x, y: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16, INT8), any strides up to 5 dimensions,
    spatially packed beyond. In place (x is y) if the descriptors are identical.
    Errors: BAD_PARAM for an unknown algorithm (c12) or mode (c13), differing dimensions (c10) or data types (c11);
    NOT_SUPPORTED for other data types (c09) or unpacked tensors of more than 5 dimensions (c03).
    Source: 3.2.96; formulas: docs/errata.md, D026 and D133.
    """

def cudnnSpatialTfGridGeneratorForward(
    handle: Handle,
    stDesc: SpatialTransformerDescriptor,
    theta: Memory,
    grid: Memory,
) -> None:
    """Compute the input coordinates of each pixel of the transformed tensor.

    theta: n x 2 x 3, grid: n x h x w x 2 (x, then y), packed, of stDesc's data type. Pixel (i, j) has the coordinates
    xt = 2 j / (w - 1) - 1 and yt = 2 i / (h - 1) - 1, or -1 where the size is 1; grid = theta (xt, yt, 1).
    Errors: NOT_SUPPORTED for more than 4 dimensions (c10) or fewer (c02). Source: 3.2.97.
    """

def cudnnSpatialTfSamplerForward(
    handle: Handle,
    stDesc: SpatialTransformerDescriptor,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    grid: Memory,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * (x at the coordinates of grid) + beta * y; beta == 0 does not read y.

    Coordinate x lies at column (x + 1) (W - 1) / 2 of an input with W columns, y at row (y + 1) (H - 1) / 2. The four
    pixels around it are interpolated bilinearly; pixels outside the input are 0. If a coordinate is NaN or infinite, y
    is NaN.
    x: images and channels of y, any height and width; y: the dimensions of stDesc; any strides; types as stDesc.
    Errors: NOT_SUPPORTED for more than 4 dimensions (c09) or fewer (c02); BAD_PARAM for other dimensions and types.
    Source: 3.2.98.
    """

def cudnnTransformFilter(
    handle: Handle,
    transDesc: TensorTransformDescriptor,
    alpha: SupportsFloat,
    srcDesc: FilterDescriptor,
    srcData: Memory,
    beta: SupportsFloat,
    destDesc: FilterDescriptor,
    destData: Memory,
) -> None:
    """Do the same as cudnnTransformTensorEx, on filters: [K, C, spatial ...] in place of [N, C, spatial ...].

    Errors: BAD_PARAM for NULL or uninitialised descriptors or a transDesc for another rank (c13), differing ranks
    (c14), dimensions that disagree with transDesc (c04), overlap (c05); NOT_SUPPORTED for (alpha, beta) other than (1,
    0) with folding or padding (c16), for other ranks, types and formats and from 2 Giga-elements (c15). Source: 3.2.99.
    """

def cudnnTransformTensor(
    handle: Handle,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * x + beta * y; beta == 0 does not read y. With (1, 0) the data is copied bit by bit.

    x, y: equal dimensions and data types (all of them; CUDNN_TENSOR_NCHW_VECT_C counts as its scalar type), any
    strides, no shared memory.
    Errors: BAD_PARAM for differing dimensions (c10) or types (c11), overlap (c03); NOT_SUPPORTED where the strides of y
    overlap (c09, cudnnSetTensor4dDescriptorEx/c04). Source: 3.2.100.
    """

def cudnnTransformTensorEx(
    handle: Handle,
    transDesc: TensorTransformDescriptor,
    alpha: SupportsFloat,
    srcDesc: TensorDescriptor,
    srcData: Memory,
    beta: SupportsFloat,
    destDesc: TensorDescriptor,
    destData: Memory,
) -> None:
    """Compute destData = alpha * T(srcData) + beta * destData; T pads with zeros, folds or unfolds (docs/errata.md,
    D132).

    T folds a spatial dimension of size S by a factor F into S / F. The element at s moves to s // F of channel (s % F)
    * C + c; the offset of the last spatial dimension varies fastest. Zeros fill sizes that are not multiples of F.
    Unfolding is the reverse.
    Spatial padding precedes folding and follows unfolding. Channels are padded last: folding adds (padBefore +
    padAfter) * factors channels, of which padBefore come first.
    srcData, destData: destDesc has the dimensions of cudnnInitTransformDest; up to 6 dimensions if T changes anything.
    Data types are equal, or converted among FLOAT, DOUBLE, HALF, BFLOAT16 and INT8, except between HALF and BFLOAT16.
    No shared memory. destDesc has transDesc's format if T changes anything.
    Errors: BAD_PARAM for NULL or uninitialised descriptors or a transDesc for another rank (c13), differing ranks
    (c14), dimensions (c04), overlap (c05); NOT_SUPPORTED for (alpha, beta) other than (1, 0) with folding or padding
    (c16), for other ranks, types and layouts, and for blocks of unfolding of 2 Giga-elements (c15). Source: 3.2.101.
    """

def cudnnActivationBackward(
    handle: Handle,
    activationDesc: ActivationDescriptor,
    alpha: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    dxDesc: TensorDescriptor,
    dx: Memory,
) -> None:
    """Compute dx = alpha * f'(x) * dy + beta * dx; beta == 0 does not read dx.

    y, dy, x, dx: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16); y and dy have equal strides, x and dx
    have equal strides. In place (dy is dx) if their descriptors are identical.
    Errors: NOT_SUPPORTED for differing dimensions (c13), types (c14, c12), strides of y and dy (c15) or of x and dx
    (c16), unpacked tensors of more than 5 dimensions (c06); BAD_PARAM for in place with differing strides (c11).
    Source: 4.1.1.
    """

def cudnnBatchNormalizationBackward(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    alphaDataDiff: SupportsFloat,
    betaDataDiff: SupportsFloat,
    alphaParamDiff: SupportsFloat,
    betaParamDiff: SupportsFloat,
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

def cudnnBatchNormalizationBackwardEx(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    bnOps: cudnnBatchNormOps_t,
    alphaDataDiff: SupportsFloat,
    betaDataDiff: SupportsFloat,
    alphaParamDiff: SupportsFloat,
    betaParamDiff: SupportsFloat,
    xDesc: TensorDescriptor,
    xData: Memory,
    yDesc: TensorDescriptor | None,
    yData: Memory,
    dyDesc: TensorDescriptor,
    dyData: Memory,
    dzDesc: TensorDescriptor | None,
    dzData: Memory,
    dxDesc: TensorDescriptor,
    dxData: Memory,
    dBnScaleBiasDesc: TensorDescriptor,
    bnScaleData: Memory,
    bnBiasData: Memory,
    dBnScaleData: Memory,
    dBnBiasData: Memory,
    epsilon: SupportsFloat,
    savedMean: Memory,
    savedInvVariance: Memory,
    activationDesc: ActivationDescriptor | None,
    workspace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnBatchNormalizationBackward; with bnOps, dz replaces dy. dz is dy where the ReLU passed its
    argument, else 0.

    Without z, the argument is computed again from x, the statistics, bnScaleData and bnBiasData. With z, reserveSpace
    records it, as cudnnBatchNormalizationForwardTrainingEx left it. y is not read. bnBiasData may be NULL with
    CUDNN_BATCHNORM_OPS_BN. dz is overwritten.
    Types and layouts: as in that call; dz supports every type.
    Errors: those of cudnnBatchNormalizationBackward; BAD_PARAM for a missing or different y or dz (c24), a missing
    activation (c36) or bias (c44), a reserve space that is too small (c38); NOT_SUPPORTED for other activations (c43),
    layouts (c19).
    Source: 4.1.3; docs/errata.md, D155, D156.
    """

def cudnnBatchNormalizationForwardTraining(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    alpha: SupportsFloat,
    beta: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    yDesc: TensorDescriptor,
    y: Memory,
    bnScaleBiasMeanVarDesc: TensorDescriptor,
    bnScale: Memory,
    bnBias: Memory,
    exponentialAverageFactor: SupportsFloat,
    resultRunningMean: Memory,
    resultRunningVariance: Memory,
    epsilon: SupportsFloat,
    resultSaveMean: Memory,
    resultSaveInvVariance: Memory,
) -> None:
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

def cudnnBatchNormalizationForwardTrainingEx(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    bnOps: cudnnBatchNormOps_t,
    alpha: SupportsFloat,
    beta: SupportsFloat,
    xDesc: TensorDescriptor,
    xData: Memory,
    zDesc: TensorDescriptor | None,
    zData: Memory,
    yDesc: TensorDescriptor,
    yData: Memory,
    bnScaleBiasMeanVarDesc: TensorDescriptor,
    bnScaleData: Memory,
    bnBiasData: Memory,
    exponentialAverageFactor: SupportsFloat,
    resultRunningMeanData: Memory,
    resultRunningVarianceData: Memory,
    epsilon: SupportsFloat,
    saveMean: Memory,
    saveInvVariance: Memory,
    activationDesc: ActivationDescriptor | None,
    workspace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnBatchNormalizationForwardTraining, optionally followed by a ReLU, or by adding z and a ReLU.

    bnOps selects the steps: y = alpha * relu(n + z) + beta * y with all of them.
    For fused operations x, y and z are packed NHWC tensors with equal dimensions and data types: HALF, FLOAT, DOUBLE,
    or only HALF with z. Every mode supports them.
    workspace is not used. reserveSpace has the bytes that the query returns, and records for the backward call which
    elements the ReLU passes. Both may be NULL if they have no bytes.
    Errors: those of cudnnBatchNormalizationForwardTraining; BAD_PARAM for a missing or different z (c22), a missing
    activation (c37), a reserve space that is too small (c39); NOT_SUPPORTED for other activations and layouts (c44), z
    of other types (c41, c42).
    Source: 4.1.5; docs/errata.md, D153, D154, D167.
    """

def cudnnDivisiveNormalizationBackward(
    handle: Handle,
    normDesc: LRNDescriptor,
    mode: cudnnDivNormMode_t,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    means: Memory,
    dy: Memory,
    temp: Memory,
    temp2: Memory,
    beta: SupportsFloat,
    dxDesc: TensorDescriptor,
    dx: Memory,
    dMeans: Memory,
) -> None:
    """Compute dx = alpha * gradient of x + beta * dx, dMeans = alpha * gradient of means + beta * dMeans; beta == 0
    reads neither.

    x and means are independent inputs of the forward formula. s is its sum plus lrnK, and q = dy * x * s^(-lrnBeta -
    1).
    The gradient of means is 2 * lrnAlpha * lrnBeta / lrnN^d * q * (sum of x - m over the window).
    The gradient of x is dy * s^-lrnBeta - 2 * lrnAlpha * lrnBeta / lrnN^d * (sum of q * (x - m)). This sum covers the
    positions whose windows contain x, each with its own m.
    x, means, dy, temp, temp2: described by xDesc; dx, dMeans: by dxDesc, with its dimensions, strides and data type
    (FLOAT, DOUBLE, HALF); 4 or 5 dimensions of any strides. NULL means are zeros. dMeans may be NULL if it is not
    wanted.
    Errors: BAD_PARAM for other numbers of dimensions (c14), differing dimensions (c16), an unknown mode (c05);
    NOT_SUPPORTED for differing strides or data types, other data types, overlapping strides (c19).
    Source: 4.1.6; formula: docs/errata.md, D168.
    """

def cudnnDropoutBackward(
    handle: Handle,
    dropoutDesc: DropoutDescriptor,
    dyDesc: TensorDescriptor,
    dy: Memory,
    dxDesc: TensorDescriptor,
    dx: Memory,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Compute dx = dy / (1 - dropout) for the elements that the forward call kept, and 0 for the others.

    dy, dx: as x and y of cudnnDropoutForward. reserveSpace: as that call left it; the states are neither read nor
    written.
    Errors: BAD_PARAM for differing numbers of elements (c08) or types (c09), in place with differing strides (c10), a
    reserve space that is too small (c11), a descriptor without states (c12); NOT_SUPPORTED for other types (c07).
    Source: 4.1.7.
    """

def cudnnGetBatchNormalizationBackwardExWorkspaceSize(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    bnOps: cudnnBatchNormOps_t,
    xDesc: TensorDescriptor,
    yDesc: TensorDescriptor | None,
    dyDesc: TensorDescriptor,
    dzDesc: TensorDescriptor | None,
    dxDesc: TensorDescriptor,
    dBnScaleBiasDesc: TensorDescriptor,
    activationDesc: ActivationDescriptor | None,
) -> int:
    """Return the bytes of workspace of cudnnBatchNormalizationBackwardEx, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.8.
    """

def cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    bnOps: cudnnBatchNormOps_t,
    xDesc: TensorDescriptor,
    zDesc: TensorDescriptor | None,
    yDesc: TensorDescriptor,
    bnScaleBiasMeanVarDesc: TensorDescriptor,
    activationDesc: ActivationDescriptor | None,
) -> int:
    """Return the bytes of workspace of cudnnBatchNormalizationForwardTrainingEx, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.9.
    """

def cudnnGetBatchNormalizationTrainingExReserveSpaceSize(
    handle: Handle,
    mode: cudnnBatchNormMode_t,
    bnOps: cudnnBatchNormOps_t,
    activationDesc: ActivationDescriptor | None,
    xDesc: TensorDescriptor,
) -> int:
    """Return the bytes of reserve space: one per element of x with CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION, else 0.

    Errors: BAD_PARAM for other than 4 or 5 dimensions (c08), a fused operation without an activation (c05);
    NOT_SUPPORTED for data types, activations and layouts that the calls do not support (c07). Source: 4.1.10.
    """

def cudnnGetNormalizationBackwardWorkspaceSize(
    handle: Handle,
    mode: cudnnNormMode_t,
    normOps: cudnnNormOps_t,
    algo: cudnnNormAlgo_t,
    xDesc: TensorDescriptor,
    yDesc: TensorDescriptor | None,
    dyDesc: TensorDescriptor,
    dzDesc: TensorDescriptor | None,
    dxDesc: TensorDescriptor,
    dNormScaleBiasDesc: TensorDescriptor,
    activationDesc: ActivationDescriptor | None,
    normMeanVarDesc: TensorDescriptor,
    groupCnt: SupportsIndex,
) -> int:
    """Return the bytes of workspace of cudnnNormalizationBackward, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.11.
    """

def cudnnGetNormalizationForwardTrainingWorkspaceSize(
    handle: Handle,
    mode: cudnnNormMode_t,
    normOps: cudnnNormOps_t,
    algo: cudnnNormAlgo_t,
    xDesc: TensorDescriptor,
    zDesc: TensorDescriptor | None,
    yDesc: TensorDescriptor,
    normScaleBiasDesc: TensorDescriptor,
    activationDesc: ActivationDescriptor | None,
    normMeanVarDesc: TensorDescriptor,
    groupCnt: SupportsIndex,
) -> int:
    """Return the bytes of workspace of cudnnNormalizationForwardTraining, which is 0.

    Errors: those of the call for the descriptors. Source: 4.1.12.
    """

def cudnnGetNormalizationTrainingReserveSpaceSize(
    handle: Handle,
    mode: cudnnNormMode_t,
    normOps: cudnnNormOps_t,
    algo: cudnnNormAlgo_t,
    activationDesc: ActivationDescriptor | None,
    xDesc: TensorDescriptor,
    groupCnt: SupportsIndex,
) -> int:
    """Return the bytes of reserve space: one per element of x with CUDNN_NORM_OPS_NORM_ADD_ACTIVATION, else 0.

    Errors: BAD_PARAM for other than 4 or 5 dimensions (c11), a fused operation without an activation (c07);
    NOT_SUPPORTED for groupCnt other than 1 (c08), data types and activations that the calls do not support (c10),
    layouts (c04). Source: 4.1.13.
    """

def cudnnLRNCrossChannelBackward(
    handle: Handle,
    normDesc: LRNDescriptor,
    lrnMode: cudnnLRNMode_t,
    alpha: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    dxDesc: TensorDescriptor,
    dx: Memory,
) -> None:
    """Compute dx = alpha * gradient + beta * dx; beta == 0 does not read dx.

    s is the sum of the forward call plus lrnK. gradient[c] = dy[c] * s[c]^-lrnBeta - 2 * lrnAlpha * lrnBeta / lrnN *
    x[c] * (sum of dy * x * s^(-lrnBeta - 1) over the channels whose windows contain c). The gradient is computed from
    x; y, the output of the forward call, is not read.
    y, dy, x, dx: equal dimensions and data types (FLOAT, DOUBLE, HALF); 4 dimensions of any strides, or 5 that are
    DHW-packed. Not in place.
    Errors: BAD_PARAM for 5 dimensions that are not DHW-packed (c13), an unknown lrnMode (c06); NOT_SUPPORTED for
    differing data types (c14) or dimensions (c15), other ranks, overlapping strides or other data types (c04).
    Source: 4.1.14; formula: docs/errata.md, D179.
    """

def cudnnNormalizationBackward(
    handle: Handle,
    mode: cudnnNormMode_t,
    normOps: cudnnNormOps_t,
    algo: cudnnNormAlgo_t,
    alphaDataDiff: SupportsFloat,
    betaDataDiff: SupportsFloat,
    alphaParamDiff: SupportsFloat,
    betaParamDiff: SupportsFloat,
    xDesc: TensorDescriptor,
    xData: Memory,
    yDesc: TensorDescriptor | None,
    yData: Memory,
    dyDesc: TensorDescriptor,
    dyData: Memory,
    dzDesc: TensorDescriptor | None,
    dzData: Memory,
    dxDesc: TensorDescriptor,
    dxData: Memory,
    dNormScaleBiasDesc: TensorDescriptor,
    normScaleData: Memory,
    normBiasData: Memory,
    dNormScaleData: Memory,
    dNormBiasData: Memory,
    epsilon: SupportsFloat,
    normMeanVarDesc: TensorDescriptor,
    savedMean: Memory,
    savedInvVariance: Memory,
    activationDesc: ActivationDescriptor | None,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
    groupCnt: SupportsIndex,
) -> None:
    """Do the same as cudnnBatchNormalizationBackwardEx, with separate descriptors for scale and bias and for the
    statistics.

    BFLOAT16 is supported too.
    Errors: BAD_PARAM for NULL (c39), other numbers of dimensions (c40), of statistics (c41), one of the saved NULL
    (c42), a negative epsilon (c43), differing dimensions or data types (c44), a missing or different y or dz (c21), a
    missing activation (c33), a reserve space that is too small (c35); NOT_SUPPORTED for groupCnt other than 1 (c36),
    CUDNN_NORM_ALGO_PERSIST per activation (cudnnNormAlgo_t/c01), layouts of fused operations (c17), other data types
    and activations (c38). Source: 4.1.15.
    """

def cudnnNormalizationForwardTraining(
    handle: Handle,
    mode: cudnnNormMode_t,
    normOps: cudnnNormOps_t,
    algo: cudnnNormAlgo_t,
    alpha: SupportsFloat,
    beta: SupportsFloat,
    xDesc: TensorDescriptor,
    xData: Memory,
    normScaleBiasDesc: TensorDescriptor,
    normScale: Memory,
    normBias: Memory,
    exponentialAverageFactor: SupportsFloat,
    normMeanVarDesc: TensorDescriptor,
    resultRunningMean: Memory,
    resultRunningVariance: Memory,
    epsilon: SupportsFloat,
    resultSaveMean: Memory,
    resultSaveInvVariance: Memory,
    activationDesc: ActivationDescriptor | None,
    zDesc: TensorDescriptor | None,
    zData: Memory,
    yDesc: TensorDescriptor,
    yData: Memory,
    workspace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
    groupCnt: SupportsIndex,
) -> None:
    """Do the same as cudnnBatchNormalizationForwardTrainingEx, with separate descriptors for scale and bias and for the
    statistics.

    BFLOAT16 is supported too, and z of every type. algo does not affect the result. The smallest epsilon is 0.
    Errors: BAD_PARAM for NULL (c39), other numbers of dimensions (c40), of statistics (c41), one of two results NULL
    (c42, c43), a negative epsilon (c44), differing dimensions or data types (c45), a missing or different z (c21), a
    missing activation (c33), a reserve space that is too small (c35); NOT_SUPPORTED for groupCnt other than 1 (c36),
    CUDNN_NORM_ALGO_PERSIST per activation (cudnnNormAlgo_t/c01), layouts of fused operations (c18), other data types
    and activations (c38). Source: 4.1.16.
    """

def cudnnOpsTrainVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c03). Source: 4.1.17."""

def cudnnPoolingBackward(
    handle: Handle,
    poolingDesc: PoolingDescriptor,
    alpha: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    dxDesc: TensorDescriptor,
    dx: Memory,
) -> None:
    """Compute dx = alpha * gradient + beta * dx; beta == 0 does not read dx.

    Maximum (both modes, deterministic): dy of a window is added to its first maximum in row-major order, which is the
    first NaN with CUDNN_PROPAGATE_NAN. y is the output of the forward call for x, so x alone decides.
    Average: each dy, divided as in the forward call, is added to every input of its window.
    y, dy: equal dimensions and strides; x, dx: equal dimensions and strides; equal n, c and data types (FLOAT, DOUBLE,
    HALF, BFLOAT16); 2 or 3 spatial dimensions; each tensor contiguous along its last dimension or along its channels.
    Errors: BAD_PARAM for differing dimensions or strides of y and dy (c09, c10) or of x and dx (c11, c12), data types
    (c13), n or c, numbers of dimensions; NOT_SUPPORTED for spatial dimensions other than 2 or 3 (c06), other types
    or strides (c14). Source: 4.1.18.
    """

def cudnnSoftmaxBackward(
    handle: Handle,
    algorithm: cudnnSoftmaxAlgorithm_t,
    mode: cudnnSoftmaxMode_t,
    alpha: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    beta: SupportsFloat,
    dxDesc: TensorDescriptor,
    dx: Memory,
) -> None:
    """Compute dx = alpha * gradient + beta * dx; beta == 0 does not read dx.

    The gradient is y * (dy - sum(y * dy)) for FAST and ACCURATE, dy - exp(y) * sum(dy) for LOG; the sums run over what
    one softmax runs over (see cudnnSoftmaxForward).
    y, dy, dx: equal dimensions and data types (FLOAT, DOUBLE, HALF, BFLOAT16), any strides up to 5 dimensions,
    spatially packed beyond; y and dy have equal strides. In place (dy is dx) if their descriptors are identical.
    Errors: BAD_PARAM for differing dimensions (c10), strides of y and dy (c11), data types (c12), an unknown algorithm
    or mode, in place with differing descriptors (c03); NOT_SUPPORTED for other data types (c09) or unpacked tensors of
    more than 5 dimensions (c06).
    Source: 4.1.19; formulas: docs/errata.md, D190.
    """

def cudnnSpatialTfGridGeneratorBackward(
    handle: Handle,
    stDesc: SpatialTransformerDescriptor,
    dgrid: Memory,
    dtheta: Memory,
) -> None:
    """Compute dtheta, the sum over pixels of dgrid (xt, yt, 1); it overwrites dtheta.

    dgrid, dtheta: as grid and theta of cudnnSpatialTfGridGeneratorForward.
    Errors: NOT_SUPPORTED for more than 4 dimensions (c06) or fewer (c02). Source: 4.1.20.
    """

def cudnnSpatialTfSamplerBackward(
    handle: Handle,
    stDesc: SpatialTransformerDescriptor,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    beta: SupportsFloat,
    dxDesc: TensorDescriptor,
    dx: Memory,
    alphaDgrid: SupportsFloat,
    dyDesc: TensorDescriptor,
    dy: Memory,
    grid: Memory,
    betaDgrid: SupportsFloat,
    dgrid: Memory,
) -> None:
    """Compute dx = alpha * (gradient of x) + beta * dx, dgrid = alphaDgrid * (gradient of grid) + betaDgrid * dgrid.

    The gradient of a coordinate uses the pixels on both sides of it: floor(column) and the next one. If a coordinate is
    NaN or infinite, dgrid is NaN, and nothing is added to dx. x, dx: equal dimensions; dy: the dimensions of stDesc;
    any strides; types as stDesc. Sums have a fixed order, so results are bitwise reproducible.
    Errors: BAD_PARAM where dy has not the dimensions of stDesc (c09), for other dimensions and types; NOT_SUPPORTED for
    more than 4 dimensions (c10) or fewer (c02). Source: 4.1.21.
    """

def cudnnBackendCreateDescriptor(descriptorType: cudnnBackendDescriptorType_t) -> BackendDescriptor:
    """Return a new backend descriptor of this type, to be filled by cudnnBackendSetAttribute.

    Errors: NOT_SUPPORTED where descriptors of the type cannot be created (c04). Source: 5.2.1.
    """

def cudnnBackendDestroyDescriptor(descriptor: BackendDescriptor) -> None:
    """Destroy the descriptor; objects that were finalised with it keep a copy of it.

    Errors: BAD_PARAM for NULL.

    Source: 5.2.2.
    """

def cudnnBackendExecute(handle: Handle, executionPlan: BackendDescriptor, variantPack: BackendDescriptor) -> None:
    """Run a finalised execution plan on the memory of a finalised variant pack.

    The pack maps the unique id of each tensor that is not virtual to a pointer. Its workspace has at least
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE bytes, and may be None if that is 0.
    Errors: BAD_PARAM for descriptors that are not finalised (c03), of another type or made for another handle (c07),
    pointers that are missing (c04), superfluous, too small or misaligned (c07), a workspace that is too small (c05);
    EXECUTION_FAILED where the device fails (c09). Source: 5.2.3.
    """

def cudnnBackendFinalize(descriptor: BackendDescriptor) -> None:
    """Check all attributes and make the descriptor immutable.

    Errors: BAD_PARAM for attributes that are missing, invalid or contradict each other, and for a finalised descriptor
    (c06); NOT_SUPPORTED (c07); the clauses of the descriptor's section say more. Source: 5.2.4, 9.2.
    """

class _cudnnBackendGetAttribute(NamedTuple):
    elementCount: int
    arrayOfElements: tuple[Any, ...]

def cudnnBackendGetAttribute(
    descriptor: BackendDescriptor,
    attributeName: cudnnBackendAttributeName_t,
    attributeType: cudnnBackendAttributeType_t,
    requestedElementCount: SupportsIndex,
) -> _cudnnBackendGetAttribute:
    """Return (number of elements of the attribute, at most requestedElementCount of them); descriptors are returned as
    new, finalised ones.

    Errors: NOT_INITIALIZED for a descriptor that is not finalised (c08); BAD_PARAM for an attribute of another
    descriptor type (c06), a type that it does not have (c07), a negative count. Source: 5.2.5.
    """

def cudnnBackendInitialize(
    descriptor: BackendDescriptor,
    descriptorType: cudnnBackendDescriptorType_t,
    sizeInBytes: SupportsIndex,
) -> None:
    """Reset the descriptor to an unfinalised one of this type, without attributes.

    sizeInBytes: at least the 8 bytes of a reference; the descriptor uses no other memory of the caller.
    Errors: BAD_PARAM for NULL (c05) and for fewer bytes (c06); NOT_SUPPORTED as in cudnnBackendCreateDescriptor.
    Source: 5.2.6.
    """

def cudnnBackendSetAttribute(
    descriptor: BackendDescriptor,
    attributeName: cudnnBackendAttributeName_t,
    attributeType: cudnnBackendAttributeType_t,
    elementCount: SupportsIndex,
    arrayOfElements: Sequence[Any],
) -> None:
    """Set an attribute of a descriptor that has not been finalised, replacing its earlier value.

    arrayOfElements: a sequence of at least elementCount values of the type; descriptors in it may be finalised later.
    Errors: NOT_INITIALIZED for a finalised descriptor (c03); BAD_PARAM for an attribute of another type or a read-only
    one (c04), a wrong type (c05), count (c06) or value (c07); NOT_SUPPORTED for placeholders (c08). Source: 5.2.7.
    """

def cudnnConvolutionBackwardData(
    handle: Handle,
    alpha: SupportsFloat,
    wDesc: FilterDescriptor,
    w: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    convDesc: ConvolutionDescriptor,
    algo: cudnnConvolutionBwdDataAlgo_t,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    beta: SupportsFloat,
    dxDesc: TensorDescriptor,
    dx: Memory,
) -> None:
    """Compute dx = alpha * result + beta * dx, where result is the gradient of cudnnConvolutionForward with respect to
    its input; beta == 0 does not read dx.

    result[n, g * C + c, h, ...] = sum of dy[n, k, (h + pad - r * dilation) / stride, ...] * w[k, c, r, ...].
    The sum covers every k in group g and every tap r for which h + pad - r * dilation is a multiple of the stride; dy
    is zero outside its extents. CUDNN_CONVOLUTION rotates w by 180 degrees (docs/errata.md, D212).
    Tables 12 to 15 (api/support/convolution_gradients.py) list the data types, layouts and shapes of each algorithm.
    Every algorithm is bitwise reproducible here; searches report the determinism that its enumerator promises.
    Errors: BAD_PARAM for NULL (c22), ranks that disagree (c23, c24), data types that differ (c26), channels (c27),
    other dimensions of dyDesc than the convolution gives (c28), a missing or too small workspace (c03); NOT_SUPPORTED
    for other ranks than 4 and 5 (c30), output channels that the groups do not divide (c32), what the algorithm does not
    support (c31).
    Source: 5.2.8; docs/errata.md, D212 to D215.
    """

def cudnnConvolutionBiasActivationForward(
    handle: Handle,
    alpha1: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    convDesc: ConvolutionDescriptor,
    algo: cudnnConvolutionFwdAlgo_t,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    alpha2: SupportsFloat,
    zDesc: TensorDescriptor,
    z: Memory,
    biasDesc: TensorDescriptor,
    bias: Memory,
    activationDesc: ActivationDescriptor,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = activation(alpha1 * conv(x, w) + alpha2 * z + bias); z is not read if alpha2 is 0, and z may be y.

    x, w, y: as in cudnnConvolutionForward, limited to table 16, which lacks TRUE_HALF_CONFIG. z: described exactly like
    y. bias: 1 x K x 1 x 1, of FLOAT for integer data, else of the type of y.
    Integer sums are exact; FLOAT arithmetic follows, rounded to nearest even and saturated (docs/errata.md, D221).
    IDENTITY needs IMPLICIT_PRECOMP_GEMM. RELU turns NaN into 0.
    Errors: BAD_PARAM as cudnnConvolutionForward, for NULL (c26) and ranks that disagree with convDesc (c27);
    NOT_SUPPORTED as cudnnConvolutionForward, for other activation modes (c29, c04) and for CUDNN_PROPAGATE_NAN (c30).
    NOT_SUPPORTED for a bias whose channel stride is not 1 (c31), that is not 1 x K x 1 x 1 (c32, c33), or that has
    another type (c34). NOT_SUPPORTED for z unlike y (c35).
    Source: 5.2.9.
    """

def cudnnConvolutionForward(
    handle: Handle,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    convDesc: ConvolutionDescriptor,
    algo: cudnnConvolutionFwdAlgo_t,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    beta: SupportsFloat,
    yDesc: TensorDescriptor,
    y: Memory,
) -> None:
    """Compute y = alpha * conv(x, w) + beta * y; beta == 0 does not read y.

    conv is a cross-correlation: conv[n, k, p, q] = sum over c, r, s of x[n, c, p * stride - pad + r * dilation, ...] *
    w[k, c, r, s]. x is zero outside its extents, and c runs over the group of k. CUDNN_CONVOLUTION rotates w by 180
    degrees (docs/errata.md, D235).
    Tables 17 to 22 (api/support/convolution.py) list the data types, layouts and shapes of each algorithm.
    Errors: BAD_PARAM for NULL (c46), ranks that disagree (c47, c48, c50), channels (c51), group count (c52), data types
    that no configuration has (c53), a dilated filter larger than the padded input (c54), other images or channels in
    yDesc (c04), a missing (c05) or too small workspace (c06); NOT_SUPPORTED for other ranks than 4 and 5 (c56), other
    sizes of yDesc (c57), what the algorithm does not support (c58). Source: 5.2.10.
    """

def cudnnCreateConvolutionDescriptor() -> ConvolutionDescriptor:
    """Return a new convolution descriptor: one group, default math type and reorder type; the convolution itself is not set.

    Source: 5.2.11; defaults: docs/errata.md, D236.
    """

def cudnnDestroyConvolutionDescriptor(convDesc: ConvolutionDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 5.2.12."""

class _cudnnFindConvolutionBackwardDataAlgorithm(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionBwdDataAlgoPerf_t, ...]

def cudnnFindConvolutionBackwardDataAlgorithm(
    handle: Handle,
    wDesc: FilterDescriptor,
    dyDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
    requestedAlgoCount: SupportsIndex,
) -> _cudnnFindConvolutionBackwardDataAlgorithm:
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by measured speed.
    They run on temporary memory. Failed algorithms come last, with their status and the time -1.

    An algorithm with a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH; others run with
    CUDNN_DEFAULT_MATH. With CUDNN_FMA_MATH in convDesc, all run with that math type alone. The call waits for the results.
    Errors: BAD_PARAM for NULL (c12, c13), descriptors that do not fit each other, requestedAlgoCount below 1
    (c16); ALLOC_FAILED without memory for w, dy and dx (c17). Source: 5.2.13.
    """

class _cudnnFindConvolutionBackwardDataAlgorithmEx(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionBwdDataAlgoPerf_t, ...]

def cudnnFindConvolutionBackwardDataAlgorithmEx(
    handle: Handle,
    wDesc: FilterDescriptor,
    w: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
    dx: Memory,
    requestedAlgoCount: SupportsIndex,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
) -> _cudnnFindConvolutionBackwardDataAlgorithmEx:
    """Do the same as cudnnFindConvolutionBackwardDataAlgorithm, on the caller's memory.

    The search overwrites dx. Algorithms that need more workspace than given (NULL is 0 bytes) get the status
    ALLOC_FAILED.
    Errors: BAD_PARAM for NULL (c15, c16, c18), descriptors that do not fit each other,
    requestedAlgoCount below 1 (c20), memory that is too small. Source: 5.2.14.
    """

class _cudnnFindConvolutionForwardAlgorithm(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionFwdAlgoPerf_t, ...]

def cudnnFindConvolutionForwardAlgorithm(
    handle: Handle,
    xDesc: TensorDescriptor,
    wDesc: FilterDescriptor,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
    requestedAlgoCount: SupportsIndex,
) -> _cudnnFindConvolutionForwardAlgorithm:
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by measured speed.
    They run on temporary memory. Failed algorithms come last, with their status and the time -1.

    An algorithm with a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH; others run with
    CUDNN_DEFAULT_MATH. With CUDNN_FMA_MATH in convDesc, all run with that math type alone. The call waits for the results.
    Errors: BAD_PARAM for NULL (c12, c13), descriptors that do not fit each other, requestedAlgoCount below 1
    (c16); ALLOC_FAILED without memory for x, w and y (c17). Source: 5.2.15.
    """

class _cudnnFindConvolutionForwardAlgorithmEx(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionFwdAlgoPerf_t, ...]

def cudnnFindConvolutionForwardAlgorithmEx(
    handle: Handle,
    xDesc: TensorDescriptor,
    x: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
    y: Memory,
    requestedAlgoCount: SupportsIndex,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
) -> _cudnnFindConvolutionForwardAlgorithmEx:
    """Do the same as cudnnFindConvolutionForwardAlgorithm, on the caller's memory.

    The search overwrites y. Algorithms that need more workspace than given (NULL is 0 bytes) get the status
    ALLOC_FAILED.
    Errors: BAD_PARAM for NULL (c15, c16, c18), descriptors that do not fit each other,
    requestedAlgoCount below 1 (c20), memory that is too small. Source: 5.2.16.
    """

class _cudnnGetConvolution2dDescriptor(NamedTuple):
    pad_h: int
    pad_w: int
    u: int
    v: int
    dilation_h: int
    dilation_w: int
    mode: cudnnConvolutionMode_t
    computeType: cudnnDataType_t

def cudnnGetConvolution2dDescriptor(convDesc: ConvolutionDescriptor) -> _cudnnGetConvolution2dDescriptor:
    """Return (pad_h, pad_w, u, v, dilation_h, dilation_w, mode, computeType) as they were set.

    Errors: BAD_PARAM for a descriptor that is not that of a 2-D convolution (c07). Source: 5.2.17.
    """

class _cudnnGetConvolution2dForwardOutputDim(NamedTuple):
    n: int
    c: int
    h: int
    w: int

def cudnnGetConvolution2dForwardOutputDim(
    convDesc: ConvolutionDescriptor,
    inputTensorDesc: TensorDescriptor,
    filterDesc: FilterDescriptor,
) -> _cudnnGetConvolution2dForwardOutputDim:
    """Return (n, c, h, w) of the result: h and w are 1 + (input + 2 * padding - ((filter - 1) * dilation + 1)) / stride.

    Errors: BAD_PARAM for descriptors that are not of a 2-D convolution (c07), input channels that are not the filter's
    times the group count (c08), a dilated filter larger than the padded input. Source: 5.2.18.
    """

def cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle: Handle) -> int:
    """Return the maximum number of results of cudnnFindConvolutionBackwardDataAlgorithm and
    cudnnGetConvolutionBackwardDataAlgorithm_v7.

    It counts all algorithms, plus one for each CUDNN_TENSOR_OP_MATH variant.
    Source: 5.2.19.
    """

class _cudnnGetConvolutionBackwardDataAlgorithm_v7(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionBwdDataAlgoPerf_t, ...]

def cudnnGetConvolutionBackwardDataAlgorithm_v7(
    handle: Handle,
    wDesc: FilterDescriptor,
    dyDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
    requestedAlgoCount: SupportsIndex,
) -> _cudnnGetConvolutionBackwardDataAlgorithm_v7:
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by expected speed.
    Unsupported algorithms come last, with their status. Nothing is run: time is -1.

    Errors: BAD_PARAM for NULL (c08), channels (c09), data types (c10), other descriptors that do not fit each other,
    requestedAlgoCount below 1 (c11). Source: 5.2.20.
    """

def cudnnGetConvolutionBackwardDataWorkspaceSize(
    handle: Handle,
    wDesc: FilterDescriptor,
    dyDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
    algo: cudnnConvolutionBwdDataAlgo_t,
) -> int:
    """Return the bytes of workspace that cudnnConvolutionBackwardData needs for these descriptors and this algorithm.

    Errors: those of cudnnConvolutionBackwardData; channels that differ are c06, data types c07 here. Source: 5.2.21.
    """

def cudnnGetConvolutionForwardAlgorithmMaxCount(handle: Handle) -> int:
    """Return the maximum number of results of cudnnFindConvolutionForwardAlgorithm and
    cudnnGetConvolutionForwardAlgorithm_v7.

    It counts all algorithms, plus one for each CUDNN_TENSOR_OP_MATH variant.
    Source: 5.2.22.
    """

class _cudnnGetConvolutionForwardAlgorithm_v7(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionFwdAlgoPerf_t, ...]

def cudnnGetConvolutionForwardAlgorithm_v7(
    handle: Handle,
    xDesc: TensorDescriptor,
    wDesc: FilterDescriptor,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
    requestedAlgoCount: SupportsIndex,
) -> _cudnnGetConvolutionForwardAlgorithm_v7:
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by expected speed.
    Unsupported algorithms come last, with their status. Nothing is run: time is -1.

    Errors: BAD_PARAM for NULL (c08), ranks (c09), data types (c10), channels (c11),
    requestedAlgoCount below 1 (c13). Source: 5.2.23.
    """

def cudnnGetConvolutionForwardWorkspaceSize(
    handle: Handle,
    xDesc: TensorDescriptor,
    wDesc: FilterDescriptor,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
    algo: cudnnConvolutionFwdAlgo_t,
) -> int:
    """Return the bytes of workspace that cudnnConvolutionForward needs for these descriptors and this algorithm.

    Errors: BAD_PARAM for NULL (c06), ranks (c07), data types (c08), channels (c09); NOT_SUPPORTED where the
    algorithm does not support the problem (c11). Source: 5.2.24.
    """

def cudnnGetConvolutionGroupCount(convDesc: ConvolutionDescriptor) -> int:
    """Return the number of groups; 1 unless it was set. Source: 5.2.25."""

def cudnnGetConvolutionMathType(convDesc: ConvolutionDescriptor) -> cudnnMathType_t:
    """Return the math type; CUDNN_DEFAULT_MATH unless it was set. Source: 5.2.26."""

class _cudnnGetConvolutionNdDescriptor(NamedTuple):
    arrayLength: int
    padA: tuple[int, ...]
    filterStrideA: tuple[int, ...]
    dilationA: tuple[int, ...]
    mode: cudnnConvolutionMode_t
    dataType: cudnnDataType_t

def cudnnGetConvolutionNdDescriptor(
    convDesc: ConvolutionDescriptor,
    arrayLengthRequested: SupportsIndex,
) -> _cudnnGetConvolutionNdDescriptor:
    """Return (arrayLength, padA, filterStrideA, dilationA, mode, dataType); arrays hold min(arrayLengthRequested,
    arrayLength) entries.

    Errors: BAD_PARAM for a negative arrayLengthRequested (c10) or an uninitialised descriptor (c01); NOT_SUPPORTED for
    arrayLengthRequested above CUDNN_DIM_MAX - 2 (c11). Source: 5.2.27.
    """

def cudnnGetConvolutionNdForwardOutputDim(
    convDesc: ConvolutionDescriptor,
    inputTensorDesc: TensorDescriptor,
    filterDesc: FilterDescriptor,
    nbDims: SupportsIndex,
) -> tuple[int, ...]:
    """Return the first nbDims of (images, filters, spatial ...) of the result; sizes as cudnnGetConvolution2dForwardOutputDim.

    Errors: BAD_PARAM for ranks that disagree (c07, c08), input channels that are not the filter's times the group count
    (c09), a dilated filter larger than the padded input (c10), nbDims below 0 or above the input's rank (c11).
    Source: 5.2.28.
    """

def cudnnGetConvolutionReorderType(convDesc: ConvolutionDescriptor) -> cudnnReorderType_t:
    """Return the reorder type; CUDNN_DEFAULT_REORDER unless it was set. Source: 5.2.29."""

def cudnnGetFoldedConvBackwardDataDescriptors(
    handle: Handle,
    filterDesc: FilterDescriptor,
    diffDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    gradDesc: TensorDescriptor,
    transformFormat: cudnnTensorFormat_t,
    foldedFilterDesc: FilterDescriptor,
    paddedDiffDesc: TensorDescriptor,
    foldedConvDesc: ConvolutionDescriptor,
    foldedGradDesc: TensorDescriptor,
    filterFoldTransDesc: TensorTransformDescriptor,
    diffPadTransDesc: TensorTransformDescriptor,
    gradFoldTransDesc: TensorTransformDescriptor,
    gradUnfoldTransDesc: TensorTransformDescriptor,
) -> None:
    """Describe a data gradient with strides u, v as one of stride 1, whose gradient and filter have C * u * v channels.

    filterFoldTransDesc transforms the filter and diffPadTransDesc transforms dy. cudnnConvolutionBackwardData on the
    folded descriptors then gives a gradient, which gradUnfoldTransDesc turns into dx. gradFoldTransDesc folds a dx that
    beta blends in.
    A spatial dimension of extent H with padding p, filter R and stride u gets the padding ceil(p / u). u * ceil(p / u)
    - p zeros precede the filter, and zeros follow it up to a multiple of u. Zeros follow dy up to the folded
    convolution's output.
    The channels of dy are padded to multiples of 8; without folding, so are the channels of dx (docs/errata.md, D251).
    filterDesc, diffDesc, convDesc, gradDesc: as for cudnnConvolutionBackwardData, with 4 dimensions. transformFormat:
    CUDNN_TENSOR_NCHW or CUDNN_TENSOR_NHWC, the format of everything folded. The call fills the other descriptors.
    Errors: BAD_PARAM for NULL (c08), other than 4 dimensions (c09), descriptors that do not fit each other;
    NOT_SUPPORTED for another transformFormat; EXECUTION_FAILED if no folding gives the same gradient (c10): strides
    above 1 with groups, with dilation in that dimension, or with CUDNN_CONVOLUTION and more than one tap in it;
    channels of groups that need padding.
    Source: 5.2.30.
    """

def cudnnIm2Col(
    handle: Handle,
    srcDesc: TensorDescriptor,
    srcData: Memory,
    filterDesc: FilterDescriptor,
    convDesc: ConvolutionDescriptor,
    colBuffer: Memory,
) -> None:
    """Write the matrix A of GEMM convolution: one row per output position (n, p, q), one column per channel and filter
    position (c, r, s).

    An entry is the input value at that position, or 0 in the padding; with CUDNN_CONVOLUTION r and s run backwards.
    srcDesc: FLOAT, DOUBLE, HALF, BFLOAT16, any strides, 4 dimensions. filterDesc: a floating type and the filter's
    height and width. Its channels are not read; the matrix has the channels of srcDesc (c02, c03).
    colBuffer: images * output positions rows of channels * filter positions elements, no gaps.
    Errors: NOT_SUPPORTED for other data types (c08), more than one group (c09), other ranks, a padded input of 2**31
    positions (c04); BAD_PARAM for NULL (c07) and sizes that give no output
    (cudnnGetConvolutionNdForwardOutputDim). Source: 5.2.31; docs/errata.md, D252, D670.
    """

def cudnnReorderFilterAndBias(
    handle: Handle,
    filterDesc: FilterDescriptor,
    reorderType: cudnnReorderType_t,
    filterData: Memory,
    reorderedFilterData: Memory,
    reorderBias: SupportsIndex,
    biasData: Memory,
    reorderedBiasData: Memory,
) -> None:
    """Write an INT8x32 filter, and its bias if reorderBias > 0, in the order that CUDNN_NO_REORDER convolutions read.

    The order follows NVIDIA's library (docs/errata.md, D253). With CUDNN_NO_REORDER the values are copied. filterDesc:
    INT8x32, 2-D, K a multiple of 32. The bias has K FLOATs; its pointers are ignored unless reorderBias > 0.
    Errors: NOT_SUPPORTED for other filters; BAD_PARAM for NULL. Source: 5.2.32.
    """

def cudnnSetConvolution2dDescriptor(
    convDesc: ConvolutionDescriptor,
    pad_h: SupportsIndex,
    pad_w: SupportsIndex,
    u: SupportsIndex,
    v: SupportsIndex,
    dilation_h: SupportsIndex,
    dilation_w: SupportsIndex,
    mode: cudnnConvolutionMode_t,
    computeType: cudnnDataType_t,
) -> None:
    """Describe a 2-D convolution: zero padding on each side, strides u (vertical) and v, dilations, mode, compute type.

    Group count, math type and reorder type are unchanged.
    Errors: BAD_PARAM for negative padding (c13), strides (c14) or dilations (c15) below 1, an unknown mode (c16), a
    compute type other than FLOAT, DOUBLE, HALF, INT32. Source: 5.2.33.
    """

def cudnnSetConvolutionGroupCount(convDesc: ConvolutionDescriptor, groupCount: SupportsIndex) -> None:
    """Set the number of groups. Errors: BAD_PARAM for groupCount below 1. Source: 5.2.34; docs/errata.md, D245."""

def cudnnSetConvolutionMathType(convDesc: ConvolutionDescriptor, mathType: cudnnMathType_t) -> None:
    """Set the math type: whether tensor cores or TF32 may compute the convolution.

    Errors: BAD_PARAM (c03, c04). Source: 5.2.35.
    """

def cudnnSetConvolutionNdDescriptor(
    convDesc: ConvolutionDescriptor,
    arrayLength: SupportsIndex,
    padA: Sequence[SupportsIndex],
    filterStrideA: Sequence[SupportsIndex],
    dilationA: Sequence[SupportsIndex],
    mode: cudnnConvolutionMode_t,
    dataType: cudnnDataType_t,
) -> None:
    """Describe a convolution of arrayLength spatial dimensions, computed in dataType.

    padA, filterStrideA, dilationA: at least arrayLength entries. Group count, math type and reorder type are unchanged.
    Errors: BAD_PARAM for a negative arrayLength (c13), an unknown mode (c14), a dataType other than FLOAT, DOUBLE,
    HALF, INT32 (c15), negative padding (c16), strides (c17) or dilations (c18) below 1; NOT_SUPPORTED for arrayLength
    above CUDNN_DIM_MAX (c19). Source: 5.2.36.
    """

def cudnnSetConvolutionReorderType(convDesc: ConvolutionDescriptor, reorderType: cudnnReorderType_t) -> None:
    """Set the reorder type; CUDNN_NO_REORDER means that INT8x32 filters have the order of cudnnReorderFilterAndBias.

    Source: 5.2.37.

    Errors: BAD_PARAM for an unknown reorderType (c02).
    """

def cudnnConvolutionBackwardBias(
    handle: Handle,
    alpha: SupportsFloat,
    dyDesc: TensorDescriptor,
    dy: Memory,
    beta: SupportsFloat,
    dbDesc: TensorDescriptor,
    db: Memory,
) -> None:
    """Compute db = alpha * result + beta * db; beta == 0 does not read db.

    result[0, c, 0, 0] = sum of dy[n, c, h, w] over n, h and w. dy: FLOAT, DOUBLE, HALF or BFLOAT16, any strides, 4 to 8
    dimensions. db: the rank and type of dy, with extent 1 except for the channels. Sums are in DOUBLE for DOUBLE, else
    in FLOAT, in a fixed order.
    Errors: BAD_PARAM for another extent than 1 in db, depth too, or another number of dimensions (c07), other channels
    (c08), other types (c09); NOT_SUPPORTED for other data types and numbers of dimensions (c06).
    Source: 6.2.1; docs/errata.md, D282.
    """

def cudnnConvolutionBackwardFilter(
    handle: Handle,
    alpha: SupportsFloat,
    xDesc: TensorDescriptor,
    x: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    convDesc: ConvolutionDescriptor,
    algo: cudnnConvolutionBwdFilterAlgo_t,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    beta: SupportsFloat,
    dwDesc: FilterDescriptor,
    dw: Memory,
) -> None:
    """Compute dw = alpha * result + beta * dw, where result is the gradient of cudnnConvolutionForward with respect to
    its filter; beta == 0 does not read dw.

    result[k, c, r, ...] = sum over n, p, ... of dy[n, k, p, ...] * x[n, g * C + c, p * stride + r * dilation - pad,
    ...].
    x is zero outside its extents. CUDNN_CONVOLUTION rotates the result by 180 degrees (docs/errata.md, D280).
    Tables 36 to 39 (api/support/convolution_gradients.py) list the data types, layouts and shapes of each algorithm.
    Every algorithm is bitwise reproducible here; searches report the determinism that its enumerator promises.
    Errors: BAD_PARAM for NULL (c40), ranks that disagree (c41, c42), data types that differ (c44), channels (c45),
    output channels that the groups do not divide (c46), other dimensions of dyDesc than the convolution gives, a
    missing (c05) or too small (c06) workspace; NOT_SUPPORTED for other ranks than 4 and 5 (c48), what the algorithm
    does not support (c49).
    Source: 6.2.2; docs/errata.md, D274 to D281.
    """

def cudnnCreateFusedOpsConstParamPack(ops: cudnnFusedOps_t) -> FusedOpsConstParamPack:
    """Return a constant parameter pack of a sequence, without descriptors, with CUDNN_PTR_NULL and
    CUDNN_BATCHNORM_PER_ACTIVATION.

    Errors: NOT_SUPPORTED for an unknown sequence (c05). Source: 6.2.3, the tables of 6.1.3.2.
    """

def cudnnCreateFusedOpsPlan(ops: cudnnFusedOps_t) -> FusedOpsPlan:
    """Return a plan descriptor of a sequence, to be filled by cudnnMakeFusedOpsPlan.

    Errors: BAD_PARAM for an unknown sequence (c03). Source: 6.2.4.
    """

def cudnnCreateFusedOpsVariantParamPack(ops: cudnnFusedOps_t) -> FusedOpsVariantParamPack:
    """Return a variant parameter pack of a sequence, with NULL pointers and zeros.

    Errors: BAD_PARAM for an unknown sequence (c03). Source: 6.2.5.
    """

def cudnnDestroyFusedOpsConstParamPack(constPack: FusedOpsConstParamPack) -> None:
    """Destroy the pack; any later use is BAD_PARAM. Plans that were made from it stay valid. Source: 6.2.6."""

def cudnnDestroyFusedOpsPlan(plan: FusedOpsPlan | None) -> None:
    """Destroy the plan; None does nothing; any later use is BAD_PARAM. Source: 6.2.7."""

def cudnnDestroyFusedOpsVariantParamPack(varPack: FusedOpsVariantParamPack) -> None:
    """Destroy the pack, but not the memory that it points to; any later use is BAD_PARAM. Source: 6.2.8."""

class _cudnnFindConvolutionBackwardFilterAlgorithm(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionBwdFilterAlgoPerf_t, ...]

def cudnnFindConvolutionBackwardFilterAlgorithm(
    handle: Handle,
    xDesc: TensorDescriptor,
    dyDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dwDesc: FilterDescriptor,
    requestedAlgoCount: SupportsIndex,
) -> _cudnnFindConvolutionBackwardFilterAlgorithm:
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by measured speed.
    They run on temporary memory. Failed algorithms come last, with their status and the time -1.

    An algorithm with a tensor op variant runs with the math type of convDesc and with CUDNN_DEFAULT_MATH; others run with
    CUDNN_DEFAULT_MATH. With CUDNN_FMA_MATH in convDesc, all run with that math type alone. The call waits for the results.
    Errors: BAD_PARAM for NULL (c13, c14), descriptors that do not fit each other, requestedAlgoCount below 1
    (c17); ALLOC_FAILED without memory for x, dy and dw (c18). Source: 6.2.9.
    """

class _cudnnFindConvolutionBackwardFilterAlgorithmEx(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionBwdFilterAlgoPerf_t, ...]

def cudnnFindConvolutionBackwardFilterAlgorithmEx(
    handle: Handle,
    xDesc: TensorDescriptor,
    x: Memory,
    dyDesc: TensorDescriptor,
    dy: Memory,
    convDesc: ConvolutionDescriptor,
    dwDesc: FilterDescriptor,
    dw: Memory,
    requestedAlgoCount: SupportsIndex,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
) -> _cudnnFindConvolutionBackwardFilterAlgorithmEx:
    """Do the same as cudnnFindConvolutionBackwardFilterAlgorithm, on the caller's memory.

    The search overwrites dw. Algorithms that need more workspace than given (NULL is 0 bytes) get the status
    ALLOC_FAILED.
    Errors: BAD_PARAM for NULL (c16, c17, c19), descriptors that do not fit each other,
    requestedAlgoCount below 1 (c21), memory that is too small. Source: 6.2.10.
    """

def cudnnFusedOpsExecute(handle: Handle, plan: FusedOpsPlan, varPack: FusedOpsVariantParamPack) -> None:
    """Run a plan on the memory and the scalars of a variant parameter pack, which may change between calls.

    Errors: BAD_PARAM for a plan that was not made (c02), a pack of another sequence (c03), pointers that are not what
    the placeholders promise, a workspace that is missing or too small (the clauses of
    cudnnFusedOpsVariantParamLabel_t), an epsilon below CUDNN_BN_MIN_EPSILON, an accumulation count below 1.
    Source: 6.2.11, tables 31 to 35.
    """

def cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle: Handle) -> int:
    """Return the maximum number of results of cudnnFindConvolutionBackwardFilterAlgorithm and
    cudnnGetConvolutionBackwardFilterAlgorithm_v7.

    It counts all algorithms, plus one for each CUDNN_TENSOR_OP_MATH variant.
    Source: 6.2.12.
    """

class _cudnnGetConvolutionBackwardFilterAlgorithm_v7(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[cudnnConvolutionBwdFilterAlgoPerf_t, ...]

def cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    handle: Handle,
    xDesc: TensorDescriptor,
    dyDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dwDesc: FilterDescriptor,
    requestedAlgoCount: SupportsIndex,
) -> _cudnnGetConvolutionBackwardFilterAlgorithm_v7:
    """Return (returnedAlgoCount, perfResults): at most requestedAlgoCount algorithms, ordered by expected speed.
    Unsupported algorithms come last, with their status. Nothing is run: time is -1.

    Errors: BAD_PARAM for NULL (c07), channels (c08), data types (c09), other descriptors that do not fit each other,
    requestedAlgoCount below 1 (c10). Source: 6.2.13.
    """

def cudnnGetConvolutionBackwardFilterWorkspaceSize(
    handle: Handle,
    xDesc: TensorDescriptor,
    dyDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dwDesc: FilterDescriptor,
    algo: cudnnConvolutionBwdFilterAlgo_t,
) -> int:
    """Return the bytes of workspace that cudnnConvolutionBackwardFilter needs for these descriptors and this algorithm.

    Errors: those of cudnnConvolutionBackwardFilter; channels that differ are c05, data types c06 here. Source: 6.2.14.
    """

class _cudnnGetFusedOpsConstParamPackAttribute(NamedTuple):
    param: Any
    isNULL: int

def cudnnGetFusedOpsConstParamPackAttribute(
    constPack: FusedOpsConstParamPack,
    paramLabel: cudnnFusedOpsConstParamLabel_t,
) -> _cudnnGetFusedOpsConstParamPackAttribute:
    """Return (param, isNULL): a new descriptor with the pack's contents, or the value, and 0. If the pack holds NULL,
    return (None, 1).

    Errors: BAD_PARAM for NULL (c06), an unknown label or one that the pack's sequence does not have (c09).
    Source: 6.2.15.
    """

def cudnnGetFusedOpsVariantParamPackAttribute(
    varPack: FusedOpsVariantParamPack,
    paramLabel: cudnnFusedOpsVariantParamLabel_t,
) -> Any:
    """Return the device memory that was set, None for NULL, or the scalar.

    Errors: BAD_PARAM for NULL (c04), an unknown label or one that the pack's sequence does not have (c06).
    Source: 6.2.16.
    """

def cudnnMakeFusedOpsPlan(handle: Handle, plan: FusedOpsPlan, constPack: FusedOpsConstParamPack) -> int:
    """Make a plan from the sequence and the attributes of the pack; return the bytes of workspace that its execution
    needs.

    The plan copies what it needs, so the pack and its descriptors may change or be destroyed. After an error, an
    earlier plan is unchanged. Placeholders say which operands will exist: optional outputs and steps with the
    placeholder CUDNN_PTR_NULL are omitted.
    Errors: BAD_PARAM for NULL (c04), a pack of another sequence (c05), descriptors that are missing or whose shapes do
    not fit (the clauses of cudnnFusedOpsConstParamLabel_t); NOT_SUPPORTED for modes, activations and data types that
    are not supported.
    Source: 6.2.17, tables 23 to 29.
    """

def cudnnSetFusedOpsConstParamPackAttribute(
    constPack: FusedOpsConstParamPack,
    paramLabel: cudnnFusedOpsConstParamLabel_t,
    param: Any,
) -> None:
    """Copy a descriptor's contents or a value into the pack; None is recorded as NULL.

    param: depends on the label.

    - Labels that end with DESC take a descriptor: of an activation for CUDNN_PARAM_ACTIVATION_DESC, of a convolution
    for CUDNN_PARAM_CONV_DESC, of a filter for CUDNN_PARAM_WDESC and CUDNN_PARAM_DWDESC, else of a tensor.
    - CUDNN_PARAM_BN_MODE takes a cudnnBatchNormMode_t.
    - Placeholders take a cudnnFusedOpsPointerPlaceHolder_t.

    Later changes of the descriptor do not affect the pack.
    Errors: BAD_PARAM for NULL (c05), an unknown label (c06) or one that the pack's sequence does not have (c07), a
    param of another type, a descriptor that has not been initialised (cudnnStatus_t/c05). Source: 6.2.18.
    """

def cudnnSetFusedOpsVariantParamPackAttribute(
    varPack: FusedOpsVariantParamPack,
    paramLabel: cudnnFusedOpsVariantParamLabel_t,
    ptr: Memory,
) -> None:
    """Store a device pointer or a scalar in the pack; None is NULL, and 0 for scalars.

    ptr: device memory for CUDNN_PTR labels, which is checked when the operations run. For CUDNN_SCALAR labels it is a
    number, which is copied: an integer (size_t, int64_t) or a real number (double).
    Errors: BAD_PARAM for NULL (c03), an unknown label or one that the pack's sequence does not have (c04), a
    value that is not a number of the scalar's type (cudnnStatus_t/c05). Source: 6.2.19.
    """

def cudnnAdvInferVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c03). Source: 7.2.1."""

def cudnnBuildRNNDynamic(handle: Handle, rnnDesc: RNNDescriptor, miniBatch: SupportsIndex) -> None:
    """Compile the kernels for calls with rnnDesc on batches of miniBatch sequences, and use them until a setter changes
    rnnDesc.

    Errors: BAD_PARAM for NULL, a miniBatch below 1; NOT_INITIALIZED where cudnnSetRNNDescriptor_v8 did not configure
    rnnDesc (cudnnGetRNNDescriptor_v8/c11); NOT_SUPPORTED for another algorithm than CUDNN_RNN_ALGO_PERSIST_DYNAMIC
    (c11); RUNTIME_PREREQUISITE_MISSING where the compiler fails (c10). Source: 7.2.2.
    """

def cudnnCreateAttnDescriptor() -> AttnDescriptor:
    """Return a new attention descriptor, to be filled by cudnnSetAttnDescriptor. Source: 7.2.3."""

def cudnnCreatePersistentRNNPlan(
    rnnDesc: RNNDescriptor,
    minibatch: SupportsIndex,
    dataType: cudnnDataType_t,
) -> PersistentRNNPlan:
    """Return a plan for the current network of cudnnSetRNNDescriptor_v6, for batches of minibatch sequences of
    dataType.

    Errors: BAD_PARAM for NULL, a minibatch below 1; NOT_INITIALIZED where cudnnSetRNNDescriptor_v6 was not the last to
    configure the network; NOT_SUPPORTED for another algorithm than CUDNN_RNN_ALGO_PERSIST_DYNAMIC, a bias mode that it
    does not take and a dataType that the arithmetic does not (c10). Source: 7.2.4.
    """

def cudnnCreateRNNDataDescriptor() -> RNNDataDescriptor:
    """Return a new, uninitialised RNN data descriptor. Source: 7.2.5."""

def cudnnCreateRNNDescriptor() -> RNNDescriptor:
    """Return a new RNN descriptor with two bias vectors and everything else zero. Source: 7.2.6."""

def cudnnCreateSeqDataDescriptor() -> SeqDataDescriptor:
    """Return a new sequence data descriptor, to be filled by cudnnSetSeqDataDescriptor. Source: 7.2.7."""

def cudnnDestroyAttnDescriptor(attnDesc: AttnDescriptor | None) -> None:
    """Destroy the descriptor; None does nothing; any later use is BAD_PARAM. Source: 7.2.8."""

def cudnnDestroyPersistentRNNPlan(plan: PersistentRNNPlan) -> None:
    """Destroy the plan; networks that use it keep it.

    Errors: BAD_PARAM for NULL or a destroyed plan. Source: 7.2.9.
    """

def cudnnDestroyRNNDataDescriptor(RNNDataDesc: RNNDataDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 7.2.10."""

def cudnnDestroyRNNDescriptor(rnnDesc: RNNDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 7.2.11."""

def cudnnDestroySeqDataDescriptor(seqDataDesc: SeqDataDescriptor | None) -> None:
    """Destroy the descriptor; None does nothing; any later use is BAD_PARAM. Source: 7.2.12."""

class _cudnnFindRNNForwardInferenceAlgorithmEx(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[AlgorithmPerformance, ...]

def cudnnFindRNNForwardInferenceAlgorithmEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    hyDesc: TensorDescriptor,
    hy: Memory,
    cyDesc: TensorDescriptor,
    cy: Memory,
    findIntensity: SupportsFloat,
    requestedAlgoCount: SupportsIndex,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
) -> _cudnnFindRNNForwardInferenceAlgorithmEx:
    """Return (returnedAlgoCount, perfResults): the algorithms of cudnnRNNForwardInference, ordered by speed.

    Each algorithm runs one or a few times on the caller's memory, so y, hy and cy are overwritten.
    cudnnGetAlgorithmPerformance reads the results, and cudnnSetRNNAlgorithmDescriptor accepts the algorithm found.
    Unsupported algorithms come last, with their status and the time -1.
    findIntensity: a positive value is the share of all algorithms to try. A negative value is the share of
    CUDNN_RNN_ALGO_STANDARD and _PERSIST_STATIC. 0 selects a quick search of at most three runs. Values are clamped to
    -1 to 1.
    Errors: as cudnnRNNForwardInference, BAD_PARAM for rnnDesc (c37), other descriptors (c38), mismatched arguments
    (c39), a small workspace (c40), a requestedAlgoCount below 1, a findIntensity that is NaN; NOT_SUPPORTED for data
    types (c36).
    Source: 7.2.13.
    """

class _cudnnGetAttnDescriptor(NamedTuple):
    attnMode: int
    nHeads: int
    smScaler: float
    dataType: cudnnDataType_t
    computePrec: cudnnDataType_t
    mathType: cudnnMathType_t
    attnDropoutDesc: DropoutDescriptor
    postDropoutDesc: DropoutDescriptor
    qSize: int
    kSize: int
    vSize: int
    qProjSize: int
    kProjSize: int
    vProjSize: int
    oProjSize: int
    qoMaxSeqLength: int
    kvMaxSeqLength: int
    maxBatchSize: int
    maxBeamSize: int

def cudnnGetAttnDescriptor(attnDesc: AttnDescriptor) -> _cudnnGetAttnDescriptor:
    """Return the parameters in the order of cudnnSetAttnDescriptor. A fresh descriptor returns zeros.

    Errors: BAD_PARAM for NULL (c10). Source: 7.2.14.
    """

class _cudnnGetMultiHeadAttnBuffers(NamedTuple):
    weightSizeInBytes: int
    workSpaceSizeInBytes: int
    reserveSpaceSizeInBytes: int

def cudnnGetMultiHeadAttnBuffers(handle: Handle, attnDesc: AttnDescriptor) -> _cudnnGetMultiHeadAttnBuffers:
    """Return (weightSizeInBytes, workSpaceSizeInBytes, reserveSpaceSizeInBytes) that suffice for every call that
    attnDesc allows.

    The work space suffices for inference and training. Inference has no reserve space and ignores the third size.
    Errors: BAD_PARAM for NULL, and for an attention whose buffers exceed the address space (c16). Source: 7.2.15.
    """

def cudnnGetMultiHeadAttnWeights(
    handle: Handle,
    attnDesc: AttnDescriptor,
    wKind: cudnnMultiHeadAttnWeightKind_t,
    weightSizeInBytes: SupportsIndex,
    weights: Memory,
    wDesc: TensorDescriptor,
) -> Any:
    """Return the weight or bias tensor wKind inside weights, as a slice of a buffer or as an address in other device or
    host memory.

    weightSizeInBytes: the size of weights. wDesc: becomes {heads, projected size, original size} for a weight. It
    becomes {heads, projected size, 1} for a bias and {1, projected size, 1} for the output bias. Its strides locate the
    elements.
    For a tensor that does not exist, the result is None and wDesc returns zeros. weights may be NULL if no tensor
    exists.
    Errors: BAD_PARAM for an unknown wKind (c12), a weightSizeInBytes that is too small (c13), NULL and memory that is
    shorter, or does not begin at an element (c14). Source: 7.2.16; layout: docs/errata.md, D312.
    """

def cudnnGetRNNBackwardDataAlgorithmMaxCount(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the maximum number of results of cudnnFindRNNBackwardDataAlgorithmEx.

    Errors: BAD_PARAM for NULL. Source: 7.2.17.
    """

def cudnnGetRNNBiasMode(rnnDesc: RNNDescriptor) -> cudnnRNNBiasMode_t:
    """Return the bias mode; a fresh descriptor has CUDNN_RNN_DOUBLE_BIAS.

    Errors: BAD_PARAM for NULL (c04). Source: 7.2.18.
    """

class _cudnnGetRNNDataDescriptor(NamedTuple):
    dataType: cudnnDataType_t
    layout: cudnnRNNDataLayout_t
    maxSeqLength: int
    batchSize: int
    vectorSize: int
    seqLengthArray: tuple[int, ...]
    paddingFill: Any

def cudnnGetRNNDataDescriptor(
    RNNDataDesc: RNNDataDescriptor,
    arrayLengthRequested: SupportsIndex,
) -> _cudnnGetRNNDataDescriptor:
    """Return what was set, with at most arrayLengthRequested entries of seqLengthArray.

    paddingFill is a number of the data type, or 0 if NULL was given.
    Errors: BAD_PARAM for NULL (c10), arrayLengthRequested below 0 (c12). Source: 7.2.19.
    """

class _cudnnGetRNNDescriptor_v6(NamedTuple):
    hiddenSize: int
    numLayers: int
    dropoutDesc: DropoutDescriptor
    inputMode: cudnnRNNInputMode_t
    direction: cudnnDirectionMode_t
    cellMode: cudnnRNNMode_t
    algo: cudnnRNNAlgo_t
    mathPrec: cudnnDataType_t

def cudnnGetRNNDescriptor_v6(handle: Handle, rnnDesc: RNNDescriptor) -> _cudnnGetRNNDescriptor_v6:
    """Return what cudnnSetRNNDescriptor_v6 or _v8 set, without checks. A fresh descriptor returns zeros.

    Errors: BAD_PARAM for NULL (c08). Source: 7.2.20.
    """

class _cudnnGetRNNDescriptor_v8(NamedTuple):
    algo: cudnnRNNAlgo_t
    cellMode: cudnnRNNMode_t
    biasMode: cudnnRNNBiasMode_t
    dirMode: cudnnDirectionMode_t
    inputMode: cudnnRNNInputMode_t
    dataType: cudnnDataType_t
    mathPrec: cudnnDataType_t
    mathType: cudnnMathType_t
    inputSize: int
    hiddenSize: int
    projSize: int
    numLayers: int
    dropoutDesc: DropoutDescriptor
    auxFlags: int

def cudnnGetRNNDescriptor_v8(rnnDesc: RNNDescriptor) -> _cudnnGetRNNDescriptor_v8:
    """Return the parameters in the order of cudnnSetRNNDescriptor_v8.

    Errors: BAD_PARAM for NULL (c10), NOT_INITIALIZED if another setter, or none, configured it (c11). Source: 7.2.21.
    """

def cudnnGetRNNForwardInferenceAlgorithmMaxCount(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the maximum number of results of cudnnFindRNNForwardInferenceAlgorithmEx.

    Errors: BAD_PARAM for NULL. Source: 7.2.22.
    """

def cudnnGetRNNForwardTrainingAlgorithmMaxCount(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the maximum number of results of cudnnFindRNNForwardTrainingAlgorithmEx.

    Errors: BAD_PARAM for NULL. Source: 7.2.23.
    """

def cudnnGetRNNLinLayerBiasParams(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    pseudoLayer: SupportsIndex,
    xDesc: TensorDescriptor,
    wDesc: FilterDescriptor,
    w: Memory,
    linLayerID: SupportsIndex,
    linLayerBiasDesc: FilterDescriptor,
) -> Any:
    """Return a bias of a pseudo-layer inside w, as cudnnGetRNNLinLayerMatrixParams returns a matrix; linLayerBiasDesc
    becomes {1, rows, 1}.

    Errors: BAD_PARAM for NULL (c20), data types (c21), a w that does not begin at an element (c22), a pseudoLayer or
    linLayerID out of range (c23); INVALID_VALUE for elements outside wDesc (c24). Source: 7.2.24.
    """

def cudnnGetRNNLinLayerMatrixParams(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    pseudoLayer: SupportsIndex,
    xDesc: TensorDescriptor,
    wDesc: FilterDescriptor,
    w: Memory,
    linLayerID: SupportsIndex,
    linLayerMatDesc: FilterDescriptor,
) -> Any:
    """Return a matrix of a pseudo-layer inside w, as a slice of a buffer or as an address in other memory; wDesc gives
    the bytes of w.

    linLayerMatDesc becomes {1, rows, columns}, row-major. For a matrix that the network does not have, the result is
    None and linLayerMatDesc returns zeros.
    Errors: BAD_PARAM for NULL (c18), data types (c19), a w that does not begin at an element (c20), a pseudoLayer or
    linLayerID out of range (c21); INVALID_VALUE for elements outside wDesc (c22). Source: 7.2.25.
    """

def cudnnGetRNNMatrixMathType(rnnDesc: RNNDescriptor) -> cudnnMathType_t:
    """Return the math type for matrix products. Errors: BAD_PARAM for NULL (c04). Source: 7.2.26."""

def cudnnGetRNNPaddingMode(rnnDesc: RNNDescriptor) -> cudnnRNNPaddingMode_t:
    """Return whether input and output are padded. Errors: BAD_PARAM for NULL (c04). Source: 7.2.27."""

def cudnnGetRNNParamsSize(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    xDesc: TensorDescriptor,
    dataType: cudnnDataType_t,
) -> int:
    """Return the bytes of all matrices and biases of dataType; xDesc {batch, input size, 1} describes the input of one
    step.

    Errors: BAD_PARAM for rnnDesc (c06), xDesc (c07) and gaps in it (c08), data types that differ (c09); NOT_SUPPORTED
    for data types that the network does not take (c10). Source: 7.2.28.
    """

class _cudnnGetRNNProjectionLayers(NamedTuple):
    recProjSize: int
    outProjSize: int

def cudnnGetRNNProjectionLayers(handle: Handle, rnnDesc: RNNDescriptor) -> _cudnnGetRNNProjectionLayers:
    """Return (recProjSize, outProjSize), which is (hiddenSize, 0) without projection.

    Errors: BAD_PARAM for NULL (c06). Source: 7.2.29.
    """

class _cudnnGetRNNTempSpaceSizes(NamedTuple):
    workSpaceSize: int
    reserveSpaceSize: int

def cudnnGetRNNTempSpaceSizes(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    fMode: cudnnForwardMode_t,
    xDesc: RNNDataDescriptor,
) -> _cudnnGetRNNTempSpaceSizes:
    """Return (workSpaceSize, reserveSpaceSize) in bytes for the data dimensions of xDesc; inference has no reserve space.

    Errors: BAD_PARAM for NULL, an xDesc of another data type or vector size, and spaces that exceed the address space
    (c08), NOT_INITIALIZED where cudnnSetRNNDescriptor_v8 did not configure rnnDesc (cudnnGetRNNDescriptor_v8/c11).
    Source: 7.2.30.
    """

class _cudnnGetRNNWeightParams(NamedTuple):
    mAddr: Any
    bAddr: Any

def cudnnGetRNNWeightParams(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    pseudoLayer: SupportsIndex,
    weightSpaceSize: SupportsIndex,
    weightSpace: Memory,
    linLayerID: SupportsIndex,
    mDesc: TensorDescriptor | None,
    bDesc: TensorDescriptor | None,
) -> _cudnnGetRNNWeightParams:
    """Return (mAddr, bAddr): a matrix and a bias of a pseudo-layer inside the first weightSpaceSize bytes of
    weightSpace.

    Each is a slice of a buffer or an address in other memory. mDesc, bDesc: become packed {1, rows, columns} and {1,
    rows, 1}; NULL omits that tensor. For a tensor that the network does not have, the result is None and the descriptor
    returns zeros.
    Errors: BAD_PARAM for NULL and memory that does not begin at an element (c20), a pseudoLayer (c18) or linLayerID
    (c19) that the network does not have; INVALID_VALUE for elements outside weightSpaceSize (c21); NOT_INITIALIZED
    where cudnnSetRNNDescriptor_v8 did not configure rnnDesc (c22). Source: 7.2.31.
    """

def cudnnGetRNNWeightSpaceSize(handle: Handle, rnnDesc: RNNDescriptor) -> int:
    """Return the bytes of all matrices and biases.

    Errors: BAD_PARAM for NULL (c04) and networks that exceed the address space (c05), NOT_INITIALIZED where
    cudnnSetRNNDescriptor_v8 did not configure rnnDesc (c06). Source: 7.2.32.
    """

def cudnnGetRNNWorkspaceSize(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
) -> int:
    """Return the bytes of work space for seqLength steps; each entry {batch, input size, 1} of xDesc describes one
    step.

    Errors: BAD_PARAM for rnnDesc (c08), xDesc (c09), steps that differ (c10), batches that grow (c11), gaps (c12);
    NOT_SUPPORTED for data types (c13). Source: 7.2.33.
    """

class _cudnnGetSeqDataDescriptor(NamedTuple):
    dataType: cudnnDataType_t
    nbDims: int
    dimA: tuple[int, ...]
    axes: tuple[cudnnSeqDataAxis_t, ...]
    seqLengthArraySize: int
    seqLengthArray: tuple[int, ...]
    paddingFill: Any

def cudnnGetSeqDataDescriptor(
    seqDataDesc: SeqDataDescriptor,
    nbDimsRequested: SupportsIndex,
    seqLengthSizeRequested: SupportsIndex,
) -> _cudnnGetSeqDataDescriptor:
    """Return (dataType, nbDims, dimA, axes, seqLengthArraySize, seqLengthArray, paddingFill); arrays have the requested
    number of entries.

    A fresh descriptor returns zeros, without lengths. paddingFill is None, because no fill is supported.
    Errors: BAD_PARAM for NULL and a negative nbDimsRequested (c20). Source: 7.2.34.
    """

def cudnnMultiHeadAttnForward(
    handle: Handle,
    attnDesc: AttnDescriptor,
    currIdx: SupportsIndex,
    loWinIdx: Sequence[SupportsIndex],
    hiWinIdx: Sequence[SupportsIndex],
    devSeqLengthsQO: Memory,
    devSeqLengthsKV: Memory,
    qDesc: SeqDataDescriptor,
    queries: Memory,
    residuals: Memory,
    kDesc: SeqDataDescriptor,
    keys: Memory,
    vDesc: SeqDataDescriptor,
    values: Memory,
    oDesc: SeqDataDescriptor,
    out: Memory,
    weightSizeInBytes: SupportsIndex,
    weights: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    workSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
) -> None:
    """Compute out = sum over heads of W_O h + b_O + residuals, where h = sum over the window of softmax(smScaler * k .
    q) * v.

    k, q and v are projected vectors; without output projection, out is the concatenation of all h.
    currIdx: the time-step to compute in all sequences, for inference only; a negative value computes all time-steps.
    loWinIdx, hiWinIdx: one entry per time-step of qDesc. The window holds the existing keys with loWinIdx <= index <
    hiWinIdx. An empty window gives h = 0. A call with currIdx uses only its entry.
    devSeqLengthsQO, devSeqLengthsKV: sequence lengths as int32 in device memory, by batch, then beam.
    residuals: described by qDesc, or NULL. weights may be NULL if attnDesc has none.
    In inference reserveSpaceSizeInBytes is 0 and reserveSpace NULL; training needs both. Outputs of padding are zeros.
    Errors: BAD_PARAM for NULL (c34), currIdx beyond the time-steps (c35) or in training (c10), too few windows (c13),
    lengths that differ (c21, c22), differing axes (c24), residuals of another length than the output (c28), a
    reserve space without its size or the reverse (c05, c06), data that does not fit attnDesc, spaces that are too small (c36). Source: 7.2.35; formula:
    7.2.43.
    """

def cudnnRNNForward(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    fwdMode: cudnnForwardMode_t,
    devSeqLengths: Memory,
    xDesc: RNNDataDescriptor,
    x: Memory,
    yDesc: RNNDataDescriptor,
    y: Memory,
    hDesc: TensorDescriptor,
    hx: Memory,
    hy: Memory,
    cDesc: TensorDescriptor | None,
    cx: Memory,
    cy: Memory,
    weightSpaceSize: SupportsIndex,
    weightSpace: Memory,
    workSpaceSize: SupportsIndex,
    workSpace: Memory,
    reserveSpaceSize: SupportsIndex,
    reserveSpace: Memory,
) -> None:
    """Compute the outputs y of the last layer, and the states hy and cy after the last step of each sequence.

    x: vectors of inputSize. y: vectors of projSize, with both directions concatenated. Padding of y gets paddingFill if
    it is set.
    hx, hy: {numLayers * directions, batchSize, projSize}. cx, cy: the same with hiddenSize, for CUDNN_LSTM only. NULL
    hx and cx are zeros; NULL hy and cy are not written. devSeqLengths is not read, because xDesc and yDesc hold the
    lengths.
    reserveSpace is written only in training. Training with several layers and the dropout descriptor of rnnDesc drops
    elements between layers. The dropout states must be set, and they advance.
    Errors: BAD_PARAM for NULL (c44, c16), descriptors that do not fit each other (c45), buffers that are too small
    (c46); NOT_SUPPORTED for a persistent algorithm with sequences of several lengths (c41), or with DOUBLE data (c43).
    Source: 7.2.36.
    """

def cudnnRNNForwardInference(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    hyDesc: TensorDescriptor,
    hy: Memory,
    cyDesc: TensorDescriptor,
    cy: Memory,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNForward in inference, for packed sequences; xDesc and yDesc describe each step as {batch,
    vector, 1}.

    wDesc has at least the bytes of cudnnGetRNNParamsSize. NULL hx and cx are zeros; NULL hy and cy are not written.
    Errors: BAD_PARAM for rnnDesc (c45), other descriptors (c46), mismatched arguments (c47), a small workspace (c48);
    NOT_SUPPORTED for what a persistent algorithm does not support, and for data types (c44). Source: 7.2.37.
    """

def cudnnRNNForwardInferenceEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    xDesc: RNNDataDescriptor,
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    yDesc: RNNDataDescriptor,
    y: Memory,
    hyDesc: TensorDescriptor,
    hy: Memory,
    cyDesc: TensorDescriptor,
    cy: Memory,
    kDesc: RNNDataDescriptor | None,
    keys: Memory,
    cDesc: RNNDataDescriptor | None,
    cAttn: Memory,
    iDesc: RNNDataDescriptor | None,
    iAttn: Memory,
    qDesc: RNNDataDescriptor | None,
    queries: Memory,
    workSpace: Memory,
    workspaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNForwardInference for sequences in any layout; kDesc to queries are reserved.

    Errors: BAD_PARAM for rnnDesc (c37), descriptors (c38), a small workspace (c40); NOT_SUPPORTED for a persistent
    algorithm with sequences of several lengths (c34) or DOUBLE data (c36), and for reserved arguments. Source: 7.2.38.
    """

class _cudnnRNNGetClip(NamedTuple):
    clipMode: cudnnRNNClipMode_t
    clipNanOpt: cudnnNanPropagation_t
    lclip: float
    rclip: float

def cudnnRNNGetClip(handle: Handle, rnnDesc: RNNDescriptor) -> _cudnnRNNGetClip:
    """Do the same as cudnnRNNGetClip_v8. Errors: BAD_PARAM for NULL (c07). Source: 7.2.39."""

class _cudnnRNNGetClip_v8(NamedTuple):
    clipMode: cudnnRNNClipMode_t
    clipNanOpt: cudnnNanPropagation_t
    lclip: float
    rclip: float

def cudnnRNNGetClip_v8(rnnDesc: RNNDescriptor) -> _cudnnRNNGetClip_v8:
    """Return (clipMode, clipNanOpt, lclip, rclip), or zeros if none was set.

    Errors: BAD_PARAM for NULL (c08). Source: 7.2.40.
    """

def cudnnRNNSetClip(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    clipMode: cudnnRNNClipMode_t,
    clipNanOpt: cudnnNanPropagation_t,
    lclip: SupportsFloat,
    rclip: SupportsFloat,
) -> None:
    """Do the same as cudnnRNNSetClip_v8. Errors: BAD_PARAM for lclip above rclip (c10), NaN (c11). Source: 7.2.41."""

def cudnnRNNSetClip_v8(
    rnnDesc: RNNDescriptor,
    clipMode: cudnnRNNClipMode_t,
    clipNanOpt: cudnnNanPropagation_t,
    lclip: SupportsFloat,
    rclip: SupportsFloat,
) -> None:
    """Clip LSTM cell states to the range lclip to rclip in all layers. With CUDNN_NOT_PROPAGATE_NAN a NaN becomes
    lclip.

    Errors: BAD_PARAM for NULL (c10), lclip above rclip (c11), NaN (c12), whatever clipMode is. Source: 7.2.42.
    """

def cudnnSetAttnDescriptor(
    attnDesc: AttnDescriptor,
    attnMode: SupportsIndex,
    nHeads: SupportsIndex,
    smScaler: SupportsFloat,
    dataType: cudnnDataType_t,
    computePrec: cudnnDataType_t,
    mathType: cudnnMathType_t,
    attnDropoutDesc: DropoutDescriptor | None,
    postDropoutDesc: DropoutDescriptor | None,
    qSize: SupportsIndex,
    kSize: SupportsIndex,
    vSize: SupportsIndex,
    qProjSize: SupportsIndex,
    kProjSize: SupportsIndex,
    vProjSize: SupportsIndex,
    oProjSize: SupportsIndex,
    qoMaxSeqLength: SupportsIndex,
    kvMaxSeqLength: SupportsIndex,
    maxBatchSize: SupportsIndex,
    maxBeamSize: SupportsIndex,
) -> None:
    """Describe multi-head attention; a projected size of 0 disables that projection.

    attnMode: CUDNN_ATTN_QUERYMAP_ flags and CUDNN_ATTN_ENABLE_PROJ_BIASES. Sizes are vector lengths in elements; maxima
    bound the sequence data of the calls. smScaler multiplies the argument of the softmax.
    Errors: BAD_PARAM for unknown flags (c26), sizes and maxima below 1 (c45), negative projected sizes, a smScaler that
    is negative or NaN (c46), queries and keys that differ in length after projection (c43), unknown types (c44);
    NOT_SUPPORTED for types outside table 40 (c47) and for dropouts with a probability above 0 (c39), as in training
    where it is set later. Source: 7.2.43.
    """

def cudnnSetPersistentRNNPlan(rnnDesc: RNNDescriptor, plan: PersistentRNNPlan) -> None:
    """Run calls with rnnDesc by the plan until a setter changes rnnDesc.

    Errors: BAD_PARAM for NULL, another algorithm than CUDNN_RNN_ALGO_PERSIST_DYNAMIC (c04), a plan of another network
    (cudnnRNNAlgo_t/c06). Source: 7.2.44.
    """

def cudnnSetRNNAlgorithmDescriptor(handle: Handle, rnnDesc: RNNDescriptor, algoDesc: AlgorithmDescriptor) -> None:
    """Set the algorithm from an algorithm descriptor: a cudnnRNNAlgo_t or its number (docs/errata.md, D366).

    Errors: BAD_PARAM for an algorithm of another enumeration; NOT_SUPPORTED for one that does not take the bias mode or
    the projection of the network (cudnnSetRNNBiasMode/c07, cudnnSetRNNProjectionLayers/c14). Source: 7.2.45.
    """

def cudnnSetRNNBiasMode(rnnDesc: RNNDescriptor, biasMode: cudnnRNNBiasMode_t) -> None:
    """Set which biases the network has.

    Errors: BAD_PARAM for NULL (c04) and unknown modes (c05); NOT_SUPPORTED for modes other than CUDNN_RNN_DOUBLE_BIAS
    where the algorithm is not CUDNN_RNN_ALGO_STANDARD (c07). Source: 7.2.46.
    """

def cudnnSetRNNDataDescriptor(
    RNNDataDesc: RNNDataDescriptor,
    dataType: cudnnDataType_t,
    layout: cudnnRNNDataLayout_t,
    maxSeqLength: SupportsIndex,
    batchSize: SupportsIndex,
    vectorSize: SupportsIndex,
    seqLengthArray: Sequence[SupportsIndex],
    paddingFill: Any,
) -> None:
    """Describe a batch of sequences of vectors.

    layout: (time, sequence, element) or (sequence, time, element), both padded to maxSeqLength vectors per sequence.
    The packed layout holds the vectors of step 0 of all sequences, then of step 1, without padding.
    seqLengthArray: batchSize lengths, 0 to maxSeqLength. In the packed layout, the greatest equals maxSeqLength.
    paddingFill: a number, stored in dataType, that fills the padding of an output; NULL leaves padding undefined.
    Errors: NOT_SUPPORTED for types other than HALF, FLOAT, DOUBLE (c14); BAD_PARAM for NULL (c15), sizes below 1 (c16),
    lengths outside their range (c17) or another number of them (c08), packed ones all below maxSeqLength (c05).
    Source: 7.2.47.
    """

def cudnnSetRNNDescriptor_v6(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    hiddenSize: SupportsIndex,
    numLayers: SupportsIndex,
    dropoutDesc: DropoutDescriptor | None,
    inputMode: cudnnRNNInputMode_t,
    direction: cudnnDirectionMode_t,
    mode: cudnnRNNMode_t,
    algo: cudnnRNNAlgo_t,
    mathPrec: cudnnDataType_t,
) -> None:
    """Describe a network, and replace every earlier setting. The data type and the input size come with each call.

    The bias mode is CUDNN_RNN_DOUBLE_BIAS. Padded input and output, projection and clipping are disabled. dropoutDesc:
    NULL disables dropout.
    Errors: BAD_PARAM for sizes below 1 (c13), unknown enumerators (c14), descriptors (c15, c16); NOT_SUPPORTED where
    mathPrec is not a type of the arithmetic (c09). Source: 7.2.48.
    """

def cudnnSetRNNDescriptor_v8(
    rnnDesc: RNNDescriptor,
    algo: cudnnRNNAlgo_t,
    cellMode: cudnnRNNMode_t,
    biasMode: cudnnRNNBiasMode_t,
    dirMode: cudnnDirectionMode_t,
    inputMode: cudnnRNNInputMode_t,
    dataType: cudnnDataType_t,
    mathPrec: cudnnDataType_t,
    mathType: cudnnMathType_t,
    inputSize: SupportsIndex,
    hiddenSize: SupportsIndex,
    projSize: SupportsIndex,
    numLayers: SupportsIndex,
    dropoutDesc: DropoutDescriptor | None,
    auxFlags: SupportsIndex,
) -> None:
    """Describe a network of numLayers layers; this replaces every earlier setting, including the clipping.

    inputSize, hiddenSize: lengths of the input vectors and of the states. projSize: length of a cell's output;
    hiddenSize disables the recurrent projection. dropoutDesc: NULL disables dropout. auxFlags: a cudnnRNNPaddingMode_t.
    mathType is a hint; every type is accepted.
    Errors: BAD_PARAM for NULL, unknown enumerators and flags, sizes below 1 (c32); NOT_SUPPORTED for combinations
    (c34): types, a projection of another cell or algorithm or beyond hiddenSize, a bias mode other than
    CUDNN_RNN_DOUBLE_BIAS or DOUBLE data of a persistent algorithm that does not take it. Source: 7.2.49.
    """

def cudnnSetRNNMatrixMathType(rnnDesc: RNNDescriptor, mType: cudnnMathType_t) -> None:
    """Set the math type for matrix products, which is a hint.

    Errors: BAD_PARAM for NULL and unknown types (c07). Source: 7.2.50.
    """

def cudnnSetRNNPaddingMode(rnnDesc: RNNDescriptor, paddingMode: cudnnRNNPaddingMode_t) -> None:
    """Enable or disable padded input and output.

    Errors: BAD_PARAM for NULL (c06) and unknown modes (c07). Source: 7.2.51.
    """

def cudnnSetRNNProjectionLayers(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    recProjSize: SupportsIndex,
    outProjSize: SupportsIndex,
) -> None:
    """Project the output of LSTM cells to recProjSize elements; hiddenSize disables the projection.

    Errors: BAD_PARAM for NULL (c12), recProjSize below 1 and outProjSize below 0 (c13); NOT_SUPPORTED for another
    algorithm than CUDNN_RNN_ALGO_STANDARD or another cell than CUDNN_LSTM (c14), more than hiddenSize (c16),
    outProjSize above 0 (c10). Source: 7.2.52.
    """

def cudnnSetSeqDataDescriptor(
    seqDataDesc: SeqDataDescriptor,
    dataType: cudnnDataType_t,
    nbDims: SupportsIndex,
    dimA: Sequence[SupportsIndex],
    axes: cudnnSeqDataAxis_t,
    seqLengthArraySize: SupportsIndex,
    seqLengthArray: Sequence[SupportsIndex],
    paddingFill: Any,
) -> None:
    """Describe packed sequences of vectors.

    dimA: sizes indexed by cudnnSeqDataAxis_t. axes: the axes from the outermost to the innermost, which is
    CUDNN_SEQDATA_VECT_DIM.
    seqLengthArray: time-steps of each sequence, entry batch * beams + beam, copied. dataType: HALF, FLOAT or DOUBLE.
    Errors: BAD_PARAM for nbDims below 1 (c25), sizes below 1, axes that are not in such an order (c16, c17), another number of
    lengths (c26), lengths outside 0 to the size of TIME (c27); NOT_SUPPORTED for nbDims other than 4 (c28), other types
    (c20), a paddingFill (c29). Source: 7.2.53.
    """

def cudnnAdvTrainVersionCheck() -> None:
    """Succeed if all parts of the package have the same version. Errors: VERSION_MISMATCH (c03). Source: 8.2.1."""

def cudnnCreateCTCLossDescriptor() -> CTCLossDescriptor:
    """Return a new CTC loss descriptor, to be filled by one of the three setters. Source: 8.2.2."""

def cudnnCTCLoss(
    handle: Handle,
    probsDesc: TensorDescriptor,
    probs: Memory,
    hostLabels: Sequence[SupportsIndex],
    hostLabelLengths: Sequence[SupportsIndex],
    hostInputLengths: Sequence[SupportsIndex],
    costs: Memory,
    gradientsDesc: TensorDescriptor | None,
    gradients: Memory,
    algo: cudnnCTCLossAlgo_t,
    ctcLossDesc: CTCLossDescriptor,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
) -> None:
    """Compute costs[n] = -ln p(labels of n | probs), and in gradients the gradients of the costs with respect to the
    activations.

    p is the sum, over all alignments, of the product of their probabilities; class 0 is the blank. The gradient is
    p(class) minus the share of alignments that have the class at that time step. It is zero from the input length on.
    A sequence without an alignment (labels and repetitions exceed the time steps) has cost 0. Its gradients are zero
    or, with PROPAGATE_NAN, unchanged.
    probs: probabilities, or activations with CUDNN_LOSS_NORMALIZATION_SOFTMAX. probs, gradients: FLOAT (time, sequence,
    class), any strides. costs: packed floats, one per sequence. gradients and gradientsDesc may be NULL.
    Lengths and labels are host arrays; labels holds one sequence after the other. Both algorithms are deterministic
    here.
    Errors: BAD_PARAM for differing dimensions (c14), input lengths outside 0 to the time steps of probsDesc (c15), a
    workspace that is too small (c16), label lengths above 256 (c17), labels that are not classes; NOT_SUPPORTED for
    other types (c18), an unknown algo (c19). Source: 8.2.3; formula: docs/errata.md, D387.
    """

def cudnnCTCLoss_v8(
    handle: Handle,
    algo: cudnnCTCLossAlgo_t,
    ctcLossDesc: CTCLossDescriptor,
    probsDesc: TensorDescriptor,
    probs: Memory,
    labels: Memory,
    labelLengths: Memory,
    inputLengths: Memory,
    costs: Memory,
    gradientsDesc: TensorDescriptor | None,
    gradients: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    workspace: Memory,
) -> None:
    """Do the same as cudnnCTCLoss, with labels, labelLengths and inputLengths (int) in device memory, which the host
    does not read.

    A sequence has no alignment if it has more than maxLabelLength labels, or a label that is not a class. The same
    holds for an input length outside 0 to the time steps of probsDesc. labels: as many as labelLengths say. To find the next sequence's
    labels, each length is clamped to 0 to maxLabelLength.
    Errors: BAD_PARAM for differing dimensions (c16), a descriptor of another setter (c03), a workspace that is too
    small (c18), a maxLabelLength above 256 (c19); NOT_SUPPORTED for other types (c20), an unknown algo (c21).
    Source: 8.2.4.
    """

def cudnnDestroyCTCLossDescriptor(ctcLossDesc: CTCLossDescriptor | None) -> None:
    """Destroy the descriptor; None does nothing; any later use is BAD_PARAM. Source: 8.2.5."""

class _cudnnFindRNNBackwardDataAlgorithmEx(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[AlgorithmPerformance, ...]

def cudnnFindRNNBackwardDataAlgorithmEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    dyDesc: Sequence[TensorDescriptor],
    dy: Memory,
    dhyDesc: TensorDescriptor,
    dhy: Memory,
    dcyDesc: TensorDescriptor,
    dcy: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    dxDesc: Sequence[TensorDescriptor],
    dx: Memory,
    dhxDesc: TensorDescriptor,
    dhx: Memory,
    dcxDesc: TensorDescriptor,
    dcx: Memory,
    findIntensity: SupportsFloat,
    requestedAlgoCount: SupportsIndex,
    workspace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> _cudnnFindRNNBackwardDataAlgorithmEx:
    """Do the same as cudnnFindRNNForwardInferenceAlgorithmEx for cudnnRNNBackwardData.

    After several runs, the contents of dx, dhx, dcx and reserveSpace are undefined. Repeat the forward call before
    computing a gradient.
    Errors: as cudnnRNNBackwardData, BAD_PARAM for rnnDesc (c67), other descriptors (c68), mismatched arguments (c69),
    small spaces (c70, c71); NOT_SUPPORTED for data types (c66). Source: 8.2.6.
    """

class _cudnnFindRNNBackwardWeightsAlgorithmEx(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[AlgorithmPerformance, ...]

def cudnnFindRNNBackwardWeightsAlgorithmEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    findIntensity: SupportsFloat,
    requestedAlgoCount: SupportsIndex,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
    dwDesc: FilterDescriptor,
    dw: Memory,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> _cudnnFindRNNBackwardWeightsAlgorithmEx:
    """Do the same as cudnnFindRNNForwardInferenceAlgorithmEx for cudnnRNNBackwardWeights; each run adds to dw.

    Errors: as cudnnRNNBackwardWeights, BAD_PARAM for rnnDesc (c33), other descriptors (c34), mismatched arguments
    (c35), small spaces (c36, c37); NOT_SUPPORTED for data types (c32). Source: 8.2.7.
    """

class _cudnnFindRNNForwardTrainingAlgorithmEx(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[AlgorithmPerformance, ...]

def cudnnFindRNNForwardTrainingAlgorithmEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    hyDesc: TensorDescriptor,
    hy: Memory,
    cyDesc: TensorDescriptor,
    cy: Memory,
    findIntensity: SupportsFloat,
    requestedAlgoCount: SupportsIndex,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> _cudnnFindRNNForwardTrainingAlgorithmEx:
    """Do the same as cudnnFindRNNForwardInferenceAlgorithmEx for cudnnRNNForwardTraining.

    reserveSpace holds the result of the last run. Each run advances the dropout states.
    Errors: as cudnnRNNForwardTraining, BAD_PARAM for rnnDesc (c52), other descriptors (c53), mismatched arguments
    (c54), small spaces (c55, c56). Source: 8.2.8.
    """

def cudnnGetCTCLossDescriptor(ctcLossDesc: CTCLossDescriptor) -> cudnnDataType_t:
    """Return the compute type, which is FLOAT for a fresh descriptor.

    Errors: BAD_PARAM for NULL (c03). Source: 8.2.9.
    """

class _cudnnGetCTCLossDescriptorEx(NamedTuple):
    compType: cudnnDataType_t
    normMode: cudnnLossNormalizationMode_t
    gradMode: cudnnNanPropagation_t

def cudnnGetCTCLossDescriptorEx(ctcLossDesc: CTCLossDescriptor) -> _cudnnGetCTCLossDescriptorEx:
    """Return (compType, normMode, gradMode), whichever setter set them; a fresh descriptor returns zeros.

    Errors: BAD_PARAM for NULL (c05). Source: 8.2.10.
    """

class _cudnnGetCTCLossDescriptor_v8(NamedTuple):
    compType: cudnnDataType_t
    normMode: cudnnLossNormalizationMode_t
    gradMode: cudnnNanPropagation_t
    maxLabelLength: int

def cudnnGetCTCLossDescriptor_v8(ctcLossDesc: CTCLossDescriptor) -> _cudnnGetCTCLossDescriptor_v8:
    """Return (compType, normMode, gradMode, maxLabelLength); maxLabelLength is 0 where another setter set the descriptor.

    Errors: BAD_PARAM for NULL (c06). Source: 8.2.11.
    """

def cudnnGetCTCLossWorkspaceSize(
    handle: Handle,
    probsDesc: TensorDescriptor,
    gradientsDesc: TensorDescriptor | None,
    labels: Sequence[SupportsIndex],
    labelLengths: Sequence[SupportsIndex],
    inputLengths: Sequence[SupportsIndex],
    algo: cudnnCTCLossAlgo_t,
    ctcLossDesc: CTCLossDescriptor,
) -> int:
    """Return the bytes of workspace that cudnnCTCLoss needs for these lengths on the handle's device, never 0.

    probsDesc, gradientsDesc: FLOAT (time, sequence, class); gradientsDesc is NULL if only costs are wanted. labels,
    labelLengths, inputLengths: host arrays.
    Errors: BAD_PARAM for differing dimensions (c06), input lengths outside 0 to the time steps of probsDesc (c07),
    label lengths above 256 (c09), labels that are not classes; NOT_SUPPORTED for other types (c10), an unknown algo
    (c11).
    Source: 8.2.12.
    """

def cudnnGetCTCLossWorkspaceSize_v8(
    handle: Handle,
    algo: cudnnCTCLossAlgo_t,
    ctcLossDesc: CTCLossDescriptor,
    probsDesc: TensorDescriptor,
    gradientsDesc: TensorDescriptor | None,
) -> int:
    """Return the bytes of workspace that cudnnCTCLoss_v8 needs for up to maxLabelLength labels per sequence on the
    handle's device, never 0.

    probsDesc, gradientsDesc: FLOAT (time, sequence, class); gradientsDesc is NULL if only costs are wanted.
    Errors: BAD_PARAM for differing dimensions (c05), a descriptor of another setter (cudnnCTCLoss_v8/c03), a
    maxLabelLength above 256 (cudnnCTCLoss_v8/c19); NOT_SUPPORTED for other types (c06), an unknown algo (c07).
    Source: 8.2.13.
    """

def cudnnGetRNNTrainingReserveSize(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
) -> int:
    """Return the bytes of reserve space for training with seqLength steps; each entry {batch, input size, 1} of xDesc
    describes one step.

    Errors: BAD_PARAM for rnnDesc (c10), xDesc (c11), steps that differ (c12), batches that grow (c13), gaps (c14);
    NOT_SUPPORTED for data types (c15). Source: 8.2.14.
    """

def cudnnMultiHeadAttnBackwardData(
    handle: Handle,
    attnDesc: AttnDescriptor,
    loWinIdx: Sequence[SupportsIndex],
    hiWinIdx: Sequence[SupportsIndex],
    devSeqLengthsDQDO: Memory,
    devSeqLengthsDKDV: Memory,
    doDesc: SeqDataDescriptor,
    dout: Memory,
    dqDesc: SeqDataDescriptor,
    dqueries: Memory,
    queries: Memory,
    dkDesc: SeqDataDescriptor,
    dkeys: Memory,
    keys: Memory,
    dvDesc: SeqDataDescriptor,
    dvalues: Memory,
    values: Memory,
    weightSizeInBytes: SupportsIndex,
    weights: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    workSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
) -> None:
    """Compute the gradients dqueries, dkeys and dvalues of the sum of dout * out; residuals do not contribute.

    The call follows cudnnMultiHeadAttnForward in training mode, with the same windows, lengths, data, weights and
    reserveSpace. It leaves data in reserveSpace for cudnnMultiHeadAttnBackwardWeights.
    dqDesc describes queries and dqueries, dkDesc keys and dkeys, dvDesc values and dvalues. Gradients of padding are
    zeros. Gradients of keys and values that several beams share are summed.
    Errors: BAD_PARAM for NULL, data that does not fit attnDesc, spaces that are too small, too few windows (c23);
    NOT_SUPPORTED for biases (c27). Source: 8.2.15; formula: 7.2.43.
    """

def cudnnMultiHeadAttnBackwardWeights(
    handle: Handle,
    attnDesc: AttnDescriptor,
    addGrad: cudnnWgradMode_t,
    qDesc: SeqDataDescriptor,
    queries: Memory,
    kDesc: SeqDataDescriptor,
    keys: Memory,
    vDesc: SeqDataDescriptor,
    values: Memory,
    doDesc: SeqDataDescriptor,
    dout: Memory,
    weightSizeInBytes: SupportsIndex,
    weights: Memory,
    dweights: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    workSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
) -> None:
    """Compute the gradients of all weights in the layout of the weights; addGrad says whether they are added to
    dweights or replace it.

    The call follows cudnnMultiHeadAttnBackwardData, with the same data, weights, dout and reserveSpace. weights and
    dweights may be NULL if attnDesc has no weights.
    Errors: BAD_PARAM for NULL, an unknown addGrad, data that does not fit attnDesc, spaces that are too small (c14);
    NOT_SUPPORTED for biases (c18). Source: 8.2.16; formula: 7.2.43.
    """

def cudnnRNNBackwardData(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    dyDesc: Sequence[TensorDescriptor],
    dy: Memory,
    dhyDesc: TensorDescriptor,
    dhy: Memory,
    dcyDesc: TensorDescriptor,
    dcy: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    dxDesc: Sequence[TensorDescriptor],
    dx: Memory,
    dhxDesc: TensorDescriptor,
    dhx: Memory,
    dcxDesc: TensorDescriptor,
    dcx: Memory,
    workspace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNBackwardData_v8 after cudnnRNNForwardTraining, for packed sequences that are described
    step by step.

    Errors: BAD_PARAM for rnnDesc (c59), other descriptors (c60), mismatched arguments (c61), small spaces (c62, c63);
    NOT_SUPPORTED for what a persistent algorithm does not support, and for data types (c58). Source: 8.2.17.
    """

def cudnnRNNBackwardData_v8(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    devSeqLengths: Memory,
    yDesc: RNNDataDescriptor,
    y: Memory,
    dy: Memory,
    xDesc: RNNDataDescriptor,
    dx: Memory,
    hDesc: TensorDescriptor | None,
    hx: Memory,
    dhy: Memory,
    dhx: Memory,
    cDesc: TensorDescriptor | None,
    cx: Memory,
    dcy: Memory,
    dcx: Memory,
    weightSpaceSize: SupportsIndex,
    weightSpace: Memory,
    workSpaceSize: SupportsIndex,
    workSpace: Memory,
    reserveSpaceSize: SupportsIndex,
    reserveSpace: Memory,
) -> None:
    """Compute the gradients dx, dhx and dcx from dy, dhy and dcy, after a cudnnRNNForward in training with the same
    reserveSpace.

    Sequences and states are described as in cudnnRNNForward; padding of dx gets the paddingFill of xDesc. NULL dhy and
    dcy are zeros; NULL dhx and dcx are not written. hDesc and cDesc may be NULL if all their memory is. devSeqLengths
    is not read.
    Errors: BAD_PARAM for NULL (c52, c30, c07, c26), descriptors that do not fit each other (c53), buffers that are too
    small (c54); NOT_SUPPORTED for a persistent algorithm with sequences of several lengths (c49), or with DOUBLE data
    (c51).
    Source: 8.2.18.
    """

def cudnnRNNBackwardDataEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    yDesc: RNNDataDescriptor,
    y: Memory,
    dyDesc: RNNDataDescriptor,
    dy: Memory,
    dcDesc: RNNDataDescriptor | None,
    dcAttn: Memory,
    dhyDesc: TensorDescriptor,
    dhy: Memory,
    dcyDesc: TensorDescriptor,
    dcy: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    dxDesc: RNNDataDescriptor,
    dx: Memory,
    dhxDesc: TensorDescriptor,
    dhx: Memory,
    dcxDesc: TensorDescriptor,
    dcx: Memory,
    dkDesc: RNNDataDescriptor | None,
    dkeys: Memory,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNBackwardData for sequences in any layout; dcDesc, dcAttn, dkDesc and dkeys are reserved.

    Errors: BAD_PARAM for rnnDesc (c45), descriptors (c46), small spaces (c47, c48); NOT_SUPPORTED for a persistent
    algorithm with sequences of several lengths (c42) or DOUBLE data (c44), and for reserved arguments. Source: 8.2.19.
    """

def cudnnRNNBackwardWeights(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
    dwDesc: FilterDescriptor,
    dw: Memory,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNBackwardWeights_v8 after cudnnRNNBackwardData, for packed sequences that are described
    step by step.

    Errors: BAD_PARAM for rnnDesc (c25), other descriptors (c26), mismatched arguments (c27), small spaces (c28, c29);
    NOT_SUPPORTED for what a persistent algorithm does not support, and for data types (c24). Source: 8.2.20.
    """

def cudnnRNNBackwardWeights_v8(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    addGrad: cudnnWgradMode_t,
    devSeqLengths: Memory,
    xDesc: RNNDataDescriptor,
    x: Memory,
    hDesc: TensorDescriptor,
    hx: Memory,
    yDesc: RNNDataDescriptor,
    y: Memory,
    weightSpaceSize: SupportsIndex,
    dweightSpace: Memory,
    workSpaceSize: SupportsIndex,
    workSpace: Memory,
    reserveSpaceSize: SupportsIndex,
    reserveSpace: Memory,
) -> None:
    """Add the gradients of all matrices and biases to dweightSpace, after cudnnRNNBackwardData_v8 with the same
    reserveSpace.

    x, hx, y: as in the earlier calls; hx is NULL if it was NULL there. devSeqLengths is not read.
    Errors: BAD_PARAM for NULL (c22, c26), an addGrad other than CUDNN_WGRAD_MODE_ADD (c25), descriptors that do not fit
    each other (c23), buffers that are too small (c24); NOT_SUPPORTED for a persistent algorithm with sequences of
    several lengths, or with DOUBLE data (c21). Source: 8.2.21.
    """

def cudnnRNNBackwardWeightsEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    xDesc: RNNDataDescriptor,
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    yDesc: RNNDataDescriptor,
    y: Memory,
    workSpace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    dwDesc: FilterDescriptor,
    dw: Memory,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNBackwardWeights for sequences in any layout.

    Errors: BAD_PARAM for rnnDesc (c19), descriptors (c20), small spaces (c21, c22); NOT_SUPPORTED for what a persistent
    algorithm does not take (c18). Source: 8.2.22.
    """

def cudnnRNNForwardTraining(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    seqLength: SupportsIndex,
    xDesc: Sequence[TensorDescriptor],
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    yDesc: Sequence[TensorDescriptor],
    y: Memory,
    hyDesc: TensorDescriptor,
    hy: Memory,
    cyDesc: TensorDescriptor,
    cy: Memory,
    workspace: Memory,
    workSpaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNForward in training, with the descriptors of cudnnRNNForwardInference.

    Errors: BAD_PARAM for rnnDesc (c46), other descriptors (c47), mismatched arguments (c48), small spaces (c49, c50);
    NOT_SUPPORTED for what a persistent algorithm does not support (cudnnRNNForward/c41, c43). Source: 8.2.23.
    """

def cudnnRNNForwardTrainingEx(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    xDesc: RNNDataDescriptor,
    x: Memory,
    hxDesc: TensorDescriptor,
    hx: Memory,
    cxDesc: TensorDescriptor,
    cx: Memory,
    wDesc: FilterDescriptor,
    w: Memory,
    yDesc: RNNDataDescriptor,
    y: Memory,
    hyDesc: TensorDescriptor,
    hy: Memory,
    cyDesc: TensorDescriptor,
    cy: Memory,
    kDesc: RNNDataDescriptor | None,
    keys: Memory,
    cDesc: RNNDataDescriptor | None,
    cAttn: Memory,
    iDesc: RNNDataDescriptor | None,
    iAttn: Memory,
    qDesc: RNNDataDescriptor | None,
    queries: Memory,
    workspace: Memory,
    workspaceSizeInBytes: SupportsIndex,
    reserveSpace: Memory,
    reserveSpaceSizeInBytes: SupportsIndex,
) -> None:
    """Do the same as cudnnRNNForwardTraining for sequences in any layout; kDesc to queries are reserved.

    Errors: BAD_PARAM for rnnDesc (c41), descriptors (c42), small spaces (c43, c44); NOT_SUPPORTED for a persistent
    algorithm with sequences of several lengths (c38) or DOUBLE data (c40), and for reserved arguments. Source: 8.2.24.
    """

def cudnnSetCTCLossDescriptor(ctcLossDesc: CTCLossDescriptor, compType: cudnnDataType_t) -> None:
    """Describe a CTC loss of normalized probabilities; the gradients of a sequence without an alignment are zero.

    Errors: BAD_PARAM for a compType other than FLOAT and DOUBLE (c04); cudnnCTCLoss supports FLOAT. Source: 8.2.25.
    """

def cudnnSetCTCLossDescriptorEx(
    ctcLossDesc: CTCLossDescriptor,
    compType: cudnnDataType_t,
    normMode: cudnnLossNormalizationMode_t,
    gradMode: cudnnNanPropagation_t,
) -> None:
    """Describe a CTC loss.

    normMode: whether probs holds normalized probabilities (NONE) or activations (SOFTMAX). gradMode: whether
    the gradients of a sequence without an alignment are zero (NOT_PROPAGATE_NAN) or not written (PROPAGATE_NAN).
    Errors: BAD_PARAM for a compType other than FLOAT and DOUBLE, unknown modes (c07). Source: 8.2.26.
    """

def cudnnSetCTCLossDescriptor_v8(
    ctcLossDesc: CTCLossDescriptor,
    compType: cudnnDataType_t,
    normMode: cudnnLossNormalizationMode_t,
    gradMode: cudnnNanPropagation_t,
    maxLabelLength: SupportsIndex,
) -> None:
    """Describe a CTC loss with labels in device memory: the parameters of cudnnSetCTCLossDescriptorEx and the maximum
    labels per sequence.

    Errors: BAD_PARAM for a compType other than FLOAT and DOUBLE, unknown modes, a negative maxLabelLength (c08).
    Source: 8.2.27.
    """

CUDNN_ACTIVATION_SIGMOID: Final = cudnnActivationMode_t.CUDNN_ACTIVATION_SIGMOID
CUDNN_ACTIVATION_RELU: Final = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
CUDNN_ACTIVATION_TANH: Final = cudnnActivationMode_t.CUDNN_ACTIVATION_TANH
CUDNN_ACTIVATION_CLIPPED_RELU: Final = cudnnActivationMode_t.CUDNN_ACTIVATION_CLIPPED_RELU
CUDNN_ACTIVATION_ELU: Final = cudnnActivationMode_t.CUDNN_ACTIVATION_ELU
CUDNN_ACTIVATION_IDENTITY: Final = cudnnActivationMode_t.CUDNN_ACTIVATION_IDENTITY
CUDNN_BATCHNORM_PER_ACTIVATION: Final = cudnnBatchNormMode_t.CUDNN_BATCHNORM_PER_ACTIVATION
CUDNN_BATCHNORM_SPATIAL: Final = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL
CUDNN_BATCHNORM_SPATIAL_PERSISTENT: Final = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL_PERSISTENT
CUDNN_BATCHNORM_OPS_BN: Final = cudnnBatchNormOps_t.CUDNN_BATCHNORM_OPS_BN
CUDNN_BATCHNORM_OPS_BN_ACTIVATION: Final = cudnnBatchNormOps_t.CUDNN_BATCHNORM_OPS_BN_ACTIVATION
CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION: Final = cudnnBatchNormOps_t.CUDNN_BATCHNORM_OPS_BN_ADD_ACTIVATION
CUDNN_CTC_LOSS_ALGO_DETERMINISTIC: Final = cudnnCTCLossAlgo_t.CUDNN_CTC_LOSS_ALGO_DETERMINISTIC
CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC: Final = cudnnCTCLossAlgo_t.CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC
CUDNN_DATA_FLOAT: Final = cudnnDataType_t.CUDNN_DATA_FLOAT
CUDNN_DATA_DOUBLE: Final = cudnnDataType_t.CUDNN_DATA_DOUBLE
CUDNN_DATA_HALF: Final = cudnnDataType_t.CUDNN_DATA_HALF
CUDNN_DATA_INT8: Final = cudnnDataType_t.CUDNN_DATA_INT8
CUDNN_DATA_INT32: Final = cudnnDataType_t.CUDNN_DATA_INT32
CUDNN_DATA_INT8x4: Final = cudnnDataType_t.CUDNN_DATA_INT8x4
CUDNN_DATA_UINT8: Final = cudnnDataType_t.CUDNN_DATA_UINT8
CUDNN_DATA_UINT8x4: Final = cudnnDataType_t.CUDNN_DATA_UINT8x4
CUDNN_DATA_INT8x32: Final = cudnnDataType_t.CUDNN_DATA_INT8x32
CUDNN_DATA_BFLOAT16: Final = cudnnDataType_t.CUDNN_DATA_BFLOAT16
CUDNN_NON_DETERMINISTIC: Final = cudnnDeterminism_t.CUDNN_NON_DETERMINISTIC
CUDNN_DETERMINISTIC: Final = cudnnDeterminism_t.CUDNN_DETERMINISTIC
CUDNN_DIVNORM_PRECOMPUTED_MEANS: Final = cudnnDivNormMode_t.CUDNN_DIVNORM_PRECOMPUTED_MEANS
CUDNN_ERRQUERY_RAWCODE: Final = cudnnErrQueryMode_t.CUDNN_ERRQUERY_RAWCODE
CUDNN_ERRQUERY_NONBLOCKING: Final = cudnnErrQueryMode_t.CUDNN_ERRQUERY_NONBLOCKING
CUDNN_ERRQUERY_BLOCKING: Final = cudnnErrQueryMode_t.CUDNN_ERRQUERY_BLOCKING
CUDNN_TRANSFORM_FOLD: Final = cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD
CUDNN_TRANSFORM_UNFOLD: Final = cudnnFoldingDirection_t.CUDNN_TRANSFORM_UNFOLD
CUDNN_32BIT_INDICES: Final = cudnnIndicesType_t.CUDNN_32BIT_INDICES
CUDNN_64BIT_INDICES: Final = cudnnIndicesType_t.CUDNN_64BIT_INDICES
CUDNN_16BIT_INDICES: Final = cudnnIndicesType_t.CUDNN_16BIT_INDICES
CUDNN_8BIT_INDICES: Final = cudnnIndicesType_t.CUDNN_8BIT_INDICES
CUDNN_LRN_CROSS_CHANNEL_DIM1: Final = cudnnLRNMode_t.CUDNN_LRN_CROSS_CHANNEL_DIM1
CUDNN_DEFAULT_MATH: Final = cudnnMathType_t.CUDNN_DEFAULT_MATH
CUDNN_TENSOR_OP_MATH: Final = cudnnMathType_t.CUDNN_TENSOR_OP_MATH
CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION: Final = cudnnMathType_t.CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION
CUDNN_FMA_MATH: Final = cudnnMathType_t.CUDNN_FMA_MATH
CUDNN_NOT_PROPAGATE_NAN: Final = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
CUDNN_PROPAGATE_NAN: Final = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN
CUDNN_NORM_ALGO_STANDARD: Final = cudnnNormAlgo_t.CUDNN_NORM_ALGO_STANDARD
CUDNN_NORM_ALGO_PERSIST: Final = cudnnNormAlgo_t.CUDNN_NORM_ALGO_PERSIST
CUDNN_NORM_PER_ACTIVATION: Final = cudnnNormMode_t.CUDNN_NORM_PER_ACTIVATION
CUDNN_NORM_PER_CHANNEL: Final = cudnnNormMode_t.CUDNN_NORM_PER_CHANNEL
CUDNN_NORM_OPS_NORM: Final = cudnnNormOps_t.CUDNN_NORM_OPS_NORM
CUDNN_NORM_OPS_NORM_ACTIVATION: Final = cudnnNormOps_t.CUDNN_NORM_OPS_NORM_ACTIVATION
CUDNN_NORM_OPS_NORM_ADD_ACTIVATION: Final = cudnnNormOps_t.CUDNN_NORM_OPS_NORM_ADD_ACTIVATION
CUDNN_OP_TENSOR_ADD: Final = cudnnOpTensorOp_t.CUDNN_OP_TENSOR_ADD
CUDNN_OP_TENSOR_MUL: Final = cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MUL
CUDNN_OP_TENSOR_MIN: Final = cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MIN
CUDNN_OP_TENSOR_MAX: Final = cudnnOpTensorOp_t.CUDNN_OP_TENSOR_MAX
CUDNN_OP_TENSOR_SQRT: Final = cudnnOpTensorOp_t.CUDNN_OP_TENSOR_SQRT
CUDNN_OP_TENSOR_NOT: Final = cudnnOpTensorOp_t.CUDNN_OP_TENSOR_NOT
CUDNN_POOLING_MAX: Final = cudnnPoolingMode_t.CUDNN_POOLING_MAX
CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING: Final = cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING: Final = cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
CUDNN_POOLING_MAX_DETERMINISTIC: Final = cudnnPoolingMode_t.CUDNN_POOLING_MAX_DETERMINISTIC
CUDNN_REDUCE_TENSOR_NO_INDICES: Final = cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES
CUDNN_REDUCE_TENSOR_FLATTENED_INDICES: Final = cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES
CUDNN_REDUCE_TENSOR_ADD: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_ADD
CUDNN_REDUCE_TENSOR_MUL: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MUL
CUDNN_REDUCE_TENSOR_MIN: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MIN
CUDNN_REDUCE_TENSOR_MAX: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MAX
CUDNN_REDUCE_TENSOR_AMAX: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_AMAX
CUDNN_REDUCE_TENSOR_AVG: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_AVG
CUDNN_REDUCE_TENSOR_NORM1: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_NORM1
CUDNN_REDUCE_TENSOR_NORM2: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_NORM2
CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS: Final = cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS
CUDNN_RNN_ALGO_STANDARD: Final = cudnnRNNAlgo_t.CUDNN_RNN_ALGO_STANDARD
CUDNN_RNN_ALGO_PERSIST_STATIC: Final = cudnnRNNAlgo_t.CUDNN_RNN_ALGO_PERSIST_STATIC
CUDNN_RNN_ALGO_PERSIST_DYNAMIC: Final = cudnnRNNAlgo_t.CUDNN_RNN_ALGO_PERSIST_DYNAMIC
CUDNN_SAMPLER_BILINEAR: Final = cudnnSamplerType_t.CUDNN_SAMPLER_BILINEAR
CUDNN_SEV_FATAL: Final = cudnnSeverity_t.CUDNN_SEV_FATAL
CUDNN_SEV_ERROR: Final = cudnnSeverity_t.CUDNN_SEV_ERROR
CUDNN_SEV_WARNING: Final = cudnnSeverity_t.CUDNN_SEV_WARNING
CUDNN_SEV_INFO: Final = cudnnSeverity_t.CUDNN_SEV_INFO
CUDNN_SOFTMAX_FAST: Final = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_FAST
CUDNN_SOFTMAX_ACCURATE: Final = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE
CUDNN_SOFTMAX_LOG: Final = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_LOG
CUDNN_SOFTMAX_MODE_INSTANCE: Final = cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_INSTANCE
CUDNN_SOFTMAX_MODE_CHANNEL: Final = cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL
CUDNN_STATUS_SUCCESS: Final = cudnnStatus_t.CUDNN_STATUS_SUCCESS
CUDNN_STATUS_NOT_INITIALIZED: Final = cudnnStatus_t.CUDNN_STATUS_NOT_INITIALIZED
CUDNN_STATUS_ALLOC_FAILED: Final = cudnnStatus_t.CUDNN_STATUS_ALLOC_FAILED
CUDNN_STATUS_BAD_PARAM: Final = cudnnStatus_t.CUDNN_STATUS_BAD_PARAM
CUDNN_STATUS_INTERNAL_ERROR: Final = cudnnStatus_t.CUDNN_STATUS_INTERNAL_ERROR
CUDNN_STATUS_INVALID_VALUE: Final = cudnnStatus_t.CUDNN_STATUS_INVALID_VALUE
CUDNN_STATUS_ARCH_MISMATCH: Final = cudnnStatus_t.CUDNN_STATUS_ARCH_MISMATCH
CUDNN_STATUS_MAPPING_ERROR: Final = cudnnStatus_t.CUDNN_STATUS_MAPPING_ERROR
CUDNN_STATUS_EXECUTION_FAILED: Final = cudnnStatus_t.CUDNN_STATUS_EXECUTION_FAILED
CUDNN_STATUS_NOT_SUPPORTED: Final = cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED
CUDNN_STATUS_LICENSE_ERROR: Final = cudnnStatus_t.CUDNN_STATUS_LICENSE_ERROR
CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING: Final = cudnnStatus_t.CUDNN_STATUS_RUNTIME_PREREQUISITE_MISSING
CUDNN_STATUS_RUNTIME_IN_PROGRESS: Final = cudnnStatus_t.CUDNN_STATUS_RUNTIME_IN_PROGRESS
CUDNN_STATUS_RUNTIME_FP_OVERFLOW: Final = cudnnStatus_t.CUDNN_STATUS_RUNTIME_FP_OVERFLOW
CUDNN_STATUS_VERSION_MISMATCH: Final = cudnnStatus_t.CUDNN_STATUS_VERSION_MISMATCH
CUDNN_TENSOR_NCHW: Final = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW
CUDNN_TENSOR_NHWC: Final = cudnnTensorFormat_t.CUDNN_TENSOR_NHWC
CUDNN_TENSOR_NCHW_VECT_C: Final = cudnnTensorFormat_t.CUDNN_TENSOR_NCHW_VECT_C
CUDNN_ATTR_POINTWISE_MODE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_POINTWISE_MODE
CUDNN_ATTR_POINTWISE_MATH_PREC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_POINTWISE_MATH_PREC
CUDNN_ATTR_POINTWISE_NAN_PROPAGATION: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_POINTWISE_NAN_PROPAGATION
CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP
CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP
CUDNN_ATTR_CONVOLUTION_COMP_TYPE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_CONVOLUTION_COMP_TYPE
CUDNN_ATTR_CONVOLUTION_CONV_MODE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_CONVOLUTION_CONV_MODE
CUDNN_ATTR_CONVOLUTION_DILATIONS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_CONVOLUTION_DILATIONS
CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES
CUDNN_ATTR_CONVOLUTION_POST_PADDINGS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_CONVOLUTION_POST_PADDINGS
CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS
CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS
CUDNN_ATTR_ENGINEHEUR_MODE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINEHEUR_MODE
CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH
CUDNN_ATTR_ENGINEHEUR_RESULTS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINEHEUR_RESULTS
CUDNN_ATTR_ENGINECFG_ENGINE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINECFG_ENGINE
CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINECFG_INTERMEDIATE_INFO
CUDNN_ATTR_ENGINECFG_KNOB_CHOICES: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINECFG_KNOB_CHOICES
CUDNN_ATTR_EXECUTION_PLAN_HANDLE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_EXECUTION_PLAN_HANDLE
CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG
CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE
CUDNN_ATTR_EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_EXECUTION_PLAN_COMPUTED_INTERMEDIATE_UIDS
)
CUDNN_ATTR_EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_EXECUTION_PLAN_RUN_ONLY_INTERMEDIATE_UIDS
)
CUDNN_ATTR_INTERMEDIATE_INFO_UNIQUE_ID: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_INTERMEDIATE_INFO_UNIQUE_ID
CUDNN_ATTR_INTERMEDIATE_INFO_SIZE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_INTERMEDIATE_INFO_SIZE
CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_DATA_UIDS
)
CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_INTERMEDIATE_INFO_DEPENDENT_ATTRIBUTES
)
CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE
CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE
CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA
)
CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA
)
CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC
)
CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W
)
CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X
)
CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X
)
CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY
)
CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR
)
CUDNN_ATTR_OPERATION_POINTWISE_XDESC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_POINTWISE_XDESC
CUDNN_ATTR_OPERATION_POINTWISE_BDESC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_POINTWISE_BDESC
CUDNN_ATTR_OPERATION_POINTWISE_YDESC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_POINTWISE_YDESC
CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1
CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2
CUDNN_ATTR_OPERATION_GENSTATS_MODE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_GENSTATS_MODE
CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC
CUDNN_ATTR_OPERATION_GENSTATS_XDESC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_GENSTATS_XDESC
CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC
CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC
CUDNN_ATTR_OPERATIONGRAPH_HANDLE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATIONGRAPH_HANDLE
CUDNN_ATTR_OPERATIONGRAPH_OPS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATIONGRAPH_OPS
CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: Final = (
    cudnnBackendAttributeName_t.CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT
)
CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT
CUDNN_ATTR_TENSOR_DATA_TYPE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_DATA_TYPE
CUDNN_ATTR_TENSOR_DIMENSIONS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_DIMENSIONS
CUDNN_ATTR_TENSOR_STRIDES: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_STRIDES
CUDNN_ATTR_TENSOR_VECTOR_COUNT: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_VECTOR_COUNT
CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_VECTORIZED_DIMENSION
CUDNN_ATTR_TENSOR_UNIQUE_ID: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_UNIQUE_ID
CUDNN_ATTR_TENSOR_IS_VIRTUAL: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_TENSOR_IS_VIRTUAL
CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS
CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS
CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_VARIANT_PACK_INTERMEDIATES
CUDNN_ATTR_VARIANT_PACK_WORKSPACE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_VARIANT_PACK_WORKSPACE
CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_LAYOUT_INFO_TENSOR_UID
CUDNN_ATTR_LAYOUT_INFO_TYPES: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_LAYOUT_INFO_TYPES
CUDNN_ATTR_KNOB_INFO_TYPE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_KNOB_INFO_TYPE
CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_KNOB_INFO_MAXIMUM_VALUE
CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_KNOB_INFO_MINIMUM_VALUE
CUDNN_ATTR_KNOB_INFO_STRIDE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_KNOB_INFO_STRIDE
CUDNN_ATTR_ENGINE_OPERATION_GRAPH: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINE_OPERATION_GRAPH
CUDNN_ATTR_ENGINE_GLOBAL_INDEX: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINE_GLOBAL_INDEX
CUDNN_ATTR_ENGINE_KNOB_INFO: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINE_KNOB_INFO
CUDNN_ATTR_ENGINE_NUMERICAL_NOTE: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINE_NUMERICAL_NOTE
CUDNN_ATTR_ENGINE_LAYOUT_INFO: Final = cudnnBackendAttributeName_t.CUDNN_ATTR_ENGINE_LAYOUT_INFO
CUDNN_TYPE_HANDLE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_HANDLE
CUDNN_TYPE_DATA_TYPE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_DATA_TYPE
CUDNN_TYPE_BOOLEAN: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_BOOLEAN
CUDNN_TYPE_INT64: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_INT64
CUDNN_TYPE_FLOAT: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_FLOAT
CUDNN_TYPE_DOUBLE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_DOUBLE
CUDNN_TYPE_VOID_PTR: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_VOID_PTR
CUDNN_TYPE_CONVOLUTION_MODE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_CONVOLUTION_MODE
CUDNN_TYPE_HEUR_MODE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_HEUR_MODE
CUDNN_TYPE_KNOB_TYPE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_KNOB_TYPE
CUDNN_TYPE_NAN_PROPOGATION: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_NAN_PROPOGATION
CUDNN_TYPE_NUMERICAL_NOTE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_NUMERICAL_NOTE
CUDNN_TYPE_LAYOUT_TYPE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_LAYOUT_TYPE
CUDNN_TYPE_ATTRIB_NAME: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_ATTRIB_NAME
CUDNN_TYPE_POINTWISE_MODE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_POINTWISE_MODE
CUDNN_TYPE_BACKEND_DESCRIPTOR: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_BACKEND_DESCRIPTOR
CUDNN_TYPE_GENSTATS_MODE: Final = cudnnBackendAttributeType_t.CUDNN_TYPE_GENSTATS_MODE
CUDNN_BACKEND_POINTWISE_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_POINTWISE_DESCRIPTOR
CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR
CUDNN_BACKEND_ENGINE_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_ENGINE_DESCRIPTOR
CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_ENGINECFG_DESCRIPTOR
CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR
CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR
CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR: Final = (
    cudnnBackendDescriptorType_t.CUDNN_BACKEND_INTERMEDIATE_INFO_DESCRIPTOR
)
CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR
CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_KNOB_INFO_DESCRIPTOR
CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_LAYOUT_INFO_DESCRIPTOR
CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR: Final = (
    cudnnBackendDescriptorType_t.CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
)
CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: Final = (
    cudnnBackendDescriptorType_t.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
)
CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR: Final = (
    cudnnBackendDescriptorType_t.CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
)
CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: Final = (
    cudnnBackendDescriptorType_t.CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
)
CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR: Final = (
    cudnnBackendDescriptorType_t.CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR
)
CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR
CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR
CUDNN_BACKEND_TENSOR_DESCRIPTOR: Final = cudnnBackendDescriptorType_t.CUDNN_BACKEND_TENSOR_DESCRIPTOR
CUDNN_HEUR_MODE_INSTANT: Final = cudnnBackendHeurMode_t.CUDNN_HEUR_MODE_INSTANT
CUDNN_KNOB_TYPE_SPLIT_K: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPLIT_K
CUDNN_KNOB_TYPE_SWIZZLE: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SWIZZLE
CUDNN_KNOB_TYPE_TILE_SIZE: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_TILE_SIZE
CUDNN_KNOB_TYPE_USE_TEX: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_USE_TEX
CUDNN_KNOB_TYPE_EDGE: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_EDGE
CUDNN_KNOB_TYPE_KBLOCK: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_KBLOCK
CUDNN_KNOB_TYPE_LDGA: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_LDGA
CUDNN_KNOB_TYPE_LDGB: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_LDGB
CUDNN_KNOB_TYPE_CHUNK_K: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_CHUNK_K
CUDNN_KNOB_TYPE_SPLIT_H: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPLIT_H
CUDNN_KNOB_TYPE_WINO_TILE: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_WINO_TILE
CUDNN_KNOB_TYPE_MULTIPLY: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_MULTIPLY
CUDNN_KNOB_TYPE_SPLIT_K_BUF: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPLIT_K_BUF
CUDNN_KNOB_TYPE_TILEK: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_TILEK
CUDNN_KNOB_TYPE_STAGES: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_STAGES
CUDNN_KNOB_TYPE_REDUCTION_MODE: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_REDUCTION_MODE
CUDNN_KNOB_TYPE_CTA_SPLIT_K_MODE: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_CTA_SPLIT_K_MODE
CUDNN_KNOB_TYPE_SPLIT_K_SLC: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPLIT_K_SLC
CUDNN_KNOB_TYPE_IDX_MODE: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_IDX_MODE
CUDNN_KNOB_TYPE_SLICED: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SLICED
CUDNN_KNOB_TYPE_SPLIT_RS: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPLIT_RS
CUDNN_KNOB_TYPE_SINGLEBUFFER: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SINGLEBUFFER
CUDNN_KNOB_TYPE_LDGC: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_LDGC
CUDNN_KNOB_TYPE_SPECFILT: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_SPECFILT
CUDNN_KNOB_TYPE_COUNTS: Final = cudnnBackendKnobType_t.CUDNN_KNOB_TYPE_COUNTS
CUDNN_LAYOUT_TYPE_PREFERRED_NCHW: Final = cudnnBackendLayoutType_t.CUDNN_LAYOUT_TYPE_PREFERRED_NCHW
CUDNN_LAYOUT_TYPE_PREFERRED_NHWC: Final = cudnnBackendLayoutType_t.CUDNN_LAYOUT_TYPE_PREFERRED_NHWC
CUDNN_LAYOUT_TYPE_PREFERRED_PAD4CK: Final = cudnnBackendLayoutType_t.CUDNN_LAYOUT_TYPE_PREFERRED_PAD4CK
CUDNN_LAYOUT_TYPE_PREFERRED_PAD8CK: Final = cudnnBackendLayoutType_t.CUDNN_LAYOUT_TYPE_PREFERRED_PAD8CK
CUDNN_LAYOUT_TYPE_COUNT: Final = cudnnBackendLayoutType_t.CUDNN_LAYOUT_TYPE_COUNT
CUDNN_NUMERICAL_NOTE_TENSOR_CORE: Final = cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_TENSOR_CORE
CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS: Final = cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS
CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION: Final = (
    cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION
)
CUDNN_NUMERICAL_NOTE_FFT: Final = cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_FFT
CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC: Final = cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC
CUDNN_NUMERICAL_NOTE_WINOGRAD: Final = cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_WINOGRAD
CUDNN_NUMERICAL_NOTE_TYPE_COUNT: Final = cudnnBackendNumericalNote_t.CUDNN_NUMERICAL_NOTE_TYPE_COUNT
CUDNN_CONVOLUTION_BWD_DATA_ALGO_0: Final = cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_0
CUDNN_CONVOLUTION_BWD_DATA_ALGO_1: Final = cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT: Final = cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT
CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING: Final = (
    cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING
)
CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD: Final = cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD
CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED: Final = (
    cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED
)
CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0: Final = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0
CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1: Final = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1
CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT: Final = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT
CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3: Final = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3
CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD: Final = (
    cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD
)
CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED: Final = (
    cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED
)
CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING: Final = (
    cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING
)
CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM: Final = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM: Final = (
    cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
)
CUDNN_CONVOLUTION_FWD_ALGO_GEMM: Final = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_GEMM
CUDNN_CONVOLUTION_FWD_ALGO_DIRECT: Final = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_DIRECT
CUDNN_CONVOLUTION_FWD_ALGO_FFT: Final = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_FFT
CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING: Final = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING
CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD: Final = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD
CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED: Final = (
    cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED
)
CUDNN_CONVOLUTION: Final = cudnnConvolutionMode_t.CUDNN_CONVOLUTION
CUDNN_CROSS_CORRELATION: Final = cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION
CUDNN_GENSTATS_SUM_SQSUM: Final = cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM
CUDNN_POINTWISE_ADD: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_ADD
CUDNN_POINTWISE_MUL: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_MUL
CUDNN_POINTWISE_MIN: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_MIN
CUDNN_POINTWISE_MAX: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_MAX
CUDNN_POINTWISE_SQRT: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_SQRT
CUDNN_POINTWISE_IDENTITY_FWD: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_IDENTITY_FWD
CUDNN_POINTWISE_RELU_FWD: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_RELU_FWD
CUDNN_POINTWISE_TANH_FWD: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_TANH_FWD
CUDNN_POINTWISE_SIGMOID_FWD: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_SIGMOID_FWD
CUDNN_POINTWISE_ELU_FWD: Final = cudnnPointwiseMode_t.CUDNN_POINTWISE_ELU_FWD
CUDNN_DEFAULT_REORDER: Final = cudnnReorderType_t.CUDNN_DEFAULT_REORDER
CUDNN_NO_REORDER: Final = cudnnReorderType_t.CUDNN_NO_REORDER
CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS: Final = cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ACTIVATION_CONV_BNSTATS
CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD: Final = cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ACTIVATION_WGRAD
CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING: Final = cudnnFusedOps_t.CUDNN_FUSED_BN_FINALIZE_STATISTICS_TRAINING
CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE: Final = cudnnFusedOps_t.CUDNN_FUSED_BN_FINALIZE_STATISTICS_INFERENCE
CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION: Final = cudnnFusedOps_t.CUDNN_FUSED_CONV_SCALE_BIAS_ADD_ACTIVATION
CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK: Final = (
    cudnnFusedOps_t.CUDNN_FUSED_SCALE_BIAS_ADD_ACTIVATION_GEN_BITMASK
)
CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM: Final = cudnnFusedOps_t.CUDNN_FUSED_DACTIVATION_FORK_DBATCHNORM
CUDNN_PARAM_XDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_XDESC
CUDNN_PARAM_XDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_XDATA_PLACEHOLDER
CUDNN_PARAM_BN_MODE: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_MODE
CUDNN_PARAM_BN_EQSCALEBIAS_DESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_EQSCALEBIAS_DESC
CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_EQSCALE_PLACEHOLDER
CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_EQBIAS_PLACEHOLDER
CUDNN_PARAM_ACTIVATION_DESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_ACTIVATION_DESC
CUDNN_PARAM_CONV_DESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_CONV_DESC
CUDNN_PARAM_WDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_WDESC
CUDNN_PARAM_WDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_WDATA_PLACEHOLDER
CUDNN_PARAM_DWDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DWDESC
CUDNN_PARAM_DWDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DWDATA_PLACEHOLDER
CUDNN_PARAM_YDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_YDESC
CUDNN_PARAM_YDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_YDATA_PLACEHOLDER
CUDNN_PARAM_DYDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DYDESC
CUDNN_PARAM_DYDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DYDATA_PLACEHOLDER
CUDNN_PARAM_YSTATS_DESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_YSTATS_DESC
CUDNN_PARAM_YSUM_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_YSUM_PLACEHOLDER
CUDNN_PARAM_YSQSUM_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_YSQSUM_PLACEHOLDER
CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_SCALEBIAS_MEANVAR_DESC
CUDNN_PARAM_BN_SCALE_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_SCALE_PLACEHOLDER
CUDNN_PARAM_BN_BIAS_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_BIAS_PLACEHOLDER
CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_SAVED_MEAN_PLACEHOLDER
CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_SAVED_INVSTD_PLACEHOLDER
CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_RUNNING_MEAN_PLACEHOLDER
CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_RUNNING_VAR_PLACEHOLDER
CUDNN_PARAM_ZDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_ZDESC
CUDNN_PARAM_ZDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_ZDATA_PLACEHOLDER
CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_Z_EQSCALEBIAS_DESC
CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_Z_EQSCALE_PLACEHOLDER
CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_Z_EQBIAS_PLACEHOLDER
CUDNN_PARAM_ACTIVATION_BITMASK_DESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_ACTIVATION_BITMASK_DESC
CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER: Final = (
    cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_ACTIVATION_BITMASK_PLACEHOLDER
)
CUDNN_PARAM_DXDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DXDESC
CUDNN_PARAM_DXDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DXDATA_PLACEHOLDER
CUDNN_PARAM_DZDESC: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DZDESC
CUDNN_PARAM_DZDATA_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_DZDATA_PLACEHOLDER
CUDNN_PARAM_BN_DSCALE_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_DSCALE_PLACEHOLDER
CUDNN_PARAM_BN_DBIAS_PLACEHOLDER: Final = cudnnFusedOpsConstParamLabel_t.CUDNN_PARAM_BN_DBIAS_PLACEHOLDER
CUDNN_PTR_NULL: Final = cudnnFusedOpsPointerPlaceHolder_t.CUDNN_PTR_NULL
CUDNN_PTR_ELEM_ALIGNED: Final = cudnnFusedOpsPointerPlaceHolder_t.CUDNN_PTR_ELEM_ALIGNED
CUDNN_PTR_16B_ALIGNED: Final = cudnnFusedOpsPointerPlaceHolder_t.CUDNN_PTR_16B_ALIGNED
CUDNN_PTR_XDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_XDATA
CUDNN_PTR_BN_EQSCALE: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_EQSCALE
CUDNN_PTR_BN_EQBIAS: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_EQBIAS
CUDNN_PTR_WDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_WDATA
CUDNN_PTR_DWDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_DWDATA
CUDNN_PTR_YDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_YDATA
CUDNN_PTR_DYDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_DYDATA
CUDNN_PTR_YSUM: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_YSUM
CUDNN_PTR_YSQSUM: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_YSQSUM
CUDNN_PTR_WORKSPACE: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_WORKSPACE
CUDNN_PTR_BN_SCALE: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_SCALE
CUDNN_PTR_BN_BIAS: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_BIAS
CUDNN_PTR_BN_SAVED_MEAN: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_SAVED_MEAN
CUDNN_PTR_BN_SAVED_INVSTD: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_SAVED_INVSTD
CUDNN_PTR_BN_RUNNING_MEAN: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_RUNNING_MEAN
CUDNN_PTR_BN_RUNNING_VAR: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_RUNNING_VAR
CUDNN_PTR_ZDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_ZDATA
CUDNN_PTR_BN_Z_EQSCALE: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_Z_EQSCALE
CUDNN_PTR_BN_Z_EQBIAS: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_Z_EQBIAS
CUDNN_PTR_ACTIVATION_BITMASK: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_ACTIVATION_BITMASK
CUDNN_PTR_DXDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_DXDATA
CUDNN_PTR_DZDATA: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_DZDATA
CUDNN_PTR_BN_DSCALE: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_DSCALE
CUDNN_PTR_BN_DBIAS: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_PTR_BN_DBIAS
CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES: Final = (
    cudnnFusedOpsVariantParamLabel_t.CUDNN_SCALAR_SIZE_T_WORKSPACE_SIZE_IN_BYTES
)
CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT: Final = (
    cudnnFusedOpsVariantParamLabel_t.CUDNN_SCALAR_INT64_T_BN_ACCUMULATION_COUNT
)
CUDNN_SCALAR_DOUBLE_BN_EXP_AVG_FACTOR: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_SCALAR_DOUBLE_BN_EXP_AVG_FACTOR
CUDNN_SCALAR_DOUBLE_BN_EPSILON: Final = cudnnFusedOpsVariantParamLabel_t.CUDNN_SCALAR_DOUBLE_BN_EPSILON
CUDNN_UNIDIRECTIONAL: Final = cudnnDirectionMode_t.CUDNN_UNIDIRECTIONAL
CUDNN_BIDIRECTIONAL: Final = cudnnDirectionMode_t.CUDNN_BIDIRECTIONAL
CUDNN_FWD_MODE_INFERENCE: Final = cudnnForwardMode_t.CUDNN_FWD_MODE_INFERENCE
CUDNN_FWD_MODE_TRAINING: Final = cudnnForwardMode_t.CUDNN_FWD_MODE_TRAINING
CUDNN_MH_ATTN_Q_WEIGHTS: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_Q_WEIGHTS
CUDNN_MH_ATTN_K_WEIGHTS: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_K_WEIGHTS
CUDNN_MH_ATTN_V_WEIGHTS: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_V_WEIGHTS
CUDNN_MH_ATTN_O_WEIGHTS: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_O_WEIGHTS
CUDNN_MH_ATTN_Q_BIASES: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_Q_BIASES
CUDNN_MH_ATTN_K_BIASES: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_K_BIASES
CUDNN_MH_ATTN_V_BIASES: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_V_BIASES
CUDNN_MH_ATTN_O_BIASES: Final = cudnnMultiHeadAttnWeightKind_t.CUDNN_MH_ATTN_O_BIASES
CUDNN_RNN_NO_BIAS: Final = cudnnRNNBiasMode_t.CUDNN_RNN_NO_BIAS
CUDNN_RNN_SINGLE_INP_BIAS: Final = cudnnRNNBiasMode_t.CUDNN_RNN_SINGLE_INP_BIAS
CUDNN_RNN_DOUBLE_BIAS: Final = cudnnRNNBiasMode_t.CUDNN_RNN_DOUBLE_BIAS
CUDNN_RNN_SINGLE_REC_BIAS: Final = cudnnRNNBiasMode_t.CUDNN_RNN_SINGLE_REC_BIAS
CUDNN_RNN_CLIP_NONE: Final = cudnnRNNClipMode_t.CUDNN_RNN_CLIP_NONE
CUDNN_RNN_CLIP_MINMAX: Final = cudnnRNNClipMode_t.CUDNN_RNN_CLIP_MINMAX
CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED: Final = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED: Final = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED: Final = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
CUDNN_LINEAR_INPUT: Final = cudnnRNNInputMode_t.CUDNN_LINEAR_INPUT
CUDNN_SKIP_INPUT: Final = cudnnRNNInputMode_t.CUDNN_SKIP_INPUT
CUDNN_RNN_RELU: Final = cudnnRNNMode_t.CUDNN_RNN_RELU
CUDNN_RNN_TANH: Final = cudnnRNNMode_t.CUDNN_RNN_TANH
CUDNN_LSTM: Final = cudnnRNNMode_t.CUDNN_LSTM
CUDNN_GRU: Final = cudnnRNNMode_t.CUDNN_GRU
CUDNN_RNN_PADDED_IO_DISABLED: Final = cudnnRNNPaddingMode_t.CUDNN_RNN_PADDED_IO_DISABLED
CUDNN_RNN_PADDED_IO_ENABLED: Final = cudnnRNNPaddingMode_t.CUDNN_RNN_PADDED_IO_ENABLED
CUDNN_SEQDATA_TIME_DIM: Final = cudnnSeqDataAxis_t.CUDNN_SEQDATA_TIME_DIM
CUDNN_SEQDATA_BATCH_DIM: Final = cudnnSeqDataAxis_t.CUDNN_SEQDATA_BATCH_DIM
CUDNN_SEQDATA_BEAM_DIM: Final = cudnnSeqDataAxis_t.CUDNN_SEQDATA_BEAM_DIM
CUDNN_SEQDATA_VECT_DIM: Final = cudnnSeqDataAxis_t.CUDNN_SEQDATA_VECT_DIM
CUDNN_LOSS_NORMALIZATION_NONE: Final = cudnnLossNormalizationMode_t.CUDNN_LOSS_NORMALIZATION_NONE
CUDNN_LOSS_NORMALIZATION_SOFTMAX: Final = cudnnLossNormalizationMode_t.CUDNN_LOSS_NORMALIZATION_SOFTMAX
CUDNN_WGRAD_MODE_ADD: Final = cudnnWgradMode_t.CUDNN_WGRAD_MODE_ADD
CUDNN_WGRAD_MODE_SET: Final = cudnnWgradMode_t.CUDNN_WGRAD_MODE_SET
MAJOR_VERSION: Final = libraryPropertyType.MAJOR_VERSION
MINOR_VERSION: Final = libraryPropertyType.MINOR_VERSION
PATCH_LEVEL: Final = libraryPropertyType.PATCH_LEVEL
