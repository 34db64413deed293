"""Pooling with windows that the kernels are compiled for (static_forward.cu, static_average_backward.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_int, c_uint
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Any

from dualdnn.api.operations import Operation, PoolingBackward, PoolingForward

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod
from .problem import PACK_BYTES, Axis, Shape

# (window, stride, padding), the same of every axis: what networks use. Other windows take the kernels for any of them.
WINDOWS = {(2, 2, 0), (3, 2, 0), (3, 2, 1)}
LARGE_WINDOWS = {(7, 7, 0)}  # of images, forward
FARTHEST = 2**31 - 2**24  # distances below this stay 32-bit numbers, those of the padding around them too
ENOUGH_THREADS = 2**16  # that march along axis 0
MOST_WINDOW = 3  # others are large
MOST_OUTER = 3
ROW_BYTES = {"wide": 16, "narrow": 8}  # of accesses along rows
SECTOR_BYTES = 32  # of memory, that a store should not leave half written
LEAST_GATHERED_BYTES = 2**20  # of results, from which on that counts more than a barrier
MOST_PACK = 8  # elements of rows
MOST_TILE = 4  # windows of a thread, for accesses to be as wide as they may be


@dataclass
class Settings:
    """What the fastest choice is found by measuring."""

    threads: int  # of a block
    blocks: int  # that a multiprocessor should hold: what is left of its registers
    rows: int  # windows of a thread along axis 1, where they overlap
    lane_bytes: int  # channels of a thread
    channel_tile: int  # windows of a thread along axis 2 where it has channels
    loose_tile: int  # the same where rows are not read in packs
    row_lanes: int = 1  # channels of a position of rows in packs
    group_bytes: int = 32  # of channels of a block, for maxima backward
    depth: int = 1  # windows of a thread along axis 0, forward, where there are enough threads
    stages: int = 0  # of what maxima backward read next: steps that are in flight while windows are looked at

    def definitions(self) -> dict[str, int]:
        """Of the kernels."""
        return {
            "THREADS": self.threads,
            "BLOCKS": self.blocks,
            "TILE1": self.rows,
            "LANE_BYTES": self.lane_bytes,
            "CHANNEL_TILE": self.channel_tile,
            "LOOSE_TILE": self.loose_tile,
            "ROW_LANES": self.row_lanes,
            "STAGES": self.stages,
        }


SETTINGS = {
    "forward": Settings(128, 5, 2, 16, 1, 1),
    "average": Settings(128, 6, 1, 16, 1, 1),
    "forward of large windows": Settings(128, 8, 1, 8, 1, 1),
    "forward of volumes": Settings(128, 6, 1, 8, 1, 1, depth=8),
    "average of volumes": Settings(128, 6, 2, 16, 1, 1),
    "average gathered": Settings(128, 16, 1, 16, 1, 1),
    "average of volumes gathered": Settings(128, 10, 2, 16, 1, 1),
}


@dataclass
class Place:
    """What a call leaves to kernels with known windows: three axes, what is not pooled, where it all is."""

    axes: list[Axis]
    extents: list[int]
    x_steps: list[int]
    y_steps: list[int]
    channels: int  # that are neighbours, of which there are no planes; or 1
    scalar_bytes: int

    def divided_by(self, pack: int, channels: bool) -> tuple[bool, bool]:
        """Whether packs of x, and of y, begin at multiples of themselves and leave nothing over, along rows or channels."""
        along = self.axes[2]
        rows = self.axes[:2] if not channels else self.axes
        x = [self.channels if channels else along.input, *self.x_steps, *(a.x_stride for a in rows if a.input > 1)]
        y = [self.channels if channels else along.output, *self.y_steps, *(a.y_stride for a in rows if a.output > 1)]
        return all(n % pack == 0 for n in x), all(n % pack == 0 for n in y)


@dataclass
class Access:
    """How a thread accesses memory; the kernel's name ends with ``kind``."""

    kind: str
    tile: int  # windows along axis 2
    lanes: int  # channels
    x_pack: int  # elements along a row of x
    y_packed: bool  # whether those of y lie in one access
    packs: int  # of channels in all

    @property
    def x_elements(self) -> int:
        """Elements of an access to x."""
        return self.lanes if self.x_pack == 1 else self.x_pack

    @property
    def y_elements(self) -> int:
        """Elements of an access to y."""
        return self.tile if self.y_packed else self.lanes if self.x_pack == 1 else 1


