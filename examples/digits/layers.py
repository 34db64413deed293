"""Implement the layers of the training network by documented calls, forward and backward, for batches of one size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from math import prod
from typing import Any

import numpy as np
from dualdnn.api import cudnn
from network import FLOAT, NCHW, tensor

Array = np.ndarray
EPSILON = 1e-5
KEPT = 0.9  # share of a running statistic that each step keeps


class Parameters:
    """Hold parameters and running statistics by name, as float arrays on the host and in the device's memory."""

    def __init__(self, handle: Any, values: dict[str, Array]) -> None:
        self.handle = handle
        self.device = {name: handle.to_device(value) for name, value in values.items()}
        self.dims = {name: value.shape for name, value in values.items()}

    def __getitem__(self, name: str) -> Any:
        return self.device[name]

    def __setitem__(self, name: str, value: Array) -> None:
        self.device[name] = self.handle.to_device(value)

    def values(self) -> dict[str, Array]:
        """Return copies on the host."""
        return {name: buffer.to_host(np.float32, self.dims[name]) for name, buffer in self.device.items()}


class Layer(ABC):
    """Compute y from x, and from the gradient of y the gradients of x and of the parameters."""

    def __init__(self, handle: Any, x_dims: tuple[int, ...], y_dims: tuple[int, ...]) -> None:
        self.handle, self.x_dims, self.y_dims = handle, x_dims, tuple(y_dims)
        self.x_desc, self.y_desc = tensor(x_dims), tensor(y_dims)
        self.y, self.dx = (handle.allocate(4 * prod(dims)) for dims in (y_dims, x_dims))
        self.x: Any = None
        self.gradients: dict[str, tuple[Any, tuple[int, ...]]] = {}  # It maps a parameter to its memory and dimensions.

    @abstractmethod
    def forward(self, x: Any, training: bool) -> Any:
        """Return y, in memory of the layer. training: dropout is active, and statistics are computed from the batch."""

    @abstractmethod
    def backward(self, dy: Any) -> Any:
        """Return dx, in memory of the layer, and store the parameters' gradients."""


class Convolution(Layer):
    """Convolve with stride 1 and add a bias."""

    def __init__(self, handle: Any, x_dims: tuple[int, ...], parameters: Parameters, name: str, padding: int) -> None:
        self.parameters, self.names = parameters, (f"{name}_filter", f"{name}_bias")
        w_dims, bias_dims = (parameters.dims[name] for name in self.names)
        self.w_desc, self.bias_desc = cudnn.cudnnCreateFilterDescriptor(), tensor(bias_dims)
        cudnn.cudnnSetFilter4dDescriptor(self.w_desc, FLOAT, NCHW, *w_dims)
        self.convolution = cudnn.cudnnCreateConvolutionDescriptor()
        cudnn.cudnnSetConvolution2dDescriptor(
            self.convolution, padding, padding, 1, 1, 1, 1, cudnn.CUDNN_CROSS_CORRELATION, FLOAT
        )
        cudnn.cudnnSetConvolutionMathType(self.convolution, cudnn.CUDNN_FMA_MATH)  # This forbids TF32.
        dims = cudnn.cudnnGetConvolution2dForwardOutputDim(self.convolution, tensor(x_dims), self.w_desc)
        super().__init__(handle, x_dims, tuple(dims))
        x, w, y, convolution = self.x_desc, self.w_desc, self.y_desc, self.convolution
        self.forward_algo = cudnn.cudnnGetConvolutionForwardAlgorithm_v7(handle, x, w, convolution, y, 1).perfResults[0]
        self.data_algo = cudnn.cudnnGetConvolutionBackwardDataAlgorithm_v7(handle, w, y, convolution, x, 1).perfResults[
            0
        ]
        self.filter_algo = cudnn.cudnnGetConvolutionBackwardFilterAlgorithm_v7(
            handle, x, y, convolution, w, 1
        ).perfResults[0]
        self.room = max(found.memory for found in (self.forward_algo, self.data_algo, self.filter_algo))
        self.workspace = handle.allocate(self.room) if self.room else None
        self.gradients = {
            name: (handle.allocate(4 * prod(parameters.dims[name])), parameters.dims[name]) for name in self.names
        }

    def forward(self, x: Any, training: bool) -> Any:
        self.x, (w, bias) = x, (self.parameters[name] for name in self.names)
        cudnn.cudnnConvolutionForward(
            self.handle, 1.0, self.x_desc, x, self.w_desc, w, self.convolution, self.forward_algo.algo,
            self.workspace, self.room, 0.0, self.y_desc, self.y,
        )  # fmt: skip
        cudnn.cudnnAddTensor(self.handle, 1.0, self.bias_desc, bias, 1.0, self.y_desc, self.y)
        return self.y

    def backward(self, dy: Any) -> Any:
        (dw, _), (dbias, _) = (self.gradients[name] for name in self.names)
        cudnn.cudnnConvolutionBackwardBias(self.handle, 1.0, self.y_desc, dy, 0.0, self.bias_desc, dbias)
        cudnn.cudnnConvolutionBackwardFilter(
            self.handle, 1.0, self.x_desc, self.x, self.y_desc, dy, self.convolution, self.filter_algo.algo,
            self.workspace, self.room, 0.0, self.w_desc, dw,
        )  # fmt: skip
        cudnn.cudnnConvolutionBackwardData(
            self.handle, 1.0, self.w_desc, self.parameters[self.names[0]], self.y_desc, dy, self.convolution,
            self.data_algo.algo, self.workspace, self.room, 0.0, self.x_desc, self.dx,
        )  # fmt: skip
        return self.dx


