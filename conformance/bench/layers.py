"""Describes layers of networks as data, and makes the calls of cuDNN that a training step needs for each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from dualdnn.api.enumerations import (
    cudnnConvolutionBwdDataAlgo_t,
    cudnnConvolutionBwdFilterAlgo_t,
    cudnnConvolutionMode_t,
    cudnnReorderType_t,
)
from dualdnn.api.operations import ConvolutionForward, ConvolutionSpec, FilterSpec, Operation, TensorSpec
from dualdnn.api.operations.specs import FLOAT

from . import attention_rows, rnn_rows
from .convolution_rows import ANY_ALGORITHM, FORMATS, KINDS, data_gradient, filter_gradient
from .row import Row
from .rows import Dims, Make, activation, batch_backward, batch_training, dropout, lrn, pooling, softmax

# Volumes have no ALGO_1 for filter gradients in NCHW, nor for dilated data gradients (6.2.2, 5.2.8).
DATA_ALGO_0 = cudnnConvolutionBwdDataAlgo_t.CUDNN_CONVOLUTION_BWD_DATA_ALGO_0
FILTER_ALGO_3 = cudnnConvolutionBwdFilterAlgo_t.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3
CELLS = {"lstm": rnn_rows.LSTM, "gru": rnn_rows.GRU}
POOLINGS = {"max pooling": "MAX", "average pooling": "AVERAGE_COUNT_INCLUDE_PADDING"}
ACTIVATIONS = {"relu": "RELU", "sigmoid": "SIGMOID", "tanh": "TANH", "elu": "ELU"}


@dataclass(frozen=True)
class Layer:
    """Describes one layer of a network.

    kind: "convolution", "max pooling", "average pooling", "batch normalization", an activation, "softmax", "lrn",
    "dropout", "lstm", "gru" or "attention". x: dims of the input in the order N, C, spatial; a transposed convolution
    gives the dims of its output. w: dims of a convolution's filter. window, stride, padding, dilation: one entry per
    spatial dimension. sequence: a recurrent layer gives steps, batch, units, layers, directions; attention gives query
    and key steps, batch, heads, size of a head.
    """

    kind: str
    x: Dims = ()
    w: Dims = ()
    window: Dims = ()
    stride: Dims = ()
    padding: Dims = ()
    dilation: Dims = ()
    groups: int = 1
    sequence: Dims = ()

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Layer:
        """Read a layer from JSON, whose lists are dims."""
        facts: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in entry.items()}
        return cls(**facts)

    def entry(self) -> dict[str, Any]:
        """Return what ``of`` reads: the fields that differ from their defaults."""
        return {f.name: getattr(self, f.name) for f in fields(self) if getattr(self, f.name) != f.default}

    def __str__(self) -> str:
        parts = [by_x(self.sequence or self.x)]
        if self.w:
            parts.append(f"{self.w[0]} of {by_x(self.w[2:])}")
        parts += [f"{name} {by_x(value)}" for name, value in self._varying() if value]
        return " ".join([*parts, *([f"groups {self.groups}"] if self.groups > 1 else [])])

    def _varying(self) -> Iterator[tuple[str, Dims]]:
        yield "window", self.window
        yield "stride", self.stride if any(size != 1 for size in self.stride) else ()
        yield "padding", self.padding if any(self.padding) else ()
        yield "dilation", self.dilation if any(size != 1 for size in self.dilation) else ()


def by_x(dims: Dims) -> str:
    return "x".join(map(str, dims))


def convolution(layer: Layer, kind: str, layout: str) -> ConvolutionForward:
    """Return the forward call of a convolution of this data and math type; the bench searches for its algorithm."""
    data_type, math_type = KINDS[kind]
    spec = ConvolutionSpec(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, layer.padding, layer.stride, layer.dilation,
        layer.groups, math_type, cudnnReorderType_t.CUDNN_DEFAULT_REORDER,
    )  # fmt: skip
    x = TensorSpec.packed(data_type, layer.x, FORMATS[layout])
    w = FilterSpec(data_type, FORMATS[layout], layer.w)
    y = TensorSpec.packed(data_type, spec.output_dims(x.dims, w.dims), FORMATS[layout])
    return ConvolutionForward(spec, ANY_ALGORITHM, 0, 1.0, 0.0, x, w, y)


def makers(layer: Layer) -> dict[str, Make]:
    """Return the makers of a memory-bound layer's calls by the name of the pass; empty for other kinds."""
    if layer.kind == "batch normalization":
        return {"training": batch_training, "backward": batch_backward}
    if layer.kind in POOLINGS:
        form = POOLINGS[layer.kind], layer.window, layer.stride, layer.padding
        return {"forward": pooling(*form, False), "backward": pooling(*form, True)}
    if layer.kind in ACTIVATIONS:
        mode = ACTIVATIONS[layer.kind]
        return {"forward": activation(mode, False), "backward": activation(mode, True)}
    two = {
        "softmax": lambda backward: softmax("CHANNEL", backward),
        "lrn": lambda backward: lrn(5, backward),
        "dropout": dropout,
    }.get(layer.kind)
    return {"forward": two(False), "backward": two(True)} if two else {}


def calls(layer: Layer, kind: str, layout: str) -> Iterator[tuple[str, Operation]]:
    """Yield the calls of a training step by their family.

    kind: "half", "bfloat16", "TF32" or "float". layout: "NCHW" or "NHWC"; recurrent layers and attention ignore it.
    """
    data_type = KINDS[kind][0]
    if layer.kind == "convolution":
        plain = convolution(layer, kind, layout)
        yield "convolution", plain
        volume, dilated = len(layer.x) == 5, max(layer.dilation) > 1
        data, filter_ = data_gradient(plain), filter_gradient(plain)
        yield "data gradient", replace(data, algo=DATA_ALGO_0) if volume and dilated else data
        yield "filter gradient", replace(filter_, algo=FILTER_ALGO_3) if volume and layout == "NCHW" else filter_
    elif layer.kind in CELLS:
        steps, batch, units, layers, directions = layer.sequence
        spec = rnn_rows.network(CELLS[layer.kind], units, layers, directions, data_type)
        for name, operation in rnn_rows.passes(rnn_rows.forward(spec, steps, (steps,) * batch)):
            yield f"{layer.kind} {name}", operation
    elif layer.kind == "attention":
        queries, keys, batch, heads, size = layer.sequence
        attn = attention_rows.spec(data_type, heads, size, heads * size, (queries, keys), batch, heads > 1)
        training = attention_rows.forward(attn, (queries, keys), batch, False, True)
        yield "attention forward", training
        for name, operation in attention_rows.gradients(training):
            yield f"attention gradient of {name}", operation
    else:
        found = makers(layer)
        if not found:
            raise ValueError(f"there is no kind of layer {layer.kind!r}")
        for name, make in found.items():
            yield f"{layer.kind} {name}", make(data_type, layer.x, layout.lower())


def rows_of(layer: Layer, kind: str, layout: str) -> Iterator[Row]:
    """Yield the timed rows of a layer's calls; each row has a distinct name."""
    formed = "" if layer.sequence else f" {layout}"
    for family, operation in calls(layer, kind, layout):
        yield Row(f"{family} {layer} {kind}{formed}", family, operation)
