"""Apply dropout between the layers of a recurrent network in training (docs/dropout.md)."""

from __future__ import annotations

import numpy as np
from dualdnn.api.operations.dropout import threshold
from dualdnn.api.operations.rnn import RNNDataSpec, RNNSpec

from ..dropout import ROUNDINGS
from ..philox import words
from ..view import Array
from .bounded import Bounded

Masks = tuple[Array, ...]  # for each layer, the elements (step, sequence, element) that it passes to the next one


def masks_of(spec: RNNSpec, data: RNNDataSpec, states: Array) -> Masks:
    """Return the elements that a call with these states keeps."""
    seed, call = (int(number) for number in states.view("<u8"))
    shape = (data.max_length, data.batch, spec.output_size)
    limit = threshold(spec.dropout)
    drawn = (words(seed, call, int(np.prod(shape)), sequence=layer + 1) for layer in range(spec.layers - 1))
    return tuple((word >= limit).reshape(shape) for word in drawn)


def dropped(vectors: Bounded, kept: Array, probability: float) -> Bounded:
    """Return vectors / (1 - probability) where kept, and 0 elsewhere, as memory holds them. Gradients use this too."""
    rest = 1 - vectors.value.dtype.type(probability)
    value, a = np.where(kept, vectors.value / rest, 0), vectors.arithmetic
    if not a.tracked:
        return Bounded(value, None, a).kept()
    grown = vectors.error * a.beside(a.each(lambda way: way.size(1 / rest)), value.ndim)
    return Bounded(value, np.where(kept, grown, 0) + a.rounded(ROUNDINGS, value), a).within_range().kept()
