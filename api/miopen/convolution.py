"""Implement convolutions (rows 14 to 28): GetWorkSpaceSize, then Find, then the convolution, on one handle and the same
problem."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from ..enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionFwdAlgo_t,
    cudnnConvolutionMode_t,
    cudnnMathType_t,
    cudnnStatus_t,
)
from ..status import CudnnError
from .calls import call, cudnn, unscaled
from .enumerations import (
    miopenConvBwdDataAlgorithm_t,
    miopenConvBwdWeightsAlgorithm_t,
    miopenConvFwdAlgorithm_t,
    miopenConvolutionMode_t,
)
from .objects import ConvolutionDescriptor, MiopenHandle, Problem
from .status import BAD_PARM, NOT_IMPLEMENTED, UNKNOWN_ERROR, expect
from .tensors import FLOAT

if TYPE_CHECKING:
    from .objects import TensorDescriptor

_FWD, _DATA, _WEIGHTS = miopenConvFwdAlgorithm_t, miopenConvBwdDataAlgorithm_t, miopenConvBwdWeightsAlgorithm_t


@dataclass(frozen=True)
class Direction:
    """Describe one of the three convolution calls.

    It holds the cuDNN function, MIOpen's algorithms and their cuDNN equivalents. It also maps the operands (first,
    second, result in MIOpen's order) to cuDNN's order.
    """

    name: str
    algorithms: dict[IntEnum, IntEnum]
    order: tuple[int, int]  # positions of the first two operands in cuDNN's order
    filter: int  # index of the filter among the operands

    @property
    def find(self) -> str:
        return f"cudnnFindConvolution{self.name}AlgorithmEx"

    @property
    def query(self) -> str:
        return f"cudnnGetConvolution{self.name}WorkspaceSize"

    @property
    def compute(self) -> str:
        return f"cudnnConvolution{self.name}"

    @property
    def guide(self) -> str:
        """Return the name of the direction in the calls of the guide."""
        return self.name.replace("Filter", "Weights")


_F, _D, _W = cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t, cudnnConvolutionBwdFilterAlgo_t
FORWARD = Direction(
    "Forward",
    {
        _FWD.miopenConvolutionFwdAlgoGEMM: _F.CUDNN_CONVOLUTION_FWD_ALGO_GEMM,
        _FWD.miopenConvolutionFwdAlgoDirect: _F.CUDNN_CONVOLUTION_FWD_ALGO_DIRECT,
        _FWD.miopenConvolutionFwdAlgoFFT: _F.CUDNN_CONVOLUTION_FWD_ALGO_FFT,
        _FWD.miopenConvolutionFwdAlgoWinograd: _F.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
        _FWD.miopenConvolutionFwdAlgoImplicitGEMM: _F.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
    },
    (0, 1),
    1,
)
BACKWARD_DATA = Direction(
    "BackwardData",
    {
        _DATA.miopenConvolutionBwdDataAlgoDirect: _D.CUDNN_CONVOLUTION_BWD_DATA_ALGO_0,
        _DATA.miopenConvolutionBwdDataAlgoFFT: _D.CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT,
        _DATA.miopenConvolutionBwdDataAlgoWinograd: _D.CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
        _DATA.miopenConvolutionBwdDataAlgoImplicitGEMM: _D.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1,
    },
    (1, 0),
    1,
)
BACKWARD_WEIGHTS = Direction(
    "BackwardFilter",
    {
        _WEIGHTS.miopenConvolutionBwdWeightsAlgoDirect: _W.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
        _WEIGHTS.miopenConvolutionBwdWeightsAlgoWinograd: _W.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD,
        _WEIGHTS.miopenConvolutionBwdWeightsAlgoImplicitGEMM: _W.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
    },
    (1, 0),
    2,
)


@call("cudnnCreateConvolutionDescriptor")
def miopenCreateConvolutionDescriptor() -> ConvolutionDescriptor:
    """Return a new convolution descriptor, to be filled by miopenInitConvolutionDescriptor. Source: row 14."""
    return ConvolutionDescriptor()


@call("cudnnSetConvolution2dDescriptor", "cudnnSetConvolutionMathType")
def miopenInitConvolutionDescriptor(
    convDesc: ConvolutionDescriptor,
    mode: miopenConvolutionMode_t,
    pad_h: int,
    pad_w: int,
    u: int,
    v: int,
    upscalex: int,
    upscaley: int,
) -> None:
    """Describe a 2-D cross-correlation: zero padding, strides u and v, dilations upscalex (of h) and upscaley (of w).

    Errors: NotImplemented for miopenTranspose (c02); BadParm for negative padding, strides or dilations below 1.
    Source: row 15; the names: docs/errata.md, M002.
    """
    expect(mode == miopenConvolutionMode_t.miopenConvolution, NOT_IMPLEMENTED, "miopenInitConvolutionDescriptor/c02",
           f"mode is {mode.name}: the guide maps convolutions only")  # fmt: skip
    convolution = cudnn("cudnnCreateConvolutionDescriptor")()
    cross = cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION
    cudnn("cudnnSetConvolution2dDescriptor")(convolution, pad_h, pad_w, u, v, upscalex, upscaley, cross, FLOAT)
    cudnn("cudnnSetConvolutionMathType")(convolution, cudnnMathType_t.CUDNN_FMA_MATH)  # FLOAT is not rounded to TF32.
    convDesc.cudnn = convolution


class ConvolutionParameters(NamedTuple):
    mode: miopenConvolutionMode_t
    pad_h: int
    pad_y: int
    u: int
    v: int
    upscalex: int
    upscaley: int


@call("cudnnGetConvolution2dDescriptor")
def miopenGetConvolutionDescriptor(convDesc: ConvolutionDescriptor) -> ConvolutionParameters:
    """Return (mode, pad_h, pad_y, u, v, upscalex, upscaley) as they were set. Source: row 16."""
    numbers = cudnn("cudnnGetConvolution2dDescriptor")(convDesc.cudnn)[:6]
    return ConvolutionParameters(miopenConvolutionMode_t.miopenConvolution, *numbers)


@call("cudnnGetConvolution2dForwardOutputDim")
def miopenGetConvolutionForwardOutputDim(
    convDesc: ConvolutionDescriptor, inputTensorDesc: TensorDescriptor, filterDesc: TensorDescriptor
) -> Any:
    """Return (n, c, h, w) of the result. Errors: BadParm for channels that differ. Source: row 17."""
    return cudnn("cudnnGetConvolution2dForwardOutputDim")(convDesc.cudnn, inputTensorDesc.cudnn, filterDesc.filter)


@call("cudnnDestroyConvolutionDescriptor", fresh=["convDesc"])
def miopenDestroyConvolutionDescriptor(convDesc: ConvolutionDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 18."""
    convDesc.destroy()


