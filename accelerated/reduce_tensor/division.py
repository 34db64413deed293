"""Divides a reduction of any tensor among threads and blocks (reduce_tensor/generic.cu)."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.reduce_tensor import reduced_dimensions

BLOCK = 256  # threads per block
WARP = 32
MAX_WAVES = 4  # waves of resident blocks
MIN_COLUMN_VECTORS = 8  # neighbouring vectors per block of columns, 128 contiguous bytes
READS = 8  # loads in flight per thread of columns
# Partial results in memory pay only for longer segments.
MIN_SEGMENT_VECTORS = 4  # loads per thread for rows beyond one wave of blocks
MIN_SEGMENT = 12  # loads per thread for columns


class Division(NamedTuple):
    """Hold the division of a reduction.

    rows: whether the innermost dimension of A is reduced, so that threads walk along it; else they walk across columns.
    lanes: threads of a block that share one element (rows) or one vector of elements (columns) of C.
    segments: parts of each reduction, whose partial results are kept in the workspace.
    """

    rows: bool
    lanes: int
    segments: int


def vector_width(A: TensorSpec) -> int:
    """Return the elements of A that a thread reads in one access: 16 bytes, at most 8 elements."""
    return min(8, 16 // A.scalar_bytes)


def along_rows(A: TensorSpec, C: TensorSpec) -> bool:
    """Return whether the innermost dimension of A is reduced."""
    return _innermost(A) in reduced_dimensions(A, C)


def divided(A: TensorSpec, C: TensorSpec, multiprocessors: int) -> Division:
    """Return a division whose blocks fill a device with ``multiprocessors`` SMs, if each has enough work."""
    reduced = reduced_dimensions(A, C)
    length = prod(A.dims[i] for i in reduced)
    resident = multiprocessors * (2 if A.scalar_bytes == 1 else 4)
    if along_rows(A, C):
        return _rows(length, C.count, vector_width(A), multiprocessors, resident)
    packed = A.count == 1 + sum((extent - 1) * stride for extent, stride in zip(A.dims, A.strides, strict=True))
    innermost = _innermost(A)
    in_line = packed and C.count % vector_width(A) == 0 and C.strides[innermost : innermost + 1] == (1,)
    return _columns(length, -(-C.count // vector_width(A)), multiprocessors, resident, in_line)


def _rows(length: int, count: int, width: int, multiprocessors: int, resident: int) -> Division:
    """Return the division for rows: threads walk along the ``length`` elements of each of ``count`` reductions."""
    lanes = min(BLOCK, _power_of_two(-(-length // (4 * width))))
    # A team inside a warp needs no barrier.
    while lanes > WARP and count * lanes >= 4 * resident * BLOCK:
        lanes //= 2
    # An unaligned row touches one more vector.
    most = min(BLOCK, _power_of_two((length + 2 * width - 2) // width))
    lanes = max(lanes, min(most, _enough_lanes(count, multiprocessors)))
    blocks = -(-count * lanes // BLOCK)
    vectors = -(-length // (BLOCK * width))  # vectors per thread
    if lanes < BLOCK or vectors <= MIN_SEGMENT_VECTORS:
        return Division(True, lanes, 1)
    longest = max(-(-vectors // MIN_SEGMENT_VECTORS), min(vectors, resident // blocks))
    return Division(True, lanes, _segments(blocks, longest, resident))


def _columns(length: int, vectors: int, multiprocessors: int, resident: int, in_line: bool) -> Division:
    """Return the division for columns: threads walk across vectors of C.

    in_line: whether vectors of A are vectors of C, which one access reads or writes. Others are slower, so that more
    segments pay.
    """
    each = READS if in_line else READS // 2
    most = min(BLOCK // min(MIN_COLUMN_VECTORS, _power_of_two(vectors)), _power_of_two(-(-length // each)))
    # The lanes are limited to a few waves of blocks, because every lane adds a merge per vector of C.
    lanes = min(most, _power_of_two(-(-5 * resident * BLOCK // (2 * vectors))))
    if length >= READS or not in_line:
        wide = max(lanes, min(BLOCK, _power_of_two(length), _enough_lanes(vectors, multiprocessors)))
        if wide > lanes and length <= 2 * READS * wide:
            return Division(False, wide, 1)
    longest = -(-length // (lanes * (MIN_SEGMENT if in_line else MIN_SEGMENT // 3)))
    return Division(False, lanes, _segments(-(-vectors * lanes // BLOCK), longest, resident))


def _enough_lanes(count: int, multiprocessors: int) -> int:
    """Return the lanes per element with which half of the SMs have a block."""
    return _power_of_two(-(-multiprocessors * BLOCK // (2 * count)))


def _segments(blocks: int, longest: int, resident: int) -> int:
    """Return the number of segments whose last wave of blocks fills the device best."""

    def worth(segments: int) -> float:
        waves = -(-blocks * segments // resident)
        return blocks * segments / (waves * resident) - waves / 50

    candidates = {max(1, min(longest, waves * resident // blocks)) for waves in range(1, MAX_WAVES + 1)}
    return max(sorted(candidates), key=worth)


def _innermost(spec: TensorSpec) -> int:
    """Return the dimension with the smallest stride and more than one position; the last one for equal strides."""
    longer = [d for d, extent in enumerate(spec.dims) if extent > 1]
    if spec.vector_length > 1:
        return 1
    return min(reversed(longer), key=lambda d: spec.strides[d], default=0)


def _power_of_two(least: int) -> int:
    return 1 << (max(1, least) - 1).bit_length()
