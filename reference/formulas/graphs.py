"""Evaluate operation graphs from an element of an output back to the inputs (chapter 9, 9.2.10 to 9.2.14).

docs/errata.md, D212 decides what padding does beside infinite values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnConvolutionMode_t, cudnnNanPropagation_t
from dualdnn.api.enumerations import cudnnPointwiseMode_t as Mode
from dualdnn.api.operations import Operation, OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    ConvolutionNode,
    GenStatsNode,
    GraphTensor,
    PointwiseNode,
)
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES

from .chain_rule import limit
from .elements import Elements, Found, Index, Untold, exponential, total

PROPAGATE = cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN


class Graph:
    """Evaluate tensors of a graph, each element once."""

    def __init__(self, o: OperationGraph, read: Elements) -> None:
        self.o, self.read = o, read
        self.known: dict[tuple[str, Index], float] = {}
        self.products = 0

    def result(self, tensor: GraphTensor, index: Index) -> float:
        """Return an element of a tensor that a node writes."""
        key = tensor.operand, index
        if key not in self.known:
            node = self.o.written[tensor.operand]
            self.known[key] = NODES[type(node)](self, node, tensor, index)
        return self.known[key]

    def value(self, tensor: GraphTensor, index: Index) -> float:
        """Return an element as a node reads it. Results in integers are rounded and limited."""
        if tensor.vector_count > 1:
            raise Untold("its elements are vectors")
        if tensor.operand not in self.o.written:
            return self.read(tensor.operand, index)
        found, dtype = self.result(tensor, index), NUMPY_TYPES[tensor.data_type]
        if dtype.kind not in "iu":
            return found
        limits = np.iinfo(dtype)
        return float(min(max(round(found), int(limits.min)), int(limits.max)))

    def sum(self, terms: list[tuple[float, float]]) -> float:
        """Return the sum of products."""
        self.products += len(terms)
        limit(self.products)
        return total(a * b for a, b in terms)


def _pointwise(graph: Graph, node: PointwiseNode, _tensor: GraphTensor, index: Index) -> float:
    """Return op(alpha1 x), or op(alpha1 x, alpha2 b) with b broadcast (9.2.14)."""
    given = zip(node.inputs, (node.alpha1, node.alpha2), strict=False)
    arguments = [graph.read.parameter(factor) * graph.value(t, _broadcast(index, t.dims)) for t, factor in given]
    return POINTWISE[node.pointwise.mode](node.pointwise, *arguments)


def _broadcast(index: Index, dims: Index) -> Index:
    return tuple(0 if extent == 1 else i for i, extent in zip(index, dims, strict=True))


def _extremum(choose: Callable[..., float]) -> Callable[..., float]:
    def found(settings: Any, *arguments: float) -> float:
        numbers = [x for x in arguments if not math.isnan(x)]
        if len(numbers) < 2 and (settings.nan == PROPAGATE or not numbers):
            return math.nan
        return choose(numbers)

    return found


def _relu(settings: Any, x: float) -> float:
    """Return x between the clips; NaN gives the lower one unless it is propagated."""
    if math.isnan(x):
        return x if settings.nan == PROPAGATE else float(settings.lower_clip)
    return float(min(max(x, settings.lower_clip), settings.upper_clip))


POINTWISE: dict[Mode, Callable[..., float]] = {
    Mode.CUDNN_POINTWISE_ADD: lambda _, x, b: x + b,
    Mode.CUDNN_POINTWISE_MUL: lambda _, x, b: x * b,
    Mode.CUDNN_POINTWISE_MIN: _extremum(min),
    Mode.CUDNN_POINTWISE_MAX: _extremum(max),
    Mode.CUDNN_POINTWISE_SQRT: lambda _, x: math.sqrt(x) if x >= 0 else math.nan,
    Mode.CUDNN_POINTWISE_IDENTITY_FWD: lambda _, x: x,
    Mode.CUDNN_POINTWISE_RELU_FWD: _relu,
    Mode.CUDNN_POINTWISE_TANH_FWD: lambda _, x: math.tanh(x),
    Mode.CUDNN_POINTWISE_SIGMOID_FWD: lambda _, x: 1 / (1 + exponential(-x)),
    Mode.CUDNN_POINTWISE_ELU_FWD: lambda _, x: x if x >= 0 else math.expm1(x),
}


def _statistics(graph: Graph, node: GenStatsNode, tensor: GraphTensor, index: Index) -> float:
    """Return the sum of a channel, or of its squares (9.2.13)."""
    images, _, *extents = node.x.dims
    row = [graph.value(node.x, (n, index[1], *at)) for n in range(images) for at in product(*map(range, extents))]
    return graph.sum([(x, x if tensor.operand == node.sqsum.operand else 1.0) for x in row])


class Geometry:
    """Map groups, channels and positions of a convolution to elements of its tensors."""

    def __init__(self, node: ConvolutionNode) -> None:
        self.image, self.window, self.response = node.bound
        self.spatial, self.settings = node.convolution.rank, node.convolution
        self.has_groups = self.image.rank > self.spatial + 2
        self.groups = node.groups
        depth = self.window.rank - self.spatial - 1  # The last dimension before the taps counts channels of a group.
        self.depth = self.window.dims[depth]
        self.filters = self.window.dims[depth - 1] if self.has_groups else self.window.dims[0] // self.groups
        self.flips = node.convolution.mode == cudnnConvolutionMode_t.CUDNN_CONVOLUTION

    def split(self, index: Index, each: int) -> tuple[int, int, int, Index]:
        """Return (image, group, channel of the group, position) of an element of an image or a response."""
        if self.has_groups:
            return index[0], index[1], index[2], index[3:]
        return index[0], index[1] // each, index[1] % each, index[2:]

    def joined(self, n: int, group: int, channel: int, each: int, at: Index) -> Index:
        return (n, group, channel, *at) if self.has_groups else (n, group * each + channel, *at)

    def of_filter(self, group: int, k: int, c: int, tap: Index) -> Index:
        """Return the element of a filter that meets the image at this tap."""
        sizes = self.window.dims[-self.spatial :]
        tap = tuple(size - 1 - i if self.flips else i for i, size in zip(tap, sizes, strict=True))
        return (group, k, c, *tap) if self.has_groups else (group * self.filters + k, c, *tap)

    def pixel(self, position: Index, tap: Index) -> Index:
        """Return the pixel that a position of the response meets at a tap; it may be in the padding."""
        s = self.settings
        every = zip(position, tap, s.stride, s.dilation, s.pre_padding, strict=True)
        return tuple(p * stride + t * dilation - before for p, t, stride, dilation, before in every)

    def position(self, pixel: Index, tap: Index) -> Index | None:
        """Return the position of the response that meets a pixel at a tap, if there is one; it may be outside."""
        s, found = self.settings, []
        for i, t, stride, dilation, before in zip(pixel, tap, s.stride, s.dilation, s.pre_padding, strict=True):
            at, rest = divmod(i + before - t * dilation, stride)
            if rest:
                return None
            found.append(at)
        return tuple(found)

    def taps(self) -> list[Index]:
        return list(product(*map(range, self.window.dims[-self.spatial :])))


def _at(graph: Graph, tensor: GraphTensor, index: Index) -> float:
    """Return an element, or the zero of the padding."""
    inside = all(0 <= i < extent for i, extent in zip(index, tensor.dims, strict=True))
    return graph.value(tensor, index) if inside else 0.0


def _forward(graph: Graph, g: Geometry, index: Index) -> float:
    n, group, k, position = g.split(index, g.filters)
    return graph.sum(
        [
            (
                _at(graph, g.image, g.joined(n, group, c, g.depth, g.pixel(position, tap))),
                graph.value(g.window, g.of_filter(group, k, c, tap)),
            )
            for c in range(g.depth)
            for tap in g.taps()
        ]
    )


def _backward_data(graph: Graph, g: Geometry, index: Index) -> float:
    n, group, c, pixel = g.split(index, g.depth)
    met = [(tap, at) for tap in g.taps() if (at := g.position(pixel, tap)) is not None]
    return graph.sum(
        [
            (
                _at(graph, g.response, g.joined(n, group, k, g.filters, at)),
                graph.value(g.window, g.of_filter(group, k, c, tap)),
            )
            for k in range(g.filters)
            for tap, at in met
        ]
    )


def _backward_filter(graph: Graph, g: Geometry, index: Index) -> float:
    if g.has_groups:
        group, k, c, *stored = index
    else:
        (group, k), c, stored = divmod(index[0], g.filters), index[1], list(index[2:])
    sizes = g.window.dims[-g.spatial :]
    tap = tuple(size - 1 - i if g.flips else i for i, size in zip(stored, sizes, strict=True))
    return graph.sum(
        [
            (
                _at(graph, g.image, g.joined(n, group, c, g.depth, g.pixel(position, tap))),
                graph.value(g.response, g.joined(n, group, k, g.filters, position)),
            )
            for n in range(g.image.dims[0])
            for position in product(*map(range, g.response.dims[-g.spatial :]))
        ]
    )


def _convolution(sums: Callable[..., float]) -> Callable[..., float]:
    """Return the evaluation of alpha * sum + beta * the prior element (9.2.10 to 9.2.12)."""

    def found(graph: Graph, node: ConvolutionNode, tensor: GraphTensor, index: Index) -> float:
        alpha, beta = graph.read.parameter(node.alpha), graph.read.parameter(node.beta)
        value = alpha * sums(graph, Geometry(node), index)
        return value + beta * graph.read(tensor.operand, index) if beta else value

    return found


NODES: dict[type, Callable[..., float]] = {
    PointwiseNode: _pointwise,
    GenStatsNode: _statistics,
    ConvolutionForwardNode: _convolution(_forward),
    ConvolutionBackwardDataNode: _convolution(_backward_data),
    ConvolutionBackwardFilterNode: _convolution(_backward_filter),
}


def graph(o: OperationGraph, output: str, index: Index, read: Elements) -> Found:
    """Return an element of an output that the engine computes node by node."""
    known: Graph = read.once("graph", lambda: Graph(o, read))
    known.products = 0
    return Found(known.result(o.tensors[output], index))


def single(o: OperationGraph, output: str, read: Elements) -> tuple[Operation, str, Elements]:
    """Return the documented operation that the engine runs for a graph, its output, and its operands."""
    assert o.single is not None
    operation, names = o.single.operation, o.single.names
    memory = {inner: read.memory[outer] for inner, outer in names.items() if outer in read.memory}
    found: Elements = read.once("single", lambda: Elements(operation, memory, read.most))
    return operation, o.inner(output), found


FORMULAS: dict[type, Any] = {OperationGraph: graph}
