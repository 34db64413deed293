"""Plans forward pooling with a static window (static_forward.cu)."""

from __future__ import annotations

from ctypes import c_int
from dataclasses import replace

from .problem import FORWARD, Configuration, PoolingProblem
from .static_window import (
    LARGE_WINDOWS,
    WINDOWS,
    Access,
    Settings,
    StaticShape,
    StaticWindowSolver,
    access_of,
    box_of,
    static_shape,
    thread_count,
)

ENOUGH_THREADS = 448  # threads per SM from which volumes slide along axis 0, about half of the resident ones
FEW_THREADS = 128  # threads per SM below which images use smaller tiles
MAX_SMALL_WINDOW = 3  # positions per axis, above which the settings LARGE are used
IMAGES = Settings(threads=128, blocks=5, rows=2, channel_bytes=16)
SMALL_IMAGES = Settings(threads=256, blocks=5, channel_bytes=4)
LARGE = Settings(threads=128, blocks=8)
VOLUMES = Settings(threads=128, blocks=6, depth=8)


class StaticForward(StaticWindowSolver):
    """Serve WINDOWS, and LARGE_WINDOWS of images. Each thread takes a tile of windows along axes 1 and 2."""

    name, source = "pooling.static_forward", "pooling/static_forward.cu"
    kinds = (FORWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        static = static_shape(problem.shape, WINDOWS | LARGE_WINDOWS)
        large = static is not None and static.axes[1].window > MAX_SMALL_WINDOW
        if static is None or (large and not static.is_image):
            return None
        settings = LARGE if large else IMAGES if static.is_image else VOLUMES
        if static.axes[1].window <= static.axes[1].stride:  # Rows of windows share no input.
            settings = replace(settings, rows=1)
        access = access_of(problem, static, settings)
        threads = thread_count(static, access, _tiles(static, access, settings))
        if settings.rows > 1 and threads < FEW_THREADS * problem.device.multiprocessors:
            settings = SMALL_IMAGES
            access = access_of(problem, static, settings)
        enough = ENOUGH_THREADS * problem.device.multiprocessors
        while settings.depth > 1 and thread_count(static, access, _tiles(static, access, settings)) < enough:
            settings = replace(settings, depth=settings.depth // 2)
        box = box_of(static, access, _tiles(static, access, settings))
        pooling = problem.operation.pooling
        return self.made(
            problem,
            (static, access, settings),
            (-(-box.threads // settings.threads), 1, 1),
            (settings.threads, 1, 1),
            ("box", box),
            *problem.factors_and_reciprocal,
            ("mode", c_int(pooling.mode)),
            ("propagate", c_int(pooling.nan)),
            ("depth", c_int(settings.depth)),
        )


def _tiles(static: StaticShape, access: Access, settings: Settings) -> list[int]:
    """Return the number of thread tiles along each axis."""
    o0, o1, o2 = (axis.output for axis in static.axes)
    return [-(-o0 // settings.depth), -(-o1 // settings.rows), -(-o2 // access.tile)]
