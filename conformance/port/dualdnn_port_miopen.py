"""Does with several calls of ``dualdnn.api.miopen`` the work of one call of ``dualdnn.api.cudnn``.

Python clients that ``dualdnn port`` rewrote import this file. Functions have the parameters of the cuDNN function in
their name, in its order, and return its host outputs. The C header of the same name says why each of them is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from math import prod
from typing import Any, NamedTuple

from dualdnn.api import miopen

Status = miopen.miopenStatus_t


class dualdnnPortTensorFormat_t(IntEnum):
    DUALDNN_PORT_TENSOR_NCHW = 0
    DUALDNN_PORT_TENSOR_NHWC = 1
    DUALDNN_PORT_TENSOR_NCHW_VECT_C = 2


class dualdnnPortNanPropagation_t(IntEnum):
    DUALDNN_PORT_NOT_PROPAGATE_NAN = 0
    DUALDNN_PORT_PROPAGATE_NAN = 1


class dualdnnPortSoftmaxAlgorithm_t(IntEnum):
    DUALDNN_PORT_SOFTMAX_FAST = 0
    DUALDNN_PORT_SOFTMAX_ACCURATE = 1
    DUALDNN_PORT_SOFTMAX_LOG = 2


class dualdnnPortSoftmaxMode_t(IntEnum):
    DUALDNN_PORT_SOFTMAX_MODE_INSTANCE = 0
    DUALDNN_PORT_SOFTMAX_MODE_CHANNEL = 1


class dualdnnPortMathType_t(IntEnum):
    DUALDNN_PORT_DEFAULT_MATH = 0
    DUALDNN_PORT_TENSOR_OP_MATH = 1
    DUALDNN_PORT_TENSOR_OP_MATH_ALLOW_CONVERSION = 2
    DUALDNN_PORT_FMA_MATH = 3


for _kind in IntEnum.__subclasses__():
    if _kind.__module__ == __name__:
        globals().update(_kind.__members__)

NCHW = dualdnnPortTensorFormat_t.DUALDNN_PORT_TENSOR_NCHW
INSTANCE = dualdnnPortSoftmaxMode_t.DUALDNN_PORT_SOFTMAX_MODE_INSTANCE
# MIOpen does not have this algorithm: the helpers take the one that Find chose.
DUALDNN_PORT_FWD_ALGO_OF_FIND = DUALDNN_PORT_BWD_DATA_ALGO_OF_FIND = DUALDNN_PORT_BWD_FILTER_ALGO_OF_FIND = None
MAX_RESULTS = 8


class AlgorithmResult(NamedTuple):
    """Holds one result of Find, with the names of cuDNN."""

    algo: Any
    status: Any
    time: float
    memory: int


class AlgorithmResults(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[AlgorithmResult, ...]


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise miopen.MiopenError(Status.miopenStatusUnsupportedOp, "miopenGuide/c01", message)


def _dims(descriptor: Any) -> tuple[int, ...]:
    return tuple(miopen.miopenGet4dTensorDescriptor(descriptor)[1:5])


def _bytes(descriptor: Any) -> int:
    numbers = miopen.miopenGet4dTensorDescriptor(descriptor)
    return 4 * (1 + sum((extent - 1) * stride for extent, stride in zip(numbers[1:5], numbers[5:], strict=True)))


# ---- Descriptors ----


def dualdnnPortSetTensor4dDescriptor(
    tensorDesc: Any, format: Any, dataType: Any, n: int, c: int, h: int, w: int
) -> None:
    _expect(format == NCHW, f"format is {format!r}: MIOpen has NCHW only")
    miopen.miopenSet4dTensorDescriptor(tensorDesc, dataType, n, c, h, w)


def dualdnnPortSetTensor4dDescriptorEx(
    tensorDesc: Any,
    dataType: Any,
    n: int,
    c: int,
    h: int,
    w: int,
    nStride: int,
    cStride: int,
    hStride: int,
    wStride: int,
) -> None:
    given, packed = (nStride, cStride, hStride, wStride), (c * h * w, h * w, w, 1)
    gaps = [s for extent, s, step in zip((n, c, h, w), given, packed, strict=True) if extent != 1 and s != step]
    _expect(not gaps, f"strides are {given}: MIOpen's tensors are packed")
    miopen.miopenSet4dTensorDescriptor(tensorDesc, dataType, n, c, h, w)


def dualdnnPortSetTensorNdDescriptor(
    tensorDesc: Any, dataType: Any, nbDims: int, dimA: Sequence[int], strideA: Sequence[int]
) -> None:
    _expect(nbDims == 4, f"nbDims is {nbDims}: MIOpen has 4 dimensions only")
    dualdnnPortSetTensor4dDescriptorEx(tensorDesc, dataType, *dimA[:4], *strideA[:4])


def dualdnnPortSetFilter4dDescriptor(
    filterDesc: Any, dataType: Any, format: Any, k: int, c: int, h: int, w: int
) -> None:
    dualdnnPortSetTensor4dDescriptor(filterDesc, format, dataType, k, c, h, w)


def dualdnnPortSetFilterNdDescriptor(
    filterDesc: Any, dataType: Any, format: Any, nbDims: int, filterDimA: Sequence[int]
) -> None:
    _expect(nbDims == 4, f"nbDims is {nbDims}: MIOpen has 4 dimensions only")
    dualdnnPortSetTensor4dDescriptor(filterDesc, format, dataType, *filterDimA[:4])


def dualdnnPortGetFilter4dDescriptor(filterDesc: Any) -> Any:
    numbers = miopen.miopenGet4dTensorDescriptor(filterDesc)
    return (numbers[0], NCHW, *numbers[1:5])


def dualdnnPortGetTensorSizeInBytes(tensorDesc: Any) -> Any:
    return _bytes(tensorDesc)


def dualdnnPortGetFilterSizeInBytes(filterDesc: Any) -> Any:
    return _bytes(filterDesc)


def dualdnnPortSetConvolution2dDescriptor(
    convDesc: Any, pad_h: int, pad_w: int, u: int, v: int, dilation_h: int, dilation_w: int, mode: Any, computeType: Any
) -> None:
    _expect(computeType == miopen.miopenFloat, f"computeType is {computeType!r}: MIOpen computes in float")
    miopen.miopenInitConvolutionDescriptor(convDesc, mode, pad_h, pad_w, u, v, dilation_h, dilation_w)


def dualdnnPortSetConvolutionNdDescriptor(
    convDesc: Any,
    arrayLength: int,
    padA: Sequence[int],
    filterStrideA: Sequence[int],
    dilationA: Sequence[int],
    mode: Any,
    dataType: Any,
) -> None:
    _expect(arrayLength == 2, f"arrayLength is {arrayLength}: MIOpen has 2-D convolutions only")
    geometry = (*padA[:2], *filterStrideA[:2], *dilationA[:2])
    dualdnnPortSetConvolution2dDescriptor(convDesc, *geometry, mode, dataType)


def dualdnnPortGetConvolution2dDescriptor(convDesc: Any) -> Any:
    mode, *numbers = miopen.miopenGetConvolutionDescriptor(convDesc)
    return (*numbers, mode, miopen.miopenFloat)


def dualdnnPortSetConvolutionMathType(convDesc: Any, mathType: Any) -> None:
    """Check the choice. Every choice allows float to be computed in float."""


def dualdnnPortSetConvolutionGroupCount(convDesc: Any, groupCount: int) -> None:
    _expect(groupCount == 1, f"groupCount is {groupCount}: the guide has one group only")


def dualdnnPortSetPooling2dDescriptor(
    poolingDesc: Any, mode: Any, maxpoolingNanOpt: Any, windowHeight: int, windowWidth: int,
    verticalPadding: int, horizontalPadding: int, verticalStride: int, horizontalStride: int,
) -> None:  # fmt: skip
    geometry = (windowHeight, windowWidth, verticalPadding, horizontalPadding, verticalStride, horizontalStride)
    miopen.miopenSet2dPoolingDescriptor(poolingDesc, mode, *geometry)


def dualdnnPortSetPoolingNdDescriptor(
    poolingDesc: Any,
    mode: Any,
    maxpoolingNanOpt: Any,
    nbDims: int,
    windowDimA: Sequence[int],
    paddingA: Sequence[int],
    strideA: Sequence[int],
) -> None:
    _expect(nbDims == 2, f"nbDims is {nbDims}: MIOpen has 2-D pooling only")
    miopen.miopenSet2dPoolingDescriptor(poolingDesc, mode, *windowDimA[:2], *paddingA[:2], *strideA[:2])


def dualdnnPortGetPooling2dDescriptor(poolingDesc: Any) -> Any:
    mode, *numbers = miopen.miopenGet2dPoolingDescriptor(poolingDesc)
    return (mode, dualdnnPortNanPropagation_t.DUALDNN_PORT_NOT_PROPAGATE_NAN, *numbers)


def dualdnnPortSetActivationDescriptor(activationDesc: Any, mode: Any, reluNanOpt: Any, coef: float) -> None:
    tanh = mode == miopen.miopenActivationTANH
    scaled = mode in (miopen.miopenActivationCLIPPEDRELU, miopen.miopenActivationELU)
    attributes = (1.0, 1.0, 0.0) if tanh else (coef if scaled else 0.0, 0.0, 0.0)
    miopen.miopenSetActivationDescriptor(activationDesc, mode, *attributes)


def dualdnnPortGetActivationDescriptor(activationDesc: Any) -> Any:
    mode, alpha, _, _ = miopen.miopenGetActivationDescriptor(activationDesc)
    nan = dualdnnPortNanPropagation_t.DUALDNN_PORT_NOT_PROPAGATE_NAN
    return mode, nan, 0.0 if mode == miopen.miopenActivationTANH else alpha


def dualdnnPortSetLRNDescriptor(normDesc: Any, lrnN: int, lrnAlpha: float, lrnBeta: float, lrnK: float) -> None:
    miopen.miopenSetLRNDescriptor(normDesc, miopen.miopenLRNCrossChannel, lrnN, lrnAlpha, lrnBeta, lrnK)


def dualdnnPortGetLRNDescriptor(normDesc: Any) -> Any:
    return miopen.miopenGetLRNDescriptor(normDesc)[1:]


# ---- The library ----


def dualdnnPortDestroy(handle: Any) -> None:
    for key in [key for key in _found if key[0] == id(handle)]:
        del _found[key]
    miopen.miopenDestroy(handle)


def dualdnnPortGetVersion() -> int:
    return 8003


def dualdnnPortGetErrorString(status: Any) -> Any:
    return Status(status).name


# ---- alpha and beta other than 1 and 0 ----


def _scaled(handle: Any, alpha: Any, beta: Any, descriptor: Any, destination: Any, compute: Any) -> None:
    """Compute destination = alpha * (result of ``compute`` in the memory that it gets) + beta * destination."""
    if beta == 0:
        compute(destination)
        if alpha != 1:
            miopen.miopenScaleTensor(handle, descriptor, destination, alpha)
        return
    with _Temporary(handle, _bytes(descriptor)) as target:
        compute(target)
        add = miopen.miopenTensorOpAdd
        arguments = (beta, descriptor, destination, alpha, descriptor, target, 0.0, descriptor, destination)
        miopen.miopenOpTensor(handle, add, *arguments)


class _Temporary:
    """Holds memory that is given back when the work that uses it has finished."""

    def __init__(self, handle: Any, nbytes: Any) -> None:
        self.handle, self.memory = handle, handle.allocate(nbytes) if nbytes else None

    def __enter__(self) -> Any:
        return self.memory

    def __exit__(self, *_: Any) -> None:
        self.handle.synchronize()
        if self.memory is not None:
            self.memory.free()


# ---- Tensors ----


class OpTensorDescriptor:
    """Holds the operation that is an argument in MIOpen."""

    def __init__(self) -> None:
        self.parameters = None


def dualdnnPortCreateOpTensorDescriptor() -> OpTensorDescriptor:
    return OpTensorDescriptor()


def dualdnnPortSetOpTensorDescriptor(
    opTensorDesc: Any, opTensorOp: Any, opTensorCompType: Any, opTensorNanOpt: Any
) -> None:
    _expect(
        opTensorCompType == miopen.miopenFloat, f"opTensorCompType is {opTensorCompType!r}: MIOpen computes in float"
    )
    opTensorDesc.parameters = (opTensorOp, opTensorCompType, opTensorNanOpt)


def dualdnnPortGetOpTensorDescriptor(opTensorDesc: Any) -> Any:
    return opTensorDesc.parameters


def dualdnnPortDestroyOpTensorDescriptor(opTensorDesc: Any) -> None:
    opTensorDesc.parameters = None


def dualdnnPortOpTensor(
    handle: Any,
    opTensorDesc: Any,
    alpha1: float,
    aDesc: Any,
    A: Any,
    alpha2: float,
    bDesc: Any,
    B: Any,
    beta: float,
    cDesc: Any,
    C: Any,
) -> None:
    operation = opTensorDesc.parameters[0]
    miopen.miopenOpTensor(handle, operation, alpha1, aDesc, A, alpha2, bDesc, B, beta, cDesc, C)


def dualdnnPortAddTensor(handle: Any, alpha: float, aDesc: Any, A: Any, beta: float, cDesc: Any, C: Any) -> None:
    if A is C:
        miopen.miopenScaleTensor(handle, cDesc, C, alpha + beta)
        return
    if beta == 0:  # C may hold NaN, and beta = 0 must not read it.
        miopen.miopenSetTensor(handle, cDesc, C, 0.0)
        beta = 1.0
    miopen.miopenOpTensor(handle, miopen.miopenTensorOpAdd, beta, cDesc, C, alpha, aDesc, A, 0.0, cDesc, C)


def dualdnnPortTransformTensor(handle: Any, alpha: float, xDesc: Any, x: Any, beta: float, yDesc: Any, y: Any) -> None:
    _expect(_dims(xDesc) == _dims(yDesc), f"xDesc has {_dims(xDesc)}, yDesc {_dims(yDesc)}")
    dualdnnPortAddTensor(handle, alpha, xDesc, x, beta, yDesc, y)


# ---- Convolutions: Find runs on temporaries; its results are remembered by handle and contents of the descriptors ----

_found: dict[Any, tuple[AlgorithmResult, ...]] = {}


class _Direction(NamedTuple):
    name: str  # This word is part of the names of MIOpen's functions.
    field: str  # This field of its results names the algorithm.
    swapped: bool  # MIOpen takes the first two operands in the other order.
    filter_first: bool  # GetWorkSpaceSize takes the second operand first

    def query(self, handle: Any, a: Any, b: Any, convDesc: Any, out: Any) -> Any:
        first, second = (b, a) if self.filter_first else (a, b)
        return getattr(miopen, f"miopenConvolution{self.name}GetWorkSpaceSize")(handle, first, second, convDesc, out)

    def results(self, handle: Any, p: Any, q: Any, convDesc: Any, out: Any) -> Any:
        a, b = (q, p) if self.swapped else (p, q)
        descriptors = [miopen.miopenGet4dTensorDescriptor(d) for d in (a, b, out)]
        key = (id(handle), self.name, *descriptors, miopen.miopenGetConvolutionDescriptor(convDesc))
        if key in _found:
            return _found[key]
        size = self.query(handle, a, b, convDesc, out)
        with (
            _Temporary(handle, _bytes(a)) as first, _Temporary(handle, _bytes(b)) as second,
            _Temporary(handle, _bytes(out)) as result, _Temporary(handle, size) as workspace,
        ):  # fmt: skip
            for descriptor, memory in ((a, first), (b, second), (out, result)):
                miopen.miopenSetTensor(handle, descriptor, memory, 0.0)
            find = getattr(miopen, f"miopenFindConvolution{self.name}Algorithm")
            perf = find(
                handle, a, first, b, second, convDesc, out, result, MAX_RESULTS, workspace, size, False
            ).perfResults
        success = Status.miopenStatusSuccess
        entries = tuple(AlgorithmResult(getattr(p, self.field), success, p.time, p.memory) for p in perf)
        _found[key] = entries
        return entries

    def compute(
        self,
        handle: Any,
        alpha: Any,
        p: Any,
        p_memory: Any,
        q: Any,
        q_memory: Any,
        convDesc: Any,
        algo: Any,
        workspace: Any,
        size: Any,
        beta: Any,
        out: Any,
        destination: Any,
    ) -> None:
        results = self.results(handle, p, q, convDesc, out)
        a, a_memory, b, b_memory = (q, q_memory, p, p_memory) if self.swapped else (p, p_memory, q, q_memory)
        limit = size if workspace is not None else 0
        fitting = [r for r in results if r.memory <= limit] or list(results)
        chosen = next((r for r in fitting if r.algo == algo), fitting[0])
        with _Temporary(handle, chosen.memory if chosen.memory > limit else 0) as own:
            memory, room = (own, chosen.memory) if own is not None else (workspace, limit)
            run = getattr(miopen, f"miopenConvolution{self.name}")
            _scaled(handle, alpha, beta, out, destination, lambda target: run(
                handle, 1.0, a, a_memory, b, b_memory, convDesc, chosen.algo, 0.0, out, target, memory, room
            ))  # fmt: skip


_FORWARD = _Direction("Forward", "fwd_algo", False, True)
_BACKWARD_DATA = _Direction("BackwardData", "bwd_data_algo", True, False)
_BACKWARD_FILTER = _Direction("BackwardWeights", "bwd_weights_algo", True, False)


def _define(name: str, direction: _Direction) -> None:
    """Define the calls of one direction, with cuDNN's parameters."""

    def found(
        handle: Any, first: Any, second: Any, convDesc: Any, out: Any, requestedAlgoCount: Any
    ) -> AlgorithmResults:
        kept = direction.results(handle, first, second, convDesc, out)[:requestedAlgoCount]
        return AlgorithmResults(len(kept), kept)

    def found_on(
        handle: Any,
        first: Any,
        x: Any,
        second: Any,
        y: Any,
        convDesc: Any,
        out: Any,
        z: Any,
        requestedAlgoCount: Any,
        workSpace: Any,
        workSpaceSizeInBytes: Any,
    ) -> Any:
        return found(handle, first, second, convDesc, out, requestedAlgoCount)

    def workspace_size(handle: Any, first: Any, second: Any, convDesc: Any, out: Any, algo: Any) -> Any:
        a, b = (second, first) if direction.swapped else (first, second)
        return direction.query(handle, a, b, convDesc, out)

    globals()[f"dualdnnPortFind{name}Algorithm"] = found
    globals()[f"dualdnnPortGet{name}Algorithm_v7"] = found
    globals()[f"dualdnnPortFind{name}AlgorithmEx"] = found_on
    globals()[f"dualdnnPortGet{name}WorkspaceSize"] = workspace_size
    globals()[f"dualdnnPortGet{name}AlgorithmMaxCount"] = lambda handle: MAX_RESULTS
    globals()[f"dualdnnPort{name}"] = direction.compute


