"""Evaluate sums of products: convolutions and their gradients, and reductions."""

from __future__ import annotations

import math
from functools import reduce
from itertools import product
from typing import Any

import numpy as np
from dualdnn.api.enumerations import cudnnNanPropagation_t as Nan
from dualdnn.api.enumerations import cudnnReduceTensorOp_t as Op
from dualdnn.api.operations import (
    ConvolutionBackwardBias,
    ConvolutionBackwardData,
    ConvolutionBackwardFilter,
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    Im2Col,
    ReduceTensor,
)

from .elements import Array, Elements, Found, Index, Untold, clipped, summed, total
from .pointwise import PROPAGATE, activated


def _met(o: Any, index: Index, sizes: Index, extents: Index) -> list[tuple[range, range]]:
    """Return, per spatial dimension, the inputs inside the window of an output, and the taps as the filter stores them."""
    spec, found = o.convolution, []
    for d, (i, size, extent) in enumerate(zip(index[2:], sizes, extents, strict=True)):
        start, dilation = i * spec.stride[d] - spec.padding[d], spec.dilation[d]
        inputs = clipped(start, size, extent, dilation)
        taps = range((inputs.start - start) // dilation, (inputs.start - start) // dilation + len(inputs))
        found.append((inputs, range(size - 1 - taps.start, size - 1 - taps.stop, -1) if spec.is_flipped else taps))
    return found


def _products(o: Any, index: Index, read: Elements) -> Found:
    """Return the sum over the group's channels and the taps (5.2.10; docs/errata.md, D235)."""
    if o.filter_is_reordered:
        raise Untold("its filter is reordered")
    filters, depth, *sizes = o.w.dims
    n, k = index[:2]
    first = k // (filters // o.convolution.group_count) * depth
    met = _met(o, index, tuple(sizes), o.x.dims[2:])
    x = read.array("x", [range(n, n + 1), range(first, first + depth), *(inputs for inputs, _ in met)])
    w = read.array("w", [range(k, k + 1), range(depth), *(taps for _, taps in met)])
    every = [range(k, k + 1), range(depth), *map(range, sizes)]
    return summed(_with_zeros_met(x * w, read, "w", every, [taps for _, taps in met]))


def _with_zeros_met(terms: Array, read: Elements, operand: str, every: list[range], inside: list[range]) -> Array:
    """Return the terms, and the products of padding (zero) with infinite or NaN values, which are NaN."""
    if len(terms) == math.prod(map(len, every)):
        return terms
    values = read.array(operand, every)
    if np.isfinite(values).all():
        return terms
    met = [np.isin(np.asarray(places), np.asarray(taken)) for places, taken in zip(every[2:], inside, strict=True)]
    is_inside = reduce(np.logical_and.outer, [*(np.ones(len(each), bool) for each in every[:2]), *met])
    return np.concatenate([terms, 0.0 * values[~is_inside.ravel()]])


def convolution_forward(o: ConvolutionForward, _output: str, index: Index, read: Elements) -> Found:
    return _products(o, index, read)


def convolution_bias_activation(
    o: ConvolutionBiasActivationForward, _output: str, index: Index, read: Elements
) -> Found:
    """Return activation(alpha1 * conv(x, w) + alpha2 * z + bias) (5.2.9)."""
    sums, channel = _products(o, index, read), (0, index[1], *(0 for _ in index[2:]))
    terms = [o.alpha1 * sums.value, read("bias", channel)]
    if o.alpha2 != 0:
        terms.append(o.alpha2 * read("z", index))
    spec = o.activation
    value = activated(spec.mode, total(terms), read.parameter(spec.coefficient), spec.relu_nan == PROPAGATE)
    assert sums.size is not None
    return Found(value, abs(o.alpha1) * sums.size + sum(map(abs, terms[1:])), sums.terms)


def convolution_backward_data(o: ConvolutionBackwardData, _output: str, index: Index, read: Elements) -> Found:
    """Return the sum of dy[n, k, p] * w[k, c, tap] over p * stride + tap * dilation - padding == position (5.2.8)."""
    spec, (filters, depth, *sizes) = o.convolution, o.w.dims
    n, channel, *place = index
    group, c = divmod(channel, depth)
    per_group = filters // spec.group_count
    kernels = range(group * per_group, (group + 1) * per_group)
    met = []
    for d, (h, size) in enumerate(zip(place, sizes, strict=True)):
        of_dimension = []
        for tap in range(size):
            position, rest = divmod(h + spec.padding[d] - tap * spec.dilation[d], spec.stride[d])
            if rest == 0:
                of_dimension.append((position, size - 1 - tap if spec.is_flipped else tap))
        met.append(of_dimension)
    terms = [np.empty(0)]
    for pairs in product(*met):
        if not all(0 <= p < extent for (p, _), extent in zip(pairs, o.dy.dims[2:], strict=True)):
            w = read.array("w", [kernels, range(c, c + 1), *(range(t, t + 1) for _, t in pairs)])
            terms.append(0.0 * w[~np.isfinite(w)])
            continue
        dy = read.array("dy", [range(n, n + 1), kernels, *(range(p, p + 1) for p, _ in pairs)])
        w = read.array("w", [kernels, range(c, c + 1), *(range(t, t + 1) for _, t in pairs)])
        terms.append(dy * w)
    return summed(np.concatenate(terms))


def convolution_backward_filter(o: ConvolutionBackwardFilter, _output: str, index: Index, read: Elements) -> Found:
    """Return the sum of dy[n, k, p] * x[n, c, p * stride + tap * dilation - padding] over images and positions
    (6.2.2).
    """
    spec, (filters, depth, *sizes) = o.convolution, o.dw.dims
    k, c, *taps = index
    channel, images = k // (filters // spec.group_count) * depth + c, range(o.x.dims[0])
    inputs, outputs = [], []
    for d, (tap, size) in enumerate(zip(taps, sizes, strict=True)):
        offset = (size - 1 - tap if spec.is_flipped else tap) * spec.dilation[d] - spec.padding[d]
        met = clipped(offset, o.dy.dims[2 + d], o.x.dims[2 + d], spec.stride[d])
        first = (met.start - offset) // spec.stride[d]
        inputs.append(met)
        outputs.append(range(first, first + len(met)))
    x = read.array("x", [images, range(channel, channel + 1), *inputs])
    dy = read.array("dy", [images, range(k, k + 1), *outputs])
    every = [images, range(k, k + 1), *map(range, o.dy.dims[2:])]
    return summed(_with_zeros_met(x * dy, read, "dy", every, outputs))


def convolution_backward_bias(o: ConvolutionBackwardBias, _output: str, index: Index, read: Elements) -> Found:
    channel, (images, _, *extents) = index[1], o.dy.dims
    return summed(read.array("dy", [range(images), range(channel, channel + 1), *map(range, extents)]))


def im2col(o: Im2Col, _output: str, index: Index, read: Elements) -> Found:
    """Return the input under a filter tap. A row is an image and a position, a column a channel and a tap (5.2.31)."""
    images, channels, *extents = o.srcData.dims
    sizes = o.filter.dims[2:]
    positions = o.convolution.output_dims(o.srcData.dims, (1, channels // o.convolution.group_count, *sizes))[2:]
    number = 0
    for i, extent in zip(index, o.colBuffer.dims, strict=True):
        number = number * extent + i
    found = []
    for extent in reversed((images, *positions, channels, *sizes)):
        number, i = divmod(number, extent)
        found.append(i)
    found.reverse()
    rank = len(sizes)
    n, at, c, taps = found[0], found[1 : 1 + rank], found[1 + rank], found[2 + rank :]
    spec, place = o.convolution, []
    for d, (p, tap) in enumerate(zip(at, taps, strict=True)):
        tap = sizes[d] - 1 - tap if spec.is_flipped else tap
        place.append(p * spec.stride[d] + tap * spec.dilation[d] - spec.padding[d])
    inside = all(0 <= i < extent for i, extent in zip(place, extents, strict=True))
    value = read("srcData", (n, c, *place)) if inside else 0.0
    return Found(value, abs(value), 0)


def reduce_tensor(o: ReduceTensor, _output: str, index: Index, read: Elements) -> Found:
    """Reduce over the dimensions in which C has extent 1 (3.2.71; docs/errata.md, D024 and D098)."""
    row = read.box(
        "A", [range(a) if c == 1 else range(i, i + 1) for i, a, c in zip(index, o.A.dims, o.C.dims, strict=True)]
    )
    op = o.reduction.op
    if op == Op.CUDNN_REDUCE_TENSOR_ADD:
        return summed(row)
    if op == Op.CUDNN_REDUCE_TENSOR_AVG:
        return Found(total(row) / len(row), total(map(abs, row)) / len(row), len(row) + 3)
    if op == Op.CUDNN_REDUCE_TENSOR_NORM1:
        return summed(map(abs, row))
    if op == Op.CUDNN_REDUCE_TENSOR_NORM2:
        return Found(math.sqrt(total(x * x for x in row)))
    if op in (Op.CUDNN_REDUCE_TENSOR_MUL, Op.CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS):
        return Found(math.prod(x for x in row if x != 0 or op == Op.CUDNN_REDUCE_TENSOR_MUL))
    if o.reduction.nan == Nan.CUDNN_PROPAGATE_NAN and any(map(math.isnan, row)):
        return Found(math.nan)
    numbers = [x for x in row if not math.isnan(x)]
    if op == Op.CUDNN_REDUCE_TENSOR_MIN:
        value = min(numbers, default=math.inf)
    elif op == Op.CUDNN_REDUCE_TENSOR_MAX:
        value = max(numbers, default=-math.inf)
    else:
        value = max(map(abs, numbers), default=0.0)
    return Found(value, abs(value), 0)


FORMULAS: dict[type, Any] = {
    ConvolutionBackwardBias: convolution_backward_bias,
    ConvolutionBackwardData: convolution_backward_data,
    ConvolutionBackwardFilter: convolution_backward_filter,
    ConvolutionBiasActivationForward: convolution_bias_activation,
    ConvolutionForward: convolution_forward,
    Im2Col: im2col,
    ReduceTensor: reduce_tensor,
}
