"""Draw operation graphs (chapter 9): one documented operation for an engine, or nodes that run one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

from dualdnn.api.enumerations import (
    cudnnConvolutionMode_t,
    cudnnGenStatsMode_t,
    cudnnNanPropagation_t,
    cudnnPointwiseMode_t,
)
from dualdnn.api.graph.engines import COMPUTED, ENGINES, FLOATING
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    GenStatsNode,
    GraphConvolution,
    GraphTensor,
    Node,
    PointwiseNode,
    PointwiseSettings,
)
from dualdnn.api.operations.graph_nodes import TWO_INPUTS
from dualdnn.api.operations.graph_patterns import ALGORITHMS, ON_CORES_ENGINE
from dualdnn.api.operations.specs import FLOAT, INT8, INT32, SCALAR_BYTES, UINT8, VECTORS, TensorSpec
from dualdnn.api.support import convolution as tables
from dualdnn.api.support import convolution_gradients as gradients
from dualdnn.api.support.convolution import POSITIONS

from .convolution import described, reaching
from .pieces import ALPHAS, SPECIAL, Dims, Drawn, Source, fitted, need

OPERATIONS = (OperationGraph,)
ROWS: dict[type[Node], Any] = {
    ConvolutionForwardNode: tables.ROWS,
    ConvolutionBackwardDataNode: gradients.DATA_ROWS,
    ConvolutionBackwardFilterNode: gradients.FILTER_ROWS,
}
# Each entry is an engine of a documented algorithm: (global index, algorithm, rows of its tables).
BY_TABLES = [
    (index, known, rows)
    for index, known in enumerate(ALGORITHMS)
    if known is not None and (rows := [row for row in ROWS[known.node] if known.algo in row.algorithms])
]
Mode = cudnnPointwiseMode_t
NO_NAN, _ = cudnnNanPropagation_t
STORED = (*FLOATING, *FLOATING, INT8, UINT8, INT32)  # types of tensors in memory
CLIPS = ((0.0, inf), (0.0, 6.0), (-0.5, 1.5))
FACTORS = (1.0, 1.0, 1.0, -1.75, 0.5, 0.0)
KINDS = ("normal", "positive", "ties")
MAX_OF_SMALL = 100  # longest extent of profiles without large chains
LARGE_CHAIN = 1 << 16  # elements of a result from which a chain has its own kernel
MAX_PRODUCTS = 400_000  # products of a convolution that is computed node by node


class Tensors:
    """Make the tensors of one graph."""

    def __init__(self, source: Source) -> None:
        self.source, self.count = source, 0

    def like(self, spec: TensorSpec, virtual: bool = False) -> GraphTensor:
        """Return a tensor in the form of a graph, whose elements may be vectors of channels."""
        scalar, vector = VECTORS.get(spec.data_type, (spec.data_type, 1))
        dims = tuple(extent // vector if d == 1 else extent for d, extent in enumerate(spec.dims))
        self.count += 1
        unit = SCALAR_BYTES[scalar]
        alignment = unit if self.source.profile.offset else self.source.pick((unit, 16))
        along = -1 if vector == 1 else 1
        return GraphTensor(self.count, scalar, dims, spec.strides, alignment, vector, along, virtual)

    def beside(self, x: GraphTensor, data_type: Any, virtual: bool = False) -> GraphTensor:
        """Draw a tensor with the dimensions of ``x``, mostly in the same layout."""
        return self.like(self.source.like(TensorSpec(data_type, x.dims, x.strides), percent=70), virtual)

    def new(self, data_type: Any, dims: Dims, virtual: bool = False) -> GraphTensor:
        """Draw a tensor in some layout."""
        return self.like(self.source.tensor(data_type, dims), virtual)


def draw(source: Source) -> Drawn:
    """Draw a graph, and an engine that executes it."""
    if source.chance(40):
        engine, nodes = one_operation(source)
    else:
        nodes = one_by_one(source)
        on_cores = source.chance(40) and not ENGINES[ON_CORES_ENGINE].refuses(nodes)
        engine = ON_CORES_ENGINE if on_cores else 0
    need(not ENGINES[engine].refuses(nodes))
    operation = OperationGraph(nodes, engine, 0, 0)
    return Drawn((operation,), inputs(source, operation))


def inputs(source: Source, operation: OperationGraph) -> str | dict[str, str]:
    """Draw the kinds of the inputs. In the profile of special numbers one operand has them, or all have."""
    usual = source.pick(KINDS)
    if not source.profile.special:
        return usual
    kind, one = source.pick(SPECIAL), source.pick((*operation.inputs, ""))
    return dict.fromkeys(operation.operands, usual) | {one: kind} if one else kind


def one_operation(source: Source) -> tuple[int, tuple[Node, ...]]:
    """Draw a convolution or a gradient from a row of its tables, with the engine of one of the row's algorithms."""
    engine, algorithm, rows = source.pick(BY_TABLES)
    row = source.pick(rows)
    problem, new = described(source, row, source.pick(row.configurations)), Tensors(source)
    c = problem.convolution
    settings = GraphConvolution(c.mode, c.compute_type, c.padding, c.padding, c.stride, c.dilation)
    fused = algorithm.node is ConvolutionForwardNode and source.chance(40)
    x, w, y = new.like(problem.x), new.like(problem.w.tensor), new.like(problem.y, fused)
    if c.group_count > 1 and not fused and x.vector_count == 1 and source.chance(40):
        x, w, y = (in_groups(t, axis, c.group_count) for t, axis in ((x, 1), (w, 0), (y, 1)))
    if not fused:
        return engine, (convolution_node(algorithm.node, settings, *source.blend(), x, w, y),)
    nodes: list[Node] = [convolution_node(algorithm.node, settings, source.pick(ALPHAS), 0.0, x, w, y)]
    steps: list[tuple[Any, GraphTensor | None]] = [(Mode.CUDNN_POINTWISE_ADD, bias(new, source, row, y))]
    if source.chance(40):
        steps.insert(0, (Mode.CUDNN_POINTWISE_ADD, new.like(problem.y)))
    if source.chance(70):
        steps.append((source.pick((Mode.CUDNN_POINTWISE_RELU_FWD, Mode.CUDNN_POINTWISE_IDENTITY_FWD)), None))
    for number, (mode, other) in enumerate(steps):
        result = new.like(problem.y, number + 1 < len(steps))
        settled = PointwiseSettings(mode, c.compute_type, NO_NAN, 0.0, inf)
        factor = source.pick(ALPHAS) if other is not None and len(steps) - number > 2 else 1.0
        nodes.append(PointwiseNode(settled, 1.0, factor, y, other, result))
        y = result
    return engine, tuple(nodes)


