"""Draw softmax forward and backward: every algorithm and mode, short and long sums."""

from __future__ import annotations

from typing import Any

from dualdnn.api.cudnn.softmax import BACKWARD_TYPES, FORWARD_TYPES
from dualdnn.api.enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward

from .pieces import Drawn, Source, fitted

OPERATIONS = (SoftmaxForward, SoftmaxBackward)
KINDS = ("normal", "ties", "positive")
LONG = (64, 300, 1000, 4096)  # channels


def draw(source: Source) -> Drawn:
    """Draw a softmax or its gradient."""
    backward, rank = source.chance(50), source.pick((4, 4, 5, 3))
    channels = source.pick((source.extent(), source.pick(LONG) if source.profile.longest > 100 else source.extent()))
    positions = [source.pick((1, source.extent())) for _ in range(rank - 2)]
    dims = fitted((source.extent(), channels, *positions), source.profile.most)
    data_type = source.pick(BACKWARD_TYPES if backward else FORWARD_TYPES)
    kinds = source.pick(tuple(cudnnSoftmaxAlgorithm_t)), source.pick(tuple(cudnnSoftmaxMode_t))
    alpha, beta = source.blend()
    first = source.tensor(data_type, dims)
    other = source.like(first)
    operation: Any = (
        SoftmaxBackward(*kinds, alpha, beta, first, first, other)
        if backward
        else SoftmaxForward(*kinds, alpha, beta, first, other)
    )
    return Drawn((operation,), source.inputs(KINDS, ("special", "ties_and_nan")))
