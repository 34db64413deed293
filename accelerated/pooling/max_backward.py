"""Gradients of maxima with known windows (pooling/max_backward.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any, ClassVar

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import HALF, SCALAR_BYTES

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from ..primitives.geometry import FastDivmod
from . import max_backward_2d, max_backward_3d_nhwc, max_backward_fp16, small
from .problem import Axis, Shape
from .static_window import (
    MOST_PACK,
    MOST_TILE,
    ROW_BYTES,
    Access,
    Place,
    PlaceStruct,
    Settings,
    access_of,
    alignment_of,
    function_of,
    place_of,
)

WARP = 32
MOST_ROW_LANES = 4  # channels side by side that are taken with their rows
ROW_LANE_BYTES = "narrow"  # the access that they take
MOST_SHARED_BYTES = 100 * 1024
CACHED_BYTES = 2**25  # of x, up to which most of it is in the cache already
START_STEPS = 2  # about the steps that a block could do while it starts


# By what is pooled and how it lies, and by whether elements take 4 bytes or more: as measured.
SETTINGS = {
    ("volumes in rows", False): Settings(128, 4, 1, 8, 1, 1),
    ("volumes in rows", True): Settings(192, 3, 1, 8, 1, 1),
    ("volumes in loose rows", False): Settings(256, 3, 1, 8, 1, 1),
    ("volumes in loose rows", True): Settings(256, 3, 1, 8, 1, 1),
    ("volumes of channels", False): Settings(256, 2, 1, 8, 1, 1),
    ("volumes of channels", True): Settings(192, 3, 1, 8, 1, 1, group_bytes=64),
    ("volumes of loose channels", False): Settings(256, 2, 1, 8, 1, 1),
    ("volumes of loose channels", True): Settings(192, 3, 1, 8, 1, 1, group_bytes=64),
    ("images in rows", False): Settings(256, 4, 1, 8, 1, 1),
    ("images in rows", True): Settings(256, 4, 1, 8, 1, 1),
    ("images in loose rows", False): Settings(256, 4, 1, 8, 1, 1),
    ("images in loose rows", True): Settings(256, 4, 1, 8, 1, 1, stages=1),
    ("images of channels", False): Settings(128, 8, 1, 8, 1, 1, stages=1, group_bytes=128),
    ("images of channels", True): Settings(256, 4, 1, 8, 1, 1, stages=1, group_bytes=128),
    ("large images of channels", True): Settings(256, 4, 1, 8, 1, 1, stages=1, group_bytes=256),
    ("images of loose channels", False): Settings(256, 4, 1, 8, 1, 1, group_bytes=128),
    ("images of loose channels", True): Settings(256, 4, 1, 8, 1, 1, stages=1, group_bytes=128),
    ("rows of channels", False): Settings(128, 4, 1, 8, 1, 1, stages=1),
    ("rows of channels", True): Settings(128, 6, 1, 8, 1, 1),
}
LOOSE = ("loose", "scattered")  # accesses to single elements


def plan(operation: PoolingBackward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of the gradient of a maximum with a known window; ``otherwise`` makes that of any call."""
    place = place_of(shape)
    if place is None:
        return None
    a0, a1, a2 = place.axes
    image = a0.window == 1
    if served := small.maximum_plan(operation, place, device, otherwise):
        return served
    half = operation.x.scalar_type == HALF
    if half and (halves := max_backward_fp16.plan(operation, place, device, otherwise)):
        return halves
    if image and (rows := max_backward_2d.plan(operation, place, device, otherwise)):
        return rows
    if image:  # threads march down their height
        place = replace(place, axes=[a1, a0, a2])
    elif volume := max_backward_3d_nhwc.plan(operation, place, device, otherwise):
        return volume
    dense = _dense(place)
    channels, large = place.channels > 1, place.scalar_bytes >= 4
    kind, lie = "images" if image else "volumes", "of channels" if channels else "in rows"
    fetches = operation.nbytes("x") > CACHED_BYTES
    usual = SETTINGS["rows of channels" if dense else f"{kind} {lie}", large]
    settings = SETTINGS.get((f"large {kind} {lie}", large), usual) if fetches and not dense else usual
    if dense:
        settings = replace(settings, row_lanes=dense.lanes)
    access = dense or access_of(place, settings)
    if access.kind in LOOSE:
        settings = SETTINGS[f"{kind} of loose channels" if channels else f"{kind} in loose rows", large]
    cell_bytes = _cell_bytes(operation, access.tile * access.lanes)
    found = _march(place, access, settings, cell_bytes, fetches and access.kind not in LOOSE, device)
    if found is None:
        return None
    march, blocks, shared_bytes = found
    function = function_of(operation, place, "pooling_max_backward", access, settings, device)
    arguments = structure(
        *pointers(3),
        ("march", march),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    threads = -(-march.items // WARP) * WARP
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (threads, 1, 1), shared_bytes)
    return AlignedPlan(operation, Plan(operation, [launch]), alignment_of(place, access, operands), otherwise)


def _dense(place: Place) -> Access | None:
    """The access to rows of a few channels side by side; None where they are many or packs do not fit."""
    along, lanes = place.axes[2], place.channels
    if not 1 < lanes <= MOST_ROW_LANES or (along.x_stride, along.y_stride) != (lanes, lanes):
        return None
    pack = min(ROW_BYTES[ROW_LANE_BYTES] // place.scalar_bytes, MOST_PACK)
    tile = pack // gcd(pack, along.stride)
    strides = (*place.x_steps, *(axis.x_stride for axis in place.axes[:2] if axis.input > 1))
    whole = along.input % (tile * along.stride) == 0 and all(step % pack == 0 for step in strides)
    return Access(ROW_LANE_BYTES, tile, lanes, pack, False, 1) if pack > 1 and tile <= MOST_TILE and whole else None


class MarchStruct(PlaceStruct):
    """The ``March`` of the kernel."""

    _fields_: ClassVar = [
        ("items", c_uint),
        ("lanes", FastDivmod),
        ("strips", FastDivmod),
        ("rows", FastDivmod),
        ("lane_groups", FastDivmod),
        ("strip_parts", FastDivmod),
        ("row_parts", FastDivmod),
        ("segments", FastDivmod),
        ("packs", c_uint),
        ("planes", c_uint),
        ("block_planes", c_uint),
        ("steps", c_int),
        ("block_steps", c_int),
        ("block_rows", c_int),
        ("block_strips", c_int),
        ("rows_before", c_int),
        ("strips_before", c_int),
        ("fetches", c_int),
    ]


@dataclass
class Side:
    """Tiles of an axis, and how blocks share them: those that a block writes, and those around it that it looks at."""

    before: int  # tiles whose windows reach into the next ones
    after: int
    parts: int
    written: int  # of a block

    @classmethod
    def of(cls, axis: Axis, tile: int, parts: int) -> Side:
        """An axis in ``parts`` blocks of tiles of ``tile`` windows."""
        first = (axis.padding - axis.window) // axis.stride + 1
        last = (tile * axis.stride - 1 + axis.padding) // axis.stride
        tiles = max(-(-axis.output // tile), -(-axis.input // (tile * axis.stride)))
        written = -(-tiles // parts)
        return cls(-(first // tile), last // tile, -(-tiles // written), written)

    @property
    def around(self) -> int:
        """Tiles around a block."""
        return self.before + self.after

    @property
    def taken(self) -> int:
        """Tiles that a block looks at."""
        return self.written + (self.around if self.parts > 1 else 0)

    @property
    def first(self) -> int:
        """Tiles that a block looks at before those that it writes."""
        return self.before if self.parts > 1 else 0


def _sides(place: Place, access: Access, room: int) -> tuple[Side, Side] | None:
    """How blocks of at most ``room`` tiles share axes 1 and 2: with the fewest tiles that are looked at twice."""
    _, a1, a2 = place.axes
    best = None
    for parts2 in range(1, a2.input + 1):
        strips = Side.of(a2, access.tile, parts2)
        if strips.parts != parts2:
            continue
        possible = room // strips.taken
        rows = Side.of(a1, 1, 1)
        if rows.written > possible:
            if possible <= rows.around:
                continue
            rows = Side.of(a1, 1, -(-rows.written // (possible - rows.around)))
        cost = rows.parts * rows.taken * strips.parts * strips.taken
        if best is None or cost < best[0]:
            best = cost, rows, strips
    return best and best[1:]


def _block_steps(steps: int, blocks: int, at_once: int) -> int:
    """Of ``steps``, how many a block does: few enough that multiprocessors have as much to do as each other."""

    def cost(segments: int) -> tuple[int, int]:
        return -(-blocks * segments // at_once) * (-(-steps // segments) + START_STEPS), segments

    return -(-steps // min(range(1, steps + 1), key=cost))


def _cell_bytes(operation: PoolingBackward, items: int) -> int:
    """Of what a thread tells the others: places and what they get, of half for two windows at once (the kernels' ``Strip``)."""
    pairs = operation.x.scalar_type == HALF and items % 2 == 0
    return items * (4 if pairs else 2 * SCALAR_BYTES[operation.compute_type])


def _march(
    place: Place, access: Access, settings: Settings, cell_bytes: int, fetches: bool, device: Any
) -> tuple[MarchStruct, int, int] | None:
    """(how blocks share the work, their number, shared memory of each in bytes); None if a block cannot hold its part."""
    a0, planes = place.axes[0], prod(place.extents)
    groups = -(-access.packs // max(1, settings.group_bytes // (access.lanes * place.scalar_bytes)))
    lanes = -(-access.packs // groups)  # the same of all groups, about
    groups = -(-access.packs // lanes)
    found = _sides(place, access, settings.threads // lanes)
    if found is None:
        return None
    rows, strips = found
    threads = rows.taken * strips.taken * lanes
    at_once = settings.blocks * device.multiprocessors
    cells = (rows.taken + rows.around) * (strips.taken + strips.around) * lanes
    plane_bytes = 2 * cells * cell_bytes
    # Small planes share a block: as many as leave enough blocks, but a warp of threads at least.
    wanted = max(WARP // threads, -(-planes // at_once))
    possible = min(settings.threads // threads, MOST_SHARED_BYTES // plane_bytes, planes)
    if possible == 0:
        return None
    block_planes = max(1, min(possible, wanted)) if rows.parts == strips.parts == 1 else 1
    blocks = groups * strips.parts * rows.parts * -(-planes // block_planes)
    steps = -(-(a0.input + a0.padding) // a0.stride)
    block_steps = _block_steps(steps, blocks, at_once)
    segments = -(-steps // block_steps)
    march = MarchStruct(
        place,
        access,
        items=threads * block_planes,
        lanes=FastDivmod.of(lanes),
        strips=FastDivmod.of(strips.taken),
        rows=FastDivmod.of(rows.taken),
        lane_groups=FastDivmod.of(groups),
        strip_parts=FastDivmod.of(strips.parts),
        row_parts=FastDivmod.of(rows.parts),
        segments=FastDivmod.of(segments),
        packs=access.packs,
        planes=planes,
        block_planes=block_planes,
        steps=steps,
        block_steps=block_steps,
        block_rows=rows.written,
        block_strips=strips.written,
        rows_before=rows.first,
        strips_before=strips.first,
        fetches=fetches,
    )
    return march, blocks * segments, block_planes * plane_bytes
