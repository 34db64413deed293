"""Plan the statistics of a graph (graph/statistics.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import OperationGraph, TensorSpec
from dualdnn.api.operations.graph import GenStatsNode
from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, fields_of, pointers, structure
from ..primitives.geometry import FastDivmod, blocks, merge_dimensions
from .problem import DIMS, STORED, WIDTH, GraphProblem, padded

SOURCE = "graph/statistics.cu"
THREADS = 256  # per block
WARP = 32  # threads
FINISH_LANES = 2  # channels per block that adds segments
MIN_ITEMS = 8  # per thread in a segment
BLOCKS_PER_MULTIPROCESSOR = 4


class Division(NamedTuple):
    """Divide the sums of a tensor.

    The fields are whether vectors hold channels, the vectors side by side in a block, and the blocks of channels. They
    continue with the items (pixels, or vectors of them) per channel, the segments, and the items per segment.
    """

    vectors_of_channels: bool
    lanes: int
    blocks: int
    items: int
    segments: int
    length: int

    @classmethod
    def of(cls, spec: TensorSpec, device: Any) -> Division:
        """Return the division that keeps every multiprocessor busy."""
        channels, (extents, _) = spec.dims[1], pixels_of(spec)
        if channels > 1 and spec.strides[1] == 1:
            lanes = min(WARP, 1 << (-(-channels // WIDTH)).bit_length() - 1)
            columns, items = -(-channels // (WIDTH * lanes)), prod(extents)
        else:
            lanes, columns, items = 1, channels, prod(extents[:-1]) * -(-extents[-1] // WIDTH)
        wanted = -(-BLOCKS_PER_MULTIPROCESSOR * device.multiprocessors // columns)
        length = max(MIN_ITEMS * THREADS // lanes, -(-items // wanted))
        return cls(channels > 1 and spec.strides[1] == 1, lanes, columns, items, -(-items // length), length)


def pixels_of(spec: TensorSpec) -> tuple[list[int], list[int]]:
    """Return the merged extents and strides of all dimensions but the channels."""
    others = [d for d in range(spec.rank) if d != 1]
    extents, (steps,) = merge_dimensions([spec.dims[d] for d in others], [[spec.strides[d] for d in others]])
    return extents, steps


def partial_sums(operation: OperationGraph, node: GenStatsNode, division: Division) -> int:
    """Return the bytes of the sums of all segments, or 0 where there is one."""
    segments = division.segments
    number = 8 if operation.compute_type == DOUBLE else 4
    return 2 * segments * node.x.dims[1] * number if segments > 1 else 0


def statistics_launches(problem: GraphProblem, node: GenStatsNode, partials: str, division: Division) -> list[Launch]:
    """Return the launches of a node. ``partials`` is the operand with the sums of segments."""
    spec = problem.spec(node.x)
    extents, steps = pixels_of(spec)
    innermost = extents[-1]
    if not division.vectors_of_channels:
        extents = [*extents[:-1], -(-innermost // WIDTH)]
    arguments = structure(
        *pointers(4),
        ("x_strides", (c_longlong * DIMS)(*padded(steps, DIMS, 0)[::-1])),
        *fields_of(c_longlong, channel_stride=spec.strides[1], sum_stride=problem.spec(node.sum).strides[1]),
        ("sqsum_stride", c_longlong(problem.spec(node.sqsum).strides[1])),
        ("extents", (FastDivmod * DIMS)(*map(FastDivmod.of, padded(extents, DIMS, 1)[::-1]))),
        *fields_of(c_int, rank=len(extents), items=division.items, innermost=innermost, channels=spec.dims[1]),
        *fields_of(c_int, lanes=division.lanes, segments=division.segments, segment=division.length),
        *fields_of(c_int, vectors_of_channels=division.vectors_of_channels, x_type=STORED[node.x.data_type]),
        *fields_of(c_int, sum_type=STORED[node.sum.data_type], sqsum_type=STORED[node.sqsum.data_type]),
    )
    names = (node.x.operand, node.sum.operand, node.sqsum.operand, partials)
    definitions = (*problem.definitions, ("THREADS", str(THREADS)))
    grids = {"graph_statistics": (division.blocks, division.segments, 1)}
    if division.segments > 1:
        grids["graph_statistics_finish"] = blocks(spec.dims[1], FINISH_LANES)
    return [
        Launch(problem.device.function(SOURCE, kernel, definitions), arguments, names, grid, (THREADS, 1, 1))
        for kernel, grid in grids.items()
    ]
