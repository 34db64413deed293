"""Implement a bidirectional LSTM as a layer of the training network, by the calls of version 8."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api import cudnn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "digits"))

from layers import Array, Layer, Parameters
from network import FLOAT

WAYS = 2  # directions


class Shape:
    """Describe batches of sequences of equal length: steps, sequences, elements of a vector, cells of each direction, layers, and
    the layout in memory."""

    def __init__(self, steps: int, batch: int, vector: int, cells: int, layers: int, layout: Any) -> None:
        self.steps, self.batch, self.vector, self.cells, self.layers, self.layout = (
            steps, batch, vector, cells, layers, layout,
        )  # fmt: skip

    def network(self, dropout: Any = None) -> Any:
        """Return the descriptor of the network. dropout: may be None."""
        descriptor = cudnn.cudnnCreateRNNDescriptor()
        cudnn.cudnnSetRNNDescriptor_v8(
            descriptor, cudnn.CUDNN_RNN_ALGO_STANDARD, cudnn.CUDNN_LSTM, cudnn.CUDNN_RNN_DOUBLE_BIAS, cudnn.CUDNN_BIDIRECTIONAL,
            cudnn.CUDNN_LINEAR_INPUT, FLOAT, FLOAT, cudnn.CUDNN_FMA_MATH, self.vector, self.cells, self.cells, self.layers, dropout,
            cudnn.CUDNN_RNN_PADDED_IO_DISABLED,
        )  # fmt: skip
        return descriptor

    def sequences(self, vector: int) -> Any:
        """Return the descriptor of a batch of sequences of vectors."""
        descriptor = cudnn.cudnnCreateRNNDataDescriptor()
        lengths = [self.steps] * self.batch
        cudnn.cudnnSetRNNDataDescriptor(descriptor, FLOAT, self.layout, self.steps, self.batch, vector, lengths, None)
        return descriptor

    def states(self) -> Any:
        """Return the descriptor of the states of all layers and directions."""
        descriptor, dims = cudnn.cudnnCreateTensorDescriptor(), (self.layers * WAYS, self.batch, self.cells)
        cudnn.cudnnSetTensorNdDescriptor(descriptor, FLOAT, 3, dims, (self.batch * self.cells, self.cells, 1))
        return descriptor

    def first_weights(self, random: np.random.RandomState) -> Array:
        """Return uniform random weights whose range suits the number of cells of the LSTM."""
        handle = cudnn.cudnnCreate(backend="reference")
        count = cudnn.cudnnGetRNNWeightSpaceSize(handle, self.network()) // 4
        cudnn.cudnnDestroy(handle)
        return random.uniform(-1, 1, (1, 1, 1, count)) / np.sqrt(self.cells)


class Recurrent(Layer):
    """Run the LSTM with zeros as initial states.

    x_dims, y_dims: the dimensions of inputs and outputs for the layers around it. states: continue the dropout between
    layers from a checkpoint; a probability of 0 turns dropout off.
    """

    NAME = "recurrent_weights"

    def __init__(
        self, handle: Any, shape: Shape, x_dims: tuple[int, ...], y_dims: tuple[int, ...], parameters: Parameters,
        probability: float = 0.0, seed: int = 0, states: Array | None = None,
    ) -> None:  # fmt: skip
        super().__init__(handle, x_dims, y_dims)
        self.parameters, dropout = parameters, None
        if probability:
            dropout, size = cudnn.cudnnCreateDropoutDescriptor(), cudnn.cudnnDropoutGetStatesSize(handle)
            self.states = handle.allocate(size) if states is None else handle.to_device(states)
            take = cudnn.cudnnSetDropoutDescriptor if states is None else cudnn.cudnnRestoreDropoutDescriptor
            take(dropout, handle, probability, self.states, size, seed)
        self.rnn, self.state = shape.network(dropout), shape.states()
        self.x_data, self.y_data = shape.sequences(shape.vector), shape.sequences(WAYS * shape.cells)
        self.lengths = handle.to_device(np.full(shape.batch, shape.steps, np.int32))
        self.weight_bytes = cudnn.cudnnGetRNNWeightSpaceSize(handle, self.rnn)
        self.training, self.inference = (
            cudnn.cudnnGetRNNTempSpaceSizes(handle, self.rnn, mode, self.x_data)
            for mode in (cudnn.CUDNN_FWD_MODE_TRAINING, cudnn.CUDNN_FWD_MODE_INFERENCE)
        )
        self.work = handle.allocate(max(self.training.workSpaceSize, self.inference.workSpaceSize))
        self.reserve = handle.allocate(self.training.reserveSpaceSize)
        self.gradient = handle.allocate(self.weight_bytes)
        self.gradients = {self.NAME: (self.gradient, parameters.dims[self.NAME])}
        self.gradient_desc = cudnn.cudnnCreateTensorDescriptor()
        count = self.weight_bytes // 4
        cudnn.cudnnSetTensor4dDescriptor(self.gradient_desc, cudnn.CUDNN_TENSOR_NCHW, FLOAT, 1, 1, 1, count)

    def forward(self, x: Any, training: bool) -> Any:
        self.x = x
        mode = cudnn.CUDNN_FWD_MODE_TRAINING if training else cudnn.CUDNN_FWD_MODE_INFERENCE
        sizes = self.training if training else self.inference
        cudnn.cudnnRNNForward(
            self.handle, self.rnn, mode, self.lengths, self.x_data, x, self.y_data, self.y, self.state, None, None, self.state, None,
            None, self.weight_bytes, self.parameters[self.NAME], sizes.workSpaceSize, self.work, sizes.reserveSpaceSize, self.reserve,
        )  # fmt: skip
        return self.y

    def backward(self, dy: Any) -> Any:
        work, reserve = self.training
        cudnn.cudnnRNNBackwardData_v8(
            self.handle, self.rnn, self.lengths, self.y_data, self.y, dy, self.x_data, self.dx, self.state, None, None, None,
            self.state, None, None, None, self.weight_bytes, self.parameters[self.NAME], work, self.work, reserve, self.reserve,
        )  # fmt: skip
        cudnn.cudnnSetTensor(self.handle, self.gradient_desc, self.gradient, 0.0)  # The next call adds to it.
        cudnn.cudnnRNNBackwardWeights_v8(
            self.handle, self.rnn, cudnn.CUDNN_WGRAD_MODE_ADD, self.lengths, self.x_data, self.x, self.state, None, self.y_data,
            self.y, self.weight_bytes, self.gradient, work, self.work, reserve, self.reserve,
        )  # fmt: skip
        return self.dx