class BatchNorm(Layer):
    """Normalise over images and positions; inference uses the running statistics."""

    MODE = cudnn.CUDNN_BATCHNORM_SPATIAL

    def __init__(self, handle: Any, x_dims: tuple[int, ...], parameters: Parameters, name: str) -> None:
        super().__init__(handle, x_dims, x_dims)
        self.parameters, self.learned = parameters, (f"{name}_scale", f"{name}_shift")
        self.running = (f"{name}_mean", f"{name}_variance")
        self.desc = cudnn.cudnnCreateTensorDescriptor()
        cudnn.cudnnDeriveBNTensorDescriptor(self.desc, self.x_desc, self.MODE)
        self.saved = [handle.allocate(4 * x_dims[1]) for _ in range(2)]
        self.gradients = {name: (handle.allocate(4 * x_dims[1]), parameters.dims[name]) for name in self.learned}

    def forward(self, x: Any, training: bool) -> Any:
        self.x = x
        given = (self.handle, self.MODE, 1.0, 0.0, self.x_desc, x, self.y_desc, self.y, self.desc)
        learned, running = ([self.parameters[name] for name in names] for names in (self.learned, self.running))
        if training:
            cudnn.cudnnBatchNormalizationForwardTraining(*given, *learned, 1 - KEPT, *running, EPSILON, *self.saved)
        else:
            cudnn.cudnnBatchNormalizationForwardInference(*given, *learned, *running, EPSILON)
        return self.y

    def backward(self, dy: Any) -> Any:
        gradients = [self.gradients[name][0] for name in self.learned]
        cudnn.cudnnBatchNormalizationBackward(
            self.handle, self.MODE, 1.0, 0.0, 1.0, 0.0, self.x_desc, self.x, self.y_desc, dy, self.x_desc, self.dx,
            self.desc, self.parameters[self.learned[0]], *gradients, EPSILON, *self.saved,
        )  # fmt: skip
        return self.dx


class Relu(Layer):
    """Compute max(0, x)."""

    def __init__(self, handle: Any, x_dims: tuple[int, ...]) -> None:
        super().__init__(handle, x_dims, x_dims)
        self.activation = cudnn.cudnnCreateActivationDescriptor()
        cudnn.cudnnSetActivationDescriptor(
            self.activation, cudnn.CUDNN_ACTIVATION_RELU, cudnn.CUDNN_NOT_PROPAGATE_NAN, 0.0
        )

    def forward(self, x: Any, training: bool) -> Any:
        self.x = x
        cudnn.cudnnActivationForward(self.handle, self.activation, 1.0, self.x_desc, x, 0.0, self.y_desc, self.y)
        return self.y

    def backward(self, dy: Any) -> Any:
        cudnn.cudnnActivationBackward(
            self.handle, self.activation, 1.0, self.y_desc, self.y, self.y_desc, dy, self.x_desc, self.x,
            0.0, self.x_desc, self.dx,
        )  # fmt: skip
        return self.dx


