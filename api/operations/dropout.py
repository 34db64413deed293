"""Define the operations of cudnnSetDropoutDescriptor (3.2.80), cudnnDropoutForward (3.2.34) and cudnnDropoutBackward
(4.1.7).

The random numbers (docs/dropout.md) are part of the contract: every backend draws the same numbers from the same
states.
"""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from .operation import Operation
from .records import record
from .specs import INT32, TensorSpec

# STATES holds four 32-bit words: the seed, then the number of forward calls so far, each with its lower word first.
STATES = TensorSpec.packed(INT32, (1, 1, 1, 4))
BITS_PER_BYTE = 8
RESERVE_MULTIPLE = 4  # bytes


def threshold(probability: float) -> int:
    """Return the threshold of the random 32-bit words: an element is dropped if its word is less."""
    return ceil(probability * 2**32)


def reserve_bytes(x: TensorSpec) -> int:
    """Return the bytes of the reserve space: one bit per element, rounded up to words of 4 bytes."""
    return -(-x.count // (BITS_PER_BYTE * RESERVE_MULTIPLE)) * RESERVE_MULTIPLE


@record
class SetDropoutStates(Operation):
    """Initialise the states of a generator, which no forward call has used yet."""

    seed: int
    states: TensorSpec = STATES

    outputs = ("states",)
    raw: ClassVar = {"states": "states"}


@record
class DropoutForward(Operation):
    """Compute y = x / (1 - probability) for kept elements and 0 for dropped ones. Element k of x is element k of y in
    row-major order.

    Bit k of reserveSpace (little-endian) says whether element k is kept. ``states`` counts the calls.
    """

    probability: float
    x: TensorSpec
    y: TensorSpec
    states: TensorSpec = STATES

    inputs = ("x", "states")
    outputs = ("y", "states", "reserveSpace")
    raw: ClassVar = {"states": "states", "reserveSpace": "reserve_bytes"}
    draws = True

    @property
    def reserve_bytes(self) -> int:
        return reserve_bytes(self.x)

    @property
    def threshold(self) -> int:
        """Return the threshold of this operation's probability."""
        return threshold(self.probability)


@record
class DropoutBackward(Operation):
    """Compute dx = dy / (1 - probability) where the forward call kept the element, else 0."""

    probability: float
    dy: TensorSpec
    dx: TensorSpec

    inputs = ("dy", "reserveSpace")
    outputs = ("dx",)
    raw: ClassVar = {"reserveSpace": "reserve_bytes"}

    @property
    def reserve_bytes(self) -> int:
        return reserve_bytes(self.dy)
