"""Compute forward convolutions (5.2.9, 5.2.10), their input matrix (5.2.31) and reordered filters (5.2.32).

All algorithms share one definition, the sum of products of docs/errata.md, D235. bounds.py says what each may lose to
rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnReorderType_t
from dualdnn.api.operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
    TensorSpec,
)

from ..blocks import FLOAT64_BYTES, Part, ReadFilter, axis, blocks, gather, local_input, windows
from ..engine import Exact, Result, Results, Wide, implements, implements_in_parts
from ..spread import Spread
from ..view import Array, Layout, Place, layout, read, stored
from .bounds import TRANSFORMS, Convolution, Magnitudes, roundings, spread
from .product import in_parts

RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
# The epilogue rounds alpha1 * conv, alpha2 * z, and two sums.
EPILOGUE_ROUNDINGS = 4
IM2COL_BYTES = 2**23
# An INT8x32 filter is stored as [K, C/32, R, S, 32]. These constants split K and the vector, and reorder the axes
# (D253).
SPLIT_CHANNELS = (4, 4, 2)
SPLIT_VECTOR = (8, 4)
REORDERED_AXES = (4, 5, 6, 0, 1, 3, 7, 2, 8)
SPLIT_BIAS = (4, 2, 4)
REORDERED_BIAS_AXES = (0, 2, 1, 3)


@implements_in_parts(ConvolutionForward)
def convolution_forward(operation: ConvolutionForward, wide: Wide) -> Results:
    """Compute conv(x, w)."""
    operands = _operands(operation)
    convolve_parts = in_parts(operation.x.dims, operation.w.dims, operation.convolution, operands.vector_length, wide)
    allowed = partial(roundings, operation)

    def parts(memory: Mapping[str, Array]) -> Iterator[Result]:
        x, read_filter = operands.of(memory)
        magnitude = Magnitudes(operation, x, read_filter)
        for part in convolve_parts(x, read_filter):
            deviation = partial(_spread, operation, part)
            yield (
                "y",
                part.place,
                Exact(
                    part.sums, partial(magnitude, part), allowed, mixed=operation.algo in TRANSFORMS, spread=deviation
                ),
            )

    return parts


@implements_in_parts(ConvolutionBiasActivationForward)
def convolution_bias_activation_forward(operation: ConvolutionBiasActivationForward, wide: Wide) -> Results:
    """Compute activation(alpha1 * conv(x, w) + alpha2 * z + bias)."""
    operands = _operands(operation)
    convolve_parts = in_parts(operation.x.dims, operation.w.dims, operation.convolution, operands.vector_length, wide)
    alpha1, alpha2 = operation.alpha1, operation.alpha2

    def allowed() -> float:
        return roundings(operation) + EPILOGUE_ROUNDINGS

    def parts(memory: Mapping[str, Array]) -> Iterator[Result]:
        x, read_filter = operands.of(memory)
        magnitude = Magnitudes(operation, x, read_filter)
        all_bias = read(operation.bias, memory["bias"], wide)
        if operation.filter_is_reordered:
            all_bias = _bias_in_plain_order(all_bias)

        def terms(part: Part, bias: Array, residual: Array | int) -> Array:
            return np.abs(alpha1) * magnitude(part) + np.abs(residual) + np.abs(bias)

        for part in convolve_parts(x, read_filter):
            bias = all_bias[:, part.place[1]]
            value = alpha1 * part.sums + bias
            residual: Array | int = 0
            if alpha2 != 0:
                residual = alpha2 * read(operation.z, memory["z"], wide, part.place)
                value = value + residual
            if operation.activation.mode == RELU:
                value = np.fmax(value, 0)  # NaN gives 0: only CUDNN_NOT_PROPAGATE_NAN is supported.
            yield "y", part.place, Exact(
                value, partial(terms, part, bias, residual), allowed, mixed=operation.algo in TRANSFORMS,
                spread=partial(_spread, operation, part, alpha1, (bias, residual), EPILOGUE_ROUNDINGS),
            )  # fmt: skip

    return parts


def _spread(
    operation: Convolution, part: Part, alpha: float = 1, others: tuple[Array | int, ...] = (), further: int = 0
) -> Spread | None:
    """Return the statistical model of the errors of a part.

    others are the terms beside alpha times the sum; further counts the roundings after it.
    """
    squares = part.squares() if alpha == 1 else alpha**2 * part.squares()
    for other in others:
        squares = squares + np.square(other)
    return spread(operation, squares, further)


@implements_in_parts(Im2Col)
def im2col(operation: Im2Col, _wide: Wide) -> Results:
    """Gather the inputs under each filter position at each output position: rows (n, p, q), columns (c, r, s)."""
    convolution, channels, sizes = operation.convolution, operation.srcData.dims[1], operation.filter.dims[2:]
    images, _, *outputs = convolution.output_dims(operation.srcData.dims, operation.filter.dims)
    columns = channels * prod(sizes)
    where = _channels_first(operation.srcData)

    def parts(memory: Mapping[str, Array]) -> Iterator[Result]:
        x = where.of(memory["srcData"])
        for some, *positions in blocks((images, *outputs), FLOAT64_BYTES * columns, IM2COL_BYTES):
            geometry = zip(
                x.shape[-len(sizes) :], convolution.padding, convolution.stride, convolution.dilation, strict=True
            )
            axes = [
                axis(*one, (p.start, p.stop), (0, size))
                for one, p, size in zip(geometry, positions, sizes, strict=True)
            ]
            how = gather(slice(0, channels), some, axes)
            matrix = windows(local_input(x, how), how)
            if convolution.is_flipped:
                matrix = np.flip(matrix, tuple(range(1, 1 + convolution.rank)))
            matrix = matrix.reshape(columns, -1).T
            # The positions of a block are consecutive.
            first = int(np.ravel_multi_index([part.start for part in (some, *positions)], (images, *outputs)))
            place = (slice(first, first + len(matrix)), slice(0, columns))
            yield "colBuffer", place, Exact(matrix, partial(np.abs, matrix), copied=True)

    return parts


@implements(ReorderFilter)
def reorder_filter(operation: ReorderFilter, w: Array) -> Exact:
    """Return the filter in the order that an INT8x32 convolution with CUDNN_NO_REORDER reads."""
    value = w if _copies(operation.reorder_type) else _reordered(w)
    return Exact(value, lambda: np.abs(value), copied=True)


@implements(ReorderFilterAndBias)
def reorder_filter_and_bias(operation: ReorderFilterAndBias, w: Array, bias: Array) -> dict[str, Exact]:
    """Reorder the filter as reorder_filter does, and the bias in the order of the reordered filter's channels."""
    if _copies(operation.reorder_type):
        values = {"reorderedFilterData": w, "reorderedBiasData": bias}
    else:
        split = bias.reshape(-1, *SPLIT_BIAS).transpose(REORDERED_BIAS_AXES)
        values = {"reorderedFilterData": _reordered(w), "reorderedBiasData": split.reshape(bias.shape)}
    return {name: Exact(value, np.abs(value), copied=True) for name, value in values.items()}


