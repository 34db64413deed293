"""Provides the shared parts of solvers whose window is a compile-time constant of the kernel (static_window.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, ClassVar

from ..plans import type_definitions
from ..primitives.geometry import FastDivmod, Grid
from ..runtime.arguments import declared
from .problem import VECTOR_BYTES, Axis, Configuration, PoolingProblem, PoolingSolver, Shape, arguments

# Each entry is (window, stride, padding) of every pooled axis. Networks use these, and windows that share no input.
WINDOWS = {(2, 2, 0), (3, 2, 0), (3, 2, 1), *((size, size, padding) for size in (2, 3) for padding in range(size))}
LARGE_WINDOWS = {(7, 7, 0)}  # windows for images only, forward
MAX_SPAN = 2**31 - 2**24  # elements; offsets below it, with padding around them, fit 32 bits
MAX_OUTER = 3  # dimensions that are not pooled
ROW_BYTES = {"wide": 16, "narrow": 8}  # bytes per access along rows, by kind of access
MAX_VECTOR = 8  # elements per access along a row
NUMBERS = ("K", "window"), ("S", "stride"), ("P", "padding")  # macro prefix and field of each axis
MAX_TILE = 4  # windows per thread along a row


@dataclass
class Settings:
    """Hold parameters that were tuned by measurement."""

    threads: int  # threads per block
    blocks: int  # blocks per SM, which limits the registers per thread
    rows: int = 1  # windows per thread along axis 1, where windows overlap
    channel_bytes: int = 8  # bytes of channels per thread, NHWC
    row_channels: int = 1  # channels per position, for rows that are read in vectors
    group_bytes: int = 32  # bytes of channels per block, for gradients of maxima
    depth: int = 1  # windows per thread along axis 0, forward, where there are enough threads
    stages: int = 0  # steps whose loads are in flight while windows are scanned

    def definitions(self) -> dict[str, int]:
        """Return the macro definitions of the kernels."""
        return {
            "THREADS": self.threads,
            "BLOCKS": self.blocks,
            "TILE1": self.rows,
            "CHANNEL_BYTES": self.channel_bytes,
            "ROW_CHANNELS": self.row_channels,
            "STAGES": self.stages,
        }


@dataclass
class StaticShape:
    """Describe the part of a call that is not compiled in: extents and strides of all dimensions."""

    axes: list[Axis]
    extents: list[int]
    x_steps: list[int]
    y_steps: list[int]
    channels: int  # number of contiguous channels (NHWC), else 1
    scalar_bytes: int

    @property
    def is_image(self) -> bool:
        """Return whether axis 0 is not pooled."""
        return self.axes[0].window == 1

    def divided_by(self, vector: int, channels: bool) -> tuple[bool, bool]:
        """Return whether vectors of ``vector`` elements divide and are aligned in x, and in y, along rows or
        channels."""
        along = self.axes[2]
        rows = self.axes if channels else self.axes[:2]
        x = [self.channels if channels else along.input, *self.x_steps, *(a.x_stride for a in rows if a.input > 1)]
        y = [self.channels if channels else along.output, *self.y_steps, *(a.y_stride for a in rows if a.output > 1)]
        return all(n % vector == 0 for n in x), all(n % vector == 0 for n in y)


@dataclass
class Access:
    """Describe how a thread accesses memory; the kernel's name ends with ``kind``."""

    kind: str
    tile: int  # windows per thread along axis 2
    channels: int  # channels per thread
    x_vector: int  # elements per access along a row of x
    y_packed: bool  # whether a thread's windows along a row of y are one access
    vectors: int  # total number of channel vectors

    @property
    def x_elements(self) -> int:
        """Return the elements per access to x."""
        return self.channels if self.x_vector == 1 else self.x_vector

    @property
    def y_elements(self) -> int:
        """Return the elements per access to y."""
        return self.tile if self.y_packed else self.channels if self.x_vector == 1 else 1


