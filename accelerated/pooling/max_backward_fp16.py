"""Gradients of maxima of half in packs, of rows or of channels, with known windows (pooling/max_backward_fp16_rows.cu,
pooling_max_backward_fp16_planes.cu, pooling_max_backward_fp16_nhwc.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

from dualdnn.api.operations import PoolingBackward

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from ..primitives.geometry import FastDivmod
from .problem import PACK_BYTES, Axis
from .static_window import (
    MOST_OUTER,
    ROW_BYTES,
    Access,
    Place,
    PlaceStruct,
    Settings,
    access_of,
    alignment_of,
    box_of,
    function_of,
)

MARCHED, PLANES, CHANNELS = (f"pooling_max_backward_fp16_{kind}" for kind in ("rows", "planes", "nhwc"))
SETTINGS = {  # of planes by what is pooled, and whether lines go through shared memory
    MARCHED: Settings(128, 8, 1, 8, 1, 1, stages=1),
    (CHANNELS, "many"): Settings(128, 4, 1, 8, 2, 1, stages=1, group_bytes=256),
    (CHANNELS, "few"): Settings(128, 8, 1, 4, 1, 1, stages=1, group_bytes=256),
    ("images", True): Settings(448, 2, 1, 8, 1, 1, stages=2),
    ("images", False): Settings(448, 2, 1, 8, 1, 1, stages=1),
    ("volumes", True): Settings(448, 2, 1, 8, 1, 1, stages=2),
    ("volumes", False): Settings(448, 2, 1, 8, 1, 1, stages=1),
}
MARCHED_BYTES = {**ROW_BYTES, "word": 4}
PLANES_BYTES = {kind: nbytes for kind, nbytes in MARCHED_BYTES.items() if kind != "wide"}
COLUMNS = {"dense": 4, "wide": 8, "narrow": 4, "word": 4}  # of a thread
WARP = 32
LEAST_STEPS, MOST_STEPS = 1, 5  # rows of windows that a thread marches down
ENOUGH_THREADS = 2**16  # of one row of windows, for those to take more channels and columns
EAGER_BLOCKS = 264  # that launch dependents before they read (primitives/dependent_launch.cuh)
START_STEPS = 1  # about the steps that a block could do while it starts
CACHED_BYTES = 2**25  # of x, up to which half-written sectors meet in the cache


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; None for other accesses. ``otherwise`` makes the plan of any call."""
    image = place.axes[0].window == 1
    if place.channels > 1:
        return _channels(operation, place, device, otherwise) if image else None
    planes = _planes(operation, place, device, otherwise)
    return _marched(operation, place, device, otherwise) if planes is None and image else planes


