"""Gradients of maxima of volumes with known windows (kernels/pooling_known_volume.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_uint
from math import prod
from typing import Any

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import SCALAR_BYTES

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .pooling_known import MOST_OUTER, Access, Place, Settings, access_of, alignment_of, function_of, write_place

WARP = 32
MOST_THREADS = 256  # of a block, as kernels are compiled for
MOST_SHARED_BYTES = 100 * 1024


SETTINGS = Settings(threads=MOST_THREADS, blocks=2, rows=1, lane_bytes=8, channel_tile=2, loose_tile=1)
BLOCK = {"wide": 128, "narrow": 128}  # about the threads of a block
OTHER_BLOCK = 256
BLOCK_CHANNELS = 16
WANTED_BLOCKS = 4  # for every multiprocessor, as long as each marches on for some steps
LEAST_STEPS = 4


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    access = access_of(place, SETTINGS)
    share = _share(place, access, SCALAR_BYTES[operation.compute_type], device)
    if share is None:
        return None
    march, blocks, shared_bytes = share
    function = function_of(operation, place, "pooling_known_volume", access, SETTINGS, device)
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


def _share(place: Place, access: Access, compute_bytes: int, device: Any) -> tuple[MarchStruct, int, int] | None:
    """(how blocks share the work, their number, shared memory of each in bytes); None if a block cannot hold its part."""
    a0, a1, a2 = place.axes
    planes = prod(place.extents)
    strips = max(-(-a2.output // access.tile), -(-a2.input // (access.tile * a2.stride)))
    block = BLOCK.get(access.kind, OTHER_BLOCK)
    lanes = min(access.packs, max(1, BLOCK_CHANNELS // access.lanes))
    while lanes > 1 and lanes * strips > block:
        lanes = -(-lanes // 2)
    before = (a1.window - 1) // a1.stride
    all_rows = -(-(a1.input + a1.padding) // a1.stride)
    parts = -(-all_rows // max(1, block // (lanes * strips) - before))
    block_rows = -(-all_rows // parts)
    rows = block_rows + before
    pitch = a2.input * lanes * access.lanes
    plane_sums = ((rows - 1) * a1.stride + a1.window) * pitch
    # Small planes share a block: as many as leave enough blocks, but a warp of threads at least.
    threads = lanes * strips * rows
    wanted = max(WARP // threads, planes // (WANTED_BLOCKS * device.multiprocessors))
    possible = min(block // threads, MOST_SHARED_BYTES // (a0.window * plane_sums * compute_bytes), planes)
    block_planes = max(1, min(possible, wanted))
    items, slot = threads * block_planes, plane_sums * block_planes
    shared_bytes = (a0.window * slot + -(-items // WARP) * WARP) * compute_bytes
    if items > MOST_THREADS or shared_bytes > MOST_SHARED_BYTES:
        return None
    groups = -(-access.packs // lanes)
    blocks = groups * parts * -(-planes // block_planes)
    steps = -(-(a0.input + a0.padding) // a0.stride)
    segments = max(1, min(-(-WANTED_BLOCKS * device.multiprocessors // blocks), steps // LEAST_STEPS))
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
