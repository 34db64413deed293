"""Pooling with windows that the kernels are compiled for (kernels/pooling_known_forward.cu, pooling_known_backward.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_longlong, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any

from dualdnn.api.operations import PoolingBackward, PoolingForward
from dualdnn.api.operations.specs import SCALAR_BYTES

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure, type_definitions
from .pooling_geometry import MAXIMA, PACK_BYTES, Axis, Shape

# (window, stride, padding), the same of every axis: what networks use. Other windows take the kernels for any of them.
WINDOWS = {(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1)}
WIDE_WINDOWS = {(7, 7, 0)}  # of images in rows; no maxima backward
WIDEST = 3  # of the others
INT_OFFSETS = 2**31 - 2**24  # distances below this stay 32-bit numbers, those of the padding around them too
MOST_OUTER = 3
MOST_TILE = 4  # windows along a row that the width of accesses may ask for
SOME_THREADS = 2**16  # how many keep a GPU busy: below it, tiles are small


@dataclass
class Settings:
    """What the fastest choice is found by measuring."""

    threads: int  # of a block
    blocks: int  # that a multiprocessor should hold: what is left of its registers
    rows: int  # windows of a thread along axis 1
    lane_bytes: int  # channels of a thread
    channel_tile: int  # windows of a thread along axis 2 where it has channels
    row_tile: int  # the same where rows are read in packs, at least
    loose_tile: int  # the same where they cannot be


SETTINGS = {
    "forward": Settings(128, 5, 2, 16, 1, 2, 1),
    "average": Settings(128, 6, 2, 8, 1, 2, 1),
    "maximum": Settings(128, 4, 2, 8, 1, 4, 2),
    "forward of volumes": Settings(128, 5, 1, 8, 1, 2, 1),
    "average of volumes": Settings(128, 6, 1, 16, 1, 2, 1),
    "maximum of volumes": Settings(128, 3, 1, 4, 1, 4, 1),
    "forward of wide windows": Settings(128, 4, 1, 4, 1, 1, 1),
    "average of wide windows": Settings(128, 4, 1, 4, 1, 1, 1),
}


@dataclass
class Box:
    """How threads share the work of a call, as the definitions of its kernel and its arguments."""

    definitions: dict[str, str]
    arguments: ctypes.Structure
    threads: int
    x_pack: int
    y_pack: int


def forward_plan(operation: PoolingForward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    return _plan(operation, shape, device, otherwise, "forward", ("x", "y"))


def backward_plan(operation: PoolingBackward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    kind = "maximum" if operation.pooling.mode in MAXIMA else "average"
    return _plan(operation, shape, device, otherwise, kind, ("dy", "x", "dx"))


def _plan(
    operation: PoolingForward | PoolingBackward,
    shape: Shape,
    device: Any,
    otherwise: Callable[[], Plan],
    kind: str,
    operands: tuple[str, ...],
) -> Plan | None:
    axes = known_axes(shape, kind)
    if axes is None:
        return None
    volume, wide = axes[0].window > 1, axes[2].window > WIDEST
    settings = SETTINGS[kind + (" of volumes" if volume else " of wide windows" if wide else "")]
    box = _box(shape, axes, settings, kind)
    if box is None:
        return None
    file, kernel = ("forward", "") if kind == "forward" else ("backward", f"_{kind}")
    divisor = prod(axis.divisor(operation.pooling.mode) for axis in shape.axes)
    arguments = structure(
        *pointers(len(operands)),
        ("box", box.arguments),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, reciprocal=1 / divisor if divisor else 0.0),
        ("mode", c_int(operation.pooling.mode)),
        ("propagate", c_int(operation.pooling.nan)),
    )
    if file == "backward":
        box.definitions["MAXIMUM"] = str(int(kind == "maximum"))
    definitions = type_definitions(operation.x.scalar_type, operation, **box.definitions)
    function = device.function(f"pooling_known_{file}.cu", f"pooling_known_{file}{kernel}", definitions)
    grid = (-(-box.threads // settings.threads), 1, 1)
    launch = Launch(function, arguments, operands, grid, (settings.threads, 1, 1))
    bytes_of = {"x": box.x_pack, "dx": box.x_pack, "y": box.y_pack, "dy": box.y_pack}
    scalar_bytes = SCALAR_BYTES[operation.x.scalar_type]
    alignment = {name: bytes_of[name] * scalar_bytes for name in operands}
    return AlignedPlan(operation, [launch], alignment, otherwise)


def known_axes(shape: Shape, kind: str) -> list[Axis] | None:
    """Three axes with a known window, the rows of images in axis 1; None where they are others or a window is empty."""
    a0, a1, a2 = shape.axes
    if (a1.input, a1.output, a1.window, a1.stride, a1.padding) == (1, 1, 1, 1, 0):
        a0, a1 = a1, a0
    known = WINDOWS if kind == "maximum" or shape.channels_last else WINDOWS | WIDE_WINDOWS
    windows = {(axis.window, axis.stride, axis.padding) for axis in (a0, a1, a2)}
    image = (a0.input, a0.output, a0.window, a0.stride, a0.padding) == (1, 1, 1, 1, 0)
    if image:
        windows = {(axis.window, axis.stride, axis.padding) for axis in (a1, a2)}
    if len(windows) != 1 or not windows <= (known if image else WINDOWS):
        return None
    if any((axis.output - 1) * axis.stride - axis.padding >= axis.input for axis in (a0, a1, a2)):
        return None
    return [a0, a1, a2]


def _box(shape: Shape, axes: list[Axis], settings: Settings, kind: str) -> Box | None:
    channels = shape.channels_last
    if not channels and axes[2].x_stride != 1:
        return None
    extents, x_steps, y_steps = list(shape.extents), list(shape.x_steps), list(shape.y_steps)
    scalar_bytes = PACK_BYTES // shape.width
    lanes = lane_groups = 1
    if channels:
        x_strides = [*x_steps[:-1], *(axis.x_stride for axis in axes if axis.input > 1)]
        y_strides = [*y_steps[:-1], *(axis.y_stride for axis in axes if axis.output > 1)]
        lanes = pack_of(settings.lane_bytes // scalar_bytes, extents[-1], *x_strides, *y_strides)
        lane_groups = extents.pop() // lanes
        del x_steps[-1], y_steps[-1]
    if len(extents) > MOST_OUTER:
        return None
    if not extents:
        extents, x_steps, y_steps = [1], [0], [0]
    x_pack = y_pack = tile2 = 1
    if channels:
        most_tile2 = settings.channel_tile if lanes > 1 else settings.loose_tile
    else:
        x_pack, tile2 = row_pack(axes, x_steps, scalar_bytes)
        most_tile2 = settings.row_tile if x_pack > 1 else settings.loose_tile
    outputs_of = [axis.output if kind == "forward" else -(-axis.input // axis.stride) for axis in axes]
    most_tile1 = settings.rows if axes[1].window > axes[1].stride else 1  # where windows overlap
    planes = lane_groups * outputs_of[0] * prod(extents)
    tile1 = 1
    # Larger tiles share more, as long as there are enough threads.
    while tile2 < most_tile2 and planes * outputs_of[1] * outputs_of[2] >= SOME_THREADS * 2 * tile2:
        tile2 *= 2
    if not channels and axes[2].y_stride == 1:
        y_strides = [*y_steps, *(axis.y_stride for axis in axes[:2] if axis.output > 1)]
        y_pack = pack_of(min(tile2, PACK_BYTES // scalar_bytes), axes[2].output, *y_strides)
    while tile1 < most_tile1 and planes * outputs_of[1] * outputs_of[2] >= SOME_THREADS * (tile1 + 1) * tile2:
        tile1 += 1
    tiles = [outputs_of[0] if kind == "forward" else axes[0].input]
    tiles += [-(-outputs_of[1] // tile1), -(-outputs_of[2] // tile2)]
    threads = lane_groups * prod(tiles) * prod(extents)
    if threads >= 2**31 - 2**10:
        return None
    x_span = span(extents, x_steps, [axis.input for axis in axes], [axis.x_stride for axis in axes], shape)
    y_span = span(extents, y_steps, [axis.output for axis in axes], [axis.y_stride for axis in axes], shape)
    offset = "int" if max(x_span, y_span) < INT_OFFSETS else "long long"
    definitions = window_definitions(axes) | {
        "TILE1": str(tile1),
        "TILE2": str(tile2),
        "LANES": str(lanes),
        "CHANNELS": str(int(channels)),
        "X_PACK": str(x_pack),
        "Y_PACK": str(y_pack),
        "OFFSET": offset,
        "THREADS": str(settings.threads),
        "BLOCKS": str(settings.blocks),
    }
    arguments = _arguments(c_int if offset == "int" else c_longlong, axes, extents, x_steps, y_steps)
    arguments.threads, arguments.lanes = threads, Divisor.of(lane_groups)
    for d, count in enumerate(tiles):
        arguments.tiles[d] = Divisor.of(count)
    return Box(definitions, arguments, threads, max(lanes, x_pack), max(lanes, y_pack))


def window_definitions(axes: list[Axis]) -> dict[str, str]:
    """K0, S0, P0, ..."""
    numbers = {"K": "window", "S": "stride", "P": "padding"}
    return {f"{name}{d}": str(getattr(axis, field)) for d, axis in enumerate(axes) for name, field in numbers.items()}


def pack_of(most: int, *numbers: int) -> int:
    """The largest power of two up to ``most`` that divides all numbers."""
    pack = 1
    while 2 * pack <= most and all(number % (2 * pack) == 0 for number in numbers):
        pack *= 2
    return pack


def row_pack(axes: list[Axis], x_steps: list[int], scalar_bytes: int) -> tuple[int, int]:
    """(elements of an access to a row of x, windows along it that a thread takes at least): the widest access."""
    x_strides = [*x_steps, *(other.x_stride for other in axes[:2] if other.input > 1)]
    pack = pack_of(max(1, PACK_BYTES // scalar_bytes), axes[2].input, *x_strides)
    tile = 1
    while tile * axes[2].stride % pack:
        if tile == MOST_TILE:
            pack //= 2
        else:
            tile *= 2
    return pack, tile


def span(extents: list[int], steps: list[int], sizes: list[int], strides: list[int], shape: Shape) -> int:
    """About how far the elements of a tensor lie apart, those around a tile included."""
    outer = sum((extent - 1) * step for extent, step in zip(extents, steps, strict=True))
    return outer + sum((size + 16) * stride for size, stride in zip(sizes, strides, strict=True)) + shape.extents[-1]


def _arguments(offset: Any, axes: list[Axis], extents: list[int], x_steps: list[int], y_steps: list[int]) -> Any:
    """A ``Box`` of kernels/pooling_known.cuh without its threads."""
    fields = [
        ("threads", c_uint),
        ("lanes", Divisor),
        ("tiles", Divisor * 3),
        ("outer_rank", c_int),
        ("outer", Divisor * MOST_OUTER),
        ("x_outer", offset * MOST_OUTER),
        ("y_outer", offset * MOST_OUTER),
        ("input", c_int * 3),
        ("output", c_int * 3),
        ("x_stride", offset * 3),
        ("y_stride", offset * 3),
    ]
    value: Any = type("Box", (ctypes.Structure,), {"_fields_": fields})()
    value.outer_rank = len(extents)
    for i, d in enumerate(reversed(range(len(extents)))):
        value.outer[i], value.x_outer[i], value.y_outer[i] = Divisor.of(extents[d]), x_steps[d], y_steps[d]
    for d, axis in enumerate(axes):
        value.input[d], value.output[d] = axis.input, axis.output
        value.x_stride[d], value.y_stride[d] = axis.x_stride, axis.y_stride
    return value
