"""Bound how far a correct convolution may be from the exact one, for each algorithm.

Direct algorithms (the three GEMMs) round each of n products at most once and add it in at most n - 1 sums. So the error
is at most n roundings of the sum of absolute terms, in any order. Tensor cores truncate their sums, which costs up to
two roundings per sum.

Winograd computes y = A'((G g G') * (B' d B))A. Every value of an input tile enters every output of the tile, so the
magnitude depends on the largest value nearby. It is the sum over channels of max|d| * max|g|, times the growth of the
transforms for each dimension. The growth is the largest row of |A'| (|G| 1 * |B'| 1).

An FFT of length L has a relative error of O(log2 L) roundings in the 2-norm (Higham 2002, theorem 24.2). So the error
is relative to the sum over channels of the norms of image and filter.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache, cached_property
from math import ceil, log2, prod
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t, cudnnDataType_t
from dualdnn.api.operations import ConvolutionBiasActivationForward, ConvolutionForward, ConvolutionSpec, allows_tf32
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT32

from ..blocks import Part, ReadFilter, axis, blocks, gather, local_input, windows
from ..spread import Spread
from ..view import Array

Convolution = ConvolutionForward | ConvolutionBiasActivationForward
Algo = cudnnConvolutionFwdAlgo_t
WINOGRAD = (
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
    Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
)
FFT = (Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT, Algo.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING)
TRANSFORMS = (*WINOGRAD, *FFT)

FLOAT_UNIT = 2.0**-24  # unit roundoff
HALF_UNIT = 2.0**-11  # unit roundoff
TF32_UNIT = 2.0**-11  # unit roundoff
# These terms allow one underflow per rounding: a subnormal or flushed result errs by up to the smallest normal number.
# The smallest normal number is this term times the unit of the type.
MIN_TERM = {FLOAT: 2.0**-102, HALF: 2.0**-14, DOUBLE: 2.0**-969}
MAX_HALF = 65504.0  # the largest number of half
MIN_FLOAT = 2.0**-149  # the least subnormal number of float
INT32_LIMIT = 2.0**31
TRANSFORM_ROUNDINGS = 24  # two dimensions of three transforms, each a rounded sum of at most 4 products
FFT_ROUNDINGS = 18  # three transforms, 6 per radix-2 step: a complex product (4), a sum (1), the twiddle factor (1)
BLOCK_BYTES = 2**23  # bytes of float64 values that are read at a time for norms and maxima
# Outputs that share a factor err together if it is rounded to TF32. Errors of fewer groups of them tell nothing.
MIN_GROUPS = 16
WINOGRAD_OUTPUTS = 4  # outputs of a tile in each dimension: F(4 x 4, 3 x 3) also bounds F(2 x 2, 3 x 3)


def roundings(operation: Convolution) -> float:
    """Return how many roundings of FLOAT (DOUBLE for double) every term may go through."""
    if operation.convolution.compute_type == INT32:
        return 1  # The exact sum is converted to float.
    channels = operation.w.dims[1]
    if operation.algo in WINOGRAD:
        steps = channels + TRANSFORM_ROUNDINGS
    elif operation.algo in FFT:
        steps = 2 * channels + FFT_ROUNDINGS * transform_levels(
            operation.convolution, operation.x.dims, operation.w.dims
        )
    else:
        steps = operation.terms
    return in_float(steps, operation.convolution, operation.x.data_type)


def in_float(steps: int, convolution: ConvolutionSpec, data_type: cudnnDataType_t) -> float:
    """Convert ``steps`` roundings of the convolution's compute type to roundings of FLOAT (DOUBLE for double)."""
    compute = convolution.compute_type
    if compute == DOUBLE:
        return steps
    if compute == HALF:
        return steps * HALF_UNIT / FLOAT_UNIT
    tensor_cores = data_type in (HALF, BFLOAT16) or allows_tf32(convolution)
    total: float = steps * (2 if tensor_cores else 1)
    if data_type == FLOAT and allows_tf32(convolution):
        total += 2 * TF32_UNIT / FLOAT_UNIT  # Both factors of each product are rounded.
    return total