_define("ConvolutionForward", _FORWARD)
_define("ConvolutionBackwardData", _BACKWARD_DATA)
_define("ConvolutionBackwardFilter", _BACKWARD_FILTER)


def dualdnnPortConvolutionBackwardBias(
    handle: Any, alpha: float, dyDesc: Any, dy: Any, beta: float, dbDesc: Any, db: Any
) -> None:
    bias = miopen.miopenConvolutionBackwardBias
    _scaled(handle, alpha, beta, dbDesc, db, lambda target: bias(handle, 1.0, dyDesc, dy, 0.0, dbDesc, target))


# ---- Activation, softmax ----


def dualdnnPortActivationForward(
    handle: Any, activationDesc: Any, alpha: float, xDesc: Any, x: Any, beta: float, yDesc: Any, y: Any
) -> None:
    forward = miopen.miopenActivationForward
    _scaled(handle, alpha, beta, yDesc, y, lambda target: forward(
        handle, activationDesc, 1.0, xDesc, x, 0.0, yDesc, target
    ))  # fmt: skip


def dualdnnPortActivationBackward(
    handle: Any,
    activationDesc: Any,
    alpha: float,
    yDesc: Any,
    y: Any,
    dyDesc: Any,
    dy: Any,
    xDesc: Any,
    x: Any,
    beta: float,
    dxDesc: Any,
    dx: Any,
) -> None:
    backward = miopen.miopenActivationBackward
    _scaled(handle, alpha, beta, dxDesc, dx, lambda target: backward(
        handle, activationDesc, 1.0, yDesc, y, dyDesc, dy, xDesc, x, 0.0, dxDesc, target
    ))  # fmt: skip


