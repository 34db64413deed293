"""Plans the gradient of average pooling with any window (generic_average_backward.cu)."""

from __future__ import annotations

from ...primitives.geometry import THREADS
from ..problem import AVERAGE_BACKWARD, Configuration, PoolingProblem, PoolingSolver
from .generic import configured, thread_blocks, vector_width, walk_of
from .generic_tile import tiled

SOURCE = "pooling/generic/generic_average_backward.cu"


class GenericAverageBackward(PoolingSolver):
    """Serve any gradient of an average.

    Blocks keep the gradients of the windows over a tile in shared memory, or each thread gathers for a vector of dx.
    """

    name = "pooling.generic_average_backward"
    kinds = (AVERAGE_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        tile = tiled(problem, SOURCE)
        if tile is not None:
            return tile
        width = vector_width(problem)
        walk = walk_of(problem.shape, width, forward=False)
        return configured(problem, SOURCE, "gather", width, thread_blocks(walk), THREADS, ("walk", walk))
