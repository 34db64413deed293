"""Statistics of a graph (graph/statistics.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import OperationGraph, TensorSpec
from dualdnn.api.operations.graph import GenStatsNode
from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, pointers, structure
from ..primitives.geometry import FastDivmod, blocks, merge_dimensions
from .problem import DIMS, STORED, GraphProblem, padded

SOURCE = "graph/statistics.cu"
THREADS, WARP = 256, 32
LEAST_PIXELS = 64  # of a thread in a segment
BLOCKS_PER_MULTIPROCESSOR = 4


class Division(NamedTuple):
    """How a tensor is summed: channels that lie beside each other in a block, blocks of channels, segments of the pixels,
    pixels of each."""

    lanes: int
    blocks: int
    segments: int
    pixels: int

    @classmethod
    def of(cls, spec: TensorSpec, device: Any) -> Division:
        """Return the division that keeps every multiprocessor busy."""
        channels = spec.dims[1]
        pixels = spec.count // channels
        innermost = channels > 1 and spec.strides[1] == 1
        lanes = WARP if innermost else 1
        columns = -(-channels // lanes)
        wanted = -(-BLOCKS_PER_MULTIPROCESSOR * device.multiprocessors // columns)
        length = max(LEAST_PIXELS * THREADS // lanes, -(-pixels // wanted))
        return cls(lanes, columns, -(-pixels // length), length)


def partial_sums(operation: OperationGraph, node: GenStatsNode, spec: TensorSpec, device: Any) -> int:
    """Return the bytes of the sums of all segments; 0 where there is one."""
    segments = Division.of(spec, device).segments
    number = 8 if operation.compute_type == DOUBLE else 4
    return 2 * segments * node.x.dims[1] * number if segments > 1 else 0


def statistics_launches(problem: GraphProblem, node: GenStatsNode, partials: str) -> list[Launch]:
    """Return the launches of a node. partials: the operand where the sums of segments lie."""
    spec = problem.spec(node.x)
    dims, strides = node.x.dims, spec.strides
    others = [d for d in range(len(dims)) if d != 1]
    extents, (steps,) = merge_dimensions([dims[d] for d in others], [[strides[d] for d in others]])
    lanes, columns, segments, length = Division.of(spec, problem.device)
    arguments = structure(
        *pointers(4),
        ("x_strides", (c_longlong * DIMS)(*padded(steps, DIMS, 0)[::-1])),
        ("channel_stride", c_longlong(strides[1])),
        ("sum_stride", c_longlong(problem.spec(node.sum).strides[1])),
        ("sqsum_stride", c_longlong(problem.spec(node.sqsum).strides[1])),
        ("extents", (FastDivmod * DIMS)(*map(FastDivmod.of, padded(extents, DIMS, 1)[::-1]))),
        ("rank", c_int(len(extents))),
        ("count", c_int(prod(extents))),
        ("channels", c_int(dims[1])),
        ("lanes", c_int(lanes)),
        ("segments", c_int(segments)),
        ("segment", c_int(length)),
        ("x_type", c_int(STORED[node.x.data_type])),
        ("sum_type", c_int(STORED[node.sum.data_type])),
        ("sqsum_type", c_int(STORED[node.sqsum.data_type])),
    )
    names = (node.x.operand, node.sum.operand, node.sqsum.operand, partials)
    definitions = (*problem.definitions, ("THREADS", str(THREADS)))
    grids = {"graph_statistics": (columns, segments, 1)}
    if segments > 1:
        grids["graph_statistics_finish"] = blocks(dims[1], THREADS)
    return [
        Launch(problem.device.function(SOURCE, kernel, definitions), arguments, names, grid, (THREADS, 1, 1))
        for kernel, grid in grids.items()
    ]
