"""Pooling whose window is static, a constant of the kernel: what its solvers share (static_window.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, ClassVar

from ..plans import type_definitions
from ..primitives.geometry import FastDivmod, Grid
from .problem import PACK_BYTES, Axis, Configuration, PoolingProblem, PoolingSolver, Shape, arguments

# (window, stride, padding), the same of every axis: what networks use.
WINDOWS = {(2, 2, 0), (3, 2, 0), (3, 2, 1)}
LARGE_WINDOWS = {(7, 7, 0)}  # of images, forward
MAX_SPAN = 2**31 - 2**24  # elements: distances below this stay 32-bit numbers, those of the padding around them too
MAX_OUTER = 3
ROW_BYTES = {"wide": 16, "narrow": 8}  # of accesses along rows
MAX_PACK = 8  # elements of rows
NUMBERS = ("K", "window"), ("S", "stride"), ("P", "padding")  # of an axis, in the kernels
MAX_TILE = 4  # windows of a thread, for accesses to be as wide as they may be


@dataclass
class Settings:
    """What is tuned by measuring."""

    threads: int  # of a block
    blocks: int  # that an SM should hold, which limits the registers of a thread
    rows: int = 1  # windows of a thread along axis 1, where they overlap
    channel_bytes: int = 8  # of the channels of a thread
    row_channels: int = 1  # channels of a position of rows in packs
    group_bytes: int = 32  # of the channels of a block, for gradients of maxima
    depth: int = 1  # windows of a thread along axis 0, forward, where there are enough threads
    stages: int = 0  # steps whose reads are in flight while windows are scanned

    def definitions(self) -> dict[str, int]:
        """Return the definitions of the kernels."""
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
    """The part of a call that is not static: sizes and strides of three axes, and of what is not pooled."""

    axes: list[Axis]
    extents: list[int]
    x_steps: list[int]
    y_steps: list[int]
    channels: int  # that are neighbours in memory, of which there are no planes; or 1
    scalar_bytes: int

    @property
    def is_image(self) -> bool:
        """Whether axis 0 is not pooled."""
        return self.axes[0].window == 1

    def divided_by(self, pack: int, channels: bool) -> tuple[bool, bool]:
        """Return whether packs of x, and of y, begin at multiples of themselves and leave nothing over, along rows or
        channels."""
        along = self.axes[2]
        rows = self.axes if channels else self.axes[:2]
        x = [self.channels if channels else along.input, *self.x_steps, *(a.x_stride for a in rows if a.input > 1)]
        y = [self.channels if channels else along.output, *self.y_steps, *(a.y_stride for a in rows if a.output > 1)]
        return all(n % pack == 0 for n in x), all(n % pack == 0 for n in y)


@dataclass
class Access:
    """How a thread accesses memory; the kernel's name ends with ``kind``."""

    kind: str
    tile: int  # windows along axis 2
    channels: int  # of a thread
    x_pack: int  # elements along a row of x
    y_packed: bool  # whether those of y lie in one access
    packs: int  # of channels in all

    @property
    def x_elements(self) -> int:
        """Elements of an access to x."""
        return self.channels if self.x_pack == 1 else self.x_pack

    @property
    def y_elements(self) -> int:
        """Elements of an access to y."""
        return self.tile if self.y_packed else self.channels if self.x_pack == 1 else 1


def static_shape(shape: Shape, windows: set[tuple[int, int, int]] = WINDOWS) -> StaticShape | None:
    """Return three axes with one of the ``windows``, rows of images in axis 1; None where windows are others, or
    empty."""
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
    static = StaticShape(axes, extents, x_steps, y_steps, channels, PACK_BYTES // shape.width)
    return static if _span(static) < MAX_SPAN else None


def _span(static: StaticShape) -> int:
    """Return about how far the elements of a tensor lie apart, those around a tile included."""
    x = sum((extent - 1) * step for extent, step in zip(static.extents, static.x_steps, strict=True))
    y = sum((extent - 1) * step for extent, step in zip(static.extents, static.y_steps, strict=True))
    x += sum((axis.input + 16) * axis.x_stride for axis in static.axes)
    y += sum((axis.output + 16) * axis.y_stride for axis in static.axes)
    return max(x, y) + static.channels


def access_of(
    problem: PoolingProblem, static: StaticShape, settings: Settings, row_bytes: Mapping[str, int] = ROW_BYTES
) -> Access:
    """Return the widest access that both tensors allow, along rows one of ``row_bytes``; that of y may be narrower
    there."""
    if static.channels > 1:
        channels = settings.channel_bytes // static.scalar_bytes
        if channels > 1 and problem.aligned and all(static.divided_by(channels, True)):
            return Access("channels", 1, channels, 1, False, static.channels // channels)
        return Access("scattered", 1, 1, 1, False, static.channels)
    along = static.axes[2]
    if along.y_stride != 1 and along.output > 1:
        return Access("scattered", 1, 1, 1, False, 1)
    for kind, nbytes in row_bytes.items() if problem.aligned else ():
        pack = min(nbytes // static.scalar_bytes, MAX_PACK)
        tile = pack // gcd(pack, along.stride)
        if pack > 1 and tile <= MAX_TILE and static.divided_by(pack, False)[0]:
            return Access(kind, tile, 1, pack, static.divided_by(tile, False)[1], 1)
    return Access("loose", 1, 1, 1, False, 1)


def begins_in_the_end(axis: Axis) -> bool:
    """Return whether there is a window, more than advised, that lies over the last input alone, and else behind it."""
    return axis.output > -(-axis.input // axis.stride)


class StaticWindowSolver(PoolingSolver):
    """A solver whose kernel is compiled for one window. source: has a kernel for each kind of access."""

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
        """Return the launch of a kernel whose arguments end with ``fields``. window: with the settings that the kernel
        is compiled for."""
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
    """The ``Layout`` of static_window.cuh; what a kernel divides follows."""

    _fields_ = [
        ("outer_rank", c_int),
        ("outer", FastDivmod * MAX_OUTER),
        ("x_outer", c_int * MAX_OUTER),
        ("y_outer", c_int * MAX_OUTER),
        ("input", c_int * 3),
        ("output", c_int * 3),
        ("x_stride", c_int * 3),
        ("y_stride", c_int * 3),
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
    """The ``Box`` of static_window.cuh."""

    _fields_ = [("threads", c_uint), ("packs", FastDivmod), ("tiles", FastDivmod * 3)]


def steps_of_blocks(steps: int, blocks: int, at_once: int, start_steps: int) -> int:
    """Return how many of ``steps`` a block does: few enough that all SMs have as much to do as each other.

    at_once: of ``blocks`` and others beside them, how many run. start_steps: that a block could do while it starts.
    """

    def cost(segments: int) -> tuple[int, int]:
        return -(-blocks * segments // at_once) * (-(-steps // segments) + start_steps), segments

    return -(-steps // min(range(1, steps + 1), key=cost))


def thread_count(static: StaticShape, access: Access, tiles: list[int]) -> int:
    """Return how many threads take a tile of each axis and a pack of channels."""
    return access.packs * prod(tiles) * prod(static.extents)


def box_of(static: StaticShape, access: Access, tiles: list[int]) -> BoxStruct:
    """Return how threads share ``tiles`` of each axis."""
    threads = thread_count(static, access, tiles)
    box = BoxStruct(static, access, threads=threads, packs=FastDivmod.of(access.packs))
    for d, count in enumerate(tiles):
        box.tiles[d] = FastDivmod.of(count)
    return box
