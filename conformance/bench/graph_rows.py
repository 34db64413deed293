"""Lists the timed operation graphs: a fused convolution, pointwise operations and statistics of a layer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from dualdnn.api.enumerations import (
    cudnnConvolutionFwdAlgo_t,
    cudnnDataType_t,
    cudnnGenStatsMode_t,
    cudnnNanPropagation_t,
    cudnnPointwiseMode_t,
)
from dualdnn.api.operations import OperationGraph
from dualdnn.api.operations.graph import (
    ConvolutionForwardNode,
    GenStatsNode,
    GraphConvolution,
    GraphTensor,
    Node,
    PointwiseNode,
    PointwiseSettings,
)
from dualdnn.api.operations.graph_patterns import ON_CORES_ENGINE
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC, SCALAR_BYTES, TensorSpec

from .convolution_rows import DEEP, FUSED_LAYERS, TINY, WIDE, Layer, convolution, rectified
from .fused_rows import normalised, reductions
from .fused_rows import rectified as in_place
from .row import Call, Convolution, Row

Mode = cudnnPointwiseMode_t
PRECOMPUTED = cudnnConvolutionFwdAlgo_t.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
ON_CORES = 8  # This engine runs IMPLICIT_GEMM on tensor cores.
PRECOMPUTED_ON_CORES = 9  # This engine runs IMPLICIT_PRECOMP_GEMM on tensor cores.
SHAPES = ((64, 256, 56, 56), (32, 512, 14, 14))
STATISTICS_LAYERS = (WIDE, Layer(64, 256, 56, 256, 1, 1), DEEP, Layer(32, 512, 14, 512, 1, 1))


def _tensor(uid: int, dims: tuple[int, ...], data_type: cudnnDataType_t, virtual: bool = False) -> GraphTensor:
    spec = TensorSpec.packed(data_type, dims, NHWC if data_type == HALF else NCHW)
    return GraphTensor(uid, data_type, dims, spec.strides, SCALAR_BYTES[data_type], 1, -1, virtual)


def _pointwise(mode: Mode, x: GraphTensor, y: GraphTensor, b: GraphTensor | None = None) -> PointwiseNode:
    settings = PointwiseSettings(mode, FLOAT, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0, float("inf"))
    return PointwiseNode(settings, 1.0, 1.0, x, b, y)


def _layer(dims: tuple[int, ...], data_type: cudnnDataType_t) -> tuple[Node, ...]:
    """Return relu(x * scale + bias) and its statistics."""
    channels = (1, dims[1], 1, 1)
    x, scaled, shifted, y = (_tensor(1 + i, dims, data_type, virtual=i in (1, 2)) for i in range(4))
    sums, squares = _tensor(7, channels, FLOAT), _tensor(8, channels, FLOAT)
    return (
        _pointwise(Mode.CUDNN_POINTWISE_MUL, x, scaled, _tensor(5, channels, data_type)),
        _pointwise(Mode.CUDNN_POINTWISE_ADD, scaled, shifted, _tensor(6, channels, data_type)),
        _pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, shifted, y),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, sums, squares),
    )


def _of(uid: int, spec: TensorSpec, virtual: bool = False) -> GraphTensor:
    return GraphTensor(uid, spec.data_type, spec.dims, spec.strides, SCALAR_BYTES[spec.data_type], 1, -1, virtual)


def _convolved(plain: Convolution, y: GraphTensor) -> ConvolutionForwardNode:
    """Return y = conv(x, w)."""
    c, x, w = plain.convolution, _of(1, plain.x), _of(2, plain.w.tensor)
    settings = GraphConvolution(c.mode, FLOAT, c.padding, c.padding, c.stride, c.dilation)
    return ConvolutionForwardNode(settings, 1.0, 0.0, x, w, y)


def _fused_row(layer: Layer, kind: str, added: bool) -> Row:
    """Return relu(conv(x, w) + bias), or with z added, and the one documented call."""
    call = replace(rectified(convolution(layer, kind, NHWC), added), algo=PRECOMPUTED)
    between = TensorSpec.packed(FLOAT, call.y.dims, NHWC)
    sums, joined, shifted = (_of(10 + i, between, virtual=True) for i in range(3))
    y, bias, z = _of(3, call.y), _of(4, call.bias), _of(5, call.z)
    last = joined if added else sums
    nodes = (
        _convolved(call, sums),
        *((_pointwise(Mode.CUDNN_POINTWISE_ADD, z, joined, sums),) if added else ()),
        _pointwise(Mode.CUDNN_POINTWISE_ADD, last, shifted, bias),
        _pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, shifted, y),
    )
    names = {
        "x": "tensor_1",
        "w": "tensor_2",
        "y": "tensor_3",
        "bias": "tensor_4",
        "z": "tensor_5" if added else "tensor_3",
    }
    family = f"graph convolution {'add ' if added else ''}bias ReLU"
    operation = OperationGraph(nodes, ON_CORES if layer == TINY else PRECOMPUTED_ON_CORES, 0, 0)
    return Row(f"{family} {layer} {kind} NHWC", family, operation, (Call(call, names),))


def _statistics_row(layer: Layer) -> Row:
    """Return conv(x, w) and its statistics, and a convolution with two reductions."""
    call = replace(convolution(layer, "half", NHWC), algo=PRECOMPUTED)
    channels = TensorSpec.packed(FLOAT, (1, layer.filters, 1, 1))
    y, sums, squares = _of(3, call.y), _of(4, channels), _of(5, channels)
    nodes = (_convolved(call, y), GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, sums, squares))
    family = "graph convolution statistics"
    names = {"x": "tensor_1", "w": "tensor_2", "y": "tensor_3", "ySum": "tensor_4", "ySqSum": "tensor_5"}
    reduced = (
        Call(o, {name: names.get(known, known) for name, known in where.items()}) for o, where in reductions(call.y)
    )
    calls = (Call(call, names), *reduced)
    return Row(f"{family} {layer} half NHWC", family, OperationGraph(nodes, ON_CORES_ENGINE, 0, 0), calls)


def _scaled_row(layer: Layer) -> Row:
    """Return relu(conv(x, w) * scale + bias), and a convolution with an inference of batch normalisation and a ReLU."""
    call = replace(convolution(layer, "half", NHWC), algo=PRECOMPUTED)
    channels = TensorSpec.packed(HALF, (1, layer.filters, 1, 1))
    between = TensorSpec.packed(FLOAT, call.y.dims, NHWC)
    sums, scaled, shifted = (_of(10 + i, between, virtual=True) for i in range(3))
    nodes = (
        _convolved(call, sums),
        _pointwise(Mode.CUDNN_POINTWISE_MUL, sums, scaled, _of(4, channels)),
        _pointwise(Mode.CUDNN_POINTWISE_ADD, scaled, shifted, _of(5, channels)),
        _pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, shifted, _of(3, call.y)),
    )
    names = {"x": "tensor_1", "w": "tensor_2", "y": "tensor_3"}
    further = (normalised(call.y, x="y"), in_place(call.y, "y"))
    mapped = (Call(o, {name: names.get(known, known) for name, known in where.items()}) for o, where in further)
    family = "graph convolution scale bias ReLU"
    operation = OperationGraph(nodes, ON_CORES_ENGINE, 0, 0)
    return Row(f"{family} {layer} half NHWC", family, operation, (Call(call, names), *mapped))


def graph_rows() -> Iterator[Row]:
    """Return each graph with the engine that serves it."""
    for dims in SHAPES:
        shape = "x".join(map(str, dims))
        for data_type, layout in ((FLOAT, "NCHW"), (HALF, "NHWC")):
            kind = data_type.name.removeprefix("CUDNN_DATA_").lower()
            for family, nodes in (
                ("graph scale bias ReLU", _layer(dims, data_type)[:-1]),
                ("graph scale bias ReLU statistics", _layer(dims, data_type)),
            ):
                yield Row(f"{family} {shape} {kind} {layout}", family, OperationGraph(nodes, 0, 0, 0))
    for added in (False, True):
        for layer in (*FUSED_LAYERS, TINY):
            for kind in ("half", "TF32"):
                yield _fused_row(layer, kind, added)
    for layer in STATISTICS_LAYERS:
        yield _statistics_row(layer)
        yield _scaled_row(layer)
