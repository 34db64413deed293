"""The gradient of a maximum over small images with a static window (small_max_backward.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod

from dualdnn.api.operations.specs import SCALAR_BYTES

from ..primitives.geometry import Grid
from .problem import MAX_BACKWARD, Configuration, PoolingProblem
from .static_window import Access, Settings, StaticShape, StaticWindowSolver, access_of, static_shape

MAX_THREADS, MAX_DEPTH = 512, 64  # of a block, and along its third dimension
MAX_BLOCKS = 264  # of more, other kernels take less time
MAX_GRID = 2**16 - 1  # along its second and third dimension
MIN_THREADS = 128  # of a block that has planes enough
MAX_PACKS = 8  # of channels of a block
MIN_SHARES = 3  # of rows: with fewer, what two blocks scan takes longer than more blocks save
SETTINGS = Settings(threads=MAX_THREADS, blocks=1, channel_bytes=4)


class PlanesStruct(ctypes.Structure):
    """The ``Planes`` of the kernels."""

    _fields_ = [
        ("shared", c_uint),
        ("rows_before", c_int),
        ("own_rows", c_int),
        ("input", c_int * 2),
        ("output", c_int * 2),
        ("x_stride", c_int * 2),
        ("y_stride", c_int * 2),
        ("x_step", c_int * 2),
        ("y_step", c_int * 2),
    ]


@dataclass
class Planes:
    """Planes as the kernels index them, by the dimensions of the launch."""

    static: StaticShape
    layout: PlanesStruct
    access: Access
    grid: Grid
    block: Grid

    @property
    def preferred(self) -> bool:
        """Whether so few blocks take less time than the kernels for more."""
        return prod(self.grid) <= MAX_BLOCKS


def planes_of(problem: PoolingProblem) -> Planes | None:
    """Return how blocks share planes; None where a block cannot hold the windows of one. The windows are those that
    begin at every input, and blocks also scan the windows around theirs."""
    static = static_shape(problem.shape)
    if static is None or not static.is_image:
        return None
    access = access_of(problem, static, SETTINGS, {})
    rows = static.channels == 1
    if rows != (access.kind == "loose"):
        return None
    _, a1, a2 = static.axes
    windows, around = (a1.windows, a2.windows), rows_around(static)
    # The dimension that blocks share: planes, or packs of channels; one other at most, the second of the launch.
    outer = [*zip(static.extents, static.x_steps, static.y_steps, strict=True)]
    shared = outer.pop() if rows else (access.packs, access.channels, access.channels)
    other = outer[0] if outer else (1, 0, 0)
    most = min(MAX_THREADS // prod(windows), MAX_DEPTH)
    if rows:
        per_sm = -(-prod(static.extents) // problem.device.multiprocessors)
        most = min(most, max(-(-MIN_THREADS // prod(windows)), per_sm))
    else:
        most = min(most, MAX_PACKS)
    if most == 0 or windows[0] > MAX_DEPTH:
        return None
    parts = -(-shared[0] // most)
    together = -(-shared[0] // parts)
    grid = (parts, other[0], 1)
    own_rows = windows[0]
    if not rows:
        shares = max(1, problem.device.multiprocessors // prod(grid))
        own_rows = -(-windows[0] // (shares if shares >= MIN_SHARES or not any(around) else 1))
        grid = (*grid[:2], -(-windows[0] // own_rows))
    before, behind = around if own_rows < windows[0] else (0, 0)
    layout = PlanesStruct(shared=shared[0], rows_before=before, own_rows=own_rows)
    for d, axis in enumerate(static.axes[1:]):
        layout.input[d], layout.output[d] = axis.input, axis.output
        layout.x_stride[d], layout.y_stride[d] = axis.x_stride, axis.y_stride
    for d, (_, x_step, y_step) in enumerate([shared, other]):
        layout.x_step[d], layout.y_step[d] = x_step, y_step
    block = (windows[1], windows[0], together) if rows else (together, windows[1], before + own_rows + behind)
    if max(grid[1:]) > MAX_GRID:
        return None
    return Planes(static, layout, access, grid, block)


def rows_around(static: StaticShape) -> tuple[int, int]:
    """Return how many rows of windows before and behind those that begin at some inputs reach these inputs."""
    axis = static.axes[1]
    return -((axis.padding - axis.window) // axis.stride + 1), (axis.stride - 1 + axis.padding) // axis.stride


class SmallMaxBackward(StaticWindowSolver):
    """Images whose windows fit in a block: a thread has one window and the inputs that begin there."""

    name, source = "pooling.small_max_backward", "pooling/small_max_backward.cu"
    kinds = (MAX_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        planes = planes_of(problem)
        if planes is None:
            return None
        around = sum(rows_around(planes.static))
        x, y, z = planes.block
        cells = z * (x + around) * (y + around)
        if planes.static.channels > 1:
            cells = x * (y + around) * (z + around)
        cell_bytes = 2 * SCALAR_BYTES[problem.operation.compute_type] * planes.access.channels
        return self.made(
            problem,
            (planes.static, planes.access, SETTINGS),
            planes.grid,
            planes.block,
            *problem.factors,
            ("propagate", c_int(problem.operation.pooling.nan)),
            ("planes", planes.layout),
            shared_bytes=cells * cell_bytes,
            preferred=planes.preferred,
        )