def dualdnnPortConvolutionBiasActivationForward(
    handle: Any, alpha1: float, xDesc: Any, x: Any, wDesc: Any, w: Any, convDesc: Any, algo: Any, workSpace: Any, workSpaceSizeInBytes: int, alpha2: float, zDesc: Any, z: Any, biasDesc: Any, bias: Any,
    activationDesc: Any, yDesc: Any, y: Any,
) -> None:  # fmt: skip
    """Compute y = activation(alpha1 * convolution + alpha2 * z + bias); z may be y."""
    with _Temporary(handle, 0 if alpha2 == 0 else _bytes(yDesc)) as own:
        target = y if own is None else own
        _FORWARD.compute(
            handle, alpha1, xDesc, x, wDesc, w, convDesc, algo, workSpace, workSpaceSizeInBytes, 0.0, yDesc, target
        )
        if own is not None:
            dualdnnPortAddTensor(handle, alpha2, zDesc, z, 1.0, yDesc, target)
        dualdnnPortAddTensor(handle, 1.0, biasDesc, bias, 1.0, yDesc, target)
        miopen.miopenActivationForward(handle, activationDesc, 1.0, yDesc, target, 0.0, yDesc, y)


def _images(algorithm: Any, mode: Any, descriptor: Any) -> Any:
    """Return a descriptor of N x CHW x 1 x 1, over whose channels one softmax runs."""
    log = dualdnnPortSoftmaxAlgorithm_t.DUALDNN_PORT_SOFTMAX_LOG
    _expect(algorithm != log, "MIOpen has no logarithm of softmax in the guide")
    if mode != INSTANCE:
        return descriptor
    images, dims = miopen.miopenCreateTensorDescriptor(), _dims(descriptor)
    miopen.miopenSet4dTensorDescriptor(images, miopen.miopenFloat, dims[0], prod(dims[1:]), 1, 1)
    return images


