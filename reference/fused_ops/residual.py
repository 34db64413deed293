"""Add and activate scaled tensors with a bit mask, and compute the gradients (docs/errata.md, D562 and D563)."""

from __future__ import annotations

from math import prod

import numpy as np
from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import ActivationSpec, DactivationForkDbatchnorm, ScaleBiasAddActivationGenBitmask
from dualdnn.api.operations.specs import TensorSpec

from ..engine import Exact, implements, in_compute_type
from ..normalization.batch import leave_open
from ..precision import PRECISION
from ..spread import Steps, few, walked
from ..view import Array
from .finalize import INVERSE_ROUNDINGS, MEAN_ROUNDINGS, STABLE, VARIANCE_ROUNDINGS, inverse_root

WORD = 32
SUM_ROUNDINGS = 5  # two products, three sums
OF_NORMAL = 4  # roundings of a normalised element: both products, the difference, the product with dy


def activated(activation: ActivationSpec | None, value: Array) -> Array:
    """Return the activation of a value: a ReLU or the identity."""
    if activation is None:
        return value
    rectified = np.fmax(value, 0)  # NaN gives 0 unless it is propagated.
    propagates = activation.relu_nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN
    return np.where(np.isnan(value), np.nan, rectified) if propagates else rectified


def scaled(x: Array, scale: Array | None, bias: Array | None) -> tuple[Array, Array]:
    """Return (scale * x + bias, the sum of the absolute values of its terms)."""
    product = x if scale is None else scale * x
    if bias is None:
        return product, np.abs(product)
    return product + bias, np.abs(product) + np.abs(bias)


def packed_bits(bits: Array, mask: TensorSpec) -> Array:
    """Pack bits of (N, C, spatial ...) into the 32-bit numbers of a bit mask."""
    channels = bits.shape[1]
    rows = np.moveaxis(bits, 1, -1).reshape(-1, channels)
    padded = np.zeros((mask.dims[0], mask.dims[1] * WORD), np.uint64)
    padded[: len(rows), :channels] = rows
    words = (padded.reshape(mask.dims[0], mask.dims[1], WORD) << np.arange(WORD, dtype=np.uint64)).sum(-1)
    return words.astype(np.uint32).view(np.int32).astype(np.float64).reshape(mask.dims)


def unpacked_bits(words: Array, dims: tuple[int, ...]) -> Array:
    """Return the bits of a bit mask as (N, C, spatial ...)."""
    pixels, channels = dims[0] * prod(dims[2:]), dims[1]
    numbers = words.reshape(words.shape[0], words.shape[1])[:pixels].astype(np.int64).astype(np.uint64) & np.uint64(
        0xFFFFFFFF
    )
    bits = numbers[:, :, None] >> np.arange(WORD, dtype=np.uint64) & np.uint64(1)
    rows = bits.reshape(pixels, -1)[:, :channels] != 0
    return np.moveaxis(rows.reshape(dims[0], *dims[2:], channels), -1, 1)


@implements(ScaleBiasAddActivationGenBitmask)
def add_activation(
    operation: ScaleBiasAddActivationGenBitmask, x: Array, scale: Array | None, bias: Array | None, z: Array | None,
    z_scale: Array | None, z_bias: Array | None,
) -> dict[str, Exact]:  # fmt: skip
    """Compute the activation of the sum, and the bits of its derivative."""
    total, terms = scaled(x, scale, bias)
    if z is not None:
        residual, residual_terms = scaled(z, z_scale, None)
        total, terms = total + residual, terms + residual_terms
    if z_bias is not None:
        total, terms = total + z_bias, terms + np.abs(z_bias)
    found = {"y": Exact(activated(operation.activation, total), terms, SUM_ROUNDINGS)}
    if operation.bitMask is not None:
        mask = operation.bitMask
        passed = np.ones(total.shape, bool) if operation.activation is None else total > 0
        # A word is undetermined where rounding decides the sign of a sum.
        unit, smallest, largest = PRECISION[operation.compute_type]
        doubtful = (np.abs(total) <= unit * SUM_ROUNDINGS * terms + smallest) & (terms > 0) | (
            np.isfinite(total) & (terms >= largest)
        )
        unsure = packed_bits(doubtful & (operation.activation is not None), mask) != 0
        found["bitMask"] = Exact(packed_bits(passed, mask), np.where(unsure, np.inf, 0.0), 0)
    return found


