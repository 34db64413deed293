"""Plans the gradient of average pooling with a static window (static_average_backward.cu)."""

from __future__ import annotations

from ctypes import c_int, c_uint
from math import prod

from .problem import AVERAGE_BACKWARD, L2_BYTES, Configuration, PoolingProblem
from .static_window import Access, Settings, StaticShape, StaticWindowSolver, access_of, box_of, static_shape

SECTOR_BYTES = 32  # bytes per memory sector, which a store should write completely
MIN_GATHERED_BYTES = 2**20  # size of dx from which full sectors save more time than a barrier costs
IMAGES = Settings(threads=128, blocks=6, channel_bytes=16)
VOLUMES = Settings(threads=128, blocks=5, channel_bytes=16)
GATHERED_IMAGES = Settings(threads=128, blocks=16, channel_bytes=16)


class StaticAverageBackward(StaticWindowSolver):
    """Serve the windows in WINDOWS. Each thread gathers the gradients of the windows over its inputs."""

    name, source = "pooling.static_average_backward", "pooling/static_average_backward.cu"
    kinds = (AVERAGE_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        static = static_shape(problem.shape)
        if static is None:
            return None
        settings, gathered = IMAGES if static.is_image else VOLUMES, 0
        if problem.operation.beta == 0:
            gathered = gathered_tiles(static, access_of(problem, static, GATHERED_IMAGES))
            settings = GATHERED_IMAGES if gathered else settings
        access = access_of(problem, static, settings)
        tiles0, tiles1, tiles2 = (-(-axis.input // axis.stride) for axis in static.axes)
        box = box_of(static, access, [tiles0, tiles1, -(-tiles2 // access.tile)])
        tiles, dx = gathered or settings.threads, problem.operation.dx
        return self.made(
            problem,
            (static, access, settings),
            (-(-box.threads // tiles), 1, 1),
            (settings.threads, 1, 1),
            ("box", box),
            *problem.factors_and_reciprocal,
            ("mode", c_int(problem.operation.pooling.mode)),
            ("tiles", c_uint(tiles)),
            ("gathers", c_int(gathered > 0)),
            ("partial_sectors", c_int(dx.nbytes > max(L2_BYTES, dx.count * dx.scalar_bytes))),
        )


def gathered_tiles(static: StaticShape, access: Access) -> int:
    """Return the number of tiles whose results a block collects in shared memory before it writes them; 0 for none.

    The tiles form full rows, which must be contiguous in dx. Rows that consist of full sectors need no collecting.
    """
    a0, a1, a2 = static.axes
    columns, threads = access.tile * a2.stride, GATHERED_IMAGES.threads
    length, sector = a2.input, SECTOR_BYTES // static.scalar_bytes
    tiles = length // columns
    if a0.stride > 1 or access.x_vector == 1 or length % sector == 0 or a1.input % a1.stride:
        return 0
    if prod(static.extents) * prod(axis.input for axis in static.axes) * static.scalar_bytes < MIN_GATHERED_BYTES:
        return 0
    steps = [(axis.input, axis.x_stride) for axis in static.axes]
    steps += zip(static.extents, static.x_steps, strict=True)
    piece = 1
    for extent, step in sorted((step for step in steps if step[0] > 1), key=lambda step: step[1]):
        if step != piece:
            return 0
        piece *= extent
    return threads // tiles * tiles  # It is 0 where a row is too long for a block.
