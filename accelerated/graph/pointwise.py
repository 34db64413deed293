"""Pointwise operations of a graph (graph/pointwise.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from math import prod

from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations.graph import GraphTensor, PointwiseNode

from ..plans import Launch, factors, pointers, structure
from ..primitives.geometry import blocks, broadcast_strides
from .problem import DIMS, STORED, GraphProblem, padded

SOURCE = "graph/pointwise.cu"


def pointwise_launch(problem: GraphProblem, node: PointwiseNode) -> Launch:
    """Return the launch of a node."""
    settings, dims = node.pointwise, node.y.dims

    def strides(tensor: GraphTensor | None) -> list[int]:
        if tensor is None:
            return [0] * DIMS
        return padded(broadcast_strides(tensor.dims, problem.spec(tensor).strides, dims), DIMS, 0)

    axes, extents = c_longlong * DIMS, c_int * DIMS
    second = node.b or node.x
    arguments = structure(
        *pointers(3),
        *factors(
            problem.operation,
            alpha1=node.alpha1,
            alpha2=node.alpha2,
            lower=settings.lower_clip,
            upper=settings.upper_clip,
        ),
        ("x_strides", axes(*strides(node.x))),
        ("b_strides", axes(*strides(node.b))),
        ("y_strides", axes(*strides(node.y))),
        ("extents", extents(*padded(dims, DIMS, 1))),
        ("count", c_int(prod(dims))),
        ("mode", c_int(settings.mode)),
        ("propagates_nan", c_int(settings.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN)),
        ("x_type", c_int(STORED[node.x.data_type])),
        ("b_type", c_int(STORED[second.data_type])),
        ("y_type", c_int(STORED[node.y.data_type])),
    )
    function = problem.device.function(SOURCE, "graph_pointwise", problem.definitions)
    return Launch(function, arguments, (node.x.operand, second.operand, node.y.operand), blocks(prod(dims)))
