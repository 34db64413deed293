"""Implement 2-D pooling (rows 31 to 38); the backward call reads the forward call's workspace."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..enumerations import cudnnNanPropagation_t, cudnnPoolingMode_t
from . import kept
from .calls import call, cudnn, unscaled
from .enumerations import miopenPoolingMode_t
from .objects import PoolingDescriptor
from .status import BAD_PARM, expect

if TYPE_CHECKING:
    from .objects import MiopenHandle, TensorDescriptor

MODES = {
    miopenPoolingMode_t.miopenPoolingMax: cudnnPoolingMode_t.CUDNN_POOLING_MAX,
    miopenPoolingMode_t.miopenPoolingAverage: cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
    miopenPoolingMode_t.miopenPoolingAverageInclusive: cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
}
MAX = miopenPoolingMode_t.miopenPoolingMax
MAX_INDICES = 255  # positions per window that one byte can store, the last value included (docs/errata.md, M005)


@call("cudnnCreatePoolingDescriptor")
def miopenCreatePoolingDescriptor() -> PoolingDescriptor:
    """Return a new pooling descriptor, to be filled by miopenSet2dPoolingDescriptor. Source: row 31."""
    return PoolingDescriptor()


@call("cudnnSetPooling2dDescriptor")
def miopenSet2dPoolingDescriptor(
    poolDesc: PoolingDescriptor,
    mode: miopenPoolingMode_t,
    windowHeight: int,
    windowWidth: int,
    pad_h: int,
    pad_w: int,
    u: int,
    v: int,
) -> None:
    """Describe a pooling of images: mode, window, padding, strides u (vertical) and v.

    Errors: BadParm for windows or strides below 1, for negative padding (c02). Source: row 32.
    """
    expect(
        min(pad_h, pad_w) >= 0, BAD_PARM, "miopenSet2dPoolingDescriptor/c02", f"pad_h {pad_h}, pad_w {pad_w}: negative"
    )
    pooling = cudnn("cudnnCreatePoolingDescriptor")()
    nan = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
    cudnn("cudnnSetPooling2dDescriptor")(pooling, MODES[mode], nan, windowHeight, windowWidth, pad_h, pad_w, u, v)
    poolDesc.cudnn, poolDesc.attributes = pooling, mode


class Pooling2dParameters(NamedTuple):
    mode: miopenPoolingMode_t
    windowHeight: int
    windowWidth: int
    pad_h: int
    pad_w: int
    u: int
    v: int


@call("cudnnGetPooling2dDescriptor")
def miopenGet2dPoolingDescriptor(poolDesc: PoolingDescriptor) -> Pooling2dParameters:
    """Return (mode, windowHeight, windowWidth, pad_h, pad_w, u, v) as they were set. Source: row 33."""
    return Pooling2dParameters(poolDesc.attributes, *cudnn("cudnnGetPooling2dDescriptor")(poolDesc.cudnn)[2:])


@call("cudnnGetPooling2dForwardOutputDim")
def miopenGetPoolingForwardOutputDim(poolDesc: PoolingDescriptor, tensorDesc: TensorDescriptor) -> Any:
    """Return (n, c, h, w) of the pooled tensor. Source: row 34."""
    return cudnn("cudnnGetPooling2dForwardOutputDim")(poolDesc.cudnn, tensorDesc.cudnn)


@call("cudnnDestroyPoolingDescriptor", fresh=["poolDesc"])
def miopenDestroyPoolingDescriptor(poolDesc: PoolingDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 35."""
    poolDesc.destroy()


@call("cudnnPoolingForward")
def miopenPoolingGetWorkSpaceSize(yDesc: TensorDescriptor) -> int:
    """Return the bytes of workspace of a pooling with this output: one per element. Source: row 37."""
    return prod(yDesc.cudnn.spec.dims)


@call("cudnnPoolingForward", "cudnnTransformTensor")
def miopenPoolingForward(
    handle: MiopenHandle,
    poolDesc: PoolingDescriptor,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Any,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Any,
    do_backward: bool,
    workSpace: Any,
    workSpaceSize: int,
) -> None:
    """Compute y = pool(x); with do_backward the workspace keeps the positions of the maxima for miopenPoolingBackward.

    The position of a window's maximum is one byte, counted along the window's rows; averages store nothing
    (docs/errata.md, M010).
    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); for maxima with do_backward BadParm for less workspace
    than miopenPoolingGetWorkSpaceSize says (c03) or a window whose places one byte cannot tell (c04).
    Source: row 36.
    """
    unscaled("miopenPoolingForward/c02", alpha, beta)
    keeps = do_backward and poolDesc.attributes == MAX
    if keeps:
        needed = prod(yDesc.cudnn.spec.dims)
        expect(workSpaceSize >= needed, BAD_PARM, "miopenPoolingForward/c03",
               f"workSpaceSize is {workSpaceSize}, {needed} bytes are needed")  # fmt: skip
        window = prod(poolDesc.cudnn.spec.window)
        expect(window < MAX_INDICES, BAD_PARM, "miopenPoolingForward/c04",
               f"a window of {window} elements: their places do not fit the bytes of the workspace")  # fmt: skip
        handle.address(workSpace, "miopenPoolingForward/c03", "workSpace", needed)
    cudnn("cudnnPoolingForward")(handle.cudnn, poolDesc.cudnn, 1.0, xDesc.cudnn, x, 0.0, yDesc.cudnn, y)
    if keeps:
        pooling, extents = poolDesc.cudnn.spec, yDesc.cudnn.spec.dims[2:]
        found = kept.places(kept.read(handle, xDesc.cudnn, x), pooling, extents).astype(np.uint8).view(np.int8)
        kept.write(handle, found, kept.described(np.int8, found.shape), workSpace)
        kept.remember(handle, (poolDesc, xDesc, yDesc), found)


@call("cudnnPoolingBackward", "cudnnTransformTensor")
def miopenPoolingBackward(
    handle: MiopenHandle,
    poolDesc: PoolingDescriptor,
    alpha: Any,
    yDesc: TensorDescriptor,
    y: Any,
    dyDesc: TensorDescriptor,
    dy: Any,
    xDesc: TensorDescriptor,
    x: Any,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Any,
    workspace: Any,
) -> None:
    """Compute dx = the gradient of pooling; for maxima it uses the positions in the workspace, whatever x and y
    contain.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); for maxima BadParm for a workspace without the places that
    miopenPoolingForward stored for these descriptors (c03). Source: row 38.
    """
    unscaled("miopenPoolingBackward/c02", alpha, beta)
    pooling, keeps = poolDesc.cudnn.spec, poolDesc.attributes == MAX
    if keeps:
        found = kept.recalled(handle, workspace, (poolDesc, xDesc, yDesc), np.int8, "miopenPoolingBackward/c03")
        found = found.view(np.uint8).astype(np.int64)
        gradient = kept.read(handle, dyDesc.cudnn, dy)
    # The documented call checks the arguments. For maxima, its result is replaced by the gradient at the stored
    # positions.
    cudnn("cudnnPoolingBackward")(
        handle.cudnn, poolDesc.cudnn, 1.0, yDesc.cudnn, y, dyDesc.cudnn, dy, xDesc.cudnn, x, 0.0, dxDesc.cudnn, dx
    )
    if keeps:
        kept.write(handle, kept.pooled_gradient(found, gradient, pooling, dxDesc.cudnn.spec.dims[2:]), dxDesc.cudnn, dx)
