"""Gradients of maxima with known windows (kernels/pooling_known_maximum.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import SCALAR_BYTES

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure, type_definitions
from .pooling_geometry import Shape
from .pooling_known import MOST_OUTER, Access, Place, access_of, alignment_of, definitions_of, place_of, write_place

WARP = 32
MOST_THREADS = 256  # of a block, as kernels are compiled for
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
    loose_tile: int  # windows of a thread where rows cannot be read in packs


SETTINGS = {
    "images": Settings(128, 64, 8, 6, 8, 128, 1),
    "volumes": Settings(128, 96, 8, 4, 8, 64, 1),
}


def plan(operation: PoolingBackward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    place = place_of(shape)
    if place is None:
        return None
    settings = SETTINGS["images" if place.axes[0].window == 1 else "volumes"]
    if place.axes[0].window == 1:  # rows of images are what a block marches along
        place.axes[:2] = place.axes[1::-1]
    access = access_of(place, settings.lane_bytes, settings.loose_tile)
    compute_bytes = SCALAR_BYTES[operation.compute_type]
    share = _share(place, access, settings, compute_bytes, device)
    if share is None:
        return None
    march, blocks, shared_bytes = share
    blocks_held = max(1, 2**16 // settings.registers // MOST_THREADS)
    definitions = definitions_of(place, MOST_THREADS, blocks_held, 1, settings.lane_bytes, settings.loose_tile)
    types = type_definitions(operation.x.scalar_type, operation, **definitions)
    function = device.function("pooling_known_maximum.cu", f"pooling_known_maximum_{access.kind}", types)
    arguments = structure(
        *pointers(3),
        ("march", march),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    threads = -(-march.items // WARP) * WARP
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (threads, 1, 1), shared_bytes)
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)


class MarchStruct(ctypes.Structure):
    """The ``March`` of the kernel."""

    _fields_ = [
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
        ("x_outer", c_int * MOST_OUTER),
        ("y_outer", c_int * MOST_OUTER),
        ("input", c_int * 3),
        ("output", c_int * 3),
        ("x_stride", c_int * 3),
        ("y_stride", c_int * 3),
        ("y_packed", c_int),
    ]


def _share(
    place: Place, access: Access, settings: Settings, compute_bytes: int, device: Any
) -> tuple[MarchStruct, int, int] | None:
    """(how blocks share the work, their number, shared memory of each in bytes); None if a block cannot hold its part."""
    a0, a1, a2 = place.axes
    planes = prod(place.extents)
    strips = max(-(-a2.output // access.tile), -(-a2.input // (access.tile * a2.stride)))
    lanes = min(access.packs, max(1, settings.block_bytes // (access.lanes * place.scalar_bytes)))
    while lanes > 1 and lanes * strips > settings.threads:
        lanes = -(-lanes // 2)
    before = (a1.window - 1) // a1.stride
    all_rows = -(-(a1.input + a1.padding) // a1.stride)
    parts = -(-all_rows // max(1, settings.threads // (lanes * strips) - before))
    block_rows = -(-all_rows // parts)
    rows = block_rows + before
    pitch = a2.input * lanes * access.lanes
    plane_sums = ((rows - 1) * a1.stride + a1.window) * pitch
    # Small planes share a block: as many as leave enough blocks, but a warp of threads at least.
    threads = lanes * strips * rows
    wanted = max(WARP // threads, planes // (settings.blocks * device.multiprocessors))
    possible = min(settings.threads // threads, MOST_SHARED_BYTES // (a0.window * plane_sums * compute_bytes), planes)
    block_planes = max(1, min(possible, wanted))
    items, slot = threads * block_planes, plane_sums * block_planes
    shared_bytes = (a0.window * slot + -(-items // WARP) * WARP) * compute_bytes
    if items > MOST_THREADS or shared_bytes > MOST_SHARED_BYTES:
        return None
    groups = -(-access.packs // lanes)
    blocks = groups * parts * -(-planes // block_planes)
    steps = -(-(a0.input + a0.padding) // a0.stride)
    segments = max(1, min(-(-settings.blocks * device.multiprocessors // blocks), steps // settings.steps))
    block_steps = -(-steps // segments)
    segments = -(-steps // block_steps)
    march = MarchStruct(
        items=items,
        lanes=Divisor.of(lanes),
        strips=Divisor.of(strips),
        rows=Divisor.of(rows),
        lane_groups=Divisor.of(groups),
        segments=Divisor.of(segments),
        parts=Divisor.of(parts),
        packs=access.packs,
        planes=planes,
        block_planes=block_planes,
        steps=steps,
        block_steps=block_steps,
        block_rows=block_rows,
        pitch=pitch,
        slot=slot,
    )
    write_place(march, place, access)
    return march, blocks * segments, shared_bytes
