"""Draw dropout forward, and backward on the reserve space of the forward call."""

from __future__ import annotations

from typing import Any

import numpy as np
from dualdnn.api.cudnn.dropout import TYPES
from dualdnn.api.operations import DropoutBackward, DropoutForward, SetDropoutStates

from .pieces import Drawn, Source

OPERATIONS = (DropoutForward, DropoutBackward, SetDropoutStates)
PROBABILITIES = tuple(float(np.float32(value)) for value in (0.3, 0.5, 0.0, 1.0, 0.9))


def draw(source: Source) -> Drawn:
    """Draw a layer in training (two calls on one reserve space), or a generator's initialisation."""
    if source.chance(5):
        return Drawn((SetDropoutStates(source.integer(0, 2**64 - 1)),))
    dims, data_type = source.dims(source.pick((4, 3, 5))), source.pick(TYPES)
    x, probability = source.tensor(data_type, dims), source.pick(PROBABILITIES)
    forward = DropoutForward(probability, x, source.like(x))
    return Drawn((forward, DropoutBackward(probability, source.like(x), source.like(x))), source.inputs())


def before(_drawn: Drawn, seed: int) -> dict[str, Any]:
    """Return the states of a generator before its first call."""
    return {"states": np.array([2**63 + seed, 0], "<u8").view(np.uint8)}