class miopenConvAlgoPerf_t(NamedTuple):
    """Hold one result of Find; the three names of the algorithm are members of a union in C."""

    algorithm: IntEnum
    time: float
    memory: int

    @property
    def fwd_algo(self) -> miopenConvFwdAlgorithm_t:
        return _FWD(self.algorithm)

    @property
    def bwd_data_algo(self) -> miopenConvBwdDataAlgorithm_t:
        return _DATA(self.algorithm)

    @property
    def bwd_weights_algo(self) -> miopenConvBwdWeightsAlgorithm_t:
        return _WEIGHTS(self.algorithm)


class FindResults(NamedTuple):
    returnedAlgoCount: int
    perfResults: tuple[miopenConvAlgoPerf_t, ...]


def _problem(direction: Direction, convolution: Any, *operands: Any) -> Problem:
    return Problem(direction.name, convolution.cudnn.spec, tuple(operand.cudnn.spec for operand in operands))


def _in_cudnn_order(direction: Direction, convolution: Any, *operands: Any) -> tuple[Any, ...]:
    """Return the four descriptors in cuDNN's order, with a filter descriptor for the filter."""
    descriptors = [o.filter if i == direction.filter else o.cudnn for i, o in enumerate(operands)]
    first, second = (descriptors[place] for place in direction.order)
    return first, second, convolution.cudnn, descriptors[2]


