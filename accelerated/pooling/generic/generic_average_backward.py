"""The gradient of an average with any window (generic_average_backward.cu)."""

from __future__ import annotations

from ...primitives.geometry import THREADS
from ..problem import AVERAGE_BACKWARD, Configuration, PoolingProblem, PoolingSolver
from .generic import configured, pack_width, thread_blocks, walk_of
from .generic_tile import tiled

SOURCE = "pooling/generic/generic_average_backward.cu"


class GenericAverageBackward(PoolingSolver):
    """Any gradient of an average: blocks keep what the windows over a tile give, or a thread for a pack of inputs
    gathers it."""

    name = "pooling.generic_average_backward"
    kinds = (AVERAGE_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        tile = tiled(problem, SOURCE)
        if tile is not None:
            return tile
        width = pack_width(problem)
        walk = walk_of(problem.shape, width, forward=False)
        return configured(problem, SOURCE, "gather", width, thread_blocks(walk), THREADS, ("walk", walk))
