"""The sum of products of a convolution, as matrix products over blocks of output positions.

For each block the input values under every filter position are copied side by side (the matrix of GEMM convolution)
and multiplied with the filter by BLAS. Blocks bound the memory, whatever the shape: of output positions and images, of
filters where there are many weights, of terms where a sum is long. One filter per group is no matrix product:
convolution_taps.py. Double data in extended precision: precise_product.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache, partial, reduce
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import ConvolutionSpec

from .convolution_blocks import Axis, Part, ReadFilter, axis, cuts, local_input, ranges, windows
from .convolution_taps import convolve_by_taps, suits
from .precise_product import precise_product
from .view import Array, Place

WHOLE_VECTORS = 32  # filters: part of a vectorised output begins and ends between vectors


class Limits(NamedTuple):
    """Of a block: bytes of its input matrix, terms and filters of a matrix product, weights that stay converted."""

    block_bytes: int = 2**23  # larger blocks leave the cache before they are multiplied
    terms: int = 2**15
    filters: int = 2**15
    weights: int = 2**25


LIMITS = Limits()


def convolve(x: Array, w: Array, convolution: ConvolutionSpec) -> Array:
    """The cross-correlation of x (N, C, spatial ...) with w (K, C / groups, spatial ...) in the type of w, as a whole."""
    result = np.empty(convolution.output_dims(x.shape, w.shape), w.dtype)

    def read_filter(place: Place, wide: Any) -> Array:
        return w[place].astype(wide, copy=False)

    for part in convolved(x, read_filter, w.shape, convolution, w.dtype.type):
        result[part.place] = part.sums
    return result


def convolved(
    x: Array, read_filter: ReadFilter, filter_dims: tuple[int, ...], convolution: ConvolutionSpec, wide: Any
) -> Iterator[Part]:
    """The cross-correlation of x with the filter (K, C / groups, spatial ...), zeros outside x, part by part.

    x: where it is stored, of any type, (N, C or C / v and v, spatial ...).
    In float64, products of up to 26 bits are exact, so that float, half and integer data lose at most 2**-53 of the sum
    of absolute terms per term, double data twice that. In extended precision (np.longdouble) x and w must be doubles.
    """
    way = convolve_by_taps if suits(filter_dims, convolution) else _by_matrix
    return way(x, read_filter, filter_dims, convolution, wide)


class _FilterBlock(NamedTuple):
    """Filters (of one group, or all of ``groups`` groups) and what they are multiplied with.

    channels: where of a filter the blocks of terms lie, and where of the input. rows: of each spatial dimension, for each
    range of output positions, for each range of filter positions. keeps: its weights may stay converted.
    """

    filters: slice
    groups: int
    channels: list[tuple[slice, slice]]
    images: list[slice]
    rows: list[list[list[Axis]]]
    keeps: bool


@lru_cache(maxsize=256)
def _plan(
    input_dims: tuple[int, ...], filter_dims: tuple[int, ...], convolution: ConvolutionSpec, limits: Limits
) -> list[_FilterBlock]:
    """Every filter block of an input (N, spatial ...)."""
    all_filters, depth, *sizes = filter_dims
    groups, terms = convolution.group_count, prod(filter_dims[1:])
    per_group = all_filters // groups
    # Several groups at a time where they are small, else a part of a group's filters.
    many = max(1, min(groups, limits.terms // terms, limits.weights // (terms * per_group)))
    room = min(limits.filters, limits.weights // (many * terms)) // WHOLE_VECTORS * WHOLE_VECTORS
    most = per_group if many > 1 else min(per_group, max(WHOLE_VECTORS, room))
    *taps, depths = cuts((*sizes, depth), 1, limits.terms)
    _, _, *outputs = convolution.output_dims((input_dims[0], 0, *input_dims[1:]), filter_dims)
    per_position = 8 * many * max(min(terms, limits.terms), most)
    images, *positions = cuts((input_dims[0], *outputs), per_position, limits.block_bytes)
    geometry = zip(input_dims[1:], convolution.padding, convolution.stride, convolution.dilation, strict=True)
    rows = [
        [[axis(*shape, (p.start, p.stop), (t.start, t.stop)) for t in taps[dimension]] for p in positions[dimension]]
        for dimension, shape in enumerate(geometry)
    ]
    found = []
    for group in ranges(groups, many):
        together = group.stop - group.start
        first, last = group.start * depth, (group.stop - 1) * depth
        channels = [(part, slice(first + part.start, last + part.stop)) for part in depths]
        for part in ranges(per_group, most):
            filters = slice(group.start * per_group + part.start, (group.stop - 1) * per_group + part.stop)
            keeps = (filters.stop - filters.start) * terms <= limits.weights
            found.append(_FilterBlock(filters, together, channels, images, rows, keeps))
    return found


def _by_matrix(
    x: Array, read_filter: ReadFilter, filter_dims: tuple[int, ...], convolution: ConvolutionSpec, wide: Any
) -> Iterator[Part]:
    multiply = precise_product if wide is np.longdouble else np.matmul
    input_dims = (x.shape[0], *x.shape[-convolution.rank :])
    for block in _plan(input_dims, filter_dims, convolution, LIMITS):
        weights = _weights(read_filter, block)
        for images in block.images:
            for rows in product(*block.rows):
                factors = partial(_factors, x, weights, block, images, rows)
                positions = [row[0].positions for row in rows]
                yield Part(
                    (images, block.filters, *positions),
                    _summed(factors, multiply, images, positions),
                    partial(_summed, factors, _product_of_sizes, images, positions),
                )


def _weights(read_filter: ReadFilter, block: _FilterBlock) -> Callable[[int, Place], Array]:
    """The filter block's weights of each block of terms, by its number and place: (groups, filters, terms)."""
    kept: dict[int, Array] = {}

    def weights(number: int, place: Place) -> Array:
        found = kept.get(number)
        if found is None:
            found = read_filter((block.filters, *place), np.float64).reshape(block.groups, -1, _terms(place))
            if block.keeps:
                kept[number] = found
        return found

    return weights


def _factors(
    x: Array, weights: Callable[[int, Place], Array], block: _FilterBlock, images: slice, rows: tuple[list[Axis], ...]
) -> Iterator[tuple[Array, Array]]:
    """For each block of terms, its weights (groups, filters, terms) and inputs (groups, terms, images and positions)."""
    for number, (axes, (channels, of_input)) in enumerate(product(product(*rows), block.channels)):
        place = (channels, *(one.taps for one in axes))
        local = local_input(x, of_input, images, axes, np.float64)
        yield weights(number, place), windows(local, axes).reshape(block.groups, _terms(place), -1)


def _summed(
    factors: Callable[[], Iterator[tuple[Array, Array]]],
    multiply: Callable[[Array, Array], Array],
    images: slice,
    positions: list[slice],
) -> Array:
    """The products of all blocks of terms, added: (images, filters, positions ...)."""
    sums = reduce(np.add, (multiply(*pair) for pair in factors()))
    sizes = (part.stop - part.start for part in (images, *positions))
    return sums.reshape(-1, *sizes).swapaxes(0, 1)


def _product_of_sizes(a: Array, b: Array) -> Array:
    return np.matmul(np.abs(a), np.abs(b))


def _terms(place: Place) -> int:
    return prod(part.stop - part.start for part in place)
