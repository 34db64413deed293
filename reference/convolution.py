"""Forward convolutions (5.2.9, 5.2.10), their input matrix (5.2.31), reordered filters (5.2.32).

One definition for all algorithms: the sum of products of docs/errata.md, D235. What an algorithm may lose to rounding
is in convolution_bounds.py.
"""

from __future__ import annotations

import numpy as np
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnReorderType_t
from dualdnn.api.operations import (
    ConvolutionBiasActivationForward,
    ConvolutionForward,
    ConvolutionSpec,
    Im2Col,
    ReorderFilter,
    ReorderFilterAndBias,
)

from .convolution_bounds import magnitude, roundings
from .convolution_product import columns, convolve
from .engine import Exact, implements
from .view import Array

RELU = cudnnActivationMode_t.CUDNN_ACTIVATION_RELU
# alpha1 * conv, alpha2 * z, and two sums
EPILOGUE_ROUNDINGS = 4
# An INT8x32 filter in memory, [K, C/32, R, S, 32], with K and the vector split, and where its axes go (D253).
SPLIT_CHANNELS = (4, 4, 2)
SPLIT_VECTOR = (8, 4)
REORDERED_AXES = (4, 5, 6, 0, 1, 3, 7, 2, 8)
SPLIT_BIAS = (4, 2, 4)
REORDERED_BIAS_AXES = (0, 2, 1, 3)


@implements(ConvolutionForward)
def convolution_forward(operation: ConvolutionForward, x: Array, w: Array) -> Exact:
    """conv(x, w)"""
    w = _in_plain_order(w) if operation.filter_is_reordered else w
    value = convolve(x, applied(w, operation.convolution), operation.convolution)
    return Exact(value, lambda: magnitude(operation, x, w, value), roundings(operation))


@implements(ConvolutionBiasActivationForward)
def convolution_bias_activation_forward(
    operation: ConvolutionBiasActivationForward, x: Array, w: Array, z: Array, bias: Array
) -> Exact:
    """activation(alpha1 * conv(x, w) + alpha2 * z + bias)"""
    if operation.filter_is_reordered:
        w, bias = _in_plain_order(w), _bias_in_plain_order(bias)
    alpha1, alpha2 = operation.alpha1, operation.alpha2
    convolved = convolve(x, applied(w, operation.convolution), operation.convolution)
    scaled = alpha1 * convolved + bias
    value = scaled + alpha2 * z if alpha2 != 0 else scaled
    if operation.activation.mode == RELU:
        value = np.fmax(value, 0)  # NaN gives 0: only CUDNN_NOT_PROPAGATE_NAN is supported

    def terms() -> Array:
        residual = np.abs(alpha2 * z) if alpha2 != 0 else 0
        return np.abs(alpha1) * magnitude(operation, x, w, convolved) + residual + np.abs(bias)

    return Exact(value, terms, roundings(operation) + EPILOGUE_ROUNDINGS)


@implements(Im2Col)
def im2col(operation: Im2Col, source: Array) -> Exact:
    """The values that meet each filter position at each output position: rows (n, p, q), columns (c, r, s)."""
    convolution, filter_dims = operation.convolution, operation.filter.dims
    outputs = convolution.output_dims(source.shape, filter_dims)[2:]
    matrix = columns(source, filter_dims[2:], convolution, tuple(slice(0, size) for size in outputs))
    if convolution.is_flipped:
        matrix = np.flip(matrix, tuple(range(1, 1 + convolution.rank)))
    matrix = matrix.reshape(operation.colBuffer.dims[::-1]).T
    return Exact(matrix, lambda: np.abs(matrix))


@implements(ReorderFilter)
def reorder_filter(operation: ReorderFilter, w: Array) -> Exact:
    """The filter in the order that an INT8x32 convolution with CUDNN_NO_REORDER reads."""
    value = w if _copies(operation.reorder_type) else _reordered(w)
    return Exact(value, lambda: np.abs(value))


@implements(ReorderFilterAndBias)
def reorder_filter_and_bias(operation: ReorderFilterAndBias, w: Array, bias: Array) -> dict[str, Exact]:
    """As reorder_filter, and the bias in the order of the reordered filter's channels."""
    if _copies(operation.reorder_type):
        values = {"reorderedFilterData": w, "reorderedBiasData": bias}
    else:
        split = bias.reshape(-1, *SPLIT_BIAS).transpose(REORDERED_BIAS_AXES)
        values = {"reorderedFilterData": _reordered(w), "reorderedBiasData": split.reshape(bias.shape)}
    return {name: Exact(value, np.abs(value)) for name, value in values.items()}


def applied(w: Array, convolution: ConvolutionSpec) -> Array:
    """The filter as a cross-correlation applies it."""
    return np.flip(w, tuple(range(2, w.ndim))) if convolution.is_flipped else w


def _copies(reorder_type: cudnnReorderType_t) -> bool:
    return reorder_type == cudnnReorderType_t.CUDNN_NO_REORDER


def _reordered(w: Array) -> Array:
    """The filter whose memory is the reordered memory of ``w``."""
    return _from_memory(_in_memory(w).reshape(_split_dims(w)).transpose(REORDERED_AXES), w)


def _in_plain_order(w: Array) -> Array:
    """The filter whose reordered memory is the memory of ``w``."""
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
    """[K, C, R, S] as an INT8x32 filter stores it: [K, C/32, R, S, 32]."""
    filters, channels, *spatial = w.shape
    return np.moveaxis(w.reshape(filters, channels // 32, 32, *spatial), 2, -1)


def _from_memory(stored: Array, like: Array) -> Array:
    filters, channels, *spatial = like.shape
    return np.moveaxis(stored.reshape(filters, channels // 32, *spatial, 32), -1, 2).reshape(like.shape)