def bias(new: Tensors, source: Source, row: Any, y: GraphTensor) -> GraphTensor:
    """Draw the bias of a convolution."""
    kinds = [c.bias for c in row.configurations if c.bias is not None] or [FLOAT]
    fitting = [kind for kind in kinds if kind == y.data_type] or kinds
    return new.new(source.pick(fitting), (1, y.dims[1], *(1,) * (y.rank - 2)))


def in_groups(tensor: GraphTensor, axis: int, groups: int) -> GraphTensor:
    """Return the same tensor with a separate dimension for the groups."""
    dims, strides = tensor.dims, tensor.strides
    each = dims[axis] // groups
    return replace(
        tensor,
        dims=(*dims[:axis], groups, each, *dims[axis + 1 :]),
        strides=(*strides[:axis], each * strides[axis], *strides[axis:]),
    )


def convolution_node(
    kind: Any, settings: GraphConvolution, alpha: float, beta: float, x: GraphTensor, w: GraphTensor, y: GraphTensor
) -> Node:
    """Return a convolution or a gradient of an image, a filter and a response."""
    named = dict(zip(kind.roles, (x, w, y), strict=True))
    node: Node = kind(settings, alpha, beta, **named)
    return node


def one_by_one(source: Source) -> tuple[Node, ...]:
    """Draw pointwise operations, perhaps after a convolution, and perhaps statistics of the last result."""
    new, precision = Tensors(source), source.pick((FLOAT, *COMPUTED))
    ends = source.chance(35)  # Statistics of the last result follow.
    steps = source.integer(0, 4)
    if source.chance(55):
        nodes = [direct(source, new, precision, bool(steps or ends))]
        current = nodes[0].outputs[0]
    else:
        dims = chain_dims(source)
        nodes, current, steps = [], new.new(source.pick(STORED), dims), max(steps, 1)
    for left in reversed(range(steps)):
        nodes.append(pointwise(source, new, precision, current, bool(left or ends)))
        current = nodes[-1].outputs[0]
    if ends:
        sums, squares = (new.new(source.pick((FLOAT, FLOAT, *FLOATING)), numbers_of(current)) for _ in range(2))
        nodes.append(GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, precision, current, sums, squares))
    return tuple(nodes)