def in_range(terms: Array, compute: cudnnDataType_t) -> Array:
    """Return the size that roundings are relative to, given sums of absolute terms.

    It adds the smallest term for underflows, and is infinite where a sum may overflow.
    """
    found = terms + MIN_TERM[compute]
    if compute == HALF:
        # A partial sum beyond the range of half makes the result arbitrary.
        return np.where(found < MAX_HALF, found, np.inf)
    return found


def spread(operation: Convolution, squares: Array, further: int = 0) -> Spread | None:
    """Return the statistical model of the errors, or None for transforms, which have only a worst case.

    squares holds the sums of the squared terms. further counts the roundings after the sum.
    """
    if operation.algo in (*WINOGRAD, *FFT):
        return None
    return of_sums(operation, operation.x.data_type, lambda: squares, further)


def of_sums(
    operation: Any, data_type: cudnnDataType_t, squares: Callable[[], Array], further: int = 0
) -> Spread | None:
    """Return the statistical model of the errors of direct sums of products, or None for other compute types."""
    if operation.convolution.compute_type not in (FLOAT, DOUBLE):
        return None
    tf32 = data_type == FLOAT and allows_tf32(operation.convolution)
    cores = tf32 or data_type in (HALF, BFLOAT16)
    return Spread(
        np.sqrt(squares()),
        operation.terms * (2 if cores else 1) + further,
        factors=TF32_UNIT if tf32 else 0.0,
        cut=operation.terms if cores else 0,
        independent=True,
        shares_factors=tf32 and _groups(operation) < MIN_GROUPS,
    )


def _groups(operation: Any) -> int:
    """Return how many groups of outputs share no factor: one for each filter or pixel, whichever are fewer."""
    output = operation.outputs[0]
    dims = operation.tensor(output).dims
    return min(dims[1], dims[0] if output == "dw" else dims[0] * prod(dims[2:]))


class Magnitudes:
    """Compute the size that the roundings are relative to, for each part of a convolution."""

    def __init__(self, operation: Convolution, x: Array, read_filter: ReadFilter) -> None:
        self.operation, self.x, self.read_filter = operation, x, read_filter

    def __call__(self, part: Part) -> Array:
        compute = self.operation.convolution.compute_type
        if compute == INT32:
            return np.where(part.sizes() < INT32_LIMIT, np.abs(part.sums), np.inf)
        return in_range(self._terms(part), compute)

    @cached_property
    def _terms(self) -> Callable[[Part], Array]:
        if self.operation.algo in WINOGRAD:
            return _winograd_terms(self.operation, self.x, self.read_filter)
        if self.operation.algo in FFT:
            return _fft_terms(self.operation, self.x, self.read_filter)
        return self._direct_terms

    def _direct_terms(self, part: Part) -> Array:
        return at_least(part.sizes(), self.operation.terms)


def at_least(sizes: Array, terms: int) -> Array:
    """Return an upper bound in float64 of sums of absolute values, given the sums computed in ``estimate_type``.

    In float32 each value has at most ``terms`` roundings, so the exact sum is at most the computed one / (1 - terms *
    unit). Up to MAX_IN_FLOAT32 terms this is at most the computed sum * (1 + 2 * terms * unit). Each product may also
    lose a subnormal number.
    """
    if sizes.dtype != np.float32:
        return sizes
    found: Array = sizes * np.float64(1 + 2 * terms * FLOAT_UNIT)
    found += terms * MIN_FLOAT
    return found


def _winograd_terms(operation: Convolution, x: Array, read_filter: ReadFilter) -> Callable[[Part], Array]:
    """Return a function of max|d| over all tiles that may contain an output, times max|g| and the growth of the
    transforms.
    """
    convolution, taps = operation.convolution, operation.w.dims[2]
    around = WINOGRAD_OUTPUTS - 1
    reach = taps + 2 * around
    growth = winograd_growth(WINOGRAD_OUTPUTS, taps) ** convolution.rank
    largest = cache(lambda: _of_filters(operation, read_filter, lambda w: np.abs(w).max(axis=-1)))

    def terms(part: Part) -> Array:
        images, _, *positions = part.place
        axes = [
            axis(extent, padding + around, 1, 1, (p.start, p.stop), (0, reach))
            for extent, padding, p in zip(operation.x.dims[2:], convolution.padding, positions, strict=True)
        ]
        how = gather(slice(0, operation.x.dims[1]), images, axes)
        nearby = np.abs(windows(local_input(x, how), how)).max(axis=tuple(range(1, 1 + len(axes)))).swapaxes(0, 1)
        return growth * _over_channels(operation, nearby, largest()[part.place[1]], part.place[1])

    return terms


