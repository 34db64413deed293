"""Transform layouts, and pad, fold or unfold (3.2.99 to 3.2.101). Formulas: docs/errata.md, D077 and D132."""

from __future__ import annotations

from math import prod

import numpy as np
from dualdnn.api.operations import TransformFilter, TransformSpec, TransformTensor, TransformTensorEx
from dualdnn.api.operations.transform import destination_dims, folding_factors, folds, unfolds

from .engine import Exact, implements
from .view import Array


@implements(TransformTensor)
def transform_tensor(_operation: TransformTensor, x: Array) -> Exact:
    """Copy x to y; the engine handles the layouts."""
    return _moved(x)


@implements(TransformTensorEx)
def transform_tensor_ex(operation: TransformTensorEx, source: Array) -> Exact:
    """Pad, fold or unfold a tensor."""
    return _moved(transformed(operation.transform, source))


@implements(TransformFilter)
def transform_filter(operation: TransformFilter, source: Array) -> Exact:
    """Pad, fold or unfold a filter."""
    return _moved(transformed(operation.transform, source))


def transformed(transform: TransformSpec, source: Array) -> Array:
    """Return [N, C, spatial ...] after the transform."""
    factors = folding_factors(transform)
    before, after = transform.pad_before, transform.pad_after
    if unfolds(transform):
        return unfolded(source, transform)
    if not folds(transform):
        return padded(source, before, after)
    # Channels are padded last, and the factors multiply their padding too. The padding that padBeforeA does not put
    # before goes after, as in NVIDIA's library.
    total = prod(factors)
    folded_source = folded(padded(source, (before[0], 0, *before[2:]), (after[0], 0, *after[2:])), factors)
    rest = (0,) * (source.ndim - 2)
    behind = (before[1] + after[1]) * total - before[1]
    return padded(folded_source, (0, before[1], *rest), (0, behind, *rest))


def padded(values: Array, before: tuple[int, ...], after: tuple[int, ...]) -> Array:
    """Return the array with zeros around it; negative padding crops.

    Only the result is allocated, however large both are.
    """
    sides = list(zip(values.shape, before, after, strict=True))
    result = np.zeros([max(0, n + b + a) for n, b, a in sides], values.dtype)
    kept = [(max(0, -b), max(0, -b, min(n, n + a))) for n, b, a in sides]  # positions of the array
    placed = tuple(slice(first + b, end + b) for (first, end), b in zip(kept, before, strict=True))
    result[placed] = values[tuple(slice(*ends) for ends in kept)]
    return result


def folded(values: Array, factors: tuple[int, ...]) -> Array:
    """Move spatial offsets inside blocks of ``factors`` to the leading part of the channel.

    Short blocks end in zeros.
    """
    images, channels, *spatial = values.shape
    blocks = [-(-extent // factor) for extent, factor in zip(spatial, factors, strict=True)]
    missing = [block * factor - extent for block, factor, extent in zip(blocks, factors, spatial, strict=True)]
    complete = padded(values, (0,) * values.ndim, (0, 0, *missing))
    split = complete.reshape(images, channels, *(size for pair in zip(blocks, factors, strict=True) for size in pair))
    block_axes = range(2, split.ndim, 2)
    offset_axes = range(3, split.ndim, 2)
    return split.transpose(0, *offset_axes, 1, *block_axes).reshape(images, prod(factors) * channels, *blocks)


def unfolded(values: Array, transform: TransformSpec) -> Array:
    """Return the inverse of ``folded``, padded. Channels missing from a multiple of all factors count as zeros.

    Every element of the result is looked up, so only the result is allocated, however large the factors are.
    """
    factors, before = folding_factors(transform), transform.pad_before
    result = np.zeros(destination_dims(transform, values.shape), values.dtype)
    kept = -(-values.shape[1] // prod(factors))
    extents = (values.shape[0], kept, *(n * f for n, f in zip(values.shape[2:], factors, strict=True)))
    wanted = zip(result.shape, before, extents, strict=True)
    inside = [(max(0, pad), max(0, pad, min(size, extent + pad))) for size, pad, extent in wanted]
    image, channel, *spatial = np.ix_(*(np.arange(*ends) - pad for ends, pad in zip(inside, before, strict=True)))
    offset = sum(s % f * prod(factors[d + 1 :]) for d, (s, f) in enumerate(zip(spatial, factors, strict=True)))
    source = channel + offset * kept
    there = source < values.shape[1]
    found = values[(image, np.where(there, source, 0), *(s // f for s, f in zip(spatial, factors, strict=True)))]
    result[tuple(slice(*ends) for ends in inside)] = np.where(there, found, 0)
    return result


def _moved(value: Array) -> Exact:
    """Return moved elements, which are exact before blending."""
    return Exact(value, lambda: np.abs(value), copied=True)
