"""Draw activations forward and backward, in every mode but the identity, also in place."""

from __future__ import annotations

from typing import Any

from dualdnn.api.cudnn.activation import BACKWARD_TYPES, FORWARD_TYPES, IDENTITY
from dualdnn.api.enumerations import cudnnActivationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import ActivationBackward, ActivationForward, ActivationSpec

from .pieces import Drawn, Source

OPERATIONS = (ActivationForward, ActivationBackward)
MODES = tuple(mode for mode in cudnnActivationMode_t if mode != IDENTITY)


def draw(source: Source) -> Drawn:
    """Draw an activation or its gradient."""
    backward, dims = source.chance(50), source.dims(source.pick((4, 3, 5)))
    rules = ActivationSpec(
        source.pick(MODES), source.pick(tuple(cudnnNanPropagation_t)), source.pick((0.5, 0.0, 2.0, 6.0))
    )
    data_type = source.pick(BACKWARD_TYPES if backward else FORWARD_TYPES)
    alpha, beta = source.blend()
    first = source.tensor(data_type, dims)
    other = source.like(first)
    operation: Any = (
        ActivationBackward(rules, alpha, beta, first, first, other, other)
        if backward
        else ActivationForward(rules, alpha, beta, first, other)
    )
    alias = (("dx", "dy"),) if backward else (("y", "x"),)
    return Drawn((operation,), source.inputs(), aliases=alias if first == other and source.chance(25) else ())
