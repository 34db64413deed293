"""The gradient of an average with any window (generic_average_backward.cu)."""

from __future__ import annotations

from ..primitives.geometry import THREADS
from .generic import configured, pack_width, thread_blocks, walk_of
from .problem import AVERAGE_BACKWARD, Configuration, PoolingProblem, PoolingSolver


class GenericAverageBackward(PoolingSolver):
    """Any gradient of an average: a thread for a pack of inputs gathers what its windows give."""

    name = "pooling.generic_average_backward"
    kinds = (AVERAGE_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        width = pack_width(problem)
        walk = walk_of(problem.shape, width, forward=False)
        source = "pooling/generic_average_backward.cu"
        return configured(problem, source, "gather", width, thread_blocks(walk), THREADS, ("walk", walk))
