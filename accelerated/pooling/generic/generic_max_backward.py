"""Plans the gradient of max pooling with any window (generic_max_backward.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong

from dualdnn.api.operations.specs import SCALAR_BYTES

from ...primitives.geometry import THREADS
from ..problem import INDICES, MAX_BACKWARD, WARP, Configuration, PoolingProblem, PoolingSolver, power_of_two
from .generic import INDEX_BYTES, configured, index_shape, thread_blocks, vector_width, walk_of
from .generic_tile import tiled

SOURCE = "pooling/generic/generic_max_backward.cu"
TILE_WINDOW = 256  # maximum positions per window for tiles, where one thread scans a window
SMALL_WINDOW = 32  # positions per window from which several threads scan it as a team
LOADS = 8  # minimum loads per thread of a team
MAX_TEAM = 1024  # threads per team
ENOUGH_THREADS = 2**16  # approximate number of threads that keep a GPU busy


class GenericMaxBackward(PoolingSolver):
    """Serve gradients of max pooling with any window.

    A block finds the first maxima of the windows over a tile of x, and gathers dy there. For large windows, one launch
    writes the indices of the maxima, and the next one gathers.
    """

    name = "pooling.generic_max_backward"
    kinds = (MAX_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        shape = problem.shape
        tile = tiled(problem, SOURCE) if shape.covered <= TILE_WINDOW else None
        return tile or _of_large_windows(problem)


def _of_large_windows(problem: PoolingProblem) -> Configuration:
    """Return the launch that gathers dy by index; its ``before`` is the launch that finds the indices."""
    shape, width = problem.shape, vector_width(problem)
    indices = index_shape(shape)
    found = walk_of(indices, width, forward=True)
    most = 1 if shape.covered < SMALL_WINDOW else min(MAX_TEAM, power_of_two(shape.covered // LOADS))
    team = min(WARP, most)
    while team < most and found.vectors * team < ENOUGH_THREADS:
        team *= 2
    columns = min(team, power_of_two(min(shape.axes[2].window, shape.axes[2].input)))
    threads = max(THREADS, team)
    bits = (("team_bits", c_int(team.bit_length() - 1)), ("column_bits", c_int(columns.bit_length() - 1)))
    kept = MAX_TEAM // WARP * width * (SCALAR_BYTES[problem.operation.compute_type] + INDEX_BYTES) if team > WARP else 0
    find = configured(
        problem, SOURCE, "index", width, -(-found.vectors * team // threads), threads, ("walk", found), *bits,
        shared_bytes=kept, shape=indices, operands=("x", INDICES),
    )  # fmt: skip
    walk, index_walk = walk_of(shape, width, forward=False), walk_of(indices, width, forward=False)
    strides = (c_longlong * 3)(*(axis.y_stride for axis in indices.axes))
    fields = (("walk", walk), ("index_walk", index_walk), ("index_stride", strides))
    operands = ("dy", INDICES, "dx")
    return configured(
        problem, SOURCE, "gather", width, thread_blocks(walk), THREADS, *fields, operands=operands, before=find
    )
