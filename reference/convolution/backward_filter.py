"""Compute the gradient of a convolution by its filter (6.2.2): for each tap, a product of dy with the input under it.

All algorithms share one definition (docs/errata.md, D280): a matrix product over images and output positions for each
group.
"""

from __future__ import annotations

from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.operations import ConvolutionBackwardFilter

from ..blocks import estimate_type, meeting
from ..engine import Exact, implements
from ..precise_product import product_of_doubles
from ..view import Array
from .bounds import (
    FFT_ROUNDINGS,
    TRANSFORM_ROUNDINGS,
    at_least,
    in_float,
    in_range,
    of_sums,
    transform_levels,
    winograd_growth,
)

WINOGRAD = Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED
FFT = (Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING)
WINOGRAD_TILE = 6


@implements(ConvolutionBackwardFilter)
def convolution_backward_filter(operation: ConvolutionBackwardFilter, x: Array, dy: Array) -> Exact:
    """Compute result[g K + k, c, r], summed over n and p.

    The terms are dy[n, g K + k, p] * x[n, g C + c, p * stride + r * dilation - pad].
    """
    o = operation
    estimates = estimate_type(o.convolution.compute_type, o.terms)
    direct = o.algo != WINOGRAD and o.algo not in FFT

    def squares() -> Array:
        return _gradient(o, *(np.square(values.astype(estimates)) for values in (x, dy)))

    spread = partial(of_sums, o, o.dy.data_type, squares) if direct else None
    return Exact(_gradient(o, x, dy), partial(_magnitude, o, x, dy), roundings(o), mixed=not direct, spread=spread)


def _gradient(o: ConvolutionBackwardFilter, x: Array, dy: Array) -> Array:
    convolution, (filters, channels, *taps) = o.convolution, o.dw.dims
    groups, images, positions = convolution.group_count, dy.shape[0], dy.shape[2:]
    incoming = np.moveaxis(dy.reshape(images, groups, -1, *positions), 0, 2).reshape(groups, filters // groups, -1)
    inputs = np.moveaxis(x.reshape(images, groups, channels, *x.shape[2:]), 0, 1)  # (G, N, C, spatial ...)
    dw = np.empty((groups, filters // groups, channels, *taps), dy.dtype)
    for tap in product(*map(range, taps)):
        local = np.zeros((*inputs.shape[:3], *positions), dy.dtype)
        geometry = zip(
            tap, convolution.dilation, convolution.padding, convolution.stride, x.shape[2:], positions, strict=True
        )
        met = [
            meeting(t * dilation - padding, stride, extent, slice(0, p))
            for t, dilation, padding, stride, extent, p in geometry
        ]
        every = (slice(None),) * 3
        local[(*every, *(there for there, _ in met))] = inputs[(*every, *(here for _, here in met))]
        under = np.moveaxis(local, 2, -1).reshape(groups, -1, channels)
        at_tap: Any = (..., *tap)
        dw[at_tap] = product_of_doubles(incoming, under)
    result: Array = dw.reshape(o.dw.dims)
    return np.flip(result, tuple(range(2, result.ndim))) if convolution.is_flipped else result


def roundings(o: ConvolutionBackwardFilter) -> float:
    if o.algo == WINOGRAD:
        tiles = o.dy.dims[0] * prod(-(-extent // 2) for extent in o.dy.dims[2:])  # tiles have at least 2 x 2 elements
        steps = tiles + TRANSFORM_ROUNDINGS
    elif o.algo in FFT:
        steps = 2 * o.x.dims[0] + FFT_ROUNDINGS * transform_levels(o.convolution, o.x.dims, o.dy.dims)
    else:
        steps = o.terms
    return in_float(steps, o.convolution, o.dy.data_type)


def _magnitude(o: ConvolutionBackwardFilter, x: Array, dy: Array) -> Array:
    """Return the size that the roundings are relative to, by algorithm as for the forward convolution (bounds.py).

    In Winograd's algorithm a tile of dy enters a transform as the filter of a forward convolution does. Every value of
    a tile of x enters with every tap. So the sum over the tiles is at most the largest x times the sum of dy, for each
    image.
    """
    x, dy = (np.abs(values).astype(np.float64) for values in (x, dy))
    axes = tuple(range(2, x.ndim))
    if o.algo in FFT:
        terms = _over_images(o, *(np.sqrt(np.square(values).sum(axis=axes)) for values in (x, dy)))
    elif o.algo == WINOGRAD:
        taps = o.dw.dims[2]
        growth = winograd_growth(taps, WINOGRAD_TILE + 1 - taps) ** o.convolution.rank
        terms = growth * _over_images(o, x.max(axis=axes), dy.sum(axis=axes))
    else:
        estimates = estimate_type(o.convolution.compute_type, o.terms)
        terms = at_least(_gradient(o, x.astype(estimates), dy.astype(estimates)), o.terms)
    return in_range(terms, o.convolution.compute_type)


def _over_images(o: ConvolutionBackwardFilter, x: Array, dy: Array) -> Array:
    """Sum dy (N, K) * x (N, C) over the images, for every element of dw."""
    groups, (filters, channels, *taps) = o.convolution.group_count, o.dw.dims
    by_group = np.matmul(
        np.moveaxis(dy.reshape(len(dy), groups, -1), 0, 2), np.moveaxis(x.reshape(len(x), groups, -1), 0, 1)
    )
    return np.broadcast_to(by_group.reshape(filters, channels, *(1 for _ in taps)), o.dw.dims)
