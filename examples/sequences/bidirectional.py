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

from layers import Array, Convolution, Parameters, Softmax
from learn import SEED, Network, Training, main
from recurrent import WAYS, Recurrent, Shape

ROWS, COLUMNS, CLASSES = 8, 8, 10
CELLS, LAYERS = 32, 2
EPOCHS = 12


def shape(batch: int) -> Shape:
    """A batch of images as sequences of rows, one sequence behind the other: an image is one as it lies in memory."""
    return Shape(ROWS, batch, COLUMNS, CELLS, LAYERS, cudnn.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED)


class Reader(Network):
    """The LSTM, the classifier of its outputs at all rows, and softmax, for batches of one size."""

    def __init__(
        self, handle: Any, parameters: Parameters, batch: int, dropped: float, states: Array | None = None
    ) -> None:
        self.handle, self.batch = handle, batch
        rows, outputs = (batch, 1, ROWS, COLUMNS), (batch, 1, ROWS, WAYS * CELLS)
        recurrent = Recurrent(handle, shape(batch), rows, outputs, parameters, dropped, SEED, states)
        outputs = (batch, ROWS * WAYS * CELLS, 1, 1)  # of all rows, as channels: the convolution is a matrix product
        classifier = Convolution(handle, outputs, parameters, "classifier", padding=0)
        self.layers = [recurrent, classifier, Softmax(handle, classifier.y_dims)]
        self.dropout = recurrent if dropped else None  # who has states to keep
        self.classes = CLASSES


def first_values(seed: int = SEED) -> dict[str, Array]:
    """Uniform random weights as wide as is usual for an LSTM of so many cells; a classifier that says nothing yet."""
    values = {
        Recurrent.NAME: shape(1).first_weights(np.random.RandomState(seed)),
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
    main(kinds={"bidirectional": Run}, epochs=EPOCHS)