def forward_plan(operation: PoolingForward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    extra = [("mode", c_int(operation.pooling.mode)), ("propagate", c_int(operation.pooling.nan))]
    return _plan(operation, shape, device, otherwise, "forward", ("x", "y"), extra)


def average_plan(operation: PoolingBackward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of the gradient of an average with a known window; ``otherwise`` makes that of any call."""
    extra = [("mode", c_int(operation.pooling.mode))]
    return _plan(operation, shape, device, otherwise, "average", ("dy", "dx"), extra)


def _plan(
    operation: PoolingForward | PoolingBackward,
    shape: Shape,
    device: Any,
    otherwise: Callable[[], Plan],
    kind: str,
    operands: tuple[str, str],
    extra: list[tuple[str, Any]],
) -> Plan | None:
    forward = kind == "forward"
    place = place_of(shape, WINDOWS | LARGE_WINDOWS if forward else WINDOWS)
    if place is None:
        return None
    volume = place.axes[0].window > 1
    large = forward and place.axes[1].window > MOST_WINDOW
    if volume and large:
        return None
    settings = SETTINGS[kind + (" of volumes" if volume else " of large windows" if large else "")]
    gathered = 0
    if not forward and operation.beta == 0:
        together = SETTINGS["average of volumes gathered" if volume else "average gathered"]
        gathered = _gathered(place, access_of(place, together), together)
        settings = together if gathered else settings
    if place.axes[1].window <= place.axes[1].stride:  # lines have nothing in common
        settings = replace(settings, rows=1)
    access = access_of(place, settings)
    while settings.depth > 1 and _threads(place, access, settings, kind) < ENOUGH_THREADS:
        settings = replace(settings, depth=settings.depth // 2)
    box = box_of(place, access, settings, kind)
    if box is None:
        return None
    divisor = prod(axis.divisor(operation.pooling.mode) for axis in place.axes)
    of_block = gathered or settings.threads
    arguments = structure(
        *pointers(len(operands)),
        ("box", box),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, reciprocal=1 / divisor if divisor else 0.0),
        *extra,
        *(
            [("depth", c_int(settings.depth))]
            if forward
            else [("tiles", c_uint(of_block)), ("gathers", c_int(gathered > 0))]
        ),
    )
    function = function_of(
        operation, place, f"pooling_static_{'forward' if forward else 'average_backward'}", access, settings, device
    )
    launch = Launch(function, arguments, operands, (-(-box.threads // of_block), 1, 1), (settings.threads, 1, 1))
    return AlignedPlan(operation, Plan(operation, [launch]), alignment_of(place, access, operands), otherwise)


def place_of(shape: Shape, known: set[tuple[int, int, int]] = WINDOWS) -> Place | None:
    """Three axes with one of the ``known`` windows, rows of images in axis 1; None where windows are others, or empty."""
    a0, a1, a2 = shape.axes
    image = _single(a1)
    axes = [a1, a0, a2] if image else [a0, a1, a2]
    pooled = axes[1:] if image or _single(a0) else axes
    windows = {(axis.window, axis.stride, axis.padding) for axis in pooled}
    if len(windows) != 1 or not windows <= known:
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
    place = Place(axes, extents, x_steps, y_steps, channels, PACK_BYTES // shape.width)
    return place if len(extents) <= MOST_OUTER and _spans(place) < FARTHEST else None


def _single(axis: Axis) -> bool:
    """Whether nothing is pooled along an axis."""
    return (axis.input, axis.output, axis.window, axis.stride, axis.padding) == (1, 1, 1, 1, 0)


def _spans(place: Place) -> int:
    """About how far the elements of a tensor lie apart, those around a tile included."""
    x = sum((extent - 1) * step for extent, step in zip(place.extents, place.x_steps, strict=True))
    y = sum((extent - 1) * step for extent, step in zip(place.extents, place.y_steps, strict=True))
    x += sum((axis.input + 16) * axis.x_stride for axis in place.axes)
    y += sum((axis.output + 16) * axis.y_stride for axis in place.axes)
    return max(x, y) + place.channels


def access_of(place: Place, settings: Settings, row_bytes: Mapping[str, int] = ROW_BYTES) -> Access:
    """The widest access that both tensors allow, along rows one of ``row_bytes``; that of y may be narrower there."""
    if place.channels > 1:
        lanes = settings.lane_bytes // place.scalar_bytes
        if lanes > 1 and all(place.divided_by(lanes, True)):
            return Access("channels", settings.channel_tile, lanes, 1, False, place.channels // lanes)
        return Access("scattered", settings.loose_tile, 1, 1, False, place.channels)
    along = place.axes[2]
    if along.y_stride != 1 and along.output > 1:
        return Access("scattered", settings.loose_tile, 1, 1, False, 1)
    for kind, nbytes in row_bytes.items():
        pack = min(nbytes // place.scalar_bytes, MOST_PACK)
        tile = pack // gcd(pack, along.stride)
        if pack > 1 and tile <= MOST_TILE and place.divided_by(pack, False)[0]:
            return Access(kind, tile, 1, pack, place.divided_by(tile, False)[1], 1)
    return Access("loose", settings.loose_tile, 1, 1, place.divided_by(settings.loose_tile, False)[1], 1)


def function_of(
    operation: Operation, place: Place, source: str, access: Access, settings: Settings, device: Any, **others: int
) -> Any:
    """The kernel for a window, compiled for K0, S0, P0, ..., settings, ``others`` and data types."""
    numbers = {"K": "window", "S": "stride", "P": "padding"}
    window = {
        f"{name}{d}": getattr(axis, field) for d, axis in enumerate(place.axes) for name, field in numbers.items()
    }
    definitions = {name: str(value) for name, value in (window | settings.definitions() | others).items()}
    types = type_definitions(operation.tensor("x").scalar_type, operation, **definitions)
    return device.function(f"{source.replace('_', '/', 1)}.cu", f"{source}_{access.kind}", types)


def alignment_of(place: Place, access: Access, operands: tuple[str, ...]) -> dict[str, int]:
    """Bytes at multiples of which operands have to begin."""
    bytes_of = {"x": access.x_elements, "dx": access.x_elements, "y": access.y_elements, "dy": access.y_elements}
    return {name: bytes_of[name] * place.scalar_bytes for name in operands}


class PlaceStruct(ctypes.Structure):
    """The ``Place`` of pooling/static_window.cuh; what a kernel divides follows."""

    _fields_ = [
        ("outer_rank", c_int),
        ("outer", FastDivmod * MOST_OUTER),
        ("x_outer", c_int * MOST_OUTER),
        ("y_outer", c_int * MOST_OUTER),
        ("input", c_int * 3),
        ("output", c_int * 3),
        ("x_stride", c_int * 3),
        ("y_stride", c_int * 3),
        ("y_packed", c_int),
    ]

    def __init__(self, place: Place, access: Access, **others: Any) -> None:
        super().__init__(outer_rank=len(place.extents), y_packed=access.y_packed, **others)
        for i, d in enumerate(reversed(range(len(place.extents)))):
            self.outer[i] = FastDivmod.of(place.extents[d])
            self.x_outer[i], self.y_outer[i] = place.x_steps[d], place.y_steps[d]
        for d, axis in enumerate(place.axes):
            self.input[d], self.output[d] = axis.input, axis.output
            self.x_stride[d], self.y_stride[d] = axis.x_stride, axis.y_stride


class BoxStruct(PlaceStruct):
    """The ``Box`` of pooling/static_window.cuh."""

    _fields_ = [("threads", c_uint), ("lanes", FastDivmod), ("tiles", FastDivmod * 3)]


def _tiles(place: Place, access: Access, settings: Settings, kind: str) -> list[int]:
    """How many tiles of each axis threads take."""
    forward = kind == "forward"
    outputs = [axis.output if forward else -(-axis.input // axis.stride) for axis in place.axes]
    along0 = -(-outputs[0] // settings.depth) if forward else place.axes[0].input
    return [along0, -(-outputs[1] // settings.rows), -(-outputs[2] // access.tile)]


def _gathered(place: Place, access: Access, settings: Settings) -> int:
    """Of how many tiles a block writes the results together: whole rows of them that are one piece of dx. 0: where they are not,
    or rows are whole sectors already.
    """
    _, a1, a2 = place.axes
    columns, lines = access.tile * a2.stride, settings.rows * a1.stride
    row, sector = a2.input, SECTOR_BYTES // place.scalar_bytes
    tiles = row // columns
    if access.x_pack == 1 or row % sector == 0 or row % columns or a1.input % lines or tiles > settings.threads:
        return 0
    if prod(place.extents) * prod(axis.input for axis in place.axes) * place.scalar_bytes < LEAST_GATHERED_BYTES:
        return 0
    steps = [(axis.input, axis.x_stride) for axis in place.axes] + list(zip(place.extents, place.x_steps, strict=True))
    piece = 1
    for extent, step in sorted((step for step in steps if step[0] > 1), key=lambda step: step[1]):
        if step != piece:
            return 0
        piece *= extent
    return settings.threads // tiles * tiles


def _threads(place: Place, access: Access, settings: Settings, kind: str) -> int:
    return access.packs * prod(_tiles(place, access, settings, kind)) * prod(place.extents)


def box_of(place: Place, access: Access, settings: Settings, kind: str) -> BoxStruct | None:
    """How threads share the work; None if there would be too many."""
    threads = _threads(place, access, settings, kind)
    if threads >= 2**31 - 2**10:
        return None
    box = BoxStruct(place, access, threads=threads, lanes=FastDivmod.of(access.packs))
    for d, count in enumerate(_tiles(place, access, settings, kind)):
        box.tiles[d] = FastDivmod.of(count)
    return box
