"""Trains a bidirectional LSTM on handwritten digits, each image a sequence of 8 rows, through the documented calls of version 8.

Two layers of 32 cells in each direction, dropout between them; a classifier of all their outputs; softmax. What a run is (order of the
images, cross-entropy, descent, checkpoints, plot, agreement of the backends) it has in common with examples/digits/learn.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api import cudnn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "digits"))

from layers import Array, Convolution, Layer, Parameters, Softmax
from learn import SEED, Network, Training, main
from network import FLOAT

ROWS, COLUMNS, CLASSES = 8, 8, 10
CELLS, LAYERS, WAYS = 32, 2, 2
EPOCHS = 12


def described(dropout: Any) -> Any:
    """The descriptor of the network; ``dropout`` None is none."""
    descriptor = cudnn.cudnnCreateRNNDescriptor()
    cudnn.cudnnSetRNNDescriptor_v8(
        descriptor, cudnn.CUDNN_RNN_ALGO_STANDARD, cudnn.CUDNN_LSTM, cudnn.CUDNN_RNN_DOUBLE_BIAS,
        cudnn.CUDNN_BIDIRECTIONAL, cudnn.CUDNN_LINEAR_INPUT, FLOAT, FLOAT, cudnn.CUDNN_FMA_MATH, COLUMNS, CELLS, CELLS,
        LAYERS, dropout, cudnn.CUDNN_RNN_PADDED_IO_DISABLED,
    )  # fmt: skip
    return descriptor


def sequences(batch: int, vector: int) -> Any:
    """The descriptor of a batch of sequences of ROWS vectors, one sequence behind the other: an image is one as it lies in memory."""
    descriptor = cudnn.cudnnCreateRNNDataDescriptor()
    layout = cudnn.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED
    cudnn.cudnnSetRNNDataDescriptor(descriptor, FLOAT, layout, ROWS, batch, vector, [ROWS] * batch, None)
    return descriptor


def states_of(batch: int) -> Any:
    """The descriptor of the states of all layers and directions."""
    descriptor, dims = cudnn.cudnnCreateTensorDescriptor(), (LAYERS * WAYS, batch, CELLS)
    cudnn.cudnnSetTensorNdDescriptor(descriptor, FLOAT, 3, dims, (batch * CELLS, CELLS, 1))
    return descriptor


class Recurrent(Layer):
    """The LSTM: rows (batch, 1, 8, 8) to outputs (batch, 1, 8, 64), the states before the first row zeros.

    states: of dropout, where it goes on; it is off where the probability is 0.
    """

    NAME = "recurrent_weights"

    def __init__(
        self, handle: Any, batch: int, parameters: Parameters, probability: float, states: Array | None = None
    ) -> None:
        super().__init__(handle, (batch, 1, ROWS, COLUMNS), (batch, 1, ROWS, WAYS * CELLS))
        self.parameters, dropout = parameters, None
        if probability:
            dropout, size = cudnn.cudnnCreateDropoutDescriptor(), cudnn.cudnnDropoutGetStatesSize(handle)
            self.states = handle.allocate(size) if states is None else handle.to_device(states)
            take = cudnn.cudnnSetDropoutDescriptor if states is None else cudnn.cudnnRestoreDropoutDescriptor
            take(dropout, handle, probability, self.states, size, SEED)
        self.rnn, self.state = described(dropout), states_of(batch)
        self.x_data, self.y_data = sequences(batch, COLUMNS), sequences(batch, WAYS * CELLS)
        self.lengths = handle.to_device(np.full(batch, ROWS, np.int32))
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
            self.handle, self.rnn, mode, self.lengths, self.x_data, x, self.y_data, self.y, self.state, None, None,
            self.state, None, None, self.weight_bytes, self.parameters[self.NAME], sizes.workSpaceSize, self.work,
            sizes.reserveSpaceSize, self.reserve,
        )  # fmt: skip
        return self.y

    def backward(self, dy: Any) -> Any:
        work, reserve = self.training
        cudnn.cudnnRNNBackwardData_v8(
            self.handle, self.rnn, self.lengths, self.y_data, self.y, dy, self.x_data, self.dx, self.state, None, None,
            None, self.state, None, None, None, self.weight_bytes, self.parameters[self.NAME], work, self.work, reserve,
            self.reserve,
        )  # fmt: skip
        cudnn.cudnnSetTensor(self.handle, self.gradient_desc, self.gradient, 0.0)  # the next call adds to it
        cudnn.cudnnRNNBackwardWeights_v8(
            self.handle, self.rnn, cudnn.CUDNN_WGRAD_MODE_ADD, self.lengths, self.x_data, self.x, self.state, None,
            self.y_data, self.y, self.weight_bytes, self.gradient, work, self.work, reserve, self.reserve,
        )  # fmt: skip
        return self.dx


class Reader(Network):
    """The LSTM, the classifier of its outputs at all rows, and softmax, for batches of one size."""

    def __init__(
        self, handle: Any, parameters: Parameters, batch: int, dropped: float, states: Array | None = None
    ) -> None:
        self.handle, self.batch = handle, batch
        recurrent = Recurrent(handle, batch, parameters, dropped, states)
        outputs = (batch, ROWS * WAYS * CELLS, 1, 1)  # of all rows, as channels: the convolution is a matrix product
        classifier = Convolution(handle, outputs, parameters, "classifier", padding=0)
        self.layers = [recurrent, classifier, Softmax(handle, classifier.y_dims)]
        self.dropout = recurrent if dropped else None  # who has states to keep
        self.classes = CLASSES


def first_values(seed: int = SEED) -> dict[str, Array]:
    """Uniform random weights as wide as is usual for an LSTM of so many cells; a classifier that says nothing yet."""
    random, handle = np.random.RandomState(seed), cudnn.cudnnCreate(backend="reference")
    count = cudnn.cudnnGetRNNWeightSpaceSize(handle, described(None)) // 4
    cudnn.cudnnDestroy(handle)
    values = {
        Recurrent.NAME: random.uniform(-1, 1, (1, 1, 1, count)) / np.sqrt(CELLS),
        "classifier_filter": np.zeros((CLASSES, ROWS * WAYS * CELLS, 1, 1)),
        "classifier_bias": np.zeros((1, CLASSES, 1, 1)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


class Run(Training):
    """A run of this network."""

    network_of = Reader
    first_values = staticmethod(first_values)
    rate = 0.4


if __name__ == "__main__":
    main(kind=Run, epochs=EPOCHS)