class MaxPooling(Layer):
    """Take the maxima of squares of 2 x 2."""

    def __init__(self, handle: Any, x_dims: tuple[int, ...]) -> None:
        self.pooling = cudnn.cudnnCreatePoolingDescriptor()
        cudnn.cudnnSetPooling2dDescriptor(
            self.pooling, cudnn.CUDNN_POOLING_MAX_DETERMINISTIC, cudnn.CUDNN_PROPAGATE_NAN, 2, 2, 0, 0, 2, 2
        )
        super().__init__(handle, x_dims, tuple(cudnn.cudnnGetPooling2dForwardOutputDim(self.pooling, tensor(x_dims))))

    def forward(self, x: Any, training: bool) -> Any:
        self.x = x
        cudnn.cudnnPoolingForward(self.handle, self.pooling, 1.0, self.x_desc, x, 0.0, self.y_desc, self.y)
        return self.y

    def backward(self, dy: Any) -> Any:
        cudnn.cudnnPoolingBackward(
            self.handle, self.pooling, 1.0, self.y_desc, self.y, self.y_desc, dy, self.x_desc, self.x,
            0.0, self.x_desc, self.dx,
        )  # fmt: skip
        return self.dx


class Dropout(Layer):
    """Drop elements with a probability. The states determine the masks, so a checkpoint that has them continues them."""

    def __init__(
        self, handle: Any, x_dims: tuple[int, ...], probability: float, seed: int, states: Array | None
    ) -> None:
        super().__init__(handle, x_dims, x_dims)
        self.descriptor = cudnn.cudnnCreateDropoutDescriptor()
        size = cudnn.cudnnDropoutGetStatesSize(handle)
        if states is None:
            self.states = handle.allocate(size)
            cudnn.cudnnSetDropoutDescriptor(self.descriptor, handle, probability, self.states, size, seed)
        else:
            self.states = handle.to_device(states)
            cudnn.cudnnRestoreDropoutDescriptor(self.descriptor, handle, probability, self.states, size, seed)
        self.reserve_bytes = cudnn.cudnnDropoutGetReserveSpaceSize(self.x_desc)
        self.reserve = handle.allocate(self.reserve_bytes)

    def forward(self, x: Any, training: bool) -> Any:
        if not training:
            return x
        cudnn.cudnnDropoutForward(
            self.handle, self.descriptor, self.x_desc, x, self.y_desc, self.y, self.reserve, self.reserve_bytes
        )
        return self.y

    def backward(self, dy: Any) -> Any:
        cudnn.cudnnDropoutBackward(
            self.handle, self.descriptor, self.y_desc, dy, self.x_desc, self.dx, self.reserve, self.reserve_bytes
        )
        return self.dx


class Softmax(Layer):
    """Compute probabilities over the channels."""

    def __init__(self, handle: Any, x_dims: tuple[int, ...]) -> None:
        super().__init__(handle, x_dims, x_dims)

    def forward(self, x: Any, training: bool) -> Any:
        cudnn.cudnnSoftmaxForward(
            self.handle,
            cudnn.CUDNN_SOFTMAX_ACCURATE,
            cudnn.CUDNN_SOFTMAX_MODE_CHANNEL,
            1.0,
            self.x_desc,
            x,
            0.0,
            self.y_desc,
            self.y,
        )
        return self.y

    def backward(self, dy: Any) -> Any:
        cudnn.cudnnSoftmaxBackward(
            self.handle,
            cudnn.CUDNN_SOFTMAX_ACCURATE,
            cudnn.CUDNN_SOFTMAX_MODE_CHANNEL,
            1.0,
            self.y_desc,
            self.y,
            self.y_desc,
            dy,
            0.0,
            self.x_desc,
            self.dx,
        )
        return self.dx
