"""Parts of a convolution: blocks of output positions, and which of them meet the input under a filter position."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product


def blocks(extents: tuple[int, ...], bytes_each: int, block_bytes: int) -> Iterator[tuple[slice, ...]]:
    """Cut an array of ``extents`` elements of ``bytes_each`` into blocks of at most ``block_bytes`` (at least an element)."""
    room = max(1, block_bytes // bytes_each)
    steps = []
    for extent in reversed(extents):
        steps.append(min(extent, room))
        room = max(1, room // extent)
    ranges = [
        [slice(start, min(start + step, extent)) for start in range(0, extent, step)]
        for extent, step in zip(extents, reversed(steps), strict=True)
    ]
    return iter(product(*ranges))


def meeting(offset: int, stride: int, extent: int, positions: slice) -> tuple[slice, slice]:
    """Which of the positions p (counted from the block's start) meet an input at p * stride + offset, and which inputs."""
    first = max(positions.start, ceil_divide(-offset, stride))
    last = min(positions.stop - 1, (extent - 1 - offset) // stride)
    if last < first:
        return slice(0, 0), slice(0, 0)
    begin = first * stride + offset
    return (
        slice(first - positions.start, last + 1 - positions.start),
        slice(begin, last * stride + offset + 1, stride),
    )


def ceil_divide(a: int, b: int) -> int:
    return -(-a // b)
