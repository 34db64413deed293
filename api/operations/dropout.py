"""Operations of cudnnSetDropoutDescriptor (3.2.80), cudnnDropoutForward (3.2.34) and cudnnDropoutBackward (4.1.7).

The random numbers (docs/dropout.md) are part of the contract: every backend draws the same ones of the same states.
"""

from __future__ import annotations

from math import ceil
from typing import ClassVar

from .operation import Operation
from .records import record
from .specs import INT32, TensorSpec

# Four 32-bit words: the seed and the number of forward calls so far, the lower word of each first.
STATES = TensorSpec.packed(INT32, (1, 1, 1, 4))
BITS_PER_BYTE, RESERVE_MULTIPLE = 8, 4


def threshold(probability: float) -> int:
    """Return an element is dropped where its random word, of 32 bits, is less than this."""
    return ceil(probability * 2**32)


def reserve_bytes(x: TensorSpec) -> int:
    """Return the bytes of the reserve space: one bit for each element, rounded up to words of 4 bytes."""
    return -(-x.count // (BITS_PER_BYTE * RESERVE_MULTIPLE)) * RESERVE_MULTIPLE


@record
class SetDropoutStates(Operation):
    """The states of a generator that no forward call has used."""

    seed: int
    states: TensorSpec = STATES

    outputs = ("states",)
    raw: ClassVar = {"states": "states"}


@record
class DropoutForward(Operation):
    """Compute y = x / (1 - probability) where the element is kept, else 0; element k of x is element k of y in row-major order.

    reserveSpace gets bit k, little-endian: whether element k is kept. states counts the call.
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
        """What ``threshold`` returns of the probability."""
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
