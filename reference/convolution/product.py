"""Compute the sum of products of a convolution by matrix products over blocks of output positions.

For each block, the inputs under every filter position are copied side by side: the matrix of GEMM convolution. BLAS
multiplies it with the filter. Blocks of output positions, images, filters and terms bound the memory for every shape.
taps.py handles one filter per group, which is not a matrix product. precise_product.py handles double data in extended
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.operations import ConvolutionSpec

from ..blocks import (
    FLOAT64_BYTES,
    Convolve,
    Gather,
    Part,
    ReadFilter,
    Wide,
    axis,
    cuts,
    estimate_type,
    gather,
    in_runs,
    local_input,
    ranges,
    windows,
)
from ..precise_product import precise_product
from ..view import Array, Layout, Place
from .taps import convolve_by_taps, suits

WHOLE_VECTORS = 32  # filters: a part of a vectorised output begins and ends between vectors
MAX_KEPT = 64  # blocks of terms that a plan keeps
NO_RUNS = -(2**62)


class Limits(NamedTuple):
    """Bound a block: bytes of its input matrix, terms and filters of a matrix product, weights, and kept weights.

    A product has up to ``filters`` filters even if their weights exceed ``weights``, because every block of filters
    gathers the input again. It has ``inputs`` elements in its matrix if its weights allow it, so few positions take
    more terms. Weights that are not kept are converted and multiplied ``converted`` at a time. Such a block has at
    least ``filters_per_column`` filters for each column of the matrix, because BLAS rearranges the matrix for every
    product. A row of the matrix may include elements between positions, at a cost of up to ``run`` extra products for
    each end of a row.
    """

    block_bytes: int = 2**23  # bytes: larger blocks leave the cache before they are multiplied
    terms: int = 2**10
    weights: int = 2**19
    filters: int = 2**8
    inputs: int = 2**16
    kept_weights: int = 2**24
    converted: int = 2**17  # weights that fit in the second-level cache
    filters_per_column: int = 16
    run: int = 2**6  # products that take as long as beginning another run of the copy


LIMITS = Limits()
# Products in extended precision are slow, and begin by splitting the input.
OF_EXTENDED: dict[str, int] = {"converted": 2**63, "run": 0}


def convolve(x: Array, w: Array, convolution: ConvolutionSpec) -> Array:
    """Return the cross-correlation of x (N, C, spatial ...) and w (K, C / groups, spatial ...) in the type of w."""
    result = np.empty(convolution.output_dims(x.shape, w.shape), w.dtype)
    channels_first = x.swapaxes(0, 1)

    def read_filter(place: Place, wide: Any) -> Array:
        return w[place].astype(wide, copy=False)

    for part in in_parts(x.shape, w.shape, convolution, 1, w.dtype.type)(channels_first, read_filter):
        result[part.place] = part.sums
    return result


def in_parts(
    input_dims: tuple[int, ...],
    filter_dims: tuple[int, ...],
    convolution: ConvolutionSpec,
    vector_length: int,
    wide: type[np.floating[Any]],
) -> Convolve:
    """Make a function that cross-correlates an input and a filter (K, C / groups, spatial ...), part by part.

    The input is zero outside its extent. It may have any type, and is stored as (C or C / v and v, N, spatial ...) for
    vectors of v channels. In float64, products of up to 26 bits are exact. Float, half and integer data then lose at
    most 2**-53 of the sum of absolute terms per term, double data twice that. In extended precision (np.longdouble) all
    values must be doubles.
    """
    if suits(input_dims, filter_dims, convolution):
        return partial(convolve_by_taps, filter_dims, convolution, wide)
    extended = wide is np.longdouble
    limits = LIMITS._replace(**OF_EXTENDED) if extended else LIMITS
    plan = _Plan((input_dims[0], *input_dims[2:]), filter_dims, convolution, vector_length, limits, extended)
    return partial(_by_matrix, plan)


class _Terms(NamedTuple):
    """Hold a block of the terms of a sum: the places of its weights, the gather of its input, and the shapes of
    both matrices.
    """

    weights: list[Place]
    input: Gather
    weights_dims: tuple[int, ...]
    matrix_dims: tuple[int, ...]


class _Block(NamedTuple):
    """Hold a block of the output: its place, its terms, and the layouts of its sums and estimates in the products."""

    place: Place
    sums: Layout
    sizes: Layout
    terms: list[_Terms]


class _Plan:
    """Cut a convolution into blocks. A small convolution builds its blocks once."""

    def __init__(
        self,
        input_dims: tuple[int, ...],
        filter_dims: tuple[int, ...],
        convolution: ConvolutionSpec,
        vector_length: int,
        limits: Limits,
        extended: bool,
    ) -> None:
        all_filters, self.depth, *sizes = filter_dims
        groups, terms = convolution.group_count, prod(filter_dims[1:])
        self.per_group, self.vector_length = all_filters // groups, vector_length
        # Small groups are combined; a large group is cut into ranges of filters.
        many = max(1, min(groups, limits.terms // terms, limits.weights // (terms * self.per_group)))
        room = min(limits.terms, limits.weights // min(terms, limits.terms)) // WHOLE_VECTORS * WHOLE_VECTORS
        most = self.per_group if many > 1 else min(self.per_group, max(limits.filters, room))
        _, _, *outputs = convolution.output_dims((input_dims[0], 0, *input_dims[1:]), filter_dims)
        at_once = min(
            limits.weights // min(self.per_group, limits.filters), limits.inputs // prod((*outputs, input_dims[0]))
        )
        longest = max(limits.terms, at_once)
        planes, *taps = cuts((self.depth // vector_length, *sizes), vector_length, longest)
        self.channels = [slice(part.start * vector_length, part.stop * vector_length) for part in planes]
        self.of_one_group = many == 1  # every matrix then has no axis for the groups
        per_position = FLOAT64_BYTES * many * max(min(terms, longest), most)
        images, *positions = cuts((input_dims[0], *outputs), per_position, limits.block_bytes)
        geometry = zip(input_dims[1:], convolution.padding, convolution.stride, convolution.dilation, strict=True)
        # These are indexed by spatial dimension, range of output positions and range of filter positions.
        axes = [
            [[axis(*shape, (p.start, p.stop), (t.start, t.stop)) for t in taps[dim]] for p in positions[dim]]
            for dim, shape in enumerate(geometry)
        ]
        blocks_of_input = len(images) * prod(len(positions) for positions in axes)
        self.keeps = blocks_of_input > 1 and many * most * terms <= limits.kept_weights
        self.limits = limits
        self.options: list[list[Any]] = [ranges(groups, many), ranges(self.per_group, most), images, *axes]
        self.count = prod(len(options) for options in self.options)
        blocks_of_terms = len(self.channels) * prod(len(part) for part in taps)
        self.sums = np.dtype(np.longdouble if extended else np.float64)
        self.sizes = np.dtype(estimate_type(convolution.compute_type, terms))
        # np.dot starts faster, but copies weights with gaps between their rows.
        product_of_two = np.dot if self.of_one_group and blocks_of_terms == 1 else np.matmul
        self.multiply = precise_product if extended else product_of_two
        # The rows of all blocks of terms must have the same length.
        self.max_between = limits.run // most if blocks_of_terms == len(self.channels) else NO_RUNS
        self.kept = [self._block(number) for number in range(min(self.count, MAX_KEPT // blocks_of_terms))]

    def __iter__(self) -> Iterator[_Block]:
        others = range(len(self.kept), self.count)
        return chain(self.kept, map(self._block, others)) if others else iter(self.kept)

    def _block(self, number: int) -> _Block:
        chosen = []
        for options in reversed(self.options):
            number, which = divmod(number, len(options))
            chosen.append(options[which])
        *axes, images, filters, groups = chosen
        positions = [of_taps[0].positions for of_taps in reversed(axes)]
        first, last = groups.start, groups.stop - 1
        together = slice(first * self.per_group + filters.start, last * self.per_group + filters.stop)
        count, terms = groups.stop - first, []
        for chosen, channels in product(product(*reversed(axes)), self.channels):
            of_input = slice(first * self.depth + channels.start, last * self.depth + channels.stop)
            of_weights = (channels, *(one.taps for one in chosen))
            length = prod(part.stop - part.start for part in of_weights)
            how = gather(of_input, images, chosen, self.vector_length)
            how, columns, apart = in_runs(how, self.max_between)
            # Filters of several groups are converted at once. Those of one group are converted a few at a time unless
            # they are kept.
            some = together.stop - together.start
            if self.of_one_group and not self.keeps:
                some = max(1, self.limits.converted // length, columns * self.limits.filters_per_column)
            weights = [(which, *of_weights) for which in ranges(together.stop, some, together.start)]
            of_groups = () if self.of_one_group else (count,)
            terms.append(_Terms(weights, how, (*of_groups, -1, length), (*of_groups, length, columns)))
        place = (images, together, *positions)
        dims, strides = tuple(part.stop - part.start for part in place), (apart[0], columns, *apart[1:])
        sums, sizes = (
            Layout(dims, dtype, tuple(stride * dtype.itemsize for stride in strides))
            for dtype in (self.sums, self.sizes)
        )
        return _Block(place, sums, sizes, terms)


def _by_matrix(plan: _Plan, x: Array, read_filter: ReadFilter) -> Iterator[Part]:
    if plan.keeps:
        read_filter = _Kept(read_filter)
    for block in plan:
        estimate = partial(_summed, x, read_filter, block.terms, block.sizes, np.matmul, plan.sizes.type)
        sums = _summed(x, read_filter, block.terms, block.sums, plan.multiply)
        yield Part(block.place, sums, partial(estimate, np.abs), partial(estimate, np.square))


class _Kept:
    """Keep the converted weights of the last range of filters."""

    def __init__(self, read_filter: ReadFilter) -> None:
        self.read_filter = read_filter
        self.filters: slice | None = None
        self.kept: dict[tuple[str, Wide], Array] = {}

    def __call__(self, place: Place, wide: Any) -> Array:
        if self.filters != place[0]:
            self.kept.clear()  # Free this memory before new weights take its place.
            self.filters = place[0]
        name = (str(place), wide)  # A slice is not hashable.
        if name not in self.kept:
            self.kept[name] = self.read_filter(place, wide)
        return self.kept[name]


def _summed(
    x: Array,
    read_filter: ReadFilter,
    terms: list[_Terms],
    layout: Layout,
    multiply: Callable[[Array, Array], Array],
    wide: Wide = np.float64,
    change: Callable[..., Array] | None = None,
) -> Array:
    """Add the products of all blocks of terms: (images, filters, positions ...).

    ``change`` is applied to every input and weight.
    """
    sums: Any = None
    for places, how, weights_dims, matrix_dims in terms:
        local = local_input(x, how, wide)
        matrix = windows(change(local, out=local) if change else local, how).reshape(matrix_dims)
        weights = (read_filter(place, wide).reshape(weights_dims) for place in places)
        found = [multiply(change(factors) if change else factors, matrix) for factors in weights]
        products = found[0] if len(found) == 1 else np.concatenate(found, axis=-2)
        sums = products if sums is None else np.add(sums, products, out=sums)
    return layout.of(sums)
