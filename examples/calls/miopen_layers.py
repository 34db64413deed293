"""Run layers of a network forward and backward by the calls of the MIOpen porting guide.

python examples/calls/miopen_layers.py [accelerated [emulated]]
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np
from dualdnn.api import miopen

RANDOM = np.random.default_rng(0)
X = (2, 3, 6, 6)  # dimensions of images
W = (4, 3, 3, 3)  # dimensions of filters
Y = (2, 4, 6, 6)  # dimensions of results
CHANNELS = (1, 4, 1, 1)
SOME = 4  # results of a search, at most


def tensor(*dims: int) -> Any:
    """Return the descriptor of a packed tensor; the guide describes filters so, too."""
    descriptor = miopen.miopenCreateTensorDescriptor()
    miopen.miopenSet4dTensorDescriptor(descriptor, miopen.miopenFloat, *dims)
    return descriptor


def drawn(handle: Any, *dims: int) -> Any:
    """Return device memory with random numbers."""
    return handle.to_device(RANDOM.standard_normal(dims).astype(np.float32))


def convolution(handle: Any) -> None:
    """Convolve, and compute both gradients. Each call needs the search of its direction first, with the same descriptors."""
    x_desc, w_desc, y_desc, described = tensor(*X), tensor(*W), tensor(*Y), miopen.miopenCreateConvolutionDescriptor()
    miopen.miopenInitConvolutionDescriptor(described, miopen.miopenConvolution, 1, 1, 1, 1, 1, 1)
    _, rows, columns, *_ = miopen.miopenGetConvolutionDescriptor(described)
    print(f"padding: {rows} rows, {columns} columns")
    x, w, y = drawn(handle, *X), drawn(handle, *W), handle.allocate(4 * prod(Y))
    size = miopen.miopenConvolutionForwardGetWorkSpaceSize(handle, w_desc, x_desc, described, y_desc)
    space = handle.allocate(size)
    _, found = miopen.miopenFindConvolutionForwardAlgorithm(
        handle, x_desc, x, w_desc, w, described, y_desc, y, SOME, space, size, False
    )
    miopen.miopenConvolutionForward(
        handle, 1.0, x_desc, x, w_desc, w, described, found[0].fwd_algo, 0.0, y_desc, y, space, size
    )

    dy, dx, dw, db = drawn(handle, *Y), handle.allocate(x.nbytes), handle.allocate(w.nbytes), handle.allocate(16)
    size = miopen.miopenConvolutionBackwardDataGetWorkSpaceSize(handle, y_desc, w_desc, described, x_desc)
    space = handle.allocate(size)
    _, found = miopen.miopenFindConvolutionBackwardDataAlgorithm(
        handle, y_desc, dy, w_desc, w, described, x_desc, dx, SOME, space, size, False
    )
    miopen.miopenConvolutionBackwardData(
        handle, 1.0, y_desc, dy, w_desc, w, described, found[0].bwd_data_algo, 0.0, x_desc, dx, space, size
    )

    size = miopen.miopenConvolutionBackwardWeightsGetWorkSpaceSize(handle, y_desc, x_desc, described, w_desc)
    space = handle.allocate(size)
    _, found = miopen.miopenFindConvolutionBackwardWeightsAlgorithm(
        handle, y_desc, dy, x_desc, x, described, w_desc, dw, SOME, space, size, False
    )
    miopen.miopenConvolutionBackwardWeights(
        handle, 1.0, y_desc, dy, x_desc, x, described, found[0].bwd_weights_algo, 0.0, w_desc, dw, space, size
    )

    b_desc = tensor(*CHANNELS)
    miopen.miopenConvolutionBackwardBias(handle, 1.0, y_desc, dy, 0.0, b_desc, db)
    sums = dy.to_host(np.float32, Y).sum((0, 2, 3), np.float64)
    np.testing.assert_allclose(db.to_host(np.float32, 4), sums, rtol=1e-4)
    miopen.miopenDestroyConvolutionDescriptor(described)
    miopen.miopenDestroyTensorDescriptor(b_desc)


def elementwise(handle: Any) -> None:
    """Add a bias to images, and scale the sums."""
    y_desc, b_desc, y, bias = tensor(*Y), tensor(*CHANNELS), drawn(handle, *Y), drawn(handle, *CHANNELS)
    before = y.to_host(np.float32, Y)
    miopen.miopenOpTensor(handle, miopen.miopenTensorOpAdd, 1.0, y_desc, y, 1.0, b_desc, bias, 0.0, y_desc, y)
    miopen.miopenScaleTensor(handle, y_desc, y, 0.5)
    np.testing.assert_allclose(y.to_host(np.float32, Y), (before + bias.to_host(np.float32, CHANNELS)) / 2, rtol=1e-6)


def batch_normalization(handle: Any) -> None:
    """Normalise a batch, compute its gradients, and normalise by the running statistics."""
    mode, x_desc, b_desc = miopen.miopenBNSpatial, tensor(*Y), miopen.miopenCreateTensorDescriptor()
    miopen.miopenDeriveBNTensorDescriptor(b_desc, x_desc, mode)
    x, dy, scale, bias = drawn(handle, *Y), drawn(handle, *Y), drawn(handle, *CHANNELS), drawn(handle, *CHANNELS)
    y, dx = handle.allocate(x.nbytes), handle.allocate(x.nbytes)
    mean, variance, saved_mean, saved_inverse, dscale, dbias = (handle.zeros(scale.nbytes) for _ in range(6))
    miopen.miopenBatchNormalizationForwardTraining(
        handle, mode, 1.0, 0.0, x_desc, x, x_desc, y, b_desc, scale, bias, 1.0, mean, variance, 1e-5,
        saved_mean, saved_inverse,
    )  # fmt: skip
    miopen.miopenBatchNormalizationBackward(
        handle, mode, 1.0, 0.0, 1.0, 0.0, x_desc, x, x_desc, dy, x_desc, dx, b_desc, scale, dscale, dbias, 1e-5,
        saved_mean, saved_inverse,
    )  # fmt: skip
    miopen.miopenBatchNormalizationForwardInference(
        handle, mode, 1.0, 0.0, x_desc, x, x_desc, y, b_desc, scale, bias, mean, variance, 1e-5
    )
    np.testing.assert_allclose(mean.to_host(np.float32, 4), x.to_host(np.float32, Y).mean((0, 2, 3)), atol=1e-6)


def response_normalization(handle: Any) -> None:
    """Normalise by neighbouring channels; the gradient reads what the forward call kept in the workspace."""
    lrn, d, x, dy = miopen.miopenCreateLRNDescriptor(), tensor(*Y), drawn(handle, *Y), drawn(handle, *Y)
    miopen.miopenSetLRNDescriptor(lrn, miopen.miopenLRNCrossChannel, 3, 1e-4, 0.75, 2.0)
    y, dx, space = (
        handle.allocate(x.nbytes),
        handle.allocate(x.nbytes),
        handle.allocate(miopen.miopenLRNGetWorkSpaceSize(d)),
    )
    miopen.miopenLRNForward(handle, lrn, 1.0, d, x, 0.0, d, y, True, space)
    miopen.miopenLRNBackward(handle, lrn, 1.0, d, y, d, dy, d, x, 0.0, d, dx, space)
    miopen.miopenDestroyLRNDescriptor(lrn)


def pooling(handle: Any) -> None:
    """Take maxima of windows after an activation."""
    activation, windows, d = (
        miopen.miopenCreateActivationDescriptor(),
        miopen.miopenCreatePoolingDescriptor(),
        tensor(*Y),
    )
    miopen.miopenSetActivationDescriptor(activation, miopen.miopenActivationRELU, 0.0, 0.0, 0.0)
    miopen.miopenSet2dPoolingDescriptor(windows, miopen.miopenPoolingMax, 2, 2, 0, 0, 2, 2)
    result = tensor(*miopen.miopenGetPoolingForwardOutputDim(windows, d))
    x, y = drawn(handle, *Y), handle.allocate(prod(Y))  # a quarter of the elements
    miopen.miopenActivationForward(handle, activation, 1.0, d, x, 0.0, d, x)
    miopen.miopenPoolingForward(handle, windows, 1.0, d, x, 0.0, result, y, False, None, 0)
    np.testing.assert_array_equal(
        y.to_host(np.float32, -1).reshape(2, 4, 3, 3), x.to_host(np.float32, (2, 4, 3, 2, 3, 2)).max((3, 5))
    )
    miopen.miopenDestroyPoolingDescriptor(windows)
    miopen.miopenDestroyActivationDescriptor(activation)


def softmax(handle: Any) -> None:
    """Turn scores into probabilities over the channels, and compute the gradient of the scores."""
    d, x, dy = tensor(2, 4, 1, 1), drawn(handle, 2, 4), drawn(handle, 2, 4)
    y, dx = handle.allocate(x.nbytes), handle.allocate(x.nbytes)
    miopen.miopenSoftmaxForward(handle, 1.0, d, x, 0.0, d, y)
    miopen.miopenSoftmaxBackward(handle, 1.0, d, y, d, dy, 0.0, d, dx)
    np.testing.assert_allclose(y.to_host(np.float32, (2, 4)).sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(dx.to_host(np.float32, (2, 4)).sum(1), 0, atol=1e-6)


def main(backend: str = "reference", device: str | None = None) -> None:
    """Run every layer on a backend."""
    handle = miopen.miopenCreate(backend=backend, device=device)
    for layer in (convolution, elementwise, batch_normalization, response_normalization, pooling, softmax):
        layer(handle)
    miopen.miopenDestroy(handle)


if __name__ == "__main__":
    main(*sys.argv[1:])
