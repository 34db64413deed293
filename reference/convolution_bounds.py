"""How far a correct convolution may be from the exact one, algorithm by algorithm.

Direct algorithms (the three GEMMs): each of n products is rounded at most once and goes through at most n - 1 sums, so
the error is at most n roundings of the sum of absolute terms, in any order. Tensor cores add without rounding to
nearest: up to two roundings per sum.

Winograd: y = A'((G g G') * (B' d B))A. Every value of the input tile enters every output of the tile, so the magnitude
is that of the largest value nearby: sum over channels of max|d| * max|g| times the growth of the transforms, the largest
row of |A'| (|G| 1 * |B'| 1), once per dimension.

FFT: a transform of length L has a relative error of O(log2 L) roundings in the 2-norm (Higham 2002, theorem 24.2), so
the error is relative to the sum over channels of the norms of image and filter.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import ceil, log2

import numpy as np
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t
from dualdnn.api.operations import ConvolutionBiasActivationForward, ConvolutionForward, allows_tf32
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT32

from .convolution_product import convolve
from .view import Array

Convolution = ConvolutionForward | ConvolutionBiasActivationForward
Algo = cudnnConvolutionFwdAlgo_t
WINOGRAD = (
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
)
FFT = (Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT, Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING)

FLOAT_UNIT, HALF_UNIT, TF32_UNIT = 2.0**-24, 2.0**-11, 2.0**-11
# One underflow per rounding: a subnormal or flushed result is off by up to the smallest normal number, which is this
# times the unit of the type.
SMALLEST_TERM = {FLOAT: 2.0**-102, HALF: 2.0**-14, DOUBLE: 2.0**-969}
LARGEST_HALF = 65504.0
INT32_LIMIT = 2.0**31
TRANSFORM_ROUNDINGS = 24  # two dimensions of three transforms, each a sum of at most 4 products that is rounded
FFT_ROUNDINGS = 18  # three transforms, 6 per radix-2 step: a complex product (4), a sum (1), the twiddle factor (1)
WINOGRAD_OUTPUTS = 4  # outputs of a tile in each dimension: F(4 x 4, 3 x 3) bounds F(2 x 2, 3 x 3) too


def roundings(operation: Convolution) -> float:
    """Roundings of FLOAT (DOUBLE for double) that every term may go through."""
    compute = operation.convolution.compute_type
    if compute == INT32:
        return 1  # the exact sum becomes a float
    channels = operation.w.dims[1]
    if operation.algo in WINOGRAD:
        steps = channels + TRANSFORM_ROUNDINGS
    elif operation.algo in FFT:
        steps = 2 * channels + FFT_ROUNDINGS * _transform_levels(operation)
    else:
        steps = operation.terms
    if compute == DOUBLE:
        return steps
    if compute == HALF:
        return steps * HALF_UNIT / FLOAT_UNIT
    tensor_cores = operation.x.data_type in (HALF, BFLOAT16) or allows_tf32(operation.convolution)
    total: float = steps * (2 if tensor_cores else 1)
    if operation.x.data_type == FLOAT and allows_tf32(operation.convolution):
        total += 2 * TF32_UNIT / FLOAT_UNIT  # both factors of each product are rounded
    return total


def magnitude(operation: Convolution, x: Array, w: Array, value: Array) -> Array:
    """What the roundings are relative to."""
    x, w = np.abs(x).astype(np.float64), np.abs(w).astype(np.float64)
    compute = operation.convolution.compute_type
    convolution = operation.convolution
    if convolution.is_flipped:
        w = np.flip(w, tuple(range(2, w.ndim)))
    if compute == INT32:
        terms = convolve(x, w, convolution)
        return np.where(terms < INT32_LIMIT, np.abs(value), np.inf)
    if operation.algo in WINOGRAD:
        terms = _winograd_magnitude(operation, x, w)
    elif operation.algo in FFT:
        spatial = tuple(range(2, x.ndim))
        terms = _over_channels(operation, _norm(x, spatial), _norm(w, spatial))
    else:
        terms = convolve(x, w, convolution)
    terms = terms + SMALLEST_TERM[compute]
    if compute == HALF:
        # A partial sum beyond the range of half makes the result arbitrary.
        return np.where(terms < LARGEST_HALF, terms, np.inf)
    return terms


def _norm(values: Array, axes: tuple[int, ...]) -> Array:
    return np.sqrt(np.sum(values * values, axis=axes, keepdims=True))


def _over_channels(operation: Convolution, x: Array, w: Array) -> Array:
    """sum over the channels of a group of x (N, C, spatial) * w (K, C / groups, 1 ...)."""
    groups = operation.convolution.group_count
    images, channels, *spatial = x.shape
    grouped = x.reshape(images, groups, channels // groups, -1)
    filters = w.reshape(groups, -1, channels // groups)
    return np.matmul(filters, grouped).reshape(images, -1, *spatial)


def _winograd_magnitude(operation: Convolution, x: Array, w: Array) -> Array:
    """max|d| over all tiles that an output may lie in, max|g|, and the growth of the transforms."""
    spatial = tuple(range(2, x.ndim))
    taps = operation.w.dims[2]
    reach = taps + 2 * (WINOGRAD_OUTPUTS - 1)
    padding = [(p + WINOGRAD_OUTPUTS - 1, p + WINOGRAD_OUTPUTS - 1) for p in operation.convolution.padding]
    nearby = np.pad(x, [(0, 0), (0, 0), *padding])
    for axis in spatial:
        nearby = np.lib.stride_tricks.sliding_window_view(nearby, reach, axis=axis).max(axis=-1)
    growth = winograd_growth(WINOGRAD_OUTPUTS, taps) ** len(spatial)
    return growth * _over_channels(operation, nearby, w.max(axis=spatial, keepdims=True))


def _transform_levels(operation: Convolution) -> int:
    """Radix-2 steps of a transform of the padded image in all dimensions."""
    sizes = zip(operation.x.dims[2:], operation.convolution.padding, operation.w.dims[2:], strict=True)
    return sum(ceil(log2(size + 2 * padding + taps)) for size, padding, taps in sizes)


@cache
def winograd_growth(outputs: int, taps: int) -> float:
    """The largest row of |A'| (|G| 1 * |B'| 1) of F(outputs, taps) with the points 0, 1, -1, 2, -2, 1/2, -1/2, infinity."""
    a, g, b = (np.abs(matrix.astype(np.float64)) for matrix in winograd_matrices(outputs, taps))
    return float((a @ (g.sum(axis=1) * b.sum(axis=1))).max())


POINTS = tuple(Fraction(n, d) for n, d in ((0, 1), (1, 1), (-1, 1), (2, 1), (-2, 1), (1, 2), (-1, 2)))


def winograd_matrices(outputs: int, taps: int) -> tuple[Array, Array, Array]:
    """(A', G, B') of F(outputs, taps), exact: interpolation at outputs + taps - 2 points and infinity (Toom-Cook)."""
    size = outputs + taps - 1
    points = POINTS[: size - 1]
    a = np.array([[p**i for p in points] + [Fraction(int(i == outputs - 1))] for i in range(outputs)], object)
    scales = [_product(p - q for q in points if q != p) for p in points]
    evaluated = [[p**j / scale for j in range(taps)] for p, scale in zip(points, scales, strict=True)]
    g = np.array([*evaluated, [Fraction(int(j == taps - 1)) for j in range(taps)]], object)
    rows = [_polynomial([q for q in points if q != p]) for p in points]
    b = np.array([*(row + [Fraction(0)] * (size - len(row)) for row in rows), _polynomial(list(points))], object)
    return a, g, b


def _product(factors: object) -> Fraction:
    result = Fraction(1)
    for factor in factors:  # type: ignore[attr-defined]
        result *= factor
    return result


def _polynomial(roots: list[Fraction]) -> list[Fraction]:
    """Coefficients, lowest first, of the product of (t - root)."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [s - root * c for s, c in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return coefficients
