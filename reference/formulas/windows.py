"""Evaluate formulas over a window or a row: pooling, local response and divisive normalization, softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
from dualdnn.api.enumerations import cudnnPoolingMode_t as Pooling
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t as Algorithm
from dualdnn.api.enumerations import cudnnSoftmaxMode_t as Mode
from dualdnn.api.operations import (
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    PoolingBackward,
    PoolingForward,
    SoftmaxBackward,
    SoftmaxForward,
)
from dualdnn.api.operations.numpy_layout import NUMPY_TYPES
from dualdnn.api.operations.specs import DOUBLE

from .elements import Elements, Found, Index, exponential, power, quotient, total
from .pointwise import PROPAGATE

MAXIMA = (Pooling.CUDNN_POOLING_MAX, Pooling.CUDNN_POOLING_MAX_DETERMINISTIC)


def _lowest(spec: Any) -> float:
    """Return the lowest finite value, the maximum of a window without values (docs/errata.md, D091)."""
    dtype = NUMPY_TYPES[spec.scalar_type]
    return float(np.iinfo(dtype).min if dtype.kind in "iu" else ml_dtypes.finfo(dtype).min)


def _window(o: PoolingForward | PoolingBackward, place: Sequence[int]) -> list[range]:
    """Return the inputs under the window of an output position."""
    found = []
    for d, (i, extent) in enumerate(zip(place, o.x.dims[2:], strict=True)):
        start = i * o.pooling.stride[d] - o.pooling.padding[d]
        first = min(max(start, 0), extent)
        found.append(range(first, max(first, min(start + o.pooling.window[d], extent))))
    return found


def _divisor(o: PoolingForward | PoolingBackward, place: Sequence[int]) -> int:
    if o.pooling.mode == Pooling.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING:
        return math.prod(map(len, _window(o, place)))
    counts = []
    for d, (i, extent) in enumerate(zip(place, o.x.dims[2:], strict=True)):
        start, padding = i * o.pooling.stride[d] - o.pooling.padding[d], max(o.pooling.padding[d], 0)
        counts.append(max(0, min(start + o.pooling.window[d], extent + padding) - start))
    return math.prod(counts)


def pooling_forward(o: PoolingForward, _output: str, index: Index, read: Elements) -> Found:
    """Return the maximum or the average of a window (3.2.69; docs/errata.md, D090 and D091)."""
    n, c, *place = index
    values = read.box("x", [range(n, n + 1), range(c, c + 1), *_window(o, place)])
    if o.pooling.mode not in MAXIMA:
        divisor, sums = _divisor(o, place), total(values)
        return Found(quotient(sums, divisor), quotient(total(map(abs, values)), divisor), len(values) + 7)
    if o.pooling.nan == PROPAGATE and any(map(math.isnan, values)):
        return Found(math.nan, 0.0, 0)
    value = max((x for x in values if not math.isnan(x)), default=_lowest(o.y))
    return Found(value, abs(value), 0)


def pooling_backward(o: PoolingBackward, _output: str, index: Index, read: Elements) -> Found:
    """Return the sum over the windows that cover the place (4.1.18).

    Maximum pooling adds dy where the place is the first maximum; average pooling adds an equal share.
    """
    n, c, *place = index
    covering = []
    for d, (i, count) in enumerate(zip(place, o.dy.dims[2:], strict=True)):
        reach, stride = i + o.pooling.padding[d], o.pooling.stride[d]
        first = max(0, -((o.pooling.window[d] - 1 - reach) // stride))
        covering.append(range(first, max(first, min(count, reach // stride + 1))))
    shares = []
    for at in product(*covering):
        if o.pooling.mode not in MAXIMA:
            shares.append(quotient(read("dy", (n, c, *at)), _divisor(o, at)))
        elif _first_maximum(o, (n, c), at, read) == tuple(place):
            shares.append(read("dy", (n, c, *at)))
    return Found(total(shares), total(map(abs, shares)), len(shares) + 7)


def _first_maximum(o: PoolingBackward, plane: Index, place: Sequence[int], read: Elements) -> Index | None:
    window = _window(o, place)
    values = read.box("x", [range(i, i + 1) for i in plane] + window)
    best, where = -math.inf, None
    for x, at in zip(values, product(*window), strict=True):
        if math.isnan(x):
            if o.pooling.nan == PROPAGATE:
                return at
        elif where is None or x > best:
            best, where = x, at
    return where


def _narrowed(o: Any) -> tuple[float, float, float]:
    """Return alpha, beta and k of the descriptor, cast to the type of the tensors (3.2.83)."""
    dtype = NUMPY_TYPES[o.x.data_type].type
    if o.x.data_type == DOUBLE:
        return o.lrn.alpha, o.lrn.beta, o.lrn.k
    return float(dtype(o.lrn.alpha)), float(dtype(o.lrn.beta)), float(dtype(o.lrn.k))


def _around(n: int, i: int, extent: int) -> range:
    """Return the window of n positions around i. For an even n, the longer half follows i (3.2.83)."""
    behind = (n - 1) // 2
    return range(max(0, i - behind), min(extent, i - behind + n))


def _holding(n: int, i: int, extent: int) -> range:
    """Return the positions whose windows contain i."""
    ahead = n - 1 - (n - 1) // 2
    return range(max(0, i - ahead), min(extent, i - ahead + n))


def lrn_forward(o: LRNCrossChannelForward, _output: str, index: Index, read: Elements) -> Found:
    """Return x * (k + alpha / n * sum of x^2)^-beta over a window of channels (3.2.65; docs/errata.md, D079)."""
    return Found(read("x", index) * power(_lrn_base(o, index, read), -_narrowed(o)[1]))


def _lrn_base(o: Any, index: Index, read: Elements) -> float:
    alpha, _, k = _narrowed(o)
    n, c, *place = index
    channels = _around(o.lrn.n, c, o.x.dims[1])
    row = read.box("x", [range(n, n + 1), channels, *(range(i, i + 1) for i in place)])
    return k + alpha / o.lrn.n * total(x * x for x in row)


def lrn_backward(o: LRNCrossChannelBackward, _output: str, index: Index, read: Elements) -> Found:
    """Return dy * s^-beta - 2 alpha beta / n * x * sum of dy x s^(-beta - 1) (docs/errata.md, D179).

    The sum is over the channels whose windows contain this one.
    """
    alpha, beta, _ = _narrowed(o)
    n, c, *place = index
    terms = []
    for channel in _holding(o.lrn.n, c, o.x.dims[1]):
        at = (n, channel, *place)
        terms.append(read("dy", at) * read("x", at) * power(_lrn_base(o, at, read), -beta - 1))
    direct = read("dy", index) * power(_lrn_base(o, index, read), -beta)
    return Found(direct - 2 * alpha * beta / o.lrn.n * read("x", index) * total(terms))


def _mean(o: Any, index: Index, read: Elements) -> float:
    return read("means", index) if o.means is not None else 0.0


def _divisive_base(o: Any, index: Index, read: Elements) -> float:
    """Return k + alpha / n^d * sum of (x - m)^2 over the window around the place (3.2.33; docs/errata.md, D050).

    m is the mean at the centre.
    """
    alpha, _, k = _narrowed(o)
    n, c, *place = index
    window = [_around(o.lrn.n, i, extent) for i, extent in zip(place, o.x.dims[2:], strict=True)]
    row, mean = read.box("x", [range(n, n + 1), range(c, c + 1), *window]), _mean(o, index, read)
    return k + alpha / o.lrn.n ** len(place) * total((x - mean) ** 2 for x in row)


def divisive_forward(o: DivisiveNormalizationForward, _output: str, index: Index, read: Elements) -> Found:
    return Found(read("x", index) * power(_divisive_base(o, index, read), -_narrowed(o)[1]))


def divisive_backward(o: DivisiveNormalizationBackward, output: str, index: Index, read: Elements) -> Found:
    """Return the gradients of x and of the means as independent inputs (4.1.6; docs/errata.md, D168)."""
    alpha, beta, _ = _narrowed(o)
    n, c, *place = index
    extents, factor = o.x.dims[2:], 2 * alpha / o.lrn.n ** len(place) * beta

    def steep(at: Index) -> float:
        return read("dy", at) * read("x", at) * power(_divisive_base(o, at, read), -beta - 1)

    if output == "dMeans":
        window = [_around(o.lrn.n, i, extent) for i, extent in zip(place, extents, strict=True)]
        row, mean = read.box("x", [range(n, n + 1), range(c, c + 1), *window]), _mean(o, index, read)
        return Found(factor * steep(index) * total(x - mean for x in row))
    holding = [_holding(o.lrn.n, i, extent) for i, extent in zip(place, extents, strict=True)]
    x = read("x", index)
    terms = [steep((n, c, *at)) * (x - _mean(o, (n, c, *at), read)) for at in product(*holding)]
    direct = read("dy", index) * power(_divisive_base(o, index, read), -beta)
    return Found(direct - factor * total(terms))


def _row(o: SoftmaxForward | SoftmaxBackward, dims: Index, index: Index) -> list[range]:
    """Return the ranges that are normalised together: an image, or the channels at one place (3.1.2.24)."""
    n, _, *place = index
    if o.mode == Mode.CUDNN_SOFTMAX_MODE_INSTANCE:
        return [range(n, n + 1), *map(range, dims[1:])]
    return [range(n, n + 1), range(dims[1]), *(range(i, i + 1) for i in place)]


def softmax_forward(o: SoftmaxForward, _output: str, index: Index, read: Elements) -> Found:
    row, x = read.box("x", _row(o, o.x.dims, index)), read("x", index)
    top = 0.0 if o.algorithm == Algorithm.CUDNN_SOFTMAX_FAST else math.nan if any(map(math.isnan, row)) else max(row)
    sums = total(exponential(value - top) for value in row)
    if o.algorithm == Algorithm.CUDNN_SOFTMAX_LOG:
        return Found(x - top - math.log(sums))
    return Found(quotient(exponential(x - top), sums))


def softmax_backward(o: SoftmaxBackward, _output: str, index: Index, read: Elements) -> Found:
    """Return y * (dy - sum(y * dy)), or for LOG dy - exp(y) * sum(dy) (4.1.19)."""
    row = _row(o, o.y.dims, index)
    y, dy = read("y", index), read("dy", index)
    gradients = read.box("dy", row)
    if o.algorithm == Algorithm.CUDNN_SOFTMAX_LOG:
        return Found(dy - exponential(y) * total(gradients))
    products = [a * b for a, b in zip(read.box("y", row), gradients, strict=True)]
    return Found(y * (dy - total(products)), abs(y) * (abs(dy) + total(map(abs, products))), len(products) + 3)


FORMULAS: dict[type, Any] = {
    DivisiveNormalizationBackward: divisive_backward,
    DivisiveNormalizationForward: divisive_forward,
    LRNCrossChannelBackward: lrn_backward,
    LRNCrossChannelForward: lrn_forward,
    PoolingBackward: pooling_backward,
    PoolingForward: pooling_forward,
    SoftmaxBackward: softmax_backward,
    SoftmaxForward: softmax_forward,
}
