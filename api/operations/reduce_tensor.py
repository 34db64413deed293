"""The operation of cudnnReduceTensor (3.2.71)."""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import NamedTuple

from ..enumerations import cudnnIndicesType_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from .operation import Operation
from .records import record
from .specs import DOUBLE, ReduceTensorSpec, TensorSpec

INDEXED = (cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MIN, cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MAX)
INDEX_BYTES = {
    cudnnIndicesType_t.CUDNN_32BIT_INDICES: 4,
    cudnnIndicesType_t.CUDNN_64BIT_INDICES: 8,
    cudnnIndicesType_t.CUDNN_16BIT_INDICES: 2,
    cudnnIndicesType_t.CUDNN_8BIT_INDICES: 1,
}
FLATTENED = cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES
BLOCK = 256  # threads of a block
_PROCESSORS = 132  # of the device that the division suits
_MOST_ROUNDS = 4  # of blocks, as many at a time as the device holds
_LEAST_BLOCK_ROW = 8  # packs side by side that a block of columns reads: 128 contiguous bytes
_READS = 8  # of a thread of columns that are on their way together
# Loads of a thread that make its partial results worth their way through memory: of rows, beyond one round of blocks, of columns
_LEAST_SEGMENT_PACKS, _LEAST_SEGMENT = 4, 12
_WARP = 32
WORKSPACE_ALIGNMENT = 8  # of the partial results; the workspace has room to start there


@record
class ReduceTensor(Operation):
    """C = alpha * reduce(A) + beta * C over the dimensions where C has extent 1.

    ``indices`` receives, for MIN and MAX, the row-major position inside the reduced dimensions of the first extremum,
    one unsigned integer per element of C in C's row-major order. ``workspace`` holds partial results of long reductions.
    """

    reduction: ReduceTensorSpec
    indices_bytes: int
    workspace_bytes: int
    alpha: float
    beta: float
    A: TensorSpec
    C: TensorSpec

    inputs = ("A",)
    outputs = ("C",)
    raw = {"indices": "indices_bytes", "workspace": "workspace_bytes"}  # noqa: RUF012 (a class constant)

    @property
    def wants_indices(self) -> bool:
        return self.reduction.indices == FLATTENED

    def alignment(self, operand: str) -> int:
        aligned = operand == "indices" and self.wants_indices
        return INDEX_BYTES[self.reduction.indices_type] if aligned else super().alignment(operand)

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """The dimensions of A that are reduced."""
        return reduced_dimensions(self.A, self.C)

    @cached_property
    def length(self) -> int:
        """How many elements of A one element of C reduces."""
        return prod(self.A.dims[i] for i in self.reduced)

    @cached_property
    def division(self) -> Division:
        return divided(self.A, self.C)


class Division(NamedTuple):
    """How a reduction is divided among threads: a function of A and C alone, so that all devices need one workspace.

    rows: the innermost dimension of A is reduced, threads walk along it; else threads walk across columns.
    lanes: threads of a block that share one element (rows) or one pack of elements (columns) of C.
    segments: parts of each reduction whose partial results go through the workspace.
    """

    rows: bool
    lanes: int
    segments: int


def reduced_dimensions(A: TensorSpec, C: TensorSpec) -> tuple[int, ...]:
    """The dimensions where C has extent 1 and A has more."""
    return tuple(i for i, (a, c) in enumerate(zip(A.dims, C.dims, strict=False)) if c == 1 and a != 1)


