"""How the lines of a softmax lie, and what the ways to take them have in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dualdnn.api.enumerations import cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward
from dualdnn.api.operations.specs import TensorSpec

from ..primitives.geometry import geometry

PACK_BYTES, WARP = 16, 32
SHORT_LINE = 4  # elements of a line in a tile, or of a column, of which a thread has all
BUSY_THREADS = 4 * 128  # of a multiprocessor, from which on lines need no more lanes
ROW_BYTES, LEAST_ROW_BYTES = 128, 32  # of a row that a block over columns takes
LONG_COLUMN = 1024  # positions from which on a cluster shares a column
BLOCK_BYTES = 64 * 1024  # of a line that one block takes: several blocks of a multiprocessor overlap reads and writes


Extents = tuple[list[int], list[list[int]]]  # of dimensions, and the strides of every operand


@dataclass(frozen=True)
class Problem:
    """lines: packs of lines, or single lines. length: packs of a line (of a pack of lines: positions)."""

    lines: int
    length: int
    wide: bool
    pack_bytes: int
    inputs: int


@dataclass(frozen=True)
class Walk:
    """Lines and what is along them, as the kernels walk them, and whether lines follow each other without gaps."""

    lines: Any
    along: Any
    columns: bool
    wide: bool
    aligned: bool
    dense: bool


def walk_of(operation: SoftmaxForward | SoftmaxBackward, specs: list[TensorSpec], width: int) -> Walk:
    output = specs[-1]
    along = _dimensions_along(operation, output)
    others = tuple(d for d in range(output.rank) if d not in along)
    extended = [d for d in range(output.rank) if output.dims[d] > 1]
    innermost = min(extended, key=lambda d: output.strides[d], default=1)

    def layout(dimensions: Sequence[int], width: int) -> Any:
        dims = [output.dims[d] for d in dimensions]
        return geometry(dims, [[spec.strides[d] for d in dimensions] for spec in specs], width)

    line, position = layout(others, 1), layout(along, 1)
    simple = position.outer_rank == 0
    if innermost not in along:
        # Packs of neighbouring lines: every position at a multiple of 16 bytes, rows that fill at least half a pack.
        packs = layout(others, width)
        whole = packs.vectorised == (1 << len(specs)) - 1 and all(pitch % width == 0 for pitch in position.row_stride)
        wide = width > 1 and simple and whole and 2 * packs.row >= width
        return Walk(packs if wide else line, position, True, wide, wide, False)
    # Packs along a line: it starts equally far from a multiple of 16 bytes in every operand; if not at one, it is long.
    starts = [[spec.strides[d] % width for d in others if output.dims[d] > 1] for spec in specs]
    simple = simple and all(step == 1 for step in position.row_stride)
    aligned = not any(any(start) for start in starts)
    equal = all(start == starts[0] for start in starts)
    wide = width > 1 and simple and equal and (aligned or position.row >= 4 * width)
    follow = line.packs == 1 or all(step == position.row for step in line.row_stride)
    dense = simple and line.outer_rank == 0 and follow
    return Walk(line, layout(along, width) if wide else position, False, wide, wide and aligned, dense)


def along_of(operation: SoftmaxForward | SoftmaxBackward, specs: list[TensorSpec]) -> Extents:
    """Extents along a line and, for every operand, strides."""
    return _extents(_dimensions_along(operation, specs[-1]), specs)


def others_of(operation: SoftmaxForward | SoftmaxBackward, specs: list[TensorSpec]) -> Extents:
    """The same of what lines lie along."""
    along = _dimensions_along(operation, specs[-1])
    return _extents([d for d in range(specs[-1].rank) if d not in along], specs)


def _extents(dimensions: Sequence[int], specs: list[TensorSpec]) -> Extents:
    return [specs[-1].dims[d] for d in dimensions], [[spec.strides[d] for d in dimensions] for spec in specs]


def _dimensions_along(operation: SoftmaxForward | SoftmaxBackward, output: TensorSpec) -> tuple[int, ...]:
    instance = operation.mode == cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_INSTANCE
    return tuple(range(1, output.rank)) if instance else (1,)


def power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()


def ceiling(dividend: int, divisor: int) -> int:
    return -(-dividend // divisor)
