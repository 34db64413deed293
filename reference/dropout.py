"""Compute dropout (3.2.34, 4.1.7) and the states of its random numbers (3.2.80).

docs/errata.md, D053, D111 and D171, and docs/dropout.md hold the decisions.
"""

from __future__ import annotations

import numpy as np
from dualdnn.api.operations import DropoutBackward, DropoutForward, SetDropoutStates

from .engine import Exact, implements
from .philox import words
from .view import Array

ROUNDINGS = 3  # 1 - probability, its reciprocal, the product
WORD = np.dtype("<u4")


def states_of(seed: int, call: int) -> Array:
    """Return the states after ``call`` forward calls: four words."""
    return np.array([seed, seed >> 32, call, call >> 32], np.uint64).astype(WORD)


def advanced(states: Array) -> Array:
    """Return the states after one more forward call. Both states are bytes."""
    seed, call = (int(number) for number in states.view("<u8"))
    return states_of(seed, (call + 1) % 2**64).view(np.uint8)


def _scaled(probability: float, values: Array, kept: Array) -> Exact:
    """Return values / (1 - probability) where kept, and 0 elsewhere, even for NaN."""
    value = np.where(kept, values / (1 - values.dtype.type(probability)), 0)
    return Exact(value, np.abs(value), ROUNDINGS)


@implements(SetDropoutStates)
def set_dropout_states(operation: SetDropoutStates) -> Exact:
    return Exact.kept(states_of(operation.seed & 0xFFFFFFFFFFFFFFFF, 0).view(np.uint8))


@implements(DropoutForward)
def dropout_forward(operation: DropoutForward, x: Array, states: Array) -> dict[str, Exact]:
    """Drop element k of x, in row-major order, where random word k of the call is below the threshold."""
    seed, call = (int(number) for number in states.view("<u8"))
    kept = words(seed, call, x.size) >= operation.threshold
    mask = np.zeros(operation.reserve_bytes, np.uint8)
    bits = np.packbits(kept, bitorder="little")
    mask[: bits.size] = bits
    # Element k of x is element k of y, whatever their dimensions are.
    y = _scaled(operation.probability, x.reshape(operation.y.dims), kept.reshape(operation.y.dims))
    return {"y": y, "states": Exact.kept(advanced(states)), "reserveSpace": Exact.kept(mask)}


@implements(DropoutBackward)
def dropout_backward(operation: DropoutBackward, dy: Array, reserve: Array) -> Exact:
    kept = np.unpackbits(reserve, count=dy.size, bitorder="little").astype(bool)
    return _scaled(operation.probability, dy.reshape(operation.dx.dims), kept.reshape(operation.dx.dims))