def dualdnnPortSoftmaxForward(
    handle: Any, algorithm: Any, mode: Any, alpha: float, xDesc: Any, x: Any, beta: float, yDesc: Any, y: Any
) -> None:
    source, result = (_images(algorithm, mode, descriptor) for descriptor in (xDesc, yDesc))
    forward = miopen.miopenSoftmaxForward
    _scaled(handle, alpha, beta, yDesc, y, lambda target: forward(handle, 1.0, source, x, 0.0, result, target))


def dualdnnPortSoftmaxBackward(
    handle: Any,
    algorithm: Any,
    mode: Any,
    alpha: float,
    yDesc: Any,
    y: Any,
    dyDesc: Any,
    dy: Any,
    beta: float,
    dxDesc: Any,
    dx: Any,
) -> None:
    result, slope, gradient = (_images(algorithm, mode, descriptor) for descriptor in (yDesc, dyDesc, dxDesc))
    backward = miopen.miopenSoftmaxBackward
    _scaled(handle, alpha, beta, dxDesc, dx, lambda target: backward(
        handle, 1.0, result, y, slope, dy, 0.0, gradient, target
    ))  # fmt: skip


# ---- Pooling, LRN: the workspace of the backward call is made again from x ----


def dualdnnPortPoolingForward(
    handle: Any, poolingDesc: Any, alpha: float, xDesc: Any, x: Any, beta: float, yDesc: Any, y: Any
) -> None:
    forward = miopen.miopenPoolingForward
    _scaled(handle, alpha, beta, yDesc, y, lambda target: forward(
        handle, poolingDesc, 1.0, xDesc, x, 0.0, yDesc, target, False, None, 0
    ))  # fmt: skip


