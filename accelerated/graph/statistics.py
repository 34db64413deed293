"""Statistics of a graph (graph/statistics.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from math import prod

from dualdnn.api.operations.graph import GenStatsNode

from ..plans import Launch, pointers, structure
from ..primitives.geometry import FastDivmod, merge_dimensions
from .problem import DIMS, STORED, GraphProblem, padded

SOURCE = "graph/statistics.cu"


def statistics_launch(problem: GraphProblem, node: GenStatsNode) -> Launch:
    """Return the launch of a node: a block for each channel."""
    dims, strides = node.x.dims, problem.spec(node.x).strides
    others = [d for d in range(len(dims)) if d != 1]
    extents, (steps,) = merge_dimensions([dims[d] for d in others], [[strides[d] for d in others]])
    arguments = structure(
        *pointers(3),
        ("x_strides", (c_longlong * DIMS)(*padded(steps, DIMS, 0)[::-1])),
        ("channel_stride", c_longlong(strides[1])),
        ("sum_stride", c_longlong(problem.spec(node.sum).strides[1])),
        ("sqsum_stride", c_longlong(problem.spec(node.sqsum).strides[1])),
        ("extents", (FastDivmod * DIMS)(*map(FastDivmod.of, padded(extents, DIMS, 1)[::-1]))),
        ("rank", c_int(len(extents))),
        ("count", c_int(prod(extents))),
        ("x_type", c_int(STORED[node.x.data_type])),
        ("sum_type", c_int(STORED[node.sum.data_type])),
        ("sqsum_type", c_int(STORED[node.sqsum.data_type])),
    )
    function = problem.device.function(SOURCE, "graph_statistics", problem.definitions)
    return Launch(function, arguments, (node.x.operand, node.sum.operand, node.sqsum.operand), (dims[1], 1, 1))
