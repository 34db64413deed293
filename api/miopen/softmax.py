"""Implement softmax over the channels of each position (rows 29 and 30); the guide has no other algorithm and no other mode."""

from __future__ import annotations

from ..enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from .calls import call, cudnn, unscaled

_CHOICE = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL


@call("cudnnSoftmaxForward")
def miopenSoftmaxForward(handle, alpha, xDesc, x, beta, yDesc, y):
    """Compute y = softmax(x) over C. Errors: NotImplemented unless alpha is 1 and beta 0 (c02); BadParm for differing
    dimensions. Source: row 29; docs/errata.md, M004."""
    unscaled("miopenSoftmaxForward/c02", alpha, beta)
    cudnn("cudnnSoftmaxForward")(handle.cudnn, *_CHOICE, 1.0, xDesc.cudnn, x, 0.0, yDesc.cudnn, y)


@call("cudnnSoftmaxBackward")
def miopenSoftmaxBackward(handle, alpha, yDesc, y, dyDesc, dy, beta, dxDesc, dx):
    """Compute dx = y * (dy - sum(y * dy)) over C. Errors: as miopenSoftmaxForward (c02). Source: row 30."""
    unscaled("miopenSoftmaxBackward/c02", alpha, beta)
    cudnn("cudnnSoftmaxBackward")(handle.cudnn, *_CHOICE, 1.0, yDesc.cudnn, y, dyDesc.cudnn, dy, 0.0, dxDesc.cudnn, dx)
