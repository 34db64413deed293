"""Implement softmax over the channels of each position (rows 29 and 30); the guide has no other algorithm and no other mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from .calls import call, cudnn, unscaled

if TYPE_CHECKING:
    from .objects import MiopenHandle, TensorDescriptor

_CHOICE = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL


@call("cudnnSoftmaxForward")
def miopenSoftmaxForward(
    handle: MiopenHandle, alpha: Any, xDesc: TensorDescriptor, x: Any, beta: Any, yDesc: TensorDescriptor, y: Any
) -> None:
    """Compute y = softmax(x) over C. Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for differing
    dimensions. Source: row 29; docs/errata.md, M004."""
    unscaled("miopenSoftmaxForward/c02", alpha, beta)
    cudnn("cudnnSoftmaxForward")(handle.cudnn, *_CHOICE, 1.0, xDesc.cudnn, x, 0.0, yDesc.cudnn, y)


@call("cudnnSoftmaxBackward")
def miopenSoftmaxBackward(
    handle: MiopenHandle,
    alpha: Any,
    yDesc: TensorDescriptor,
    y: Any,
    dyDesc: TensorDescriptor,
    dy: Any,
    beta: Any,
    dxDesc: TensorDescriptor,
    dx: Any,
) -> None:
    """Compute dx = y * (dy - sum(y * dy)) over C. Errors: as miopenSoftmaxForward (c02). Source: row 30."""
    unscaled("miopenSoftmaxBackward/c02", alpha, beta)
    cudnn("cudnnSoftmaxBackward")(handle.cudnn, *_CHOICE, 1.0, yDesc.cudnn, y, dyDesc.cudnn, dy, 0.0, dxDesc.cudnn, dx)
