"""Gradients of maxima with known windows (kernels/pooling_known_maximum.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_longlong, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import SCALAR_BYTES

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure, type_definitions
from .pooling_geometry import PACK_BYTES, Axis, Shape
from .pooling_known import INT_OFFSETS, MOST_OUTER, known_axes, pack_of, row_pack, span, window_definitions

WARP = 32
MOST_THREADS = 512
MOST_SHARED_BYTES = 100 * 1024


@dataclass
class Settings:
    """What the fastest choice is found by measuring."""

    threads: int  # about of a block
    registers: int  # of a thread
    blocks: int  # for every multiprocessor, as long as each marches on for some steps
    steps: int  # that a block marches at least
    lane_bytes: int  # channels of a thread
    block_bytes: int  # channels of a block
    channel_tile: int  # windows of a thread along axis 2 where it has channels
    loose_tile: int  # the same where rows cannot be read in packs


SETTINGS = {
    "images": Settings(128, 64, 8, 6, 8, 128, 1, 1),
    "volumes": Settings(128, 96, 8, 4, 8, 64, 1, 1),
}


class Unsuited(Exception):
    """A call that these kernels are not made for."""


@dataclass
class Strips:
    """What a thread takes."""

    tile: int
    lanes: int
    x_pack: int
    y_pack: int
    packs: int  # of channels


def plan(operation: PoolingBackward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    axes = known_axes(shape, "maximum")
    if axes is None or (not shape.channels_last and axes[2].x_stride != 1):
        return None
    if axes[0].window == 1:  # rows of images are what a block marches along
        axes = [axes[1], axes[0], axes[2]]
    settings = SETTINGS["images" if axes[1].window == 1 else "volumes"]
    extents, x_steps, y_steps = list(shape.extents), list(shape.x_steps), list(shape.y_steps)
    strips = _strips(shape, axes, settings, extents, x_steps, y_steps)
    if shape.channels_last:
        del extents[-1], x_steps[-1], y_steps[-1]
    if len(extents) > MOST_OUTER:
        return None
    x_span = span(extents, x_steps, [axis.input for axis in axes], [axis.x_stride for axis in axes], shape)
    y_span = span(extents, y_steps, [axis.output for axis in axes], [axis.y_stride for axis in axes], shape)
    offset = "int" if max(x_span, y_span) < INT_OFFSETS else "long long"
    march: Any = _march_type(c_int if offset == "int" else c_longlong)()
    march.outer_rank = len(extents)
    for i, d in enumerate(reversed(range(len(extents)))):
        march.outer[i], march.x_outer[i], march.y_outer[i] = Divisor.of(extents[d]), x_steps[d], y_steps[d]
    for d, axis in enumerate(axes):
        march.input[d], march.output[d] = axis.input, axis.output
        march.x_stride[d], march.y_stride[d] = axis.x_stride, axis.y_stride
    compute_bytes = SCALAR_BYTES[operation.compute_type]
    try:
        blocks, shared_bytes = _share(march, axes, strips, prod(extents), settings, shape, compute_bytes, device)
    except Unsuited:
        return None
    threads = -(-march.items // WARP) * WARP
    most = max(settings.threads, 1 << (threads - 1).bit_length())
    definitions = window_definitions(axes) | {
        "TILE1": "1",
        "TILE2": str(strips.tile),
        "LANES": str(strips.lanes),
        "CHANNELS": str(int(shape.channels_last)),
        "X_PACK": str(strips.x_pack),
        "Y_PACK": str(strips.y_pack),
        "OFFSET": offset,
        "THREADS": str(most),
        "BLOCKS": str(max(1, 2**16 // settings.registers // most)),
    }
    arguments = structure(
        *pointers(3),
        ("march", march),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    function = device.function(
        "pooling_known_maximum.cu",
        "pooling_known_maximum",
        type_definitions(operation.x.scalar_type, operation, **definitions),
    )
    launch = Launch(function, arguments, ("dy", "x", "dx"), (blocks, 1, 1), (threads, 1, 1), shared_bytes)
    x_bytes = max(strips.lanes, strips.x_pack) * operation.x.scalar_bytes
    y_bytes = max(strips.lanes, strips.y_pack) * operation.x.scalar_bytes
    return AlignedPlan(operation, [launch], {"dy": y_bytes, "x": x_bytes, "dx": x_bytes}, otherwise)


def _strips(
    shape: Shape, axes: list[Axis], settings: Settings, extents: list[int], x_steps: list[int], y_steps: list[int]
) -> Strips:
    scalar_bytes = PACK_BYTES // shape.width
    if shape.channels_last:
        x_strides = [*x_steps[:-1], *(axis.x_stride for axis in axes if axis.input > 1)]
        y_strides = [*y_steps[:-1], *(axis.y_stride for axis in axes if axis.output > 1)]
        lanes = pack_of(settings.lane_bytes // scalar_bytes, extents[-1], *x_strides, *y_strides)
        return Strips(settings.channel_tile if lanes > 1 else settings.loose_tile, lanes, 1, 1, extents[-1] // lanes)
    x_pack, tile = row_pack(axes, x_steps, scalar_bytes)
    if x_pack == 1:
        tile = settings.loose_tile
    y_pack = 1
    if axes[2].y_stride == 1:
        y_strides = [*y_steps, *(axis.y_stride for axis in axes[:2] if axis.output > 1)]
        y_pack = pack_of(min(tile, PACK_BYTES // scalar_bytes), axes[2].output, *y_strides)
    return Strips(tile, 1, x_pack, y_pack, 1)


def _share(
    march: Any,
    axes: list[Axis],
    strips: Strips,
    planes: int,
    settings: Settings,
    shape: Shape,
    compute_bytes: int,
    device: Any,
) -> tuple[int, int]:
    """How blocks share the work: (their number, bytes of shared memory of each)."""
    a0, a1, a2 = axes
    scalar_bytes = PACK_BYTES // shape.width
    across = max(-(-a2.output // strips.tile), -(-a2.input // (strips.tile * a2.stride)))
    lanes = min(strips.packs, max(1, settings.block_bytes // (strips.lanes * scalar_bytes)))
    while lanes > 1 and lanes * across > settings.threads:
        lanes = -(-lanes // 2)
    before = (a1.window - 1) // a1.stride
    rows = -(-(a1.input + a1.padding) // a1.stride)
    most_rows = max(1, settings.threads // (lanes * across) - before)
    parts = -(-rows // most_rows)
    march.block_rows = -(-rows // parts)
    rows = march.block_rows + before
    march.pitch = a2.input * lanes * strips.lanes
    plane_sums = ((rows - 1) * a1.stride + a1.window) * march.pitch
    # Small planes share a block.
    possible = min(settings.threads // (lanes * across * rows), MOST_SHARED_BYTES // (a0.window * plane_sums * compute_bytes))
    fill = WARP // (lanes * across * rows)
    march.block_planes = max(1, min(possible, planes, max(fill, planes // (settings.blocks * device.multiprocessors))))
    march.planes, march.packs = planes, strips.packs
    march.items = lanes * across * rows * march.block_planes
    march.slot = march.block_planes * plane_sums
    shared_bytes = (a0.window * march.slot + MOST_THREADS) * compute_bytes
    if march.items > MOST_THREADS or shared_bytes > MOST_SHARED_BYTES:
        raise Unsuited
    march.lanes, march.strips, march.rows = Divisor.of(lanes), Divisor.of(across), Divisor.of(rows)
    groups = -(-strips.packs // lanes)
    blocks = groups * parts * -(-planes // march.block_planes)
    march.steps = -(-(a0.input + a0.padding) // a0.stride)
    wanted = -(-settings.blocks * device.multiprocessors // blocks)
    segments = max(1, min(wanted, march.steps // settings.steps))
    march.block_steps = -(-march.steps // segments)
    segments = -(-march.steps // march.block_steps)
    march.lane_groups, march.segments, march.parts = Divisor.of(groups), Divisor.of(segments), Divisor.of(parts)
    return blocks * segments, shared_bytes


def _march_type(offset: Any) -> Any:
    """The ``March`` of the kernel."""
    fields = [
        ("items", c_uint),
        ("lanes", Divisor),
        ("strips", Divisor),
        ("rows", Divisor),
        ("lane_groups", Divisor),
        ("segments", Divisor),
        ("parts", Divisor),
        ("packs", c_uint),
        ("planes", c_uint),
        ("block_planes", c_uint),
        ("steps", c_int),
        ("block_steps", c_int),
        ("block_rows", c_int),
        ("pitch", c_int),
        ("slot", c_int),
        ("outer_rank", c_int),
        ("outer", Divisor * MOST_OUTER),
        ("x_outer", offset * MOST_OUTER),
        ("y_outer", offset * MOST_OUTER),
        ("input", c_int * 3),
        ("output", c_int * 3),
        ("x_stride", offset * 3),
        ("y_stride", offset * 3),
    ]
    return type("March", (ctypes.Structure,), {"_fields_": fields})