def applied(w: Array, convolution: ConvolutionSpec) -> Array:
    """Return the filter as a cross-correlation applies it: flipped for CUDNN_CONVOLUTION."""
    return np.flip(w, tuple(range(2, w.ndim))) if convolution.is_flipped else w


class _Operands(NamedTuple):
    """Read the operands of a convolution.

    ``of`` returns the stored input, channels first, and a reader of the filter as a cross-correlation applies it.
    """

    vector_length: int
    of: Callable[[Mapping[str, Array]], tuple[Array, ReadFilter]]


def _operands(operation: Convolution) -> _Operands:
    in_place = (
        operation.x.vector_length == 1 or operation.convolution.group_count == 1
    )  # A group may begin inside a vector.
    of_input, of_filter = _channels_first(operation.x), layout(operation.w.tensor)
    in_vectors = operation.w.tensor.vector_length > 1
    reordered, flipped = operation.filter_is_reordered, operation.convolution.is_flipped

    def of(memory: Mapping[str, Array]) -> tuple[Array, ReadFilter]:
        x = of_input.of(memory["x"]) if in_place else stored(operation.x, memory["x"]).swapaxes(0, 1)
        w = stored(operation.w.tensor, memory["w"]) if in_vectors else of_filter.of(memory["w"])
        if reordered:
            w = _in_plain_order(w)
        if flipped:
            w = applied(w, operation.convolution)

        def read_filter(place: Place, wide: Any) -> Array:
            part = w[place]
            return part if part.dtype.type is wide else part.astype(wide)

        return x, read_filter

    return _Operands(operation.x.vector_length if in_place else 1, of)


def _channels_first(spec: TensorSpec) -> Layout:
    """Return the layout (C or C / v and v, N, spatial ...) of a tensor."""
    where = layout(spec)
    before_images = (1,) if spec.vector_length == 1 else (1, 2)
    return where.transposed((*before_images, 0, *range(1 + len(before_images), len(where.dims))))


def _copies(reorder_type: cudnnReorderType_t) -> bool:
    return reorder_type == cudnnReorderType_t.CUDNN_NO_REORDER


def _reordered(w: Array) -> Array:
    """Return the filter whose plain memory is the reordered memory of ``w``."""
    return _from_memory(_in_memory(w).reshape(_split_dims(w)).transpose(REORDERED_AXES), w)


def _in_plain_order(w: Array) -> Array:
    """Return the filter whose reordered memory is the plain memory of ``w``."""
    dims = _split_dims(w)
    moved = _in_memory(w).reshape([dims[axis] for axis in REORDERED_AXES])
    return _from_memory(moved.transpose(np.argsort(REORDERED_AXES)), w)


def _bias_in_plain_order(bias: Array) -> Array:
    moved = bias.reshape(-1, *(SPLIT_BIAS[axis - 1] for axis in REORDERED_BIAS_AXES[1:]))
    return moved.transpose(np.argsort(REORDERED_BIAS_AXES)).reshape(bias.shape)


def _split_dims(w: Array) -> list[int]:
    filters, channels, *spatial = w.shape
    return [filters // 32, *SPLIT_CHANNELS, channels // 32, *spatial, *SPLIT_VECTOR]


def _in_memory(w: Array) -> Array:
    """Return [K, C, R, S] as an INT8x32 filter stores it: [K, C/32, R, S, 32]."""
    filters, channels, *spatial = w.shape
    return np.moveaxis(w.reshape(filters, channels // 32, 32, *spatial), 2, -1)


def _from_memory(stored: Array, like: Array) -> Array:
    filters, channels, *spatial = like.shape
    return np.moveaxis(stored.reshape(filters, channels // 32, *spatial, 32), -1, 2).reshape(like.shape)