def dualdnnPortPoolingBackward(
    handle: Any,
    poolingDesc: Any,
    alpha: float,
    yDesc: Any,
    y: Any,
    dyDesc: Any,
    dy: Any,
    xDesc: Any,
    x: Any,
    beta: float,
    dxDesc: Any,
    dx: Any,
) -> None:
    size, backward = miopen.miopenPoolingGetWorkSpaceSize(yDesc), miopen.miopenPoolingBackward
    with _Temporary(handle, _bytes(yDesc)) as result, _Temporary(handle, size) as workspace:
        miopen.miopenPoolingForward(handle, poolingDesc, 1.0, xDesc, x, 0.0, yDesc, result, True, workspace, size)
        _scaled(handle, alpha, beta, dxDesc, dx, lambda target: backward(
            handle, poolingDesc, 1.0, yDesc, y, dyDesc, dy, xDesc, x, 0.0, dxDesc, target, workspace
        ))  # fmt: skip


def dualdnnPortLRNCrossChannelForward(
    handle: Any, normDesc: Any, lrnMode: Any, alpha: float, xDesc: Any, x: Any, beta: float, yDesc: Any, y: Any
) -> None:
    forward = miopen.miopenLRNForward
    _scaled(handle, alpha, beta, yDesc, y, lambda target: forward(
        handle, normDesc, 1.0, xDesc, x, 0.0, yDesc, target, False, None
    ))  # fmt: skip