def _queried(handle: MiopenHandle, direction: Direction, convolution: Any, *operands: Any) -> int:
    """Record the query of a problem, and return the bytes of workspace of its most demanding algorithm."""
    handle.queried.add(_problem(direction, convolution, *operands))
    descriptors = _in_cudnn_order(direction, convolution, *operands)
    sizes, refused = [], None
    for algorithm in direction.algorithms.values():
        try:
            sizes.append(cudnn(direction.query)(handle.cudnn, *descriptors, algorithm))
        except CudnnError as error:
            if error.status != cudnnStatus_t.CUDNN_STATUS_NOT_SUPPORTED:
                raise
            refused = error
    if not sizes and refused is not None:
        raise refused
    return max(sizes)


def _found(
    handle: Any, direction: Any, convolution: Any, descriptors: Any, memory: Any, count: Any, workspace: Any, size: Any
) -> FindResults:
    """Run every algorithm on the caller's memory; store and return the results."""
    clause = f"miopenFindConvolution{direction.guide}Algorithm"
    expect(count > 0, BAD_PARM, f"{clause}/c01", f"requestAlgoCount is {count}, not positive")
    problem = _problem(direction, convolution, *descriptors)
    expect(problem in handle.queried, BAD_PARM, f"{clause}/c02",
           "the workspace of this problem was never asked for on this handle: GetWorkSpaceSize comes before Find")  # fmt: skip
    first, second, described, result = _in_cudnn_order(direction, convolution, *descriptors)
    a, b = (memory[place] for place in direction.order)
    names = {theirs: ours for ours, theirs in direction.algorithms.items()}
    most = 2 * len(type(next(iter(names)))) + 2
    results = cudnn(direction.find)(
        handle.cudnn, first, a, second, b, described, result, memory[2], most, workspace, size
    ).perfResults
    perf: dict[IntEnum, miopenConvAlgoPerf_t] = {}
    for entry in results:
        ours = names.get(entry.algo)
        if entry.status == cudnnStatus_t.CUDNN_STATUS_SUCCESS and ours is not None and ours not in perf:
            perf[ours] = miopenConvAlgoPerf_t(ours, entry.time, entry.memory)
    handle.found.setdefault(problem, {}).update({ours: entry.memory for ours, entry in perf.items()})
    kept = tuple(perf.values())[:count]
    return FindResults(len(kept), kept)


def _convolved(
    handle: Any,
    direction: Any,
    alpha: Any,
    descriptors: Any,
    memory: Any,
    convolution: Any,
    algo: Any,
    beta: Any,
    workspace: Any,
    size: Any,
) -> None:
    """Run the convolution, if Find was called for it."""
    clause = f"miopenConvolution{direction.guide}"
    found = handle.found.get(_problem(direction, convolution, *descriptors))
    expect(found is not None, UNKNOWN_ERROR, "miopenGuide/c05",
           "Find has not run for these descriptors on this handle, which MIOpen demands before any convolution")  # fmt: skip
    returned = ", ".join(a.name for a in found)
    expect(algo in found, BAD_PARM, f"{clause}/c02", f"algo is {algo.name}, Find returned {returned}")
    unscaled(f"{clause}/c03", alpha, beta)
    room = size if workspace is not None else 0
    needed = f"workSpaceSize is {room}, {algo.name} needs {found[algo]} bytes"
    expect(room >= found[algo], BAD_PARM, f"{clause}/c04", needed)
    first, second, described, result = _in_cudnn_order(direction, convolution, *descriptors)
    a, b = (memory[place] for place in direction.order)
    theirs = direction.algorithms[algo]
    workspace = workspace if found[algo] else None
    cudnn(direction.compute)(
        handle.cudnn, 1.0, first, a, second, b, described, theirs, workspace, room, 0.0, result, memory[2]
    )


