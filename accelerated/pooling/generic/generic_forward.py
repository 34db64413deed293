"""Forward pooling with any window (generic_forward.cu)."""

from __future__ import annotations

from ctypes import c_int
from math import prod

from ...primitives.geometry import THREADS
from ..problem import FORWARD, WARP, Configuration, PoolingProblem, PoolingSolver, power_of_two
from .generic import configured, pack_width, thread_blocks, walk_of
from .generic_tile import tiled

SOURCE = "pooling/generic/generic_forward.cu"
SHARED_WINDOW, LARGE_WINDOW = 32, 1024  # positions from which a block may share, and shares, a window
MANY_THREADS = 2**16  # about what keeps a GPU busy
LOADS = 8  # of a thread of a team
OVERLAP = 4  # windows over an input, from which blocks keep channels for all of them


class GenericForward(PoolingSolver):
    """Any forward call: blocks have tiles of outputs, or one of a large window; a thread has a pack of channels where
    windows overlap little."""

    name = "pooling.generic_forward"
    kinds = (FORWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        shape, width = problem.shape, pack_width(problem)
        walk = walk_of(shape, width, forward=True)
        few, large = walk.packs < MANY_THREADS, shape.covered >= LARGE_WINDOW and not shape.channels_last
        if large or (few and shape.covered >= SHARED_WINDOW):
            threads = min(THREADS, max(WARP, power_of_two(shape.covered // LOADS)))
            columns = min(threads, power_of_two(min(shape.axes[2].window, shape.axes[2].input)))
            bits = c_int(columns.bit_length() - 1)
            return configured(
                problem, SOURCE, "team", width, walk.packs, threads, ("walk", walk), ("column_bits", bits)
            )
        apart = shape.channels_last and shape.covered < OVERLAP * prod(axis.stride for axis in shape.axes)
        tile = None if apart else tiled(problem, SOURCE)
        if tile is not None:
            return tile
        fields = (("walk", walk), ("column_bits", c_int(0)))
        return configured(problem, SOURCE, "thread", width, thread_blocks(walk), THREADS, *fields)