def dualdnnPortLRNCrossChannelBackward(
    handle: Any,
    normDesc: Any,
    lrnMode: Any,
    alpha: float,
    yDesc: Any,
    y: Any,
    dyDesc: Any,
    dy: Any,
    xDesc: Any,
    x: Any,
    beta: float,
    dxDesc: Any,
    dx: Any,
) -> None:
    size, backward = miopen.miopenLRNGetWorkSpaceSize(yDesc), miopen.miopenLRNBackward
    with _Temporary(handle, _bytes(yDesc)) as result, _Temporary(handle, size) as workspace:
        miopen.miopenLRNForward(handle, normDesc, 1.0, xDesc, x, 0.0, yDesc, result, True, workspace)
        _scaled(handle, alpha, beta, dxDesc, dx, lambda target: backward(
            handle, normDesc, 1.0, yDesc, result, dyDesc, dy, xDesc, x, 0.0, dxDesc, target, workspace
        ))  # fmt: skip


# ---- Batch normalisation ----


def dualdnnPortBatchNormalizationForwardTraining(
    handle: Any, mode: Any, alpha: float, beta: float, xDesc: Any, x: Any, yDesc: Any, y: Any, *rest: Any
) -> None:
    forward = miopen.miopenBatchNormalizationForwardTraining
    _scaled(handle, alpha, beta, yDesc, y, lambda target: forward(
        handle, mode, 1.0, 0.0, xDesc, x, yDesc, target, *rest
    ))  # fmt: skip