@call(FORWARD.query)
def miopenConvolutionForwardGetWorkSpaceSize(
    handle: MiopenHandle,
    wDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
) -> int:
    """Return the bytes of workspace for Find and the convolution with any algorithm; w comes first. Source: row 20."""
    return _queried(handle, FORWARD, convDesc, xDesc, wDesc, yDesc)


@call(FORWARD.query, FORWARD.find)
def miopenFindConvolutionForwardAlgorithm(
    handle: MiopenHandle,
    xDesc: TensorDescriptor,
    x: Any,
    wDesc: TensorDescriptor,
    w: Any,
    convDesc: ConvolutionDescriptor,
    yDesc: TensorDescriptor,
    y: Any,
    requestAlgoCount: int,
    workSpace: Any,
    workSpaceSize: int,
    exhaustiveSearch: bool,
) -> Any:
    """Return (returnedAlgoCount, perfResults), ordered by speed; the kernels run, so y is overwritten.

    Algorithms that need more workspace than given are omitted.
    Errors: BadParm for requestAlgoCount below 1 or without miopenConvolutionForwardGetWorkSpaceSize before (c02).
    Source: row 19.
    """
    descriptors, memory = (xDesc, wDesc, yDesc), (x, w, y)
    return _found(handle, FORWARD, convDesc, descriptors, memory, requestAlgoCount, workSpace, workSpaceSize)


@call(FORWARD.query, FORWARD.find, FORWARD.compute)
def miopenConvolutionForward(
    handle: MiopenHandle,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Any,
    wDesc: TensorDescriptor,
    w: Any,
    convDesc: ConvolutionDescriptor,
    algo: miopenConvFwdAlgorithm_t,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Any,
    workSpace: Any,
    workSpaceSize: int,
) -> None:
    """Compute y = x convolved with w. Errors: UnknownError without Find before (miopenGuide/c05); BadParm for an algorithm that Find
    did not return (c02) or less workspace than it needs (c04); NotImplemented unless alpha is 1 and beta 0 (c03).
    Source: row 21."""
    descriptors, memory = (xDesc, wDesc, yDesc), (x, w, y)
    _convolved(handle, FORWARD, alpha, descriptors, memory, convDesc, algo, beta, workSpace, workSpaceSize)


@call("cudnnConvolutionBackwardBias")
def miopenConvolutionBackwardBias(
    handle: MiopenHandle, alpha: Any, dyDesc: TensorDescriptor, dy: Any, beta: Any, dbDesc: TensorDescriptor, db: Any
) -> None:
    """Compute db = sums of dy over images and positions. Errors: NotImplemented unless alpha is 1, beta 0 (c02). Source: row 22."""
    unscaled("miopenConvolutionBackwardBias/c02", alpha, beta)
    cudnn("cudnnConvolutionBackwardBias")(handle.cudnn, 1.0, dyDesc.cudnn, dy, 0.0, dbDesc.cudnn, db)


@call(BACKWARD_WEIGHTS.query)
def miopenConvolutionBackwardWeightsGetWorkSpaceSize(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    xDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dwDesc: TensorDescriptor,
) -> int:
    """Return the bytes of workspace for Find and the gradient of the filter; dy comes first. Source: row 24."""
    return _queried(handle, BACKWARD_WEIGHTS, convDesc, dyDesc, xDesc, dwDesc)


