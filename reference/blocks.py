"""Cut the output of a convolution into blocks, and gather the input that a block meets.

The input of a block is converted and copied into a local array, with zeros for the padding. All filter positions at all
output positions are then one strided view. In every dimension, neighbouring output positions and neighbouring filter
positions are a fixed number of elements apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import product
from math import gcd
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations.specs import FLOAT, packed_strides

from .view import Array, Place

# This function reads a part of the filter (K, C / groups, spatial ...) in a given type.
ReadFilter = Callable[[Place, Any], Array]
FLOAT64_BYTES = 8
MIN_BUFFER = 16  # elements: the smallest buffer that NumPy allows
MAX_IN_FLOAT32 = 2**23  # terms: half a float32 unit each adds up to at most half of their sum
Wide = type[np.floating[Any]]


class Part(NamedTuple):
    """Hold one part of the output: its place, the sums of products there, and functions for two estimates.

    sizes returns the sums of the absolute products, squares those of the squared products, both in ``estimate_type``.
    """

    place: Place
    sums: Array
    sizes: Callable[[], Array]
    squares: Callable[[], Array]


# This function takes a stored input and the filter, and yields the parts of their convolution.
Convolve = Callable[[Array, ReadFilter], Iterator[Part]]


def estimate_type(compute_type: cudnnDataType_t, terms: int) -> Wide:
    """Return the type in which to add ``terms`` absolute values or squares.

    float32 halves the work where it is the compute type: numbers beyond its range are out of range there too.
    ``convolution.bounds.at_least`` covers its errors.
    """
    return np.float32 if compute_type == FLOAT and terms <= MAX_IN_FLOAT32 else np.float64


class Axis(NamedTuple):
    """Describe one spatial dimension of a block: its output positions, its filter positions, and the input they meet.

    pieces says where inputs go in the local array of ``size`` elements; the rest are zeros. tap_step and position_step
    are the elements of the local array between neighbouring filter and output positions.
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
    """Describe a dimension of ``extent`` inputs for ranges (first, one past the last) of output and filter positions."""
    wide, tall = positions[1] - positions[0], taps[1] - taps[0]
    first = positions[0] * stride + taps[0] * dilation - padding
    # Where stride and dilation have a common divisor, the inputs between its multiples are left out.
    step = gcd(stride if wide > 1 else 0, dilation if tall > 1 else 0) or 1
    size = ((wide - 1) * stride + (tall - 1) * dilation) // step + 1
    parts = slice(*positions), slice(*taps)
    if size <= wide * tall:
        piece = meeting(first, step, extent, slice(0, size))
        return Axis(*parts, size, (piece,), dilation // step, stride // step)
    # The positions are far apart, so the inputs of each filter position are stored side by side.
    met = [meeting(first + tap * dilation, stride, extent, slice(0, wide)) for tap in range(tall)]
    pieces = tuple(
        (slice(tap * wide + there.start, tap * wide + there.stop), here) for tap, (there, here) in enumerate(met)
    )
    return Axis(*parts, wide * tall, pieces, wide, 1)


class Gather(NamedTuple):
    """Describe how the input of a block, (C, N, spatial ...), is copied and viewed.

    target_dims is the shape of the local array, with the channels split into vectors. moves pairs local places with
    stored places. covered says that no element stays zero. window_dims and window_strides describe the view (C, filter
    ..., N, positions ...), in bytes of float64.
    """

    target_dims: tuple[int, ...]
    moves: tuple[tuple[tuple[Any, ...], Place], ...]
    covered: bool
    window_dims: tuple[int, ...]
    window_strides: tuple[int, ...]


def gather(channels: slice, images: slice, axes: Sequence[Axis], vector_length: int = 1) -> Gather:
    """Plan the gather of some channels and images of an input for these spatial axes."""
    depth, count = channels.stop - channels.start, images.stop - images.start
    sizes = tuple(one.size for one in axes)
    vector = (vector_length,) if vector_length > 1 else ()
    stored = (slice(channels.start // vector_length, channels.stop // vector_length), *(slice(None) for _ in vector))
    steps = packed_strides((depth, count, *sizes), tuple(range(2 + len(sizes))))
    taps = [(one.taps.stop - one.taps.start, step * one.tap_step) for one, step in zip(axes, steps[2:], strict=True)]
    positions = [
        (one.positions.stop - one.positions.start, step * one.position_step)
        for one, step in zip(axes, steps[2:], strict=True)
    ]
    window = [(depth, steps[0]), *taps, (count, steps[1]), *positions]
    moves = [tuple(zip(*pieces, strict=True)) for pieces in product(*(one.pieces for one in axes))]
    return Gather(
        (depth // vector_length, *vector, count, *sizes),
        tuple(((..., *there), (*stored, images, *here)) for there, here in moves),
        all(there == slice(0, one.size) for one in axes for there, _ in one.pieces),
        tuple(dim for dim, _ in window),
        tuple(stride * FLOAT64_BYTES for _, stride in window),
    )


def in_runs(how: Gather, max_between: int) -> tuple[Gather, int, tuple[int, ...]]:
    """Merge positions with a common step into one dimension, so that rows become longer.

    Elements between the rows of the local input are included if they number at most ``max_between``, and half of the
    row. Returns the new gather, the elements under each filter position, and the steps between positions (N, spatial
    ...).
    """
    leading = len(how.window_dims) // 2
    dims, strides = list(how.window_dims), list(how.window_strides)
    length, step, apart = 1, 0, []
    while len(dims) > leading:
        count, stride = dims[-1], strides[-1]
        if count > 1:
            if step and (stride % step or stride // step - length > min(max_between, length // 2)):
                break
            step = step or stride
            length += (count - 1) * (stride // step)
        apart.append(stride // step if count > 1 else 0)
        dims.pop()
        strides.pop()
    columns = length
    for count in reversed(dims[leading:]):
        apart.append(columns)
        columns *= count
    return (
        how._replace(window_dims=(*dims, length), window_strides=(*strides, step or FLOAT64_BYTES)),
        columns,
        tuple(reversed(apart)),
    )


def local_input(x: Array, how: Gather, wide: Wide = np.float64) -> Array:
    """Copy the input of a block from x (C or C / v and v, N, spatial ...), with zeros outside x."""
    local = np.empty(how.target_dims, wide) if how.covered else np.zeros(how.target_dims, wide)
    for there, here in how.moves:
        local[there] = x[here]
    return local


def windows(local: Array, how: Gather) -> Array:
    """View the local input under each filter position at each output position: (C, filter ..., N, positions ...).

    After ``in_runs``, the view has longer rows.
    """
    strides = how.window_strides
    if local.itemsize != FLOAT64_BYTES:
        strides = tuple(stride // FLOAT64_BYTES * local.itemsize for stride in strides)
    return np.ndarray(how.window_dims, local.dtype, local, 0, strides)


def blocks(extents: tuple[int, ...], bytes_each: int, block_bytes: int) -> Iterator[tuple[slice, ...]]:
    """Cut an array of ``extents`` elements of ``bytes_each`` into blocks of at most ``block_bytes``, or of one element."""
    return product(*cuts(extents, bytes_each, block_bytes))


def cuts(extents: tuple[int, ...], bytes_each: int, block_bytes: int) -> list[list[slice]]:
    """Return the cuts of each dimension. The last dimensions stay whole as long as possible."""
    room = max(1, block_bytes // bytes_each)
    found = []
    for extent in reversed(extents):
        found.append(ranges(extent, min(extent, room)))
        room = max(1, room // extent)
    return found[::-1]


def ranges(end: int, step: int, start: int = 0) -> list[slice]:
    return [slice(first, min(first + step, end)) for first in range(start, end, step)]


def meeting(offset: int, stride: int, extent: int, positions: slice) -> tuple[slice, slice]:
    """Return which positions p of a block meet an input at p * stride + offset, and those inputs.

    The first slice counts from the block's start.
    """
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


@contextmanager
def unbuffered() -> Iterator[None]:
    """Shrink NumPy's buffer: copying short rows through it takes longer than their product."""
    before = np.setbufsize(MIN_BUFFER)
    try:
        yield
    finally:
        np.setbufsize(before)
