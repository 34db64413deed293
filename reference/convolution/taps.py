"""Compute a convolution with one filter per group tap by tap: y += w[tap] * (x shifted by the tap).

The matrix of product.py would be as large as all products. Here a block stays in the cache while every tap passes over
it. The padded block is split by the remainders of the stride (its phases), and each phase is stored without gaps. A tap
is then one shift in any number of dimensions. Rows run into each other, and the sums across their ends are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from dualdnn.api.operations import ConvolutionSpec

from ..blocks import Part, ReadFilter, blocks, estimate_type, meeting, unbuffered
from ..view import Array, Place

BLOCK_BYTES = 2**20  # fits in the second-level cache while the taps pass over it
MIN_INPUTS = 2**13  # inputs: with fewer, the matrix product takes fewer calls
MAX_CHANNELS = 2  # channels per group: with more, the matrix product is faster
MAX_BORDER = 2**8  # factor by which the surrounding inputs may enlarge a block of a large image


def suits(input_dims: tuple[int, ...], filter_dims: tuple[int, ...], convolution: ConvolutionSpec) -> bool:
    """Return whether there are many inputs, and one filter per group with few channels and taps near each other."""
    few = filter_dims[0] == convolution.group_count and filter_dims[1] <= MAX_CHANNELS
    near = prod(1 + beyond for beyond in _reach(filter_dims, convolution)) <= MAX_BORDER
    return few and near and prod(input_dims) >= MIN_INPUTS


def convolve_by_taps(
    filter_dims: tuple[int, ...],
    convolution: ConvolutionSpec,
    wide: type[np.floating[Any]],
    x: Array,
    read_filter: ReadFilter,
) -> Iterator[Part]:
    """Cross-correlate x (C, N, spatial ...) and the filter (groups, C / groups, spatial ...), part by part.

    Products and sums are rounded to ``wide``.
    """
    groups, channels, *sizes = filter_dims
    of_images = x.swapaxes(0, 1)
    inputs = of_images.reshape(len(of_images), groups, channels, *x.shape[2:])
    reach = _reach(filter_dims, convolution)
    taps = [
        [divmod(tap * dilation, stride) for tap in range(size)]
        for size, dilation, stride in zip(sizes, convolution.dilation, convolution.stride, strict=True)
    ]
    phases = list(product(*(sorted({phase for _, phase in dimension}) for dimension in taps)))
    images, _, *outputs = convolution.output_dims(of_images.shape, filter_dims)
    whole = prod(size + beyond for size, beyond in zip(outputs, reach, strict=True))
    arrays = len(phases) * channels + 2  # the phases, the sums, the products of a tap
    of_estimates = estimate_type(convolution.compute_type, prod(filter_dims[1:]))
    per_position = np.dtype(wide).itemsize * arrays * whole // prod(outputs)
    for place in blocks((images, groups, *outputs), per_position, BLOCK_BYTES):
        block = partial(_summed, inputs, read_filter, convolution, taps, phases, reach, place)
        of_sizes, of_squares = partial(block, of_estimates, np.abs), partial(block, of_estimates, np.square)
        yield Part(place, block(wide, np.asarray), of_sizes, of_squares)


def _summed(
    inputs: Array,
    read_filter: ReadFilter,
    convolution: ConvolutionSpec,
    taps: list[list[tuple[int, int]]],
    phases: list[tuple[int, ...]],
    reach: list[int],
    place: Place,
    wide: Any,
    change: Callable[[Array], Array],
) -> Array:
    """Return the sums of products of the changed inputs and weights at a place of the output.

    taps gives for each tap of a dimension how many positions it is shifted, and its phase.
    """
    images, members, *positions = place
    extents = [p.stop - p.start + beyond for p, beyond in zip(positions, reach, strict=True)]
    steps = [prod(extents[dimension + 1 :]) for dimension in range(len(extents))]
    furthest = sum(beyond * step for beyond, step in zip(reach, steps, strict=True))
    block, weights = inputs[images, members], change(read_filter((members,), wide))
    planes = {phase: change(_phase(block, phase, convolution, positions, extents, furthest, wide)) for phase in phases}
    sums = np.empty((*block.shape[:2], prod(extents)), wide)
    products = np.empty_like(sums)
    with unbuffered():
        for count, (channel, *tap) in enumerate(product(range(block.shape[2]), *map(range, weights.shape[2:]))):
            found = [dimension[t] for dimension, t in zip(taps, tap, strict=True)]
            shift = sum(moved * step for (moved, _), step in zip(found, steps, strict=True))
            plane = planes[tuple(phase for _, phase in found)]
            shifted = plane[:, :, channel, shift : shift + prod(extents)]
            of_all: Any = (slice(None), channel, *tap)
            factor = weights[of_all][:, None]
            if count == 0:
                np.multiply(shifted, factor, out=sums)
            else:
                np.add(sums, np.multiply(shifted, factor, out=products), out=sums)
    inside: Any = (slice(None), slice(None), *(slice(0, p.stop - p.start) for p in positions))
    return sums.reshape(*block.shape[:2], *extents)[inside]


def _reach(filter_dims: tuple[int, ...], convolution: ConvolutionSpec) -> list[int]:
    """Return how many positions apart the first and the last tap are."""
    return [
        (size - 1) * dilation // stride
        for size, dilation, stride in zip(filter_dims[2:], convolution.dilation, convolution.stride, strict=True)
    ]


def _phase(
    block: Array,
    phase: tuple[int, ...],
    convolution: ConvolutionSpec,
    positions: list[slice],
    extents: list[int],
    furthest: int,
    wide: Any,
) -> Array:
    """Return the inputs at position * stride - padding + phase, with zeros outside: (N, groups, C, extents as
    one and ``furthest``).
    """
    plane = np.zeros((*block.shape[:3], prod(extents) + furthest), wide)
    image = plane[..., : prod(extents)].reshape(*block.shape[:3], *extents)  # This is a view.
    ranges = [
        meeting(offset - padding, stride, size, slice(p.start, p.start + extent))
        for offset, padding, stride, size, p, extent in zip(
            phase, convolution.padding, convolution.stride, block.shape[3:], positions, extents, strict=True
        )
    ]
    leading = (slice(None),) * 3
    there: Any = (*leading, *(there for there, _ in ranges))
    here: Any = (*leading, *(here for _, here in ranges))
    if all(part.stop > part.start for part in there[3:]):
        image[there] = block[here]
    return plane