def pack_width(A: TensorSpec) -> int:
    """Elements of A that a thread reads in one access: 16 bytes, at most 8 elements."""
    return min(8, 16 // A.scalar_bytes)


def divided(A: TensorSpec, C: TensorSpec) -> Division:
    """Enough blocks to fill a device, each with enough work to be worth it."""
    reduced = reduced_dimensions(A, C)
    length = prod(A.dims[i] for i in reduced)
    resident = _PROCESSORS * (2 if A.scalar_bytes == 1 else 4)
    innermost = _innermost(A)
    if innermost in reduced:
        return _rows(length, C.count, pack_width(A), resident)
    packed = A.count == 1 + sum((extent - 1) * stride for extent, stride in zip(A.dims, A.strides, strict=True))
    in_line = packed and C.count % pack_width(A) == 0 and C.strides[innermost : innermost + 1] == (1,)
    return _columns(length, -(-C.count // pack_width(A)), resident, in_line)


def _rows(length: int, count: int, width: int, resident: int) -> Division:
    """Threads walk along what each of ``count`` elements of C reduces."""
    lanes = min(BLOCK, _power_of_two(-(-length // (4 * width))))
    # The threads of a warp share without waiting for others.
    while lanes > _WARP and count * lanes >= 4 * resident * BLOCK:
        lanes //= 2
    most = min(
        BLOCK, _power_of_two((length + 2 * width - 2) // width)
    )  # rows that start anywhere reach into a pack more
    lanes = max(lanes, min(most, _enough_lanes(count)))
    blocks = -(-count * lanes // BLOCK)
    packs = -(-length // (BLOCK * width))  # of a thread
    if lanes < BLOCK or packs <= _LEAST_SEGMENT_PACKS:
        return Division(True, lanes, 1)
    longest = max(-(-packs // _LEAST_SEGMENT_PACKS), min(packs, resident // blocks))
    return Division(True, lanes, _segments(blocks, longest, resident))


def _columns(length: int, packs: int, resident: int, in_line: bool) -> Division:
    """Threads walk across packs of C. in_line: packs of A are whole packs of C, so that a thread reads and
    can write them at once; others take longer, and their partial results are worth their way sooner."""
    each = _READS if in_line else _READS // 2
    most = min(BLOCK // min(_LEAST_BLOCK_ROW, _power_of_two(packs)), _power_of_two(-(-length // each)))
    # No more lanes than give some rounds of blocks: a pack of C costs each of its lanes a merge.
    lanes = min(most, _power_of_two(-(-5 * resident * BLOCK // (2 * packs))))
    if length >= _READS or not in_line:
        wide = max(lanes, min(BLOCK, _power_of_two(length), _enough_lanes(packs)))
        if wide > lanes and length <= 2 * _READS * wide:
            return Division(False, wide, 1)
    longest = -(-length // (lanes * (_LEAST_SEGMENT if in_line else _LEAST_SEGMENT // 3)))
    return Division(False, lanes, _segments(-(-packs * lanes // BLOCK), longest, resident))


def _enough_lanes(count: int) -> int:
    """So many for each of a few that half of the processors have a block."""
    return _power_of_two(-(-_PROCESSORS * BLOCK // (2 * count)))


def _segments(blocks: int, longest: int, resident: int) -> int:
    """So many that the last round of blocks leaves little of the device idle, in few rounds."""

    def worth(segments: int) -> float:
        rounds = -(-blocks * segments // resident)
        return blocks * segments / (rounds * resident) - rounds / 50

    candidates = {max(1, min(longest, rounds * resident // blocks)) for rounds in range(1, _MOST_ROUNDS + 1)}
    return max(sorted(candidates), key=worth)


def required_workspace(A: TensorSpec, C: TensorSpec) -> int:
    """Bytes for a partial result (in the compute type) and a partial index (4 bytes) per segment and element of C.

    They start at an aligned address, wherever the workspace starts. At least 16 bytes, so that "too small"
    (cudnnReduceTensor/c31) means something for every shape.
    """
    segments = divided(A, C).segments
    partial = (8 if DOUBLE in (A.data_type, C.data_type) else 4) + 4
    return max(16, segments * C.count * partial + WORKSPACE_ALIGNMENT if segments > 1 else 0)


def required_indices(reduction: ReduceTensorSpec, C: TensorSpec) -> int:
    """Bytes for one index of the chosen width per element of C, none where none are asked for."""
    return C.count * INDEX_BYTES[reduction.indices_type] if reduction.indices == FLATTENED else 0


def _innermost(spec: TensorSpec) -> int:
    """The dimension of more than one position whose stride is the smallest; of equal strides the last."""
    longer = [d for d, extent in enumerate(spec.dims) if extent > 1]
    if spec.vector_length > 1:
        return 1
    return min(reversed(longer), key=lambda d: spec.strides[d], default=0)


def _power_of_two(least: int) -> int:
    return 1 << (max(1, least) - 1).bit_length()