def _channels(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """Images of channels: a thread marches down some rows of windows, for a strip of columns and some channels."""
    _, rows, columns = place.axes
    steps = max(-(-(rows.input + rows.padding) // rows.stride), rows.output)
    for amount in ("many", "few"):
        settings = SETTINGS[CHANNELS, amount]
        access = access_of(place, settings)
        if access.kind != "channels" or len(place.extents) >= MOST_OUTER:
            return None
        strips = max(-(-columns.input // (access.tile * columns.stride)), -(-columns.output // access.tile))
        marches = prod(place.extents) * strips * access.packs
        if marches * steps >= ENOUGH_THREADS:
            break
    # Channels of a block side by side, its strips beside each other; then rows, then other channels.
    lanes = min(access.packs, settings.group_bytes // (access.lanes * place.scalar_bytes))
    while access.packs % lanes:
        lanes -= 1
    groups, apart = access.packs // lanes, lanes * access.lanes
    place = replace(
        place,
        extents=[*place.extents, groups],
        x_steps=[*place.x_steps, apart],
        y_steps=[*place.y_steps, apart],
    )
    access = replace(access, packs=lanes)
    box = box_of(place, access, settings, "maximum")
    if box is None:
        return None
    fetches = operation.nbytes("x") > CACHED_BYTES
    at_once = settings.blocks * device.multiprocessors if fetches else EAGER_BLOCKS
    before = int(rows.window > rows.stride)

    def cost(segments: int) -> tuple[int, int]:
        rounds = -(-marches * segments // (at_once * settings.threads))
        return rounds * (-(-steps // segments) + (before if segments > 1 else 0) + START_STEPS), segments

    segments = min(range(1, steps + 1), key=cost)
    box.threads, box.tiles[1], box.tiles[2] = marches * segments, FastDivmod.of(segments), FastDivmod.of(strips)
    fields = [
        ("box", box),
        ("steps", c_int(steps)),
        ("before", c_int(before if segments > 1 else 0)),
        ("fetches", c_int(fetches)),
    ]
    launch = -(-box.threads // settings.threads), settings.threads, 0
    return _launched(operation, place, device, otherwise, (CHANNELS, access, settings), fields, launch)


def _strips(columns: Axis, access: Access) -> int:
    width = COLUMNS[access.kind]
    return max(-(-columns.input // width), -(-columns.output * columns.stride // width))


def _launched(
    operation: PoolingBackward,
    place: Place,
    device: Any,
    otherwise: Callable[[], Plan],
    kernel: tuple[str, Access, Settings],
    fields: list[tuple[str, Any]],
    launch: tuple[int, int, int],
) -> Plan:
    """``kernel``: source, access and settings; ``launch``: blocks, threads of each, their shared memory in bytes."""
    source, access, settings = kernel
    blocks, threads, shared_bytes = launch
    arguments = structure(
        *pointers(3),
        *fields,
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    function = function_of(operation, place, source, access, settings, device)
    made = Launch(function, arguments, operands, (blocks, 1, 1), (threads, 1, 1), shared_bytes)
    alignment = alignment_of(place, access, operands)
    if access.kind == "dense":
        alignment |= {"x": PACK_BYTES, "dx": PACK_BYTES}
    return AlignedPlan(operation, Plan(operation, [made]), alignment, otherwise)


def _marched(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """Images: a thread marches down some rows of windows."""
    settings = SETTINGS[MARCHED]
    access = access_of(place, settings, MARCHED_BYTES)
    box = box_of(place, access, settings, "maximum") if access.kind in MARCHED_BYTES else None
    if box is None:
        return None
    _, rows, columns = place.axes
    strips = _strips(columns, access)
    marches = prod(place.extents) * strips
    steps = max(-(-(rows.input + rows.padding) // rows.stride), rows.output)
    # Of a warp the first and last lane only look, for those beside them, unless it has whole rows.
    whole = WARP // strips * strips
    useful = WARP if columns.window <= columns.stride else max(whole, WARP - 2)
    at_once = settings.blocks * device.multiprocessors * (settings.threads // WARP) * useful
    own_steps = min(max(-(-steps // max(1, at_once // marches)), LEAST_STEPS), MOST_STEPS, steps)
    segments = -(-steps // own_steps)
    box.threads, box.tiles[1], box.tiles[2] = marches * segments, FastDivmod.of(segments), FastDivmod.of(strips)
    fields = [
        ("box", box),
        ("before", c_int(segments > 1 and rows.window > rows.stride)),
        ("own_steps", c_int(own_steps)),
        ("first_useful", c_int(useful == WARP - 2 and whole != useful)),
        ("useful", c_int(useful)),
    ]
    blocks = -(-box.threads // (useful * (settings.threads // WARP)))
    launch = blocks, settings.threads, 0
    return _launched(operation, place, device, otherwise, (MARCHED, access, settings), fields, launch)


class PlanesStruct(PlaceStruct):
    """The ``Planes`` of the kernel."""

    _fields_: ClassVar = [
        ("strips", FastDivmod),
        ("row_parts", FastDivmod),
        ("segments", FastDivmod),
        *((name, c_int) for name in ("warp_rows", "block_rows", "rows_before", "rows")),
        *((name, c_int) for name in ("before", "block_steps", "steps", "spacing", "advance")),
    ]


def _planes(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """Volumes, and images where there are more than blocks at a time: a block marches from plane to plane."""
    image = place.axes[0].window == 1
    kind = "images" if image else "volumes"
    access = access_of(place, SETTINGS[kind, False], PLANES_BYTES)
    if access.kind not in PLANES_BYTES:
        return None
    nbytes = operation.nbytes("x")
    if image:  # the outer dimension that is the fastest takes the place of the depth
        last = Axis(place.extents[-1], place.extents[-1], 1, 1, 0, place.x_steps[-1], place.y_steps[-1])
        outer = [list(steps[:-1]) for steps in (place.extents, place.x_steps, place.y_steps)]
        extents, x_steps, y_steps = outer if outer[0] else [[1], [0], [0]]
        place = replace(place, axes=[last, *place.axes[1:]], extents=extents, x_steps=x_steps, y_steps=y_steps)
    dense = _is_dense(place, access) and (not image or nbytes > CACHED_BYTES)
    access = replace(access, kind="dense") if dense else access
    settings = SETTINGS[kind, dense]
    depth, rows, columns = place.axes
    strips = _strips(columns, access)
    if strips > WARP:
        return None
    # Rows of windows of a block: all, or as many as it has room for, of which it only looks at the first and last one.
    warp_rows, tells = WARP // strips, rows.window > rows.stride
    possible = settings.threads // WARP * warp_rows
    needed = max(-(-rows.input // rows.stride), rows.output)
    parts = 1 if needed <= possible else -(-needed // (possible - 2 * tells))
    written = -(-needed // parts)
    around = int(tells and parts > 1)
    taken = written + 2 * around
    warps = -(-taken // warp_rows)
    groups = prod(place.extents) * parts
    at_once = settings.blocks * device.multiprocessors * (settings.threads // WARP) // warps
    steps = max(-(-(depth.input + depth.padding) // depth.stride), depth.output)
    if image:
        if groups * steps <= at_once:  # marching down the rows takes less time
            return None
        segments = max(1, min(steps, at_once // groups))
        block_steps, spacing, advance = steps, 1, segments
    else:

        def cost(segments: int) -> tuple[int, int]:
            return -(-groups * segments // at_once) * (-(-steps // segments) + START_STEPS), segments

        block_steps = spacing = -(-steps // min(range(1, steps + 1), key=cost))
        segments, advance = -(-steps // block_steps), 1
    planes = PlanesStruct(
        place,
        access,
        strips=FastDivmod.of(strips),
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
    # What a thread tells, in words; what it has in shared memory of each plane, and of dy.
    told = depth.stride + (4 if depth.window > depth.stride else depth.stride) if tells else 0
    shared_bytes = -(-taken * strips * told * 4 // PACK_BYTES) * PACK_BYTES
    if dense:
        gifts = access.tile * place.scalar_bytes
        planes_bytes = (settings.stages + 1) * depth.stride * PACK_BYTES + settings.stages * gifts
        shared_bytes += warps * WARP * planes_bytes
    launch = groups * segments, warps * WARP, shared_bytes
    return _launched(operation, place, device, otherwise, (PLANES, access, settings), [("planes", planes)], launch)


def _is_dense(place: Place, access: Access) -> bool:
    """Whether the lines of a row of windows are whole packs of 16 bytes that follow each other in memory, and every plane of a
    window that the one before does not have lies in x."""
    depth, rows, columns = place.axes
    pack = PACK_BYTES // place.scalar_bytes
    distances = [*place.x_steps, *([depth.x_stride] if depth.input > 1 else [])]
    whole = rows.input % rows.stride == 0 and all(distance % pack == 0 for distance in distances)
    inside = (depth.output - 1) * depth.stride - depth.padding + depth.window <= depth.input
    last = depth.window > depth.stride or depth.output * depth.stride == depth.input
    follow = rows.x_stride == columns.input
    return access.kind == "narrow" and access.y_packed and whole and inside and last and follow
