"""Train a network that reads strings of digits, through the documented calls, from random weights.

The network has two blocks of a 3 x 3 convolution, batch normalisation and ReLU, with 2 x 2 maxima between them. A bidirectional LSTM
reads the columns, or a self-attention layer with --variant attention. A classifier of each column and the CTC loss follow; the loss
needs no marks between digits. The run itself (order, descent, checkpoints, plot, agreement) is that of examples/digits/learn.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from dualdnn.api import cudnn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "sequences"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "digits"))

from layers import Array, BatchNorm, Convolution, MaxPooling, Parameters, Relu
from layers_of_sequences import Attention, Columns, Positions, Reading, described, read
from learn import SEED, Network, Training, main
from recurrent import WAYS, Recurrent, Shape
from strings import LENGTH, Strings, split_strings

FILTERS = {"first": (16, 1, 3, 3), "second": (32, 16, 3, 3)}
COLUMN = (32, 4)  # channels and rows of a column after the last block
STEPS = 4 * LENGTH  # columns of a string
VECTOR = COLUMN[0] * COLUMN[1]  # elements of a column
CELLS = 48
CLASSES = 11
EPOCHS = 4


def recurrence(batch: int) -> Shape:
    """Return the LSTM over the columns of a batch."""
    return Shape(STEPS, batch, VECTOR, CELLS, 1, cudnn.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED)


class Reader(Network):
    """Hold the layers for batches of one size."""

    def __init__(
        self, handle: Any, parameters: Parameters, batch: int, dropped: float, states: Array | None = None
    ) -> None:
        self.handle, self.batch, self.dropout, self.layers = handle, batch, None, []
        dims: tuple[int, ...] = (batch, 1, 8, 8 * LENGTH)
        for name in FILTERS:
            for make in (Convolution, BatchNorm):
                padding = {"padding": 1} if make is Convolution else {}
                dims = self._add(make(handle, dims, parameters, name, **padding))
            dims = self._add(Relu(handle, dims))
            dims = self._add(MaxPooling(handle, dims)) if name == "first" else dims
        dims = self._add(Columns(handle, dims))
        dims = self._add(self._sequence(handle, dims, parameters))
        dims = self._add(Convolution(handle, dims, parameters, "classifier", padding=0))
        self.loss = Reading(handle, STEPS, batch, CLASSES)

    def _add(self, layer: Any) -> tuple[int, ...]:
        self.layers.append(layer)
        return layer.y_dims

    def _sequence(self, handle: Any, dims: tuple[int, ...], parameters: Parameters) -> Any:
        vectors = (STEPS * self.batch, WAYS * CELLS, 1, 1)
        return Recurrent(handle, recurrence(self.batch), dims, vectors, parameters)

    def activations(self, images: Array, training: bool) -> Any:
        """Return the scores of every column, in device memory: (steps, batch, classes)."""
        y = self.handle.to_device(images)
        for layer in self.layers:
            y = layer.forward(y, training)
        return y

    def read(self, images: Array) -> list[str]:
        """Return the text of each of ``batch`` images."""
        return read(self.activations(images, False).to_host(np.float32, (STEPS, self.batch, CLASSES)))

    def step(self, images: Array, labels: Array) -> tuple[float, dict[str, Array]]:
        """Return (mean CTC loss, its gradient by parameter) of a batch."""
        loss, dy = self.loss(self.activations(images, True), labels)
        return loss, self.backward(dy)


class AttentiveReader(Reader):
    """Use positions and self-attention in place of the LSTM."""

    def _sequence(self, handle: Any, dims: tuple[int, ...], parameters: Parameters) -> Any:
        self._add(Positions(handle, dims, parameters))
        return Attention(handle, (STEPS, self.batch, VECTOR), (STEPS * self.batch, VECTOR, 1, 1), parameters)


def first_values(seed: int = SEED, attentive: bool = False) -> dict[str, Array]:
    """Return random filters and weights, and neutral values for all other parameters."""
    random, values = np.random.RandomState(seed), {}
    features = VECTOR if attentive else WAYS * CELLS
    for layer, dims in {**FILTERS, "classifier": (CLASSES, features, 1, 1)}.items():
        width = np.sqrt(2 / np.prod(dims[1:])) if layer in FILTERS else 0  # The classifier starts with equal scores.
        values[f"{layer}_filter"] = random.standard_normal(dims) * width
        values[f"{layer}_bias"] = np.zeros((1, dims[0], 1, 1))
    for layer, dims in FILTERS.items():
        values |= {f"{layer}_{name}": np.full((1, dims[0], 1, 1), value) for name, value in
                   (("scale", 1.0), ("shift", 0.0), ("mean", 0.0), ("variance", 1.0))}  # fmt: skip
    if attentive:
        handle = cudnn.cudnnCreate(backend="reference")
        count = cudnn.cudnnGetMultiHeadAttnBuffers(handle, described(STEPS, 1, VECTOR)).weightSizeInBytes // 4
        cudnn.cudnnDestroy(handle)
        values[Positions.NAME] = 0.5 * random.standard_normal((STEPS, 1, *COLUMN))
        values[Attention.NAME] = random.standard_normal((1, 1, 1, count)) / (2 * np.sqrt(VECTOR))
    else:
        values[Recurrent.NAME] = recurrence(1).first_weights(random)
    return {name: value.astype(np.float32) for name, value in values.items()}


class Run(Training):
    """Train the network with the LSTM."""

    network_of = Reader
    first_values = staticmethod(first_values)
    data = staticmethod(split_strings)
    rate = 0.02

    def predictions(self, strings: Strings) -> Array:
        """Return the text that the network reads in each image."""
        batches = np.split(strings.images, range(self.evaluated.batch, len(strings.images), self.evaluated.batch))
        return np.array([text for images in batches for text in self.evaluated.read(images)])


class AttentiveRun(Run):
    """Train with attention at a smaller rate, because its residual sums exceed an LSTM's outputs."""

    rate = 0.008
    network_of = AttentiveReader
    first_values = staticmethod(lambda seed=SEED: first_values(seed, attentive=True))


VARIANTS = {"recurrent": Run, "attention": AttentiveRun}


def draw(path: Path, strings: Strings, texts: Array, count: int = 12) -> None:
    """Some strings and what was read in each, as PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    for axes, image, text, right in zip(
        figure.subplots(4, count // 4).flat, strings.images[:, 0], texts, strings.labels, strict=False
    ):
        axes.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[])
        axes.set_title(
            text if text == right else f"{text}, which is {right}",
            color="black" if text == right else "red",
            fontsize=10,
        )
    figure.savefig(path, dpi=110)


def finish(run: Any, strings: Strings, plotted: Path | None) -> None:
    """Draw some held-out strings beside the plot, misread ones first."""
    if plotted is None:
        return
    texts = run.predictions(strings)
    misread, right = (np.flatnonzero((texts == strings.labels) == same) for same in (False, True))
    order = np.concatenate([misread[:3], right])
    draw(
        plotted.with_name(f"{plotted.stem}_strings.png"),
        Strings(strings.images[order], strings.labels[order]),
        texts[order],
    )


if __name__ == "__main__":
    main(kinds=VARIANTS, epochs=EPOCHS, finish=finish)
