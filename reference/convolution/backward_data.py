"""Compute the gradient of a convolution by its input (5.2.8): every filter tap adds to dx.

All algorithms share one definition (docs/errata.md, D212). A tap meets every ``stride``-th element of dx, each with one
element of dy or a zero outside. One matrix product over the output channels of each group covers all taps; a strided
sum for each tap follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.operations import ConvolutionBackwardData

from ..blocks import FLOAT64_BYTES, blocks, estimate_type, meeting, unbuffered
from ..engine import Exact, implements
from ..precise_product import product_of_doubles
from ..view import Array
from .bounds import (
    FFT_ROUNDINGS,
    TRANSFORM_ROUNDINGS,
    WINOGRAD_OUTPUTS,
    at_least,
    in_float,
    in_range,
    of_sums,
    transform_levels,
    winograd_growth,
)

WINOGRAD = (
    Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD,
    Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED,
)
FFT = (Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING)
PRODUCT_BYTES = 2**21  # bounds the products of a block of dy with all taps, so that they stay in the cache
INSIDE_BYTES = 2**23  # bounds dy and its products with images inside, where long rows matter more than the cache
MIN_CHANNELS = 4  # channels of a product with images inside; a matrix product with fewer has too few rows
MIN_IMAGES = 4  # images inside at once; with fewer, long rows do not repay the transposition
Steps = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]  # dilation, padding and stride


@implements(ConvolutionBackwardData)
def convolution_backward_data(operation: ConvolutionBackwardData, w: Array, dy: Array) -> Exact:
    """Compute result[n, g C + c, h], summed over k and taps r.

    The terms are dy[n, g K + k, (h + pad - r * dilation) / stride] * w[g K + k, c, r].
    """
    o = operation
    estimates = estimate_type(o.convolution.compute_type, o.terms)
    direct = o.algo not in WINOGRAD and o.algo not in FFT

    def squares() -> Array:
        return _gradient(o, *(np.square(values.astype(estimates)) for values in (w, dy)))

    spread = partial(of_sums, o, o.dy.data_type, squares) if direct else None
    return Exact(_gradient(o, w, dy), partial(_magnitude, o, w, dy), roundings(o), mixed=not direct, spread=spread)


def _gradient(o: ConvolutionBackwardData, w: Array, dy: Array) -> Array:
    groups, rank = o.convolution.group_count, o.convolution.rank
    weights = w.reshape(groups, -1, *w.shape[1:]).swapaxes(1, 2)  # (G, C, K, taps ...)
    if o.convolution.is_flipped:
        weights = np.flip(weights, tuple(range(3, 3 + rank)))
    images, _, *spatial = o.dx.dims
    incoming = np.moveaxis(dy.reshape(images, groups, -1, *dy.shape[2:]), 0, 2)  # (G, K, N, positions ...)
    dx = np.zeros((groups, weights.shape[1], images, *spatial), dy.dtype)
    if not np.isfinite(w).all():
        _add_tap_by_tap(o, weights, incoming, dx)
    elif together := _images_together(o):
        parts = [_images_inside(o, weights, incoming[:, :, i : i + together]) for i in range(0, images, together)]
        dx = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
    else:
        _add_all_taps(_steps(o), weights, incoming, dx, PRODUCT_BYTES)
    return np.moveaxis(dx, 2, 0).reshape(o.dx.dims)


def _steps(o: ConvolutionBackwardData) -> Steps:
    return o.convolution.dilation, o.convolution.padding, o.convolution.stride


def _images_together(o: ConvolutionBackwardData) -> int:
    """Return how many images have products and dy that fit in the bound, or 0 where they are too few to go inside."""
    (filters, channels, *taps), (images, _, *positions) = o.w.dims, o.dy.dims
    products = o.convolution.group_count * prod(taps) * min(channels, MIN_CHANNELS)
    parts = -(-images * (products + filters) * prod(positions) * FLOAT64_BYTES // INSIDE_BYTES)
    together = -(-images // parts)
    return together if together >= MIN_IMAGES else 0


def _images_inside(o: ConvolutionBackwardData, weights: Array, dy: Array) -> Array:
    """Compute dx as ``_add_all_taps`` does, with the images as the last spatial dimension: short rows become long."""
    dx = np.zeros((*weights.shape[:2], 1, *o.dx.dims[2:], dy.shape[2]), dy.dtype)
    dilation, padding, stride = _steps(o)
    steps = (*dilation, 1), (*padding, 0), (*stride, 1)
    last = np.ascontiguousarray(np.moveaxis(dy, 2, -1))
    _add_all_taps(steps, weights[..., None], last[:, :, None], dx, INSIDE_BYTES)
    return np.moveaxis(dx[:, :, 0], -1, 2)


def _add_all_taps(steps: Steps, weights: Array, dy: Array, dx: Array, block_bytes: int) -> None:
    """Add to dx (G, C, N, spatial ...) the products of weights (G, C, K, taps ...) and dy (G, K, N, positions ...).

    One matrix product covers all taps of a block of images and channels. It skips the zeros outside dy, so the weights
    must be finite.
    """
    taps, positions = weights.shape[3:], dy.shape[3:]
    geometry = zip(taps, *steps, dx.shape[3:], positions, strict=True)
    met = [
        [meeting(t * dilation - padding, stride, extent, slice(0, count)) for t in range(size)]
        for size, dilation, padding, stride, extent, count in geometry
    ]
    by_tap = np.moveaxis(weights, 2, -1)  # (G, C, taps ..., K)
    memory = np.empty(0, dy.dtype)  # Blocks reuse this memory: fresh pages would cost as much time as the product.
    for images, channels in blocks(
        dx.shape[2:0:-1], prod(dy.shape[:1] + taps + positions) * FLOAT64_BYTES, block_bytes
    ):
        factors, values = by_tap[:, channels], dy[:, :, images]
        left, right = factors.reshape(len(dy), -1, factors.shape[-1]), values.reshape(len(dy), values.shape[1], -1)
        if memory.shape != (len(dy), left.shape[1], right.shape[2]):
            memory = np.empty((len(dy), left.shape[1], right.shape[2]), dy.dtype)
        found = product_of_doubles(left, right, memory).reshape(*factors.shape[:-1], -1, *positions)
        block = dx[:, channels, images]
        with unbuffered():
            for tap in product(*map(range, taps)):
                meets = [of_dimension[t] for of_dimension, t in zip(met, tap, strict=True)]
                here: Any = (..., *(slices[1] for slices in meets))
                there: Any = (slice(None), slice(None), *tap, slice(None), *(slices[0] for slices in meets))
                block[here] += found[there]


def _add_tap_by_tap(o: ConvolutionBackwardData, weights: Array, dy: Array, dx: Array) -> None:
    """Add the same products tap by tap, with zeros around dy.

    Beside an infinite weight these zeros count: 0 * infinity is NaN.
    """
    for tap, met, positions in _taps(o):
        local = _extended(dy, positions)
        at_tap: Any = (..., *tap)
        found = product_of_doubles(weights[at_tap], local.reshape(*local.shape[:2], -1))
        dx[(slice(None),) * 3 + met] += found.reshape(*dx.shape[:3], *local.shape[3:])


def _taps(o: ConvolutionBackwardData) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...], tuple[range, ...]]]:
    """Yield every tap that meets dx, the elements of dx it meets, and the positions of dy it takes.

    Some of these positions may be outside dy.
    """
    convolution = o.convolution
    found = []
    geometry = zip(
        o.w.dims[2:], o.dx.dims[2:], convolution.padding, convolution.stride, convolution.dilation, strict=True
    )
    for taps, extent, padding, stride, dilation in geometry:
        of_dimension = []
        for tap in range(taps):
            first = (tap * dilation - padding) % stride
            count = len(range(first, extent, stride))
            position = (first + padding - tap * dilation) // stride
            if count:
                of_dimension.append((tap, slice(first, extent, stride), range(position, position + count)))
        found.append(of_dimension)
    for chosen in product(*found):
        yield tuple(c[0] for c in chosen), tuple(c[1] for c in chosen), tuple(c[2] for c in chosen)


def _extended(dy: Array, positions: tuple[range, ...]) -> Array:
    """Return dy at these positions of its last dimensions, with zeros outside."""
    local = np.zeros((*dy.shape[:3], *map(len, positions)), dy.dtype)
    there, here = [], []
    for wanted, extent in zip(positions, dy.shape[3:], strict=True):
        first, last = max(wanted.start, 0), min(wanted.stop, extent)
        if last <= first:
            return local
        there.append(slice(first - wanted.start, last - wanted.start))
        here.append(slice(first, last))
    every = (slice(None),) * 3
    local[(*every, *there)] = dy[(*every, *here)]
    return local


def roundings(o: ConvolutionBackwardData) -> float:
    filters = o.w.dims[0] // o.convolution.group_count
    if o.algo in WINOGRAD:
        steps = filters + TRANSFORM_ROUNDINGS
    elif o.algo in FFT:
        steps = 2 * filters + FFT_ROUNDINGS * transform_levels(o.convolution, o.dx.dims, o.w.dims)
    else:
        steps = o.terms
    return in_float(steps, o.convolution, o.dy.data_type)


def _magnitude(o: ConvolutionBackwardData, w: Array, dy: Array) -> Array:
    """Return the size that the roundings are relative to, by algorithm as for the forward convolution (bounds.py)."""
    w, dy = (np.abs(values).astype(np.float64) for values in (w, dy))
    if o.algo in FFT:
        terms = _over_filters(o, _norms(dy), _norms(w))
    elif o.algo in WINOGRAD:
        growth = winograd_growth(WINOGRAD_OUTPUTS, o.w.dims[2]) ** o.convolution.rank
        largest = w.max(axis=(2, 3), keepdims=True)
        terms = growth * _over_filters(o, _largest_nearby(o, dy), largest)
    else:
        estimates = estimate_type(o.convolution.compute_type, o.terms)
        terms = at_least(_gradient(o, w.astype(estimates), dy.astype(estimates)), o.terms)
    return in_range(terms, o.convolution.compute_type)


def _norms(values: Array) -> Array:
    axes = tuple(range(2, values.ndim))
    norms: Array = np.sqrt(np.square(values).sum(axis=axes, keepdims=True))
    return norms


def _largest_nearby(o: ConvolutionBackwardData, dy: Array) -> Array:
    """Return the largest dy over all tiles that may contain an element of dx."""
    around, (rows, columns) = WINOGRAD_OUTPUTS - 1, o.dx.dims[2:]
    taps = o.w.dims[2]
    reach = taps + 2 * around
    # dx[h] meets dy[h + pad - r]; tiles begin up to ``around`` elements before h.
    first = [padding - (taps - 1) - around for padding in o.convolution.padding]
    local = _extended(
        dy[:, None], tuple(range(f, f + extent + reach - 1) for f, extent in zip(first, (rows, columns), strict=True))
    )
    seen = np.lib.stride_tricks.sliding_window_view(local[:, 0], (reach, reach), axis=(2, 3))
    largest: Array = seen.max(axis=(-2, -1))
    return largest


def _over_filters(o: ConvolutionBackwardData, dy: Array, w: Array) -> Array:
    """Sum dy (N, K, ...) * w (K, C / groups, 1 ...) over the output channels of a group, for every element of dx."""
    groups = o.convolution.group_count
    weights = w.reshape(groups, -1, w.shape[1]).swapaxes(1, 2)
    values = dy.reshape(dy.shape[0], groups, weights.shape[2], -1)
    found = np.matmul(weights, values).reshape(dy.shape[0], o.dx.dims[1], *dy.shape[2:])
    return np.broadcast_to(found, o.dx.dims)
