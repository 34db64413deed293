"""Pointwise operations of a graph (graph/pointwise.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from math import prod

from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations.graph import GraphTensor, PointwiseNode

from ..plans import Launch, factors, pointers, structure
from ..primitives.geometry import FastDivmod, blocks, broadcast_strides, merge_dimensions
from .problem import DIMS, STORED, GraphProblem, padded

SOURCE = "graph/pointwise.cu"


def pointwise_launch(problem: GraphProblem, node: PointwiseNode) -> Launch:
    """Return the launch of a node."""
    settings, dims = node.pointwise, node.y.dims

    def strides(tensor: GraphTensor | None) -> list[int]:
        return [0] * len(dims) if tensor is None else broadcast_strides(tensor.dims, problem.spec(tensor).strides, dims)

    extents, steps = merge_dimensions(dims, [strides(node.x), strides(node.b), strides(node.y)])
    axes = [(c_longlong * DIMS)(*padded(step, DIMS, 0)[::-1]) for step in steps]
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
        ("x_strides", axes[0]),
        ("b_strides", axes[1]),
        ("y_strides", axes[2]),
        ("extents", (FastDivmod * DIMS)(*map(FastDivmod.of, padded(extents, DIMS, 1)[::-1]))),
        ("rank", c_int(len(extents))),
        ("count", c_int(prod(dims))),
        ("mode", c_int(settings.mode)),
        ("propagates_nan", c_int(settings.nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN)),
        ("x_type", c_int(STORED[node.x.data_type])),
        ("b_type", c_int(STORED[second.data_type])),
        ("y_type", c_int(STORED[node.y.data_type])),
    )
    function = problem.device.function(SOURCE, "graph_pointwise", problem.definitions)
    return Launch(function, arguments, (node.x.operand, second.operand, node.y.operand), blocks(prod(dims)))
