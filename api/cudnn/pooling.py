"""Implement pooling descriptors and calls (3.2.13, 3.2.28, 3.2.50 to 3.2.53, 3.2.69, 3.2.85, 3.2.86, 4.1.18)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..descriptors import PoolingDescriptor
from ..enumerations import CUDNN_DIM_MAX, cudnnNanPropagation_t, cudnnPoolingMode_t
from ..functions import SameMemory, computing, documented
from ..operations import PoolingBackward, PoolingForward, PoolingSpec, TensorSpec
from ..operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT8x4, INT8x32
from ..relations import (
    data_type_among,
    same_data_type,
    same_dims,
    same_strides,
    scaling,
    writable_layout,
)
from ..status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .tensor_descriptors import entries

if TYPE_CHECKING:
    from ..descriptors import TensorDescriptor
    from ..handle import Handle

MAX_RANK = CUDNN_DIM_MAX - 2
# These are the listed types, and INT8 in vectors for NCHW_VECT_C, because every format is supported (docs/errata.md,
# D092).
FORWARD_TYPES = (FLOAT, DOUBLE, HALF, INT8, INT8x4, INT8x32)
# The document has no list of types; these follow NVIDIA's library (docs/errata.md, D188).
BACKWARD_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)
POSITIONS = 2**31  # the exclusive limit of window positions, which are 32-bit numbers


@documented()
def cudnnCreatePoolingDescriptor() -> PoolingDescriptor:
    """Return a new pooling descriptor, to be filled by one of the setters.

    Source: 3.2.13, cudnnCreatePoolingDescriptor/c01.
    """
    return PoolingDescriptor()


@documented(invalid={"mode": "c08", "maxpoolingNanOpt": "c09"})
def cudnnSetPooling2dDescriptor(
    poolingDesc: PoolingDescriptor, mode: cudnnPoolingMode_t, maxpoolingNanOpt: cudnnNanPropagation_t, windowHeight: int, windowWidth: int,
    verticalPadding: int, horizontalPadding: int, verticalStride: int, horizontalStride: int,
) -> None:  # fmt: skip
    """Describe a pooling of images: mode, NaN rule of the maximum, window, padding, stride.

    Windows and strides are at least 1; paddings may be negative, which skips the input's border.
    Errors: BAD_PARAM for windows (c06) or strides (c07) below 1, an unknown mode (c08) or maxpoolingNanOpt (c09).
    Source: 3.2.85.
    """
    window, stride = (windowHeight, windowWidth), (verticalStride, horizontalStride)
    expect(min(window) > 0, BAD_PARAM, "cudnnSetPooling2dDescriptor/c06",
           f"windowHeight is {windowHeight}, windowWidth is {windowWidth}: a window must be at least 1")  # fmt: skip
    expect(min(stride) > 0, BAD_PARAM, "cudnnSetPooling2dDescriptor/c07",
           f"verticalStride is {verticalStride}, horizontalStride is {horizontalStride}: a stride must be at least 1")  # fmt: skip
    poolingDesc.spec = PoolingSpec(mode, maxpoolingNanOpt, window, (verticalPadding, horizontalPadding), stride)


@documented(
    invalid={"mode": "c13", "maxpoolingNanOpt": "c14", "windowDimA": "c05", "paddingA": "c06", "strideA": "c07"}
)
def cudnnSetPoolingNdDescriptor(
    poolingDesc: PoolingDescriptor,
    mode: cudnnPoolingMode_t,
    maxpoolingNanOpt: cudnnNanPropagation_t,
    nbDims: int,
    windowDimA: Sequence[int],
    paddingA: Sequence[int],
    strideA: Sequence[int],
) -> None:
    """Describe a pooling of nbDims spatial dimensions: mode, NaN rule of the maximum, window, padding, stride.

    nbDims: 1 to CUDNN_DIM_MAX - 2 (the computing calls take 2 and 3). windowDimA, paddingA, strideA: at least nbDims
    entries; windows and strides at least 1, paddings may be negative.
    Errors: NOT_SUPPORTED for nbDims above CUDNN_DIM_MAX - 2 (c09); BAD_PARAM for nbDims below 1 (c10, c04), windows
    (c11, c05) or strides (c12, c07) below 1, too few entries, an unknown mode (c13) or maxpoolingNanOpt (c14).
    Source: 3.2.86.
    """
    name = "cudnnSetPoolingNdDescriptor"
    expect(
        nbDims > 0,
        BAD_PARAM,
        f"{name}/c10" if nbDims < 0 else f"{name}/c04",
        f"nbDims is {nbDims}, it must be at least 1",
    )
    expect(nbDims <= MAX_RANK, NOT_SUPPORTED, f"{name}/c09",
           f"nbDims is {nbDims}, at most CUDNN_DIM_MAX - 2 = {MAX_RANK} are supported")  # fmt: skip
    window = entries("windowDimA", windowDimA, nbDims, f"{name}/c05")
    padding = entries("paddingA", paddingA, nbDims, f"{name}/c06")
    stride = entries("strideA", strideA, nbDims, f"{name}/c07")
    expect(min(window) > 0, BAD_PARAM, f"{name}/c11" if min(window) < 0 else f"{name}/c05",
           f"windowDimA is {window}: a window must be at least 1")  # fmt: skip
    expect(min(stride) > 0, BAD_PARAM, f"{name}/c12" if min(stride) < 0 else f"{name}/c07",
           f"strideA is {stride}: a stride must be at least 1")  # fmt: skip
    poolingDesc.spec = PoolingSpec(mode, maxpoolingNanOpt, window, padding, stride)


class Pooling2dParameters(NamedTuple):
    mode: cudnnPoolingMode_t
    maxpoolingNanOpt: cudnnNanPropagation_t
    windowHeight: int
    windowWidth: int
    verticalPadding: int
    horizontalPadding: int
    verticalStride: int
    horizontalStride: int


@documented(invalid={"poolingDesc": "c09"})
def cudnnGetPooling2dDescriptor(poolingDesc: PoolingDescriptor) -> Pooling2dParameters:
    """Return (mode, maxpoolingNanOpt, windowHeight, windowWidth, verticalPadding, horizontalPadding, verticalStride,
    horizontalStride) as they were set.

    Errors: BAD_PARAM for a descriptor that is not initialised or not 2-D (c09). Source: 3.2.50, c01 to c08.
    """
    spec = poolingDesc.spec
    expect(len(spec.window) == 2, BAD_PARAM, "cudnnGetPooling2dDescriptor/c09",
           f"poolingDesc has {len(spec.window)} dimensions, 2 are required; cudnnGetPoolingNdDescriptor reads any number")  # fmt: skip
    return Pooling2dParameters(spec.mode, spec.nan, *spec.window, *spec.padding, *spec.stride)


class PoolingNdParameters(NamedTuple):
    mode: cudnnPoolingMode_t
    maxpoolingNanOpt: cudnnNanPropagation_t
    nbDims: int
    windowDimA: tuple[int, ...]
    paddingA: tuple[int, ...]
    strideA: tuple[int, ...]


@documented(invalid={"poolingDesc": "c09"})
def cudnnGetPoolingNdDescriptor(poolingDesc: PoolingDescriptor, nbDimsRequested: int) -> PoolingNdParameters:
    """Return (mode, maxpoolingNanOpt, nbDims, windowDimA, paddingA, strideA).

    nbDims is the descriptor's own number of dimensions; the arrays hold min(nbDimsRequested, nbDims) entries.
    Errors: NOT_SUPPORTED for nbDimsRequested above CUDNN_DIM_MAX (c11); BAD_PARAM for a descriptor that is not
    initialised (c09). Source: 3.2.52.
    """
    expect(nbDimsRequested <= CUDNN_DIM_MAX, NOT_SUPPORTED, "cudnnGetPoolingNdDescriptor/c11",
           f"nbDimsRequested is {nbDimsRequested}, at most CUDNN_DIM_MAX = {CUDNN_DIM_MAX} are supported")  # fmt: skip
    spec = poolingDesc.spec
    rank = len(spec.window)
    filled = max(0, min(nbDimsRequested, rank))
    return PoolingNdParameters(
        spec.mode, spec.nan, rank, spec.window[:filled], spec.padding[:filled], spec.stride[:filled]
    )


@documented()
def cudnnDestroyPoolingDescriptor(poolingDesc: PoolingDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.28."""
    poolingDesc.destroy()


