"""Parts of a convolution: how its output is cut into blocks, and the input that a block meets.

A block's input is copied into a local array, converted and surrounded by the zeros of the padding. All filter positions
at all output positions are then one view of it: in every dimension an output position is some elements from the next
one, and so is a filter position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from .view import Array, Place

# A place of the filter (K, C / groups, spatial ...) and the type to convert it into.
ReadFilter = Callable[[Place, Any], Array]


class Part(NamedTuple):
    """place: of the output. sums: the sums of products there, sizes: those of their absolute values, in float64."""

    place: Place
    sums: Array
    sizes: Callable[[], Array]


class Axis(NamedTuple):
    """One spatial dimension of a block: which output positions, which filter positions, and the input they meet.

    pieces: where in the local array of ``size`` elements which inputs go; the rest are zeros.
    tap_step, position_step: elements of the local array from a filter position to the next one, and so on.
    """

    positions: slice
    taps: slice
    size: int
    pieces: tuple[tuple[slice, slice], ...]
    tap_step: int
    position_step: int


@lru_cache(maxsize=4096)
def axis(
    extent: int, padding: int, stride: int, dilation: int, positions: tuple[int, int], taps: tuple[int, int]
) -> Axis:
    """The dimension of ``extent`` inputs for ranges of output and filter positions (first, one past the last)."""
    wide, tall = positions[1] - positions[0], taps[1] - taps[0]
    first = positions[0] * stride + taps[0] * dilation - padding
    # Inputs that no position meets are left out where all have a step in common.
    step = gcd(stride if wide > 1 else 0, dilation if tall > 1 else 0) or 1
    size = ((wide - 1) * stride + (tall - 1) * dilation) // step + 1
    parts = slice(*positions), slice(*taps)
    if size <= wide * tall:
        piece = meeting(first, step, extent, slice(0, size))
        return Axis(*parts, size, (piece,), dilation // step, stride // step)
    # Far apart: what each filter position meets lies side by side.
    met = [meeting(first + tap * dilation, stride, extent, slice(0, wide)) for tap in range(tall)]
    pieces = tuple(
        (slice(tap * wide + there.start, tap * wide + there.stop), here) for tap, (there, here) in enumerate(met)
    )
    return Axis(*parts, wide * tall, pieces, wide, 1)


def local_input(x: Array, channels: slice, images: slice, axes: Sequence[Axis], dtype: Any) -> Array:
    """What a block meets of x (N, C or C / v and v, spatial ...): (C, N, local spatial ...), with zeros where x ends."""
    vector = x.shape[1 + 1 : x.ndim - len(axes)]
    length = prod(vector)
    count, depth = images.stop - images.start, channels.stop - channels.start
    sizes = [one.size for one in axes]
    covered = all(here.start == 0 and here.stop == one.size for one in axes for here, _ in one.pieces)
    local: Array = (np.empty if covered else np.zeros)((depth, count, *sizes), dtype)
    target = local.reshape(depth // length, *vector, count, *sizes)
    inside = x[images, channels.start // length : channels.stop // length]
    source = inside.swapaxes(0, 1) if not vector else inside.transpose(1, 2, 0, *range(3, x.ndim))
    for pieces in product(*(one.pieces for one in axes)):
        there, here = zip(*pieces, strict=True)
        target[(..., *there)] = source[(..., *here)]
    return local


def windows(local: Array, axes: Sequence[Axis]) -> Array:
    """The local input under each filter position at each output position: a view (C, filter ..., N, positions ...)."""
    channels, images, *steps = local.strides
    taps = [one.taps.stop - one.taps.start for one in axes]
    positions = [one.positions.stop - one.positions.start for one in axes]
    apart = [step * one.tap_step for step, one in zip(steps, axes, strict=True)]
    onwards = [step * one.position_step for step, one in zip(steps, axes, strict=True)]
    dims = (local.shape[0], *taps, local.shape[1], *positions)
    return np.ndarray(dims, local.dtype, local, 0, (channels, *apart, images, *onwards))


def blocks(extents: tuple[int, ...], bytes_each: int, block_bytes: int) -> Iterator[tuple[slice, ...]]:
    """Cut an array of ``extents`` elements of ``bytes_each`` into blocks of at most ``block_bytes`` (at least an element)."""
    return product(*cuts(extents, bytes_each, block_bytes))


def cuts(extents: tuple[int, ...], bytes_each: int, block_bytes: int) -> list[list[slice]]:
    """Where ``blocks`` cuts each dimension: the last dimensions stay whole as long as they can."""
    room = max(1, block_bytes // bytes_each)
    found = []
    for extent in reversed(extents):
        found.append(ranges(extent, min(extent, room)))
        room = max(1, room // extent)
    return found[::-1]


def ranges(extent: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, extent)) for start in range(0, extent, step)]


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
