"""Implement local response normalisation (rows 45 to 51); the backward call reads the forward call's workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..enumerations import cudnnLRNMode_t
from . import kept
from .calls import call, cudnn, unscaled
from .enumerations import miopenLRNMode_t
from .objects import LRNDescriptor
from .status import BAD_PARM, NOT_IMPLEMENTED, expect

if TYPE_CHECKING:
    from .objects import MiopenHandle, TensorDescriptor

DIM1 = cudnnLRNMode_t.CUDNN_LRN_CROSS_CHANNEL_DIM1


class LRNParameters(NamedTuple):
    mode: miopenLRNMode_t
    lrnN: int
    lrnAlpha: float
    lrnBeta: float
    lrnK: float


@call("cudnnCreateLRNDescriptor")
def miopenCreateLRNDescriptor() -> LRNDescriptor:
    """Return a new descriptor, to be filled by miopenSetLRNDescriptor. Source: row 45."""
    return LRNDescriptor()


@call("cudnnCreateLRNDescriptor", "cudnnSetLRNDescriptor")
def miopenSetLRNDescriptor(
    lrnDesc: LRNDescriptor, mode: miopenLRNMode_t, lrnN: int, lrnAlpha: float, lrnBeta: float, lrnK: float
) -> None:
    """Set window and parameters. Errors: NotImplemented for miopenLRNWithinChannel (c02); BadParm for an even window
    (c03) and for values that cudnnSetLRNDescriptor refuses. Source: row 46."""
    expect(mode == miopenLRNMode_t.miopenLRNCrossChannel, NOT_IMPLEMENTED, "miopenSetLRNDescriptor/c02",
           f"mode is {mode.name}: cuDNN normalises across channels only")  # fmt: skip
    expect(lrnN % 2 == 1, BAD_PARM, "miopenSetLRNDescriptor/c03", f"lrnN is {lrnN}, the window must be odd")
    normalization = cudnn("cudnnCreateLRNDescriptor")()
    cudnn("cudnnSetLRNDescriptor")(normalization, lrnN, lrnAlpha, lrnBeta, lrnK)
    lrnDesc.cudnn, lrnDesc.attributes = normalization, LRNParameters(mode, lrnN, lrnAlpha, lrnBeta, lrnK)


@call("cudnnGetLRNDescriptor")
def miopenGetLRNDescriptor(lrnDesc: LRNDescriptor) -> Any:
    """Return (mode, lrnN, lrnAlpha, lrnBeta, lrnK) as they were set. Source: row 47."""
    return lrnDesc.attributes


@call("cudnnDestroyLRNDescriptor", fresh=["lrnDesc"])
def miopenDestroyLRNDescriptor(lrnDesc: LRNDescriptor) -> None:
    """Destroy the descriptor; any later use is BadParm. Source: row 48."""
    lrnDesc.destroy()


@call("cudnnLRNCrossChannelForward", "cudnnTransformTensor")
def miopenLRNForward(
    handle: MiopenHandle,
    lrnDesc: LRNDescriptor,
    alpha: Any,
    xDesc: TensorDescriptor,
    x: Any,
    beta: Any,
    yDesc: TensorDescriptor,
    y: Any,
    do_backward: bool,
    workspace: Any,
) -> None:
    """Compute y = LRN(x); with do_backward the workspace keeps the scales for miopenLRNBackward (docs/errata.md, M011).

    Errors: NotImplemented unless alpha is 1 and beta 0, which the library does not read (c02); BadParm for do_backward
    without workspace (c03). Source: row 49.
    """
    unscaled("miopenLRNForward/c02", alpha, beta)
    expect(
        not do_backward or workspace is not None,
        BAD_PARM,
        "miopenLRNForward/c03",
        "workspace is NULL, do_backward needs it",
    )
    if do_backward:
        handle.address(workspace, "miopenLRNForward/c03", "workspace", yDesc.cudnn.spec.nbytes)
    cudnn("cudnnLRNCrossChannelForward")(handle.cudnn, lrnDesc.cudnn, DIM1, 1.0, xDesc.cudnn, x, 0.0, yDesc.cudnn, y)
    if do_backward:
        divisors = kept.scales(kept.read(handle, xDesc.cudnn, x), lrnDesc.attributes)
        kept.write(handle, divisors, kept.described(np.float32, divisors.shape), workspace)
        kept.remember(handle, (lrnDesc, xDesc, yDesc), divisors)


@call("cudnnLRNCrossChannelBackward", "cudnnTransformTensor")
def miopenLRNBackward(
    handle: MiopenHandle,
    lrnDesc: LRNDescriptor,
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
    """Compute dx = the gradient of LRN, from y, dy, x and the workspace that miopenLRNForward filled.

    Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for a workspace without the scales that
    miopenLRNForward stored for these descriptors (c03). Source: row 50.
    """
    unscaled("miopenLRNBackward/c02", alpha, beta)
    divisors = kept.recalled(handle, workspace, (lrnDesc, xDesc, yDesc), np.float32, "miopenLRNBackward/c03")
    inputs = [kept.read(handle, d.cudnn, memory) for d, memory in ((yDesc, y), (dyDesc, dy), (xDesc, x))]
    # The documented call checks the arguments. Its gradient uses scales from x, and is replaced by one with the stored
    # scales.
    cudnn("cudnnLRNCrossChannelBackward")(
        handle.cudnn, lrnDesc.cudnn, DIM1, 1.0, yDesc.cudnn, y, dyDesc.cudnn, dy, xDesc.cudnn, x, 0.0, dxDesc.cudnn, dx
    )
    kept.write(handle, kept.lrn_gradient(divisors, *inputs, lrnDesc.attributes), dxDesc.cudnn, dx)


@call("cudnnLRNCrossChannelForward")
def miopenLRNGetWorkSpaceSize(yDesc: TensorDescriptor) -> int:
    """Return the bytes of workspace of a normalisation with this output: the bytes of the output. Source: row 51."""
    return yDesc.cudnn.spec.nbytes