def static_shape(shape: Shape, windows: set[tuple[int, int, int]] = WINDOWS) -> StaticShape | None:
    """Return the shape of a call with one of the ``windows``; None for other windows, or where a window is empty.

    The rows of an image are axis 1.
    """
    a0, a1, a2 = shape.axes
    image = a1.is_single
    axes = [a1, a0, a2] if image else [a0, a1, a2]
    pooled = axes[1:] if image or a0.is_single else axes
    found = {(axis.window, axis.stride, axis.padding) for axis in pooled}
    if len(found) != 1 or not found <= windows:
        return None
    if any((axis.output - 1) * axis.stride - axis.padding >= axis.input for axis in axes):
        return None
    if not shape.channels_last and a2.x_stride != 1:
        return None
    channels = shape.extents[-1] if shape.channels_last else 1
    steps = [list(shape.extents), list(shape.x_steps), list(shape.y_steps)]
    if shape.channels_last:
        steps = [step[:-1] for step in steps]
    extents, x_steps, y_steps = steps if steps[0] else [[1], [0], [0]]
    static = StaticShape(axes, extents, x_steps, y_steps, channels, VECTOR_BYTES // shape.width)
    return static if _span(static) < MAX_SPAN else None


def _span(static: StaticShape) -> int:
    """Return an upper bound of the element offsets in x and y, with a margin for the halo of a tile."""
    x = sum((extent - 1) * step for extent, step in zip(static.extents, static.x_steps, strict=True))
    y = sum((extent - 1) * step for extent, step in zip(static.extents, static.y_steps, strict=True))
    x += sum((axis.input + 16) * axis.x_stride for axis in static.axes)
    y += sum((axis.output + 16) * axis.y_stride for axis in static.axes)
    return max(x, y) + static.channels


def access_of(
    problem: PoolingProblem, static: StaticShape, settings: Settings, row_bytes: Mapping[str, int] = ROW_BYTES
) -> Access:
    """Return the widest access that both tensors allow.

    Along rows it has one of ``row_bytes``, and accesses to y may be narrower.
    """
    if static.channels > 1:
        channels = settings.channel_bytes // static.scalar_bytes
        if channels > 1 and problem.aligned and all(static.divided_by(channels, True)):
            return Access("channels", 1, channels, 1, False, static.channels // channels)
        return Access("scattered", 1, 1, 1, False, static.channels)
    along = static.axes[2]
    if along.y_stride != 1 and along.output > 1:
        return Access("scattered", 1, 1, 1, False, 1)
    for kind, nbytes in row_bytes.items() if problem.aligned else ():
        vector = min(nbytes // static.scalar_bytes, MAX_VECTOR)
        tile = vector // gcd(vector, along.stride)
        if vector > 1 and tile <= MAX_TILE and static.divided_by(vector, False)[0]:
            return Access(kind, tile, 1, vector, static.divided_by(tile, False)[1], 1)
    return Access("loose", 1, 1, 1, False, 1)


def begins_in_the_end(axis: Axis) -> bool:
    """Return whether an extra window begins at the last input and extends beyond it."""
    return axis.output > -(-axis.input // axis.stride)


def reaches_over(axis: Axis) -> bool:
    """Return whether the last window reaches over the last input."""
    return (axis.output - 1) * axis.stride - axis.padding + axis.window > axis.input


class StaticWindowSolver(PoolingSolver):
    """Plan a kernel that is compiled for one window. source: file with one kernel per kind of access."""

    source: ClassVar[str]

    def made(
        self,
        problem: PoolingProblem,
        window: tuple[StaticShape, Access, Settings],
        grid: Grid,
        block: Grid,
        *fields: tuple[str, Any],
        shared_bytes: int = 0,
    ) -> Configuration:
        """Return the launch of a kernel whose arguments end with ``fields``. window: shape, access and settings."""
        static, access, settings = window
        numbers = {f"{name}{d}": getattr(axis, field) for d, axis in enumerate(static.axes) for name, field in NUMBERS}
        compiled = {name: str(value) for name, value in (numbers | settings.definitions()).items()}
        elements = {"x": access.x_elements, "dx": access.x_elements, "y": access.y_elements, "dy": access.y_elements}
        alignment = {name: elements[name] * static.scalar_bytes for name in problem.operands}
        return Configuration(
            self.source,
            f"{self.name.replace('.', '_')}_{access.kind}",
            type_definitions(problem.operation.x.scalar_type, problem.operation, **compiled),
            arguments(problem, *fields),
            grid,
            block,
            shared_bytes,
            alignment,
        )


class LayoutStruct(ctypes.Structure):
    """Lay out the ``Layout`` of static_window.cuh. Derived structures append the divisors of their kernel."""

    _fields_ = [
        ("outer_rank", c_int),
        ("outer", FastDivmod * MAX_OUTER),
        *declared(c_int * MAX_OUTER, "x_outer y_outer"),
        *declared(c_int * 3, "input output x_stride y_stride"),
        ("y_packed", c_int),
    ]

    def __init__(self, static: StaticShape, access: Access, **others: Any) -> None:
        super().__init__(outer_rank=len(static.extents), y_packed=access.y_packed, **others)
        for i, d in enumerate(reversed(range(len(static.extents)))):
            self.outer[i] = FastDivmod.of(static.extents[d])
            self.x_outer[i], self.y_outer[i] = static.x_steps[d], static.y_steps[d]
        for d, axis in enumerate(static.axes):
            self.input[d], self.output[d] = axis.input, axis.output
            self.x_stride[d], self.y_stride[d] = axis.x_stride, axis.y_stride


class BoxStruct(LayoutStruct):
    """Lay out the ``Box`` of static_window.cuh."""

    _fields_ = [("threads", c_uint), ("vectors", FastDivmod), ("tiles", FastDivmod * 3)]


def steps_of_blocks(steps: int, blocks: int, at_once: int, start_steps: int) -> int:
    """Return the number of steps per block that balances the load of the SMs.

    blocks: blocks if each does all ``steps``. at_once: resident blocks of the device. start_steps: cost of starting a
    block, in steps.
    """

    def cost(segments: int) -> tuple[int, int]:
        return -(-blocks * segments // at_once) * (-(-steps // segments) + start_steps), segments

    return -(-steps // min(range(1, steps + 1), key=cost))


def thread_count(static: StaticShape, access: Access, tiles: list[int]) -> int:
    """Return the number of threads, each with a tile along every axis and a vector of channels."""
    return access.vectors * prod(tiles) * prod(static.extents)


def box_of(static: StaticShape, access: Access, tiles: list[int]) -> BoxStruct:
    """Return the ``Box`` in which threads share ``tiles`` of each axis."""
    threads = thread_count(static, access, tiles)
    box = BoxStruct(static, access, threads=threads, vectors=FastDivmod.of(access.vectors))
    for d, count in enumerate(tiles):
        box.tiles[d] = FastDivmod.of(count)
    return box