class Pooling2dOutput(NamedTuple):
    outN: int
    outC: int
    outH: int
    outW: int


@documented(invalid={"poolingDesc": "c07", "inputDesc": "c05"})
def cudnnGetPooling2dForwardOutputDim(poolingDesc: PoolingDescriptor, inputDesc: TensorDescriptor) -> Pooling2dOutput:
    """Return (outN, outC, outH, outW) of a pooled 4-D input: n, c and 1 + (input + 2 * padding - window) / stride.

    Errors: BAD_PARAM for descriptors that are not initialised (c07, c05), poolingDesc not 2-D (c08), inputDesc not 4-D
    (c09), or a window larger than the padded input (D071). Source: 3.2.51.
    """
    name = "cudnnGetPooling2dForwardOutputDim"
    pooling, tensor = poolingDesc.spec, inputDesc.spec
    expect(
        len(pooling.window) == 2,
        BAD_PARAM,
        f"{name}/c08",
        f"poolingDesc has {len(pooling.window)} dimensions, 2 are required",
    )
    expect(
        tensor.rank == 4,
        BAD_PARAM,
        f"{name}/c09",
        f"inputDesc has {tensor.rank} dimensions {tensor.dims}, 4 are required",
    )
    return Pooling2dOutput(*pooled_dims(pooling, tensor))


