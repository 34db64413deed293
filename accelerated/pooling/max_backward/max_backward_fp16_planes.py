"""The gradient of a maximum of half over rows in packs, with a static window (max_backward_fp16_planes.cu)."""

from __future__ import annotations

from ctypes import c_int
from dataclasses import replace
from math import prod
from typing import ClassVar

from dualdnn.api.operations.specs import HALF

from ...primitives.geometry import FastDivmod
from ..problem import L2_BYTES, MAX_BACKWARD, PACK_BYTES, WARP, Axis, Configuration, PoolingProblem
from ..static_window import (
    Access,
    LayoutStruct,
    Settings,
    StaticShape,
    StaticWindowSolver,
    access_of,
    begins_in_the_end,
    static_shape,
    steps_of_blocks,
)

SETTINGS = {  # by whether planes are images, and whether rows are staged in shared memory
    True: Settings(threads=448, blocks=2, stages=2),
    False: Settings(threads=448, blocks=2, stages=1),
}
ROW_BYTES = {"narrow": 8}  # of accesses along rows
COLUMNS = 4  # of a thread
START_STEPS = 1  # about the steps that a block could do while it starts


class PlanesStruct(LayoutStruct):
    """The ``Planes`` of the kernel."""

    _fields_: ClassVar = [
        ("tiles", FastDivmod),
        ("row_parts", FastDivmod),
        ("segments", FastDivmod),
        *((name, c_int) for name in ("warp_rows", "block_rows", "rows_before", "rows")),
        *((name, c_int) for name in ("before", "block_steps", "steps", "spacing", "advance")),
    ]


class MaxBackwardFp16Planes(StaticWindowSolver):
    """Volumes, and images where there are more than blocks at a time: a block slides from plane to plane."""

    name, source = "pooling.max_backward_fp16_planes", "pooling/max_backward/max_backward_fp16_planes.cu"
    kinds = (MAX_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        half = problem.operation.x.scalar_type == HALF
        static = static_shape(problem.shape) if half else None
        if static is None:
            return None
        image = static.is_image
        access = access_of(problem, static, SETTINGS[False], ROW_BYTES)
        if access.kind not in ROW_BYTES or any(map(begins_in_the_end, static.axes[1:])):
            return None
        if image:  # the outer dimension that is the fastest becomes axis 0
            static = _images_as_axis0(static)
        dense = _is_dense(static, access) and (not image or problem.operation.nbytes("x") > L2_BYTES)
        access = replace(access, kind="dense") if dense else access
        settings = SETTINGS[dense]
        depth, rows, columns = static.axes
        tiles = columns.input // COLUMNS
        if tiles > WARP:
            return None
        # Rows of windows of a block: all, or as many as it has room for, of which it only scans the first and last one.
        warp_rows, exchanges = WARP // tiles, rows.window > rows.stride
        possible = settings.threads // WARP * warp_rows
        needed = -(-rows.input // rows.stride)
        parts = 1 if needed <= possible else -(-needed // (possible - 2 * exchanges))
        written = -(-needed // parts)
        around = int(exchanges and parts > 1)
        taken = written + 2 * around
        warps = -(-taken // warp_rows)
        groups = prod(static.extents) * parts
        at_once = settings.blocks * problem.device.multiprocessors * (settings.threads // WARP) // warps
        steps = max(-(-(depth.input + depth.padding) // depth.stride), depth.output)
        if image:
            segments = max(1, min(steps, at_once // groups))
            block_steps, spacing, advance = steps, 1, segments
        else:
            block_steps = spacing = steps_of_blocks(steps, groups, at_once, START_STEPS)
            segments, advance = -(-steps // block_steps), 1
        planes = PlanesStruct(
            static,
            access,
            tiles=FastDivmod.of(tiles),
            row_parts=FastDivmod.of(parts),
            segments=FastDivmod.of(segments),
            warp_rows=warp_rows,
            block_rows=written,
            rows_before=around,
            rows=taken,
            before=int(segments > 1 and depth.window > depth.stride),
            block_steps=block_steps,
            steps=steps,
            spacing=spacing,
            advance=advance,
        )
        # What a thread publishes, in words; what it has in shared memory of each plane, and of dy.
        words = depth.stride + (4 if depth.window > depth.stride else depth.stride) if exchanges else 0
        shared_bytes = -(-taken * tiles * words * 4 // PACK_BYTES) * PACK_BYTES
        if dense:
            dy_bytes = access.tile * static.scalar_bytes
            planes_bytes = (settings.stages + 1) * depth.stride * PACK_BYTES + settings.stages * dy_bytes
            shared_bytes += warps * WARP * planes_bytes
        return self.made(
            problem,
            (static, access, settings),
            (groups * segments, 1, 1),
            (warps * WARP, 1, 1),
            ("planes", planes),
            *problem.factors,
            ("propagate", c_int(problem.operation.pooling.nan)),
            shared_bytes=shared_bytes,
            demands={"x": PACK_BYTES, "dx": PACK_BYTES} if dense else None,
            preferred=not image or groups * steps > at_once,  # of fewer images, a loop down their rows takes less time
        )


def _images_as_axis0(static: StaticShape) -> StaticShape:
    """Return the same with the fastest outer dimension as axis 0, of windows of one position."""
    last = Axis(static.extents[-1], static.extents[-1], 1, 1, 0, static.x_steps[-1], static.y_steps[-1])
    outer = [list(steps[:-1]) for steps in (static.extents, static.x_steps, static.y_steps)]
    extents, x_steps, y_steps = outer if outer[0] else [[1], [0], [0]]
    return replace(static, axes=[last, *static.axes[1:]], extents=extents, x_steps=x_steps, y_steps=y_steps)


def _is_dense(static: StaticShape, access: Access) -> bool:
    """Return whether the rows of x under a row of windows are full packs of 16 bytes that follow each other in memory,
    and every plane of a window that the one before does not have lies in x."""
    depth, rows, columns = static.axes
    pack = PACK_BYTES // static.scalar_bytes
    distances = [*static.x_steps, *([depth.x_stride] if depth.input > 1 else [])]
    full = rows.input % rows.stride == 0 and all(distance % pack == 0 for distance in distances)
    inside = (depth.output - 1) * depth.stride - depth.padding + depth.window <= depth.input
    last = depth.window > depth.stride or depth.output * depth.stride == depth.input
    follow = rows.x_stride == columns.input
    return access.y_packed and full and inside and last and follow