def dualdnnPortBatchNormalizationForwardInference(
    handle: Any, mode: Any, alpha: float, beta: float, xDesc: Any, x: Any, yDesc: Any, y: Any, *rest: Any
) -> None:
    forward = miopen.miopenBatchNormalizationForwardInference
    _scaled(handle, alpha, beta, yDesc, y, lambda target: forward(
        handle, mode, 1.0, 0.0, xDesc, x, yDesc, target, *rest
    ))  # fmt: skip


def dualdnnPortBatchNormalizationBackward(
    handle: Any, mode: Any, alphaDataDiff: float, betaDataDiff: float, alphaParamDiff: float, betaParamDiff: float, xDesc: Any, x: Any, dyDesc: Any, dy: Any, dxDesc: Any, dx: Any,
    bnScaleBiasDiffDesc: Any, bnScale: Any, resultBnScaleDiff: Any, resultBnBiasDiff: Any, epsilon: float, savedMean: Any, savedInvVariance: Any,
) -> None:  # fmt: skip
    parameters, nbytes = bnScaleBiasDiffDesc, _bytes(bnScaleBiasDiffDesc)
    with (
        _Temporary(handle, _bytes(dxDesc)) as data,
        _Temporary(handle, nbytes) as scale,
        _Temporary(handle, nbytes) as bias,
    ):
        miopen.miopenBatchNormalizationBackward(
            handle, mode, 1.0, 0.0, 1.0, 0.0, xDesc, x, dyDesc, dy, dxDesc, data, parameters, bnScale, scale, bias,
            epsilon, savedMean, savedInvVariance,
        )  # fmt: skip
        dualdnnPortAddTensor(handle, alphaDataDiff, dxDesc, data, betaDataDiff, dxDesc, dx)
        dualdnnPortAddTensor(handle, alphaParamDiff, parameters, scale, betaParamDiff, parameters, resultBnScaleDiff)
        dualdnnPortAddTensor(handle, alphaParamDiff, parameters, bias, betaParamDiff, parameters, resultBnBiasDiff)
