"""Make the graphs and fused operations of which cases compare bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dualdnn.api import cudnn as api
from dualdnn.api import operations as ops
from dualdnn.api.operations import graph as parts
from dualdnn.api.operations.graph_patterns import ALGORITHMS, FMA, ON_CORES_ENGINE, TENSOR_OP, Algorithm
from dualdnn.api.operations.specs import FLOAT, HALF, INT32, NCHW, NHWC, SCALAR_BYTES, packed_strides

ADD, RELU, TANH = (
    api.cudnnPointwiseMode_t.CUDNN_POINTWISE_ADD,
    api.cudnnPointwiseMode_t.CUDNN_POINTWISE_RELU_FWD,
    api.cudnnPointwiseMode_t.CUDNN_POINTWISE_TANH_FWD,
)
IGNORED = api.cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
RECTIFIED = ops.ActivationSpec(api.CUDNN_ACTIVATION_RELU, IGNORED, 0.0)
PRECOMP, DATA = api.cudnnConvolutionFwdAlgo_t(1), api.cudnnConvolutionBwdDataAlgo_t(1)
FILTER = api.cudnnConvolutionBwdFilterAlgo_t(1)
CORRELATION = api.CUDNN_CROSS_CORRELATION
LAYOUTS = {"float-nchw": (FLOAT, (0, 1, 2, 3), FMA, NCHW), "half-nhwc": (HALF, (0, 2, 3, 1), TENSOR_OP, NHWC)}
# Channels, filters, extent and window. The number of images decides which solver is fastest for the first one, and
# whether chains after the second one have a kernel of their own.
SHAPES = {"float-nchw": (16, 40, 6, (3, 3)), "half-nhwc": (64, 72, 13, (1, 3))}


def with_images(operation: ops.OperationGraph, images: int) -> ops.OperationGraph:
    """Return the graph for a number of images, which images and responses of convolutions and their results have."""
    filters = {node.bound[1].uid for node in operation.nodes if isinstance(node, parts.ConvolutionNode)}
    batch = next(node.bound[0].dims[0] for node in operation.nodes if isinstance(node, parts.ConvolutionNode))

    def resized(value: Any) -> Any:
        if not isinstance(value, parts.GraphTensor) or value.uid in filters or value.dims[0] != batch:
            return value
        return replace(value, dims=(images, *value.dims[1:]))

    def of(node: Any) -> Any:
        return replace(node, **{name: resized(value) for name, value in vars(node).items() if name in FIELDS})

    return replace(operation, nodes=tuple(map(of, operation.nodes)))


FIELDS = ("x", "w", "y", "dx", "dy", "dw", "b", "sum", "sqsum")  # tensors of nodes


def _graphs(layout: str) -> dict[str, ops.OperationGraph]:
    """Return graphs of one operation by the engines of its algorithm, and graphs of several, node by node."""
    (data_type, order, math, _), (channels, filters, extent, window) = LAYOUTS[layout], SHAPES[layout]
    padding, of_filters = tuple(taps // 2 for taps in window), (1, filters, 1, 1)
    described = parts.GraphConvolution(CORRELATION, FLOAT, padding, padding, (1, 1), (1, 1))

    def tensor(uid: int, dims: tuple[int, ...], kind: Any = data_type, virtual: bool = False) -> Any:
        return parts.GraphTensor(uid, kind, dims, packed_strides(dims, order), SCALAR_BYTES[kind], 1, -1, virtual)

    def pointwise(mode: Any, x: Any, y: Any, b: Any = None) -> Any:
        return parts.PointwiseNode(parts.PointwiseSettings(mode, FLOAT, IGNORED, 0.0, 6.0), 1.0, 0.5, x, b, y)

    def graph(nodes: tuple[Any, ...], index: int) -> ops.OperationGraph:
        return ops.OperationGraph(nodes, index, 0, 0)

    def one(node: Any, algo: Any) -> ops.OperationGraph:
        """Return the graph of one node by the engine of an algorithm."""
        return graph((node,), ALGORITHMS.index(Algorithm(type(node), algo, math)))

    sizes = (2, channels, extent, extent), (filters, channels, *window), (2, filters, extent, extent)
    x, w, y = (tensor(uid, dims) for uid, dims in enumerate(sizes, 1))
    between, second = (tensor(uid, sizes[2], virtual=True) for uid in (10, 11))
    nodes = ON_CORES_ENGINE if data_type == HALF else 0
    forward = parts.ConvolutionForwardNode(described, 1.0, 0.0, x, w, y)
    inside, bias = replace(forward, y=between), tensor(4, of_filters)
    sums = (tensor(uid, of_filters, FLOAT) for uid in (20, 21))
    added = tensor(5, sizes[2])
    found = {
        "one": one(forward, PRECOMP),
        "data": one(parts.ConvolutionBackwardDataNode(described, 1.0, 0.0, w, y, x), DATA),
        "bias-relu": graph(
            (inside, pointwise(ADD, between, second, bias), pointwise(RELU, second, y)), nodes
        ),
        "tanh-added": graph((inside, pointwise(TANH, between, second), pointwise(ADD, second, y, added)), nodes),
        "statistics": graph(
            (forward, parts.GenStatsNode(api.CUDNN_GENSTATS_SUM_SQSUM, FLOAT, y, *sums)), nodes
        ),
    }  # fmt: skip
    return {f"graph-{name}-{layout}": operation for name, operation in found.items()}


def _fused(layout: str, images: int) -> dict[str, Any]:
    """Return each sequence of fused operations with an image result, and those that sum over the images."""
    (data_type, _, math, order), (channels, filters, extent, window) = LAYOUTS[layout], SHAPES[layout]

    def tensor(kind: Any, *dims: int) -> ops.TensorSpec:
        return ops.TensorSpec.packed(kind, dims, order)

    padding, kept = tuple(taps // 2 for taps in window), api.cudnnReorderType_t.CUDNN_DEFAULT_REORDER
    described = ops.ConvolutionSpec(CORRELATION, FLOAT, padding, (1, 1), (1, 1), 1, math, kept)
    x, y = (tensor(data_type, images, count, extent, extent) for count in (channels, filters))
    w = ops.FilterSpec(data_type, order, (filters, channels, *window))
    scale, of_y = (tensor(data_type, 1, count, 1, 1) for count in (channels, filters))
    sums = numbers = tensor(FLOAT, 1, filters, 1, 1)
    convolution, pixels = (described, RECTIFIED, PRECOMP, 0, x), images * extent * extent
    mask = tensor(INT32, -(-pixels // 32) * 32, -(-filters // 64) * 2, 1, 1)
    found = {
        "bnstats": ops.ScaleBiasActivationConvBnstats(*convolution, scale, scale, w, y, sums, sums),
        "conv-bnstats": ops.ScaleBiasActivationConvBnstats(*convolution, None, None, w, y, sums, sums),
        "conv-scale-add": ops.ConvScaleBiasAddActivation(*convolution, w, of_y, y, of_y, of_y, y),
        "conv-bias": ops.ConvScaleBiasAddActivation(*convolution, w, None, y, None, of_y, y),
        "scale-add": ops.ScaleBiasAddActivationGenBitmask(RECTIFIED, y, of_y, of_y, y, of_y, of_y, y, None),
        "wgrad": ops.ScaleBiasActivationWgrad(described, RECTIFIED, FILTER, 0, x, scale, scale, y, w),
        "dbatchnorm": ops.DactivationForkDbatchnorm(
            RECTIFIED, 1e-3, 0, y, y, mask, *(numbers,) * 3, y, y, numbers, numbers
        ),
    }
    return {f"fused-{name}-{layout}": operation for name, operation in found.items()}


OVER = ("fused-wgrad", "fused-dbatchnorm")  # sums over the images
GRAPHS_AND_FUSED = {
    name: operation
    for layout in LAYOUTS
    for name, operation in {**_graphs(layout), **_fused(layout, 2)}.items()
    if not name.startswith(OVER)
}
FUSED_OVER_IMAGES = {
    name: operation for layout in LAYOUTS for name, operation in _fused(layout, 9).items() if name.startswith(OVER)
}
