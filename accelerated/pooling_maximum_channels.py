"""Gradients of maxima of channels side by side, with known windows (kernels/pooling_known_maximum_channels.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import SCALAR_BYTES

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .pooling_geometry import Axis
from .pooling_known import Access, Place, PlaceStruct, Settings, access_of, alignment_of, function_of

SOURCE = "pooling_known_maximum_channels"
WORD_BYTES = 4  # of channels of a thread, or one channel
MOST_PLACES = 1 << 14  # in the sums of a block
START_STEPS = 2  # about the steps that a block could do while it starts
LEAST_USED = 0.75  # of the threads
SHARED_BYTES = 227 * 1024  # of a multiprocessor
BLOCK_BYTES = 1024  # that every block takes of them

# By what is pooled, and by whether elements take 4 bytes or more: as measured.
SETTINGS = {
    ("volumes", False): Settings(256, 2, 2, 16, 2, 1, group_bytes=64, stages=5),
    ("volumes", True): Settings(256, 2, 2, 16, 4, 1, group_bytes=128, stages=2),
    ("images", False): Settings(256, 4, 1, 16, 2, 1, group_bytes=64, stages=2),
    ("images", True): Settings(256, 4, 1, 16, 2, 1, group_bytes=64, stages=2),
}


class ScatterStruct(PlaceStruct):
    """The ``Scatter`` of the kernel."""

    _fields_: ClassVar = [
        ("groups", Divisor),
        ("parts2", Divisor),
        ("parts1", Divisor),
        ("segments", Divisor),
        ("threads2", Divisor),
        ("columns", Divisor),
        ("packs", c_uint),
        ("channels", c_uint),
        ("tile", c_int * 2),
        ("before", c_int * 2),
        ("windows", c_int * 2),
        ("steps", c_int),
        ("block_steps", c_int),
    ]


@dataclass
class Side:
    """How blocks share an axis: each writes the inputs between the starts of ``tile`` windows, and looks at ``windows``."""

    parts: int
    tile: int
    before: int  # windows before those
    windows: int
    threads: int  # of ``each`` windows
    written: int  # inputs

    @classmethod
    def of(cls, axis: Axis, parts: int, each: int) -> Side:
        tile = -(-max(axis.output, -(-axis.input // axis.stride)) // parts)
        whole = parts == 1
        first = 0 if whole else (axis.padding - axis.window) // axis.stride + 1
        last = axis.output - 1 if whole else (tile * axis.stride - 1 + axis.padding) // axis.stride
        windows = last + 1 - first
        return cls(parts, tile, -first, windows, -(-windows // each), tile * axis.stride)


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window, whose axis 0 is marched along; None where other kernels do better.
    ``otherwise`` makes the plan of any call."""
    settings = SETTINGS["images" if place.axes[1].window == 1 else "volumes", place.scalar_bytes >= WORD_BYTES]
    access = access_of(place, settings)
    if access.kind != "channels":
        return None
    word_bytes = max(WORD_BYTES, place.scalar_bytes)
    lanes = settings.group_bytes // word_bytes
    found = _scatter(place, access, settings, lanes, SCALAR_BYTES[operation.compute_type], device)
    if found is None:
        return None
    scatter, blocks, threads, shared_bytes = found
    function = function_of(operation, place, SOURCE, access, settings, device, BLOCK_LANES=lanes)
    arguments = structure(
        *pointers(3),
        ("scatter", scatter),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (threads, 1, 1), shared_bytes)
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)


def _sides(place: Place, settings: Settings, lanes: int, most_places: int) -> tuple[Side, Side] | None:
    """How blocks share axes 1 and 2: so that the fewest windows are looked at twice."""
    a0, a1, a2 = place.axes
    each1 = settings.rows if a1.window > a1.stride else 1
    room = settings.threads // lanes
    best = None
    for parts2 in range(1, a2.input + 1):
        columns = Side.of(a2, parts2, settings.channel_tile)
        if columns.threads > room:
            continue
        for parts1 in range(1, a1.input + 1):
            rows = Side.of(a1, parts1, each1)
            if rows.threads * columns.threads <= room and a0.window * rows.written * columns.written <= most_places:
                break
        else:
            continue
        cost = parts1 * rows.windows * parts2 * columns.windows
        if best is None or cost < best[0]:
            best = cost, rows, columns
        if columns.threads == 1:
            break
    return best and best[1:]


def _block_steps(steps: int, blocks: int, at_once: int) -> int:
    """Of ``steps``, how many a block does: few enough that multiprocessors have as much to do as each other."""

    def cost(segments: int) -> tuple[int, int]:
        return -(-blocks * segments // at_once) * (-(-steps // segments) + START_STEPS), segments

    return -(-steps // min(range(1, steps + 1), key=cost))


def _scatter(
    place: Place, access: Access, settings: Settings, lanes: int, compute_bytes: int, device: Any
) -> tuple[ScatterStruct, int, int, int] | None:
    """(how blocks share the work, their number, threads and bytes of shared memory of each); None if that does badly."""
    a0 = place.axes[0]
    channels = max(1, WORD_BYTES // place.scalar_bytes)
    packs = place.channels // channels
    place_bytes = lanes * channels * compute_bytes
    most_places = min((SHARED_BYTES // settings.blocks - BLOCK_BYTES) // place_bytes, MOST_PLACES)
    found = _sides(place, settings, lanes, most_places)
    groups = -(-packs // lanes)
    if found is None or packs < LEAST_USED * groups * lanes:
        return None
    rows, columns = found
    blocks = groups * rows.parts * columns.parts * prod(place.extents)
    steps = -(-(a0.input + a0.padding) // a0.stride)
    block_steps = _block_steps(steps, blocks, settings.blocks * device.multiprocessors)
    segments = -(-steps // block_steps)
    scatter = ScatterStruct(
        place,
        access,
        groups=Divisor.of(groups),
        parts2=Divisor.of(columns.parts),
        parts1=Divisor.of(rows.parts),
        segments=Divisor.of(segments),
        threads2=Divisor.of(columns.threads),
        columns=Divisor.of(columns.written),
        packs=packs,
        channels=place.channels,
        steps=steps,
        block_steps=block_steps,
    )
    for d, side in enumerate((rows, columns)):
        scatter.tile[d], scatter.before[d], scatter.windows[d] = side.tile, side.before, side.windows
    shared_bytes = a0.window * rows.written * columns.written * place_bytes
    return scatter, blocks * segments, rows.threads * columns.threads * lanes, shared_bytes