def numbers_of(tensor: GraphTensor) -> Dims:
    """Return the dimensions of one number for each channel."""
    return tuple(extent if d == 1 else 1 for d, extent in enumerate(tensor.dims))


def chain_dims(source: Source) -> Dims:
    """Draw the dimensions of pointwise operations: any, or large enough that a kernel is compiled for them."""
    if source.profile.longest > MAX_OF_SMALL and source.chance(60):
        inner = source.pick((8, 16, 32)), source.pick((8, 24, 64)), source.pick((16, 32, 64))
        return (-(-LARGE_CHAIN // prod(inner)), *inner)
    return source.dims(source.pick((2, 3, 4, 4, 5, 8)))


def pointwise(source: Source, new: Tensors, precision: Any, x: GraphTensor, is_read: bool) -> PointwiseNode:
    """Draw a pointwise operation on a tensor, whose second operand is broadcast along some dimensions."""
    mode = source.pick(tuple(Mode))
    nan, clips = source.pick(tuple(cudnnNanPropagation_t)), source.pick(CLIPS)
    other = None
    if mode in TWO_INPUTS:
        other = second(source, new, x)
    virtual = is_read and source.chance(70)
    y = new.beside(x, source.pick(FLOATING if virtual else STORED), virtual)
    factors = source.pick(FACTORS), source.pick(FACTORS) if other is not None else 1.0
    return PointwiseNode(PointwiseSettings(mode, precision, nan, *clips), *factors, x, other, y)


def second(source: Source, new: Tensors, x: GraphTensor) -> GraphTensor:
    """Draw a second operand: of the same dimensions, broadcast, or the first one again."""
    kind, stored = source.pick(("same", "channels", "broadcast", "first")), source.pick(STORED)
    if kind == "first":
        return x
    if kind == "same":
        return new.beside(x, stored)
    broadcast = tuple(1 if source.chance(40) else extent for extent in x.dims)
    return new.new(stored, numbers_of(x) if kind == "channels" else broadcast)


def direct(source: Source, new: Tensors, precision: Any, is_read: bool) -> Node:
    """Draw a convolution or a gradient with any paddings, in 1 to 3 dimensions, with or without a groups dimension."""
    kinds: tuple[Any, ...] = (*ROWS,)
    kind, data_type = source.pick(kinds), source.pick(FLOATING)
    rank, groups = source.pick((2, 2, 1, 3)), source.pick((1, 1, 2, 3))
    images, each, filters = source.integer(1, 3), source.integer(1, 8), source.integer(1, 8)
    spatial = fitted(tuple(source.extent() for _ in range(rank)), source.profile.most // (images * groups * each))
    axes = [axis(source, extent) for extent in spatial]
    window, before, behind, stride, dilation = (tuple(part) for part in zip(*axes, strict=True))
    mode = source.pick(tuple(cudnnConvolutionMode_t))
    settings = GraphConvolution(mode, precision, before, behind, stride, dilation)
    response = settings.output_sizes(spatial, window)
    need(min(response) >= 1 and images * groups * filters * each * prod(response) * prod(window) <= MAX_PRODUCTS)
    if source.chance(30):
        shapes: Sequence[Dims] = (
            (images, groups, each, *spatial), (groups, filters, each, *window), (images, groups, filters, *response)
        )  # fmt: skip
    else:
        shapes = (images, groups * each, *spatial), (groups * filters, each, *window), (images, groups * filters, *response)  # fmt: skip
    virtual = is_read and source.chance(60)
    alpha, beta = source.blend()
    written = kind.roles.index(kind.writes[0])
    tensors = [new.new(data_type, dims, virtual and part == written) for part, dims in enumerate(shapes)]
    return convolution_node(kind, settings, alpha, 0.0 if virtual else beta, *tensors)


def axis(source: Source, extent: int) -> tuple[int, int, int, int, int]:
    """Draw the window of a dimension, the padding before and after the image, the stride and the dilation."""
    window = source.integer(1, 4)
    if not source.profile.extremes:
        before, behind = source.integer(0, window), source.integer(0, window)
        return window, before, behind, source.pick((1, 1, 2, 3)), source.pick((1, 1, 2))
    stride, dilation = source.large(50), source.large(30)
    before = reaching(source, extent, window, stride, dilation)
    outputs = source.integer(1, 3)
    behind = max(0, (outputs - 1) * stride + (window - 1) * dilation + 1 - extent - before)
    need(extent + before + behind < POSITIONS and max(stride, dilation) < POSITIONS)
    return window, before, behind, stride, dilation
