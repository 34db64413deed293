"""Train a bidirectional LSTM on handwritten digits, each a sequence of 8 rows, through the documented calls of version 8.

The network has two layers of 32 cells in each direction with dropout between them, a classifier of all outputs, and a softmax. The run
itself (order of the images, cross-entropy, descent, checkpoints, plot, agreement) is that of examples/digits/learn.py.
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

ROWS = 8
COLUMNS = 8
CLASSES = 10
CELLS = 32
LAYERS = 2
EPOCHS = 12


def shape(batch: int) -> Shape:
    """Return the shape of a batch of images as sequences of rows; in memory an image is one sequence."""
    return Shape(ROWS, batch, COLUMNS, CELLS, LAYERS, cudnn.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED)


class Reader(Network):
    """Hold the LSTM, the classifier of its outputs at all rows, and the softmax, for batches of one size."""

    def __init__(
        self, handle: Any, parameters: Parameters, batch: int, dropped: float, states: Array | None = None
    ) -> None:
        self.handle, self.batch = handle, batch
        rows, outputs = (batch, 1, ROWS, COLUMNS), (batch, 1, ROWS, WAYS * CELLS)
        recurrent = Recurrent(handle, shape(batch), rows, outputs, parameters, dropped, SEED, states)
        outputs = (
            batch,
            ROWS * WAYS * CELLS,
            1,
            1,
        )  # The outputs of all rows are channels, so the convolution is a matrix product.
        classifier = Convolution(handle, outputs, parameters, "classifier", padding=0)
        self.layers = [recurrent, classifier, Softmax(handle, classifier.y_dims)]
        self.dropout = recurrent if dropped else None  # This layer has states for the checkpoint.
        self.classes = CLASSES


def first_values(seed: int = SEED) -> dict[str, Array]:
    """Return uniform random weights of the usual width for an LSTM, and a classifier with equal scores."""
    values = {
        Recurrent.NAME: shape(1).first_weights(np.random.RandomState(seed)),
        "classifier_filter": np.zeros((CLASSES, ROWS * WAYS * CELLS, 1, 1)),
        "classifier_bias": np.zeros((1, CLASSES, 1, 1)),
    }
    return {name: value.astype(np.float32) for name, value in values.items()}


class Run(Training):
    """Train this network."""

    network_of = Reader
    first_values = staticmethod(first_values)
    rate = 0.4


if __name__ == "__main__":
    main(kinds={"bidirectional": Run}, epochs=EPOCHS)