def _fft_terms(operation: Convolution, x: Array, read_filter: ReadFilter) -> Callable[[Part], Array]:
    """Return a function that sums the norms of image and filter over the channels."""
    filters = cache(lambda: np.sqrt(_of_filters(operation, read_filter, lambda w: np.square(w).sum(axis=-1))))

    @cache
    def images() -> Array:
        squares = np.zeros(operation.x.dims[:2])
        ones = [(extent, 0, 1, 1) for extent in operation.x.dims[2:]]
        for some, channels, *parts in blocks(operation.x.dims, np.dtype(np.float64).itemsize, BLOCK_BYTES):
            axes = [axis(*one, (p.start, p.stop), (0, 1)) for one, p in zip(ones, parts, strict=True)]
            values = local_input(x, gather(channels, some, axes))
            squares[some, channels] += np.square(values).reshape(*values.shape[:2], -1).sum(axis=-1).T
        return np.sqrt(squares)

    def terms(part: Part) -> Array:
        some, which, *positions = part.place
        norms = images()[some].reshape(-1, operation.x.dims[1], *(1 for _ in positions))
        return _over_channels(operation, norms, filters()[which], which)

    return terms


def _of_filters(operation: Convolution, read_filter: ReadFilter, reduced: Callable[[Array], Array]) -> Array:
    """Reduce the taps of each filter and channel to one number: (K, C / groups)."""
    filters, channels, *sizes = operation.w.dims
    per_channel = np.dtype(np.float64).itemsize * prod(sizes)
    found = np.empty((filters, channels))
    for place in blocks((filters, channels), per_channel, BLOCK_BYTES):
        values = read_filter(place, np.float64)
        found[place] = reduced(values.reshape(*values.shape[:2], -1))
    return found


def _over_channels(operation: Convolution, x: Array, w: Array, filters: slice) -> Array:
    """Sum x (N, C, spatial) * w (filters, C / groups) over the channels of each group, for a range of filters."""
    groups, images = operation.convolution.group_count, len(x)
    per_group = operation.w.dims[0] // groups
    grouped = x.reshape(images, groups, x.shape[1] // groups, -1)
    found = []
    for group in range(filters.start // per_group, ceil(filters.stop / per_group)):
        first = group * per_group - filters.start
        found.append(np.matmul(w[max(0, first) : first + per_group], grouped[:, group]))
    return np.concatenate(found, axis=1).reshape(images, -1, *x.shape[2:])


def transform_levels(convolution: ConvolutionSpec, image_dims: tuple[int, ...], filter_dims: tuple[int, ...]) -> int:
    """Return the radix-2 steps of a transform of the padded image in all dimensions."""
    sizes = zip(image_dims[2:], convolution.padding, filter_dims[2:], strict=True)
    return sum(ceil(log2(size + 2 * padding + taps)) for size, padding, taps in sizes)


@cache
def winograd_growth(outputs: int, taps: int) -> float:
    """Return the largest row of |A'| (|G| 1 * |B'| 1) of F(outputs, taps).

    The points are 0, 1, -1, 2, -2, 1/2, -1/2 and infinity.
    """
    a, g, b = (np.abs(matrix.astype(np.float64)) for matrix in winograd_matrices(outputs, taps))
    return float((a @ (g.sum(axis=1) * b.sum(axis=1))).max())


POINTS = tuple(Fraction(n, d) for n, d in ((0, 1), (1, 1), (-1, 1), (2, 1), (-2, 1), (1, 2), (-1, 2)))


def winograd_matrices(outputs: int, taps: int) -> tuple[Array, Array, Array]:
    """Return the exact (A', G, B') of F(outputs, taps), by interpolation at outputs + taps - 2 points and
    infinity (Toom-Cook).
    """
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
    """Return the coefficients, lowest first, of the product of (t - root)."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [s - root * c for s, c in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return coefficients
