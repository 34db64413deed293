"""2-D pooling (rows 31 to 38); the backward call reads the workspace of the forward one."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from ..enumerations import cudnnNanPropagation_t, cudnnPoolingMode_t
from .calls import call, cudnn, unscaled
from .enumerations import miopenPoolingMode_t
from .objects import PoolingDescriptor
from .status import BAD_PARM, expect

MODES = {
    miopenPoolingMode_t.miopenPoolingMax: cudnnPoolingMode_t.CUDNN_POOLING_MAX,
    miopenPoolingMode_t.miopenPoolingAverage: cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING,
    miopenPoolingMode_t.miopenPoolingAverageInclusive: cudnnPoolingMode_t.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING,
}
MAX = miopenPoolingMode_t.miopenPoolingMax
MOST_INDICES = 255  # one byte for the place of the maximum in its window, the last value taken (docs/errata.md, M005)


@call("cudnnCreatePoolingDescriptor")
def miopenCreatePoolingDescriptor():
    """A new pooling descriptor, to be filled by miopenSet2dPoolingDescriptor. Source: row 31."""
    return PoolingDescriptor()


@call("cudnnSetPooling2dDescriptor")
def miopenSet2dPoolingDescriptor(poolDesc, mode, windowHeight, windowWidth, pad_h, pad_w, u, v):
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
def miopenGet2dPoolingDescriptor(poolDesc):
    """(mode, windowHeight, windowWidth, pad_h, pad_w, u, v) as they were set. Source: row 33."""
    return Pooling2dParameters(poolDesc.attributes, *cudnn("cudnnGetPooling2dDescriptor")(poolDesc.cudnn)[2:])


@call("cudnnGetPooling2dForwardOutputDim")
def miopenGetPoolingForwardOutputDim(poolDesc, tensorDesc):
    """(n, c, h, w) of the pooled tensor. Source: row 34."""
    return cudnn("cudnnGetPooling2dForwardOutputDim")(poolDesc.cudnn, tensorDesc.cudnn)


@call("cudnnDestroyPoolingDescriptor", fresh=["poolDesc"])
def miopenDestroyPoolingDescriptor(poolDesc):
    """Destroy the descriptor; using it afterwards is BadParm. Source: row 35."""
    poolDesc.destroy()


@call("cudnnPoolingForward")
def miopenPoolingGetWorkSpaceSize(yDesc):
    """Bytes of workspace of a pooling with this output: one for each of its elements. Source: row 37."""
    return prod(yDesc.cudnn.spec.dims)


@call("cudnnPoolingForward")
def miopenPoolingForward(handle, poolDesc, alpha, xDesc, x, beta, yDesc, y, do_backward, workSpace, workSpaceSize):
    """y = pool(x); with do_backward the workspace keeps what miopenPoolingBackward needs.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for do_backward with less workspace than
    miopenPoolingGetWorkSpaceSize says (c03) or a window of maxima whose places one byte cannot tell (c04).
    Source: row 36.
    """
    unscaled("miopenPoolingForward/c02", alpha, beta)
    if do_backward:
        needed = prod(yDesc.cudnn.spec.dims)
        expect(workSpaceSize >= needed, BAD_PARM, "miopenPoolingForward/c03",
               f"workSpaceSize is {workSpaceSize}, {needed} bytes are needed")  # fmt: skip
        window = prod(poolDesc.cudnn.spec.window)
        expect(poolDesc.attributes != MAX or window < MOST_INDICES, BAD_PARM, "miopenPoolingForward/c04",
               f"a window of {window} elements: their places do not fit the bytes of the workspace")  # fmt: skip
        key = "pooling", handle.address(workSpace, "miopenPoolingForward/c03", "workSpace", needed)
    cudnn("cudnnPoolingForward")(handle.cudnn, poolDesc.cudnn, 1.0, xDesc.cudnn, x, 0.0, yDesc.cudnn, y)
    if do_backward:
        handle.indexed[key] = contents(handle, (poolDesc, xDesc, yDesc), x, "miopenPoolingForward/c01")


@call("cudnnPoolingBackward")
def miopenPoolingBackward(handle, poolDesc, alpha, yDesc, y, dyDesc, dy, xDesc, x, beta, dxDesc, dx, workspace):
    """dx = the gradient of pooling, from the workspace that miopenPoolingForward filled for this x.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm without such a workspace (c03). Source: row 38.
    """
    unscaled("miopenPoolingBackward/c02", alpha, beta)
    filled_by_forward(handle, "pooling", workspace, (poolDesc, xDesc, yDesc), x, "miopenPoolingBackward/c03")
    cudnn("cudnnPoolingBackward")(
        handle.cudnn, poolDesc.cudnn, 1.0, yDesc.cudnn, y, dyDesc.cudnn, dy, xDesc.cudnn, x, 0.0, dxDesc.cudnn, dx
    )


def filled_by_forward(handle, family, workspace, descriptors, x, clause):
    """The workspace is the one that a forward call with do_backward filled for these descriptors and this x."""
    expect(workspace is not None, BAD_PARM, clause, "workspace is NULL: the forward call with do_backward fills it")
    before = handle.indexed.get((family, handle.address(workspace, clause, "workspace")))
    expect(
        before is not None,
        BAD_PARM,
        clause,
        "no forward call with do_backward has filled this workspace on this handle",
    )
    now = contents(handle, descriptors, x, clause)
    expect(before == now, BAD_PARM, clause, "the workspace was filled by a forward call on other data or descriptors")


def contents(handle, descriptors, x, clause):
    """What a workspace is filled for."""
    return (*(descriptor.cudnn.spec for descriptor in descriptors), handle.address(x, clause, "x"))