@implements(DactivationForkDbatchnorm)
def batch_norm_gradient(
    operation: DactivationForkDbatchnorm, x: Array, dy: Array, words: Array | None, scale: Array | None, mean: Array | None,
    inverse: Array | None,
) -> dict[str, Exact]:  # fmt: skip
    """Compute the gradient before the activation, and those of the batch normalisation."""
    passes = None if words is None else unpacked_bits(words, dy.shape)
    gradient = dy if passes is None else np.where(passes, dy, 0)
    pixels, (unit, smallest, largest) = gradient.size // gradient.shape[1], PRECISION[operation.compute_type]
    over = (0, *range(2, gradient.ndim))
    mean_terms = None if mean is None else np.abs(mean)
    roundings: Array | float = pixels + 12
    share: Array | float = 0.0
    # expected squared errors of the mean, and of the inverse relative to itself (spread.py)
    of_mean: Array | float = 0.0
    of_inverse_squares: Array | float = few(INVERSE_ROUNDINGS)
    if mean is None or inverse is None:
        mean, mean_terms = x.mean(over, keepdims=True), np.abs(x).mean(over, keepdims=True)
        variance = np.square(x - mean).mean(over, keepdims=True) + in_compute_type(operation, operation.epsilon)
        # An implementation may compute the variance as the mean of the squares minus the square of the mean.
        error = 2 * (pixels + VARIANCE_ROUNDINGS) * np.square(x).mean(over, keepdims=True)
        inverse, of_inverse = inverse_root(variance, error)
        roundings, share = 2 * pixels + 20 + 3 * of_inverse, unit * error / variance

        def norm(values: Array) -> Array:
            return np.sqrt(np.square(values).sum(over, keepdims=True)) / pixels

        second = np.square(x).mean(over, keepdims=True)
        of_mean = walked(pixels, mean, norm(x)) + few(MEAN_ROUNDINGS) * mean**2
        of_second = walked(pixels, second, norm(np.square(x))) + few(2 * VARIANCE_ROUNDINGS) * second**2
        of_inverse_squares = of_inverse_squares + (of_second + 4 * mean**2 * of_mean) / (2 * variance) ** 2
    normal, normal_terms = (x - mean) * inverse, (np.abs(x) + mean_terms) * np.abs(inverse)
    size = np.abs(gradient)
    bias, bias_terms = gradient.sum(over, keepdims=True), size.sum(over, keepdims=True)
    slope, slope_terms = (gradient * normal).sum(over, keepdims=True), (size * normal_terms).sum(over, keepdims=True)

    def total(values: Array) -> Array:
        return values.sum(over, keepdims=True)

    def bias_squares() -> Array:
        return walked(pixels, bias, np.sqrt(total(np.square(gradient))))

    def slope_squares() -> Array:
        """Return the expected squared errors of the slope. Errors that all elements share do not average out."""
        sums = walked(pixels + 1, slope, np.sqrt(total(np.square(gradient * normal))))
        shared = np.square(inverse * bias) * of_mean + np.square(slope) * of_inverse_squares
        return np.asarray(sums + shared + few(OF_NORMAL) * total(np.square(size * normal_terms)))

    def squares() -> Array:
        of_normal = np.square(inverse) * of_mean + np.square(normal) * of_inverse_squares
        of_normal = of_normal + few(OF_NORMAL) * np.square(normal_terms)
        sums = bias_squares() + np.square(normal) * slope_squares() + of_normal * np.square(slope)
        terms = np.square(size) + (np.square(bias) + np.square(normal_terms * slope)) / pixels**2
        inner = sums / pixels**2 + (of_inverse_squares + few(INVERSE_ROUNDINGS)) * terms
        return np.asarray(np.square(factor) * inner)

    found = {
        "dz": Exact(gradient, size, 0),
        "dBias": Exact(bias, bias_terms, pixels, spread=lambda: Steps(bias_squares())),
        "dScale": Exact(slope, slope_terms, roundings, spread=lambda: Steps(slope_squares())),
    }
    factor = np.zeros(()) if scale is None else scale * inverse
    if scale is not None:
        inner = gradient - bias / pixels - normal * slope / pixels
        terms = size + bias_terms / pixels + normal_terms * slope_terms / pixels
        size_of_factor = np.maximum(np.abs(factor), smallest / unit)  # The factor may underflow.
        found["dx"] = Exact(factor * inner, size_of_factor * terms, roundings, spread=lambda: Steps(squares()))
    leave_open(found, largest, over, factor, gradient, normal, passes, share > STABLE)
    return {name: exact for name, exact in found.items() if operation.has(name)}
