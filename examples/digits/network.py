"""Implement the digits classifier by documented calls, with descriptors and memory that all batches share."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from dualdnn.api import cudnn

FLOAT, NCHW = cudnn.CUDNN_DATA_FLOAT, cudnn.CUDNN_TENSOR_NCHW


def tensor(dims: tuple[int, ...]) -> Any:
    """Return the descriptor of a packed float tensor (N, C, H, W)."""
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(descriptor, NCHW, FLOAT, *dims)
    return descriptor


class Convolution:
    """Convolve with stride 1 and add a bias, by the algorithm that the backend expects to be fastest."""

    def __init__(self, handle: Any, x_desc: Any, w: np.ndarray, bias: np.ndarray, padding: int, math_type: Any) -> None:
        self.handle, self.x_desc = handle, x_desc
        self.w_desc = cudnn.cudnnCreateFilterDescriptor()
        cudnn.cudnnSetFilter4dDescriptor(self.w_desc, FLOAT, NCHW, *w.shape)
        self.convolution = cudnn.cudnnCreateConvolutionDescriptor()
        cudnn.cudnnSetConvolution2dDescriptor(
            self.convolution, padding, padding, 1, 1, 1, 1, cudnn.CUDNN_CROSS_CORRELATION, FLOAT
        )
        cudnn.cudnnSetConvolutionMathType(self.convolution, math_type)
        self.y_dims = cudnn.cudnnGetConvolution2dForwardOutputDim(self.convolution, x_desc, self.w_desc)
        self.y_desc = tensor(self.y_dims)
        self.bias_desc = tensor(bias.shape)
        self.w, self.bias = handle.to_device(w), handle.to_device(bias)
        self.y = handle.allocate(cudnn.cudnnGetTensorSizeInBytes(self.y_desc))
        problem = (x_desc, self.w_desc, self.convolution, self.y_desc)
        self.algo = cudnn.cudnnGetConvolutionForwardAlgorithm_v7(handle, *problem, 1).perfResults[0].algo
        self.workspace_bytes = cudnn.cudnnGetConvolutionForwardWorkspaceSize(handle, *problem, self.algo)
        self.workspace = handle.allocate(self.workspace_bytes) if self.workspace_bytes else None

    def forward(self, x: Any) -> Any:
        """Compute y = conv(x, w) + bias in two calls."""
        cudnn.cudnnConvolutionForward(
            self.handle, 1.0, self.x_desc, x, self.w_desc, self.w, self.convolution, self.algo,
            self.workspace, self.workspace_bytes, 0.0, self.y_desc, self.y,
        )  # fmt: skip
        cudnn.cudnnAddTensor(self.handle, 1.0, self.bias_desc, self.bias, 1.0, self.y_desc, self.y)
        return self.y

    def forward_activated(self, x: Any, activation: Any) -> Any:
        """Compute y = activation(conv(x, w) + bias) in one call. alpha2 is 0, so z, which is y here, is not read."""
        cudnn.cudnnConvolutionBiasActivationForward(
            self.handle, 1.0, self.x_desc, x, self.w_desc, self.w, self.convolution, self.algo,
            self.workspace, self.workspace_bytes, 0.0, self.y_desc, self.y, self.bias_desc, self.bias,
            activation, self.y_desc, self.y,
        )  # fmt: skip
        return self.y


class Pooling:
    """Take the maxima of squares of 2 x 2."""

    def __init__(self, handle: Any, x_desc: Any) -> None:
        self.handle, self.x_desc = handle, x_desc
        self.pooling = cudnn.cudnnCreatePoolingDescriptor()
        cudnn.cudnnSetPooling2dDescriptor(
            self.pooling, cudnn.CUDNN_POOLING_MAX, cudnn.CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2
        )
        self.y_desc = tensor(cudnn.cudnnGetPooling2dForwardOutputDim(self.pooling, x_desc))
        self.y = handle.allocate(cudnn.cudnnGetTensorSizeInBytes(self.y_desc))

    def forward(self, x: Any) -> Any:
        cudnn.cudnnPoolingForward(self.handle, self.pooling, 1.0, self.x_desc, x, 0.0, self.y_desc, self.y)
        return self.y


class Network:
    """Hold the classifier for batches of ``batch`` images on one handle.

    math_type: CUDNN_DEFAULT_MATH allows TF32 for float products, CUDNN_FMA_MATH forbids it.
    """

    def __init__(self, handle: Any, weights: dict[str, np.ndarray], batch: int, math_type: Any) -> None:
        self.handle, self.batch = handle, batch
        self.relu = cudnn.cudnnCreateActivationDescriptor()
        cudnn.cudnnSetActivationDescriptor(self.relu, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_NOT_PROPAGATE_NAN, 0.0)

        def convolution(layer: str, x_desc: Any, padding: int) -> Convolution:
            w, bias = weights[f"{layer}_filter"], weights[f"{layer}_bias"]
            return Convolution(handle, x_desc, w, bias, padding, math_type)

        self.first = convolution("first", tensor((batch, 1, 8, 8)), padding=1)
        self.first_pooling = Pooling(handle, self.first.y_desc)
        self.second = convolution("second", self.first_pooling.y_desc, padding=1)
        self.second_pooling = Pooling(handle, self.second.y_desc)
        self.classifier = convolution("classifier", self.second_pooling.y_desc, padding=0)
        self.convolutions = {"first": self.first, "second": self.second, "classifier": self.classifier}

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        """Return probabilities (batch, 10) of images (batch, 1, 8, 8)."""
        x = self.handle.to_device(images)
        y = self.first_pooling.forward(self.first.forward_activated(x, self.relu))
        y = self.second_pooling.forward(self.second.forward_activated(y, self.relu))
        y = self.classifier.forward(y)
        cudnn.cudnnSoftmaxForward(
            self.handle, cudnn.CUDNN_SOFTMAX_ACCURATE, cudnn.CUDNN_SOFTMAX_MODE_CHANNEL,
            1.0, self.classifier.y_desc, y, 0.0, self.classifier.y_desc, y,
        )  # fmt: skip
        return y.to_host(np.float32, (self.batch, prod(self.classifier.y_dims[1:])))