@call(BACKWARD_WEIGHTS.query, BACKWARD_WEIGHTS.find)
def miopenFindConvolutionBackwardWeightsAlgorithm(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    dy: Any,
    xDesc: TensorDescriptor,
    x: Any,
    convDesc: ConvolutionDescriptor,
    dwDesc: TensorDescriptor,
    dw: Any,
    requestAlgoCount: int,
    workSpace: Any,
    workSpaceSize: int,
    exhaustiveSearch: bool,
) -> Any:
    """Do the same as miopenFindConvolutionForwardAlgorithm; dw is overwritten. Source: row 23."""
    descriptors, memory = (dyDesc, xDesc, dwDesc), (dy, x, dw)
    return _found(handle, BACKWARD_WEIGHTS, convDesc, descriptors, memory, requestAlgoCount, workSpace, workSpaceSize)


@call(BACKWARD_WEIGHTS.query, BACKWARD_WEIGHTS.find, BACKWARD_WEIGHTS.compute)
def miopenConvolutionBackwardWeights(
    handle: MiopenHandle,
    alpha: Any,
    dyDesc: TensorDescriptor,
    dy: Any,
    xDesc: TensorDescriptor,
    x: Any,
    convDesc: ConvolutionDescriptor,
    algo: miopenConvBwdWeightsAlgorithm_t,
    beta: Any,
    dwDesc: TensorDescriptor,
    dw: Any,
    workSpace: Any,
    workSpaceSize: int,
) -> None:
    """Compute dw = the gradient of the filter; errors as miopenConvolutionForward. dy comes before x. Source: row 25."""
    descriptors, memory = (dyDesc, xDesc, dwDesc), (dy, x, dw)
    _convolved(handle, BACKWARD_WEIGHTS, alpha, descriptors, memory, convDesc, algo, beta, workSpace, workSpaceSize)


@call(BACKWARD_DATA.query)
def miopenConvolutionBackwardDataGetWorkSpaceSize(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    wDesc: TensorDescriptor,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
) -> int:
    """Return the bytes of workspace for Find and the gradient of the input; dy comes first. Source: row 26."""
    return _queried(handle, BACKWARD_DATA, convDesc, dyDesc, wDesc, dxDesc)


@call(BACKWARD_DATA.query, BACKWARD_DATA.find)
def miopenFindConvolutionBackwardDataAlgorithm(
    handle: MiopenHandle,
    dyDesc: TensorDescriptor,
    dy: Any,
    wDesc: TensorDescriptor,
    w: Any,
    convDesc: ConvolutionDescriptor,
    dxDesc: TensorDescriptor,
    dx: Any,
    requestAlgoCount: int,
    workSpace: Any,
    workSpaceSize: int,
    exhaustiveSearch: bool,
) -> Any:
    """Do the same as miopenFindConvolutionForwardAlgorithm; dx is overwritten (docs/errata.md, M003). Source: row 27."""
    descriptors, memory = (dyDesc, wDesc, dxDesc), (dy, w, dx)
    return _found(handle, BACKWARD_DATA, convDesc, descriptors, memory, requestAlgoCount, workSpace, workSpaceSize)


@call(BACKWARD_DATA.query, BACKWARD_DATA.find, BACKWARD_DATA.compute)
def miopenConvolutionBackwardData(
    handle: MiopenHandle,
    alpha: Any,
    dyDesc: TensorDescriptor,
    dy: Any,
    wDesc: TensorDescriptor,
    w: Any,
    convDesc: ConvolutionDescriptor,
    algo: miopenConvBwdDataAlgorithm_t,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Any,
    workSpace: Any,
    workSpaceSize: int,
) -> None:
    """Compute dx = the gradient of the input; errors as miopenConvolutionForward. dy comes before w. Source: row 28."""
    descriptors, memory = (dyDesc, wDesc, dxDesc), (dy, w, dx)
    _convolved(handle, BACKWARD_DATA, alpha, descriptors, memory, convDesc, algo, beta, workSpace, workSpaceSize)
