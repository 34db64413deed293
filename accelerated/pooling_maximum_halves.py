"""Gradients of maxima of half in rows that are read in packs, with known windows (kernels/pooling_known_maximum_halves_marched.cu of
images, kernels/pooling_known_maximum_halves_planes.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from dataclasses import replace
from math import prod
from typing import Any, ClassVar

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import FLOAT

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .pooling_geometry import PACK_BYTES, Axis
from .pooling_known import ROW_BYTES, Access, Place, PlaceStruct, Settings, access_of, alignment_of, function_of

PLANES = "pooling_known_maximum_halves_planes"
SETTINGS = {  # by what is pooled, and whether rows follow each other without gaps
    ("images", True): Settings(448, 3, 1, 8, 1, 1, stages=4),
    ("images", False): Settings(448, 2, 1, 8, 1, 1, stages=1),
    ("volumes", True): Settings(448, 2, 1, 8, 1, 1, stages=3),
    ("volumes", False): Settings(448, 2, 1, 8, 1, 1, stages=1),
}
ACCESSES = {PLANES: {"narrow": 8, "word": 4}}
DENSE = True
WIDE = {}
COLUMNS = {"dense": 4, "wide": 8, "narrow": 4, "word": 4}  # of a thread
WARP = 32
START_STEPS = 1
FORCED_SEGMENTS = 0
USED = True
ROUNDS = 1
IMAGES_MARCH = False


class PlanesStruct(PlaceStruct):
    """The ``Planes`` of the kernel."""

    _fields_: ClassVar = [
        ("strips", Divisor),
        ("row_parts", Divisor),
        ("segments", Divisor),
        ("warp_rows", c_int),
        ("block_rows", c_int),
        ("rows_before", c_int),
        ("rows", c_int),
        ("before", c_int),
        ("block_steps", c_int),
        ("steps", c_int),
        ("spacing", c_int),
        ("advance", c_int),
    ]


def planes_plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of volumes; None for other accesses."""
    if not USED or operation.compute_type != FLOAT:
        return None
    access = access_of(place, SETTINGS["images", False], ACCESSES[PLANES])
    if access.kind not in ACCESSES[PLANES]:
        return None
    image = place.axes[0].window == 1
    if image:  # a block marches from one to the next
        last = Axis(place.extents[-1], place.extents[-1], 1, 1, 0, place.x_steps[-1], place.y_steps[-1])
        outer = [list(steps[:-1]) for steps in (place.extents, place.x_steps, place.y_steps)]
        outer = outer if outer[0] else [[1], [0], [0]]
        place = replace(place, axes=[last, *place.axes[1:]], extents=outer[0], x_steps=outer[1], y_steps=outer[2])
    depth, rows, columns = place.axes
    inside = (depth.output - 1) * depth.stride - depth.padding + depth.window <= depth.input
    inside &= depth.window > depth.stride or depth.output * depth.stride == depth.input
    dense = DENSE and inside and _is_dense(place, access)
    settings = SETTINGS["images" if image else "volumes", dense]
    if dense:
        access = replace(access, kind="dense")
    if dense and WIDE and place.axes[2].input % 8 == 0:
        wide = access_of(place, settings, {"wide": 16})
        if wide.kind == "wide" and wide.y_packed:
            access = wide
            settings = WIDE["images" if image else "volumes"]
    width = COLUMNS[access.kind]
    strips = max(-(-columns.input // width), -(-columns.output * 2 // width))
    if strips > WARP:
        return None
    carried = rows.window - rows.stride
    warp_rows = WARP // strips
    taken = settings.threads // WARP * warp_rows
    needed = max(-(-rows.input // rows.stride), rows.output)
    parts = 1 if needed <= taken else -(-needed // (taken - 2 * carried))
    written = -(-needed // parts)
    around = carried if parts > 1 else 0
    taken = written + 2 * around
    warps = -(-taken // warp_rows)
    volumes = prod(place.extents)
    steps = max(-(-(depth.input + depth.padding) // depth.stride), depth.output)
    at_once = settings.blocks * device.multiprocessors * (settings.threads // WARP) // warps

    def cost(segments: int) -> tuple[int, int]:
        return -(-volumes * parts * segments // at_once) * (-(-steps // segments) + START_STEPS), segments

    if image:
        segments = max(1, min(steps, int(ROUNDS * at_once) // (volumes * parts)))
        own_steps, spacing, advance = steps, 1, segments
    else:
        segments = FORCED_SEGMENTS or min(range(1, steps + 1), key=cost)
        own_steps = -(-steps // segments)
        segments, spacing, advance = -(-steps // own_steps), own_steps, 1
    arguments = structure(
        *pointers(3),
        ("planes", PlanesStruct(
            place, access, strips=Divisor.of(strips), row_parts=Divisor.of(parts), segments=Divisor.of(segments),
            warp_rows=warp_rows, block_rows=written, rows_before=around, rows=taken,
            before=int(segments > 1 and depth.window > depth.stride), block_steps=own_steps, steps=steps,
            spacing=spacing, advance=advance,
        )),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    pairs = width // 4
    told = depth.stride + (4 if depth.window > depth.stride else depth.stride)  # words of a pair of windows
    shared_bytes = taken * strips * 4 * pairs * told if carried else 0
    if dense:
        stage = (settings.stages + 1) * depth.stride * WARP * PACK_BYTES + settings.stages * WARP * 4
        shared_bytes = -(-shared_bytes // PACK_BYTES) * PACK_BYTES + warps * pairs * stage
    function = function_of(operation, place, PLANES, access, settings, device)
    blocks = volumes * parts * segments
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (warps * WARP, 1, 1), shared_bytes)
    alignment = alignment_of(place, access, operands)
    if dense:
        alignment |= {"x": PACK_BYTES, "dx": PACK_BYTES}
    return AlignedPlan(operation, [launch], alignment, otherwise)


def _is_dense(place: Place, access: Access) -> bool:
    """Whether the lines of a row of windows are whole packs of 16 bytes that follow each other in memory."""
    _, rows, columns = place.axes
    pack = PACK_BYTES // place.scalar_bytes
    distances = [*place.x_steps, *(axis.x_stride for axis in place.axes[:1] if axis.input > 1)]
    whole = rows.input % rows.stride == 0 and all(distance % pack == 0 for distance in distances)
    return access.kind == "narrow" and access.y_packed and whole and rows.x_stride == columns.input
