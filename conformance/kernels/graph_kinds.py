"""List small operation graphs that together use every graph kernel in every arithmetic, to compile them ahead."""

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
    ConvolutionBackwardDataNode,
    ConvolutionBackwardFilterNode,
    ConvolutionForwardNode,
    GenStatsNode,
    GraphConvolution,
    GraphTensor,
    PointwiseNode,
    PointwiseSettings,
)
from dualdnn.api.operations.specs import DOUBLE, FLOAT, SCALAR_BYTES, TensorSpec


def graphs() -> Iterator[OperationGraph]:
    """Yield one graph with every kind of node for each arithmetic."""
    for data_type in (FLOAT, DOUBLE):
        yield every_node(data_type)


def every_node(data_type: cudnnDataType_t) -> OperationGraph:
    """Return a graph of y = conv(x, w), both gradients of y, tanh of y and its statistics."""
    dims = (2, 8, 6, 6)

    def tensor(uid: int, *dims: int) -> GraphTensor:
        strides = TensorSpec.packed(data_type, dims).strides
        return GraphTensor(uid, data_type, dims, strides, SCALAR_BYTES[data_type], 1, -1, False)

    settings = GraphConvolution(
        cudnnConvolutionMode_t.CUDNN_CROSS_CORRELATION, data_type, (1, 1), (1, 1), (1, 1), (1, 1)
    )
    tanh = PointwiseSettings(
        cudnnPointwiseMode_t.CUDNN_POINTWISE_TANH_FWD, data_type, cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN, 0.0, 1.0
    )
    x, w, y, z = tensor(1, *dims), tensor(2, 8, 8, 3, 3), tensor(3, *dims), tensor(4, *dims)
    sums, squares = tensor(7, 1, 8, 1, 1), tensor(8, 1, 8, 1, 1)
    nodes = (
        ConvolutionForwardNode(settings, 1.0, 0.0, x, w, y),
        ConvolutionBackwardDataNode(settings, 1.0, 0.0, w, y, tensor(5, *dims)),
        ConvolutionBackwardFilterNode(settings, 1.0, 0.0, x, y, tensor(6, 8, 8, 3, 3)),
        PointwiseNode(tanh, 1.0, 1.0, y, None, z),
        GenStatsNode(cudnnGenStatsMode_t.CUDNN_GENSTATS_SUM_SQSUM, data_type, z, sums, squares),
    )
    return OperationGraph(nodes, 0, 0, 0)
