"""The timed operation graphs: a fused convolution, pointwise operations and statistics of a layer."""

from __future__ import annotations

from collections.abc import Iterator

from dualdnn.api.enumerations import (
    cudnnConvolutionMode_t,
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
from dualdnn.api.operations.specs import FLOAT, HALF, NCHW, NHWC, SCALAR_BYTES, TensorSpec

from .row import Row

Mode = cudnnPointwiseMode_t
PRECOMPUTED_ON_CORES = 9  # the engine of IMPLICIT_PRECOMP_GEMM on tensor cores
SHAPES = ((64, 256, 56, 56), (32, 512, 14, 14))


def _tensor(uid: int, dims: tuple[int, ...], data_type: cudnnDataType_t, virtual: bool = False) -> GraphTensor:
    spec = TensorSpec.packed(data_type, dims, NHWC if data_type == HALF else NCHW)
    return GraphTensor(uid, data_type, dims, spec.strides, SCALAR_BYTES[data_type], 1, -1, virtual)


def _pointwise(mode: Mode, x: GraphTensor, y: GraphTensor, b: GraphTensor | None = None) -> PointwiseNode:
    settings = PointwiseSettings(mode, FLOAT, cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN, 0.0, float("inf"))
    return PointwiseNode(settings, 1.0, 1.0, x, b, y)


def _layer(dims: tuple[int, ...], data_type: cudnnDataType_t) -> tuple[Node, ...]:
    """relu(x * scale + bias) and its statistics."""
    channels = (1, dims[1], 1, 1)
    x, scaled, shifted, y = (_tensor(1 + i, dims, data_type, virtual=i in (1, 2)) for i in range(4))
    sums, squares = _tensor(7, channels, FLOAT), _tensor(8, channels, FLOAT)
    return (
        _pointwise(Mode.CUDNN_POINTWISE_MUL, x, scaled, _tensor(5, channels, data_type)),
        _pointwise(Mode.CUDNN_POINTWISE_ADD, scaled, shifted, _tensor(6, channels, data_type)),
        _pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, shifted, y),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, sums, squares),
    )


def _block(dims: tuple[int, ...], data_type: cudnnDataType_t) -> tuple[Node, ...]:
    """relu(conv(x, w) + bias)."""
    channels, settings = dims[1], GraphConvolution(cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, FLOAT, (1, 1), (1, 1), (1, 1), (1, 1))  # fmt: skip
    x, w, y = (
        _tensor(1, dims, data_type),
        _tensor(2, (channels, channels, 3, 3), data_type),
        _tensor(3, dims, data_type),
    )
    sums, shifted = (_tensor(4 + i, dims, FLOAT, virtual=True) for i in range(2))
    return (
        ConvolutionForwardNode(settings, 1.0, 0.0, x, w, sums),
        _pointwise(Mode.CUDNN_POINTWISE_ADD, sums, shifted, _tensor(6, (1, channels, 1, 1), data_type)),
        _pointwise(Mode.CUDNN_POINTWISE_RELU_FWD, shifted, y),
    )


def graph_rows() -> Iterator[Row]:
    """Graphs by the engine that is for them."""
    for dims in SHAPES:
        shape = "x".join(map(str, dims))
        for data_type, layout in ((FLOAT, "NCHW"), (HALF, "NHWC")):
            kind = data_type.name.removeprefix("CUDNN_DATA_").lower()
            family = "graph scale bias ReLU statistics"
            yield Row(f"{family} {shape} {kind} {layout}", family, OperationGraph(_layer(dims, data_type), 0, 0, 0))
        family = "graph convolution bias ReLU"
        block = OperationGraph(_block(dims, HALF), PRECOMPUTED_ON_CORES, 0, 0)
        yield Row(f"{family} {shape} half NHWC", family, block)
