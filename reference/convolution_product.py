"""The sum of products of a convolution, as matrix products over blocks of output positions.

For each block the input values under every filter position are copied side by side (the matrix of GEMM convolution)
and multiplied with the filter by BLAS. Blocks bound the memory: one holds at most BLOCK_BYTES, whatever the shape. One
filter per group is no matrix product: convolution_taps.py.
"""

from __future__ import annotations

from itertools import product
from math import ceil, log2, prod
from typing import Any

import numpy as np
from dualdnn.api.operations import ConvolutionSpec

from .convolution_blocks import blocks, meeting
from .convolution_taps import convolve_by_taps, suits
from .view import Array

BLOCK_BYTES = 2**23  # larger blocks leave the cache before they are multiplied
UNSPLIT_PRODUCTS = 2**22  # up to here an extended precision product is fast enough
MOST_SLICES = 6
DOUBLE_BITS = 53
EXTENDED_UNIT = 2.0**-64


def convolve(x: Array, w: Array, convolution: ConvolutionSpec) -> Array:
    """The cross-correlation of x (N, C, spatial ...) with w (K, C / groups, spatial ...), zeros outside x.

    float64 in, float64 out: products of up to 26 bits are exact, so that float, half and integer data lose at most
    2**-53 of the sum of absolute terms per term. Extended precision in (double data), extended precision out.
    """
    groups = convolution.group_count
    extended = x.dtype == np.longdouble
    dims = convolution.output_dims(x.shape, w.shape)
    result = np.empty((dims[0], groups, dims[1] // groups, *dims[2:]), np.longdouble if extended else np.float64)
    if suits(w, convolution):
        convolve_by_taps(x, w, convolution, result[:, :, 0])
        return result.reshape(dims)
    multiply = precise_product if extended else np.matmul
    if extended:
        x, w = x.astype(np.float64), w.astype(np.float64)  # exact: they were read from doubles
    terms = prod(w.shape[1:])
    filters = w.reshape(groups, -1, terms)
    per_position = 8 * max(groups * terms, dims[1])  # its column of the matrix, its outputs
    for images, *positions in blocks((dims[0], *dims[2:]), per_position, BLOCK_BYTES):
        matrix = columns(x[images], w.shape[2:], convolution, tuple(positions))
        summed = multiply(filters, matrix.reshape(groups, terms, -1))
        sizes = (groups, -1, images.stop - images.start, *(p.stop - p.start for p in positions))
        place: Any = (images, slice(None), slice(None), *positions)
        result[place] = np.moveaxis(summed.reshape(sizes), 2, 0)
    return result.reshape(dims)


def columns(
    x: Array, filter_sizes: tuple[int, ...], convolution: ConvolutionSpec, positions: tuple[slice, ...]
) -> Array:
    """The input under each filter position at a block of output positions: (C, filter ..., N, positions ...)."""
    sizes = tuple(p.stop - p.start for p in positions)
    matrix = np.empty((x.shape[1], *filter_sizes, x.shape[0], *sizes), x.dtype)
    channels_first = x.swapaxes(0, 1)
    whole = tuple(slice(0, size) for size in sizes)
    geometry = zip(
        filter_sizes, convolution.dilation, convolution.padding, convolution.stride, x.shape[2:], positions, strict=True
    )
    per_dimension = [
        [meeting(tap * dilation - padding, stride, extent, part) for tap in range(taps)]
        for taps, dilation, padding, stride, extent, part in geometry
    ]
    for taps in product(*(range(size) for size in filter_sizes)):
        ranges = [per_dimension[dimension][tap] for dimension, tap in enumerate(taps)]
        under: Any = (slice(None), *taps)
        target = matrix[under]
        inside = tuple(there for there, _ in ranges)
        if inside != whole:
            target[...] = 0
        if all(there.stop > there.start for there in inside):
            target[(slice(None), slice(None), *inside)] = channels_first[
                (slice(None), slice(None), *(here for _, here in ranges))
            ]
    return matrix


def precise_product(a: Array, b: Array) -> Array:
    """a @ b of doubles in extended precision: the error is that of the extended sums, 2**-64 of the absolute terms each.

    Large products go through BLAS: both factors are split exactly into slices of so few bits that the double products
    of two slices are exact (Ozaki, Ogita, Oishi, Rump 2012), and only their sum is rounded. Values that no slices hold
    (not finite, or too far apart) take the slow way, NumPy's own loops on extended precision.
    """
    terms = a.shape[-1]
    if a.shape[-2] * b.size <= UNSPLIT_PRODUCTS:
        return np.matmul(a.astype(np.longdouble), b.astype(np.longdouble))
    bits = (DOUBLE_BITS - ceil(log2(terms * MOST_SLICES))) // 2
    right = _slices(b, -2, bits)
    total = np.empty((*a.shape[:-1], b.shape[-1]), np.longdouble)
    for _, rows in blocks((1, a.shape[-2]), 8 * a.shape[0] * terms, BLOCK_BYTES):
        part: Any = (slice(None), rows)
        left = _slices(a[part], -1, bits)
        if left is None or right is None:
            total[part] = np.matmul(a[part].astype(np.longdouble), b.astype(np.longdouble))
        else:
            total[part] = _sliced_product(*left, *right, bits)
    return total


def _sliced_product(left: list[Array], left_scale: Array, right: list[Array], right_scale: Array, bits: int) -> Array:
    """The product of two factors that ``_slices`` has split."""
    # Pairs of level l are at most 2**(-bits * l); those that cannot matter beside the absolute terms are left out.
    sizes = np.matmul(np.abs(sum(left)), np.abs(sum(right)))
    smallest = float(sizes.min(initial=1.0, where=sizes > 0))
    negligible = smallest * EXTENDED_UNIT / (2 * MOST_SLICES * left[0].shape[-1])
    levels = min(len(left) + len(right) - 1, ceil(-log2(negligible) / bits))
    total = np.zeros(sizes.shape, np.longdouble)
    # All pairs of one level are one product, the smallest first.
    for level in reversed(range(levels)):
        firsts = [i for i in range(len(left)) if 0 <= level - i < len(right)]
        wide = np.concatenate([left[i] for i in firsts], axis=-1)
        tall = np.concatenate([right[level - i] for i in firsts], axis=-2)
        total += np.matmul(wide, tall)
    return np.asarray(np.ldexp(total, left_scale + right_scale))


def _slices(values: Array, axis: int, bits: int) -> tuple[list[Array], Array] | None:
    """(slices, exponents): values = sum of slices * 2**exponents, slice i a multiple of 2**(-bits * (i + 1)) of at most
    2**(-bits * i). None where that takes too many."""
    if not np.isfinite(values).all():
        return None
    exponents = np.frexp(np.abs(values).max(axis=axis, keepdims=True))[1]
    smallest = np.frexp(np.where(values == 0, 1, values))[1]
    reach = int(np.where(values == 0, 0, exponents - smallest).max(initial=0)) + DOUBLE_BITS
    if reach > MOST_SLICES * bits:
        return None
    rest = np.ldexp(values, -exponents)
    found: list[Array] = []
    while rest.any():
        rounder = 1.5 * 2.0 ** (DOUBLE_BITS - 1 - bits * (len(found) + 1))
        part = (rest + rounder) - rounder
        found.append(part)
        rest = rest - part
    return found or [rest], exponents