@documented(invalid={"poolingDesc": "c05", "inputDesc": "c03"})
def cudnnGetPoolingNdForwardOutputDim(
    poolingDesc: PoolingDescriptor, inputDesc: TensorDescriptor, nbDims: int
) -> tuple[int, ...]:
    """Return outDimA of nbDims entries: n, c and, per spatial dimension, 1 + (input + 2 * padding - window) / stride.

    nbDims: the number of dimensions of inputDesc, two more than those of poolingDesc.
    Errors: BAD_PARAM for descriptors that are not initialised (c05, c03), nbDims that does not fit them (c06), or a
    window larger than the padded input (D071). Source: 3.2.53.
    """
    pooling, tensor = poolingDesc.spec, inputDesc.spec
    expect(nbDims == tensor.rank == len(pooling.window) + 2, BAD_PARAM, "cudnnGetPoolingNdForwardOutputDim/c06",
           f"nbDims is {nbDims}, inputDesc has {tensor.rank} dimensions {tensor.dims}, poolingDesc has {len(pooling.window)};"
           " nbDims must be the former and two more than the latter")  # fmt: skip
    return pooled_dims(pooling, tensor)


def pooled_dims(pooling: PoolingSpec, tensor: TensorSpec) -> tuple[int, ...]:
    """Return the recommended dimensions of the pooled tensor."""
    room = [extent + 2 * padding - window
            for extent, padding, window in zip(tensor.dims[2:], pooling.padding, pooling.window, strict=True)]  # fmt: skip
    expect(min(room) >= 0, BAD_PARAM, INCORRECT_PARAMETER,
           f"poolingDesc has windows {pooling.window} and paddings {pooling.padding}: a window is larger than the padded input"
           f" of inputDesc {tensor.dims}")  # fmt: skip
    dims = (*tensor.dims[:2], *(1 + spare // stride for spare, stride in zip(room, pooling.stride, strict=True)))
    expect(max(dims) < 2**31, BAD_PARAM, INCORRECT_PARAMETER, f"the output dimensions {dims} do not fit an int")
    return dims


def _identity(operation: PoolingForward) -> bool:
    """Return whether every output equals its own input at the same position."""
    pooling = operation.pooling
    return operation.x == operation.y and {*pooling.window, *pooling.stride} == {1} and {*pooling.padding} == {0}


@computing(memory=[SameMemory("x", "y", INCORRECT_PARAMETER, allowed=_identity)], failed="c19")
def cudnnPoolingForward(
    handle: Handle,
    poolingDesc: PoolingSpec,
    alpha: float,
    xDesc: TensorSpec,
    x: Any,
    beta: float,
    yDesc: TensorSpec,
    y: Any,
) -> PoolingForward:
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
    name = "cudnnPoolingForward"
    expect(xDesc.dims[:2] == yDesc.dims[:2], BAD_PARAM, f"{name}/c16",
           f"the first two dimensions differ: xDesc {xDesc.dims[:2]}, yDesc {yDesc.dims[:2]}")  # fmt: skip
    same_data_type(f"{name}/c17", xDesc=xDesc, yDesc=yDesc)
    _same_ranks(poolingDesc, f"{name}/c04", xDesc=xDesc, yDesc=yDesc)
    data_type_among(f"{name}/c11", FORWARD_TYPES, xDesc=xDesc)
    _positions_fit(poolingDesc, xDesc, yDesc, f"{name}/c18")
    writable_layout(yDesc=yDesc)
    return PoolingForward(poolingDesc, scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc)


@computing(failed="c15")
def cudnnPoolingBackward(
    handle: Handle,
    poolingDesc: PoolingSpec,
    alpha: float,
    yDesc: TensorSpec,
    y: Any,
    dyDesc: TensorSpec,
    dy: Any,
    xDesc: TensorSpec,
    x: Any,
    beta: float,
    dxDesc: TensorSpec,
    dx: Any,
) -> PoolingBackward:
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
    name = "cudnnPoolingBackward"
    same_dims(f"{name}/c09", yDesc=yDesc, dyDesc=dyDesc)
    same_strides(f"{name}/c10", yDesc=yDesc, dyDesc=dyDesc)
    same_dims(f"{name}/c11", xDesc=xDesc, dxDesc=dxDesc)
    same_strides(f"{name}/c12", xDesc=xDesc, dxDesc=dxDesc)
    same_data_type(f"{name}/c13", yDesc=yDesc, dyDesc=dyDesc, xDesc=xDesc, dxDesc=dxDesc)
    expect(xDesc.dims[:2] == yDesc.dims[:2], BAD_PARAM, INCORRECT_PARAMETER,
           f"the first two dimensions differ: yDesc {yDesc.dims[:2]}, xDesc {xDesc.dims[:2]}")  # fmt: skip
    _same_ranks(poolingDesc, f"{name}/c06", xDesc=xDesc, yDesc=yDesc)
    data_type_among(f"{name}/c14", BACKWARD_TYPES, xDesc=xDesc)
    for label, spec in (("yDesc", yDesc), ("xDesc", xDesc)):
        # Every format is supported, and NHWC has a wStride of C (docs/errata.md, D189).
        expect(1 in (spec.strides[-1], spec.strides[1]), NOT_SUPPORTED, f"{name}/c14",
               f"{label} has strides {spec.strides}: wStride must be 1, or cStride as in NHWC", limit="wStride")  # fmt: skip
    _positions_fit(poolingDesc, xDesc, yDesc, f"{name}/c14")
    writable_layout(dxDesc=dxDesc)
    alpha, beta = scaling(alpha, dxDesc), scaling(beta, dxDesc)
    return PoolingBackward(poolingDesc, alpha, beta, yDesc, dyDesc, xDesc, dxDesc)


def _same_ranks(pooling: PoolingSpec, clause: str, xDesc: TensorSpec, yDesc: TensorSpec) -> None:
    """Raise an error unless pooling and tensors have the same number of spatial dimensions, which is 2 or 3."""
    rank = len(pooling.window)
    expect(xDesc.rank == yDesc.rank == rank + 2, BAD_PARAM, INCORRECT_PARAMETER,
           f"poolingDesc has {rank} dimensions, xDesc {xDesc.dims} and yDesc {yDesc.dims} must have {rank + 2}")  # fmt: skip
    expect(rank in (2, 3), NOT_SUPPORTED, clause, f"poolingDesc has {rank} dimensions, 2 or 3 are supported")


def _positions_fit(pooling: PoolingSpec, x: TensorSpec, y: TensorSpec, clause: str) -> None:
    """Raise an error if a window ends beyond the range of 32-bit positions."""
    axes = zip(x.dims[2:], y.dims[2:], pooling.window, pooling.padding, pooling.stride, strict=True)
    furthest = max(
        [extent + (count - 1) * stride + window + abs(padding) for extent, count, window, padding, stride in axes]
    )
    expect(furthest < POSITIONS, NOT_SUPPORTED, clause,
           f"windows {pooling.window} with paddings {pooling.padding} and strides {pooling.stride} over {x.dims} and {y.dims}"
           f" reach position {furthest}, positions below {POSITIONS} are supported")  # fmt: skip
