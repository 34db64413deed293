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
from .pooling_geometry import PACK_BYTES, Axis
from .pooling_known import Access, Place, PlaceStruct, Settings, access_of, alignment_of, function_of

SOURCE = "pooling_known_maximum_channels"
WORD_BYTES = 4  # of channels of a thread, or one channel
PACKS = {"COPIES": 5, "WRITES": 4, "CACHE_AHEAD": 0}  # of a plane, that a thread brings and writes, at most
START_STEPS = 2  # about the steps that a block could do while it starts
LEAST_USED = 0.75  # of the threads
SHARED_BYTES = 228 * 1024  # of a multiprocessor
BLOCK_BYTES = 1024  # that every block takes of them

# By what is pooled, and by whether elements take 4 bytes or more: as measured.
SETTINGS = {
    ("volumes", False): Settings(512, 1, 2, 16, 2, 1, group_bytes=128, stages=2),
    ("volumes", True): Settings(512, 1, 2, 16, 2, 1, group_bytes=128, stages=3),
    ("images", False): Settings(512, 2, 1, 16, 2, 1, group_bytes=128, stages=4),
    ("images", True): Settings(512, 2, 1, 16, 2, 1, group_bytes=128, stages=4),
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
        ("stage_columns", Divisor),
        ("words", c_uint),
        ("stage_packs", c_uint),
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
    covered: int  # by the windows of all threads

    @classmethod
    def of(cls, axis: Axis, parts: int, each: int) -> Side:
        tile = -(-max(axis.output, -(-axis.input // axis.stride)) // parts)
        whole = parts == 1
        first = 0 if whole else (axis.padding - axis.window) // axis.stride + 1
        last = axis.output - 1 if whole else (tile * axis.stride - 1 + axis.padding) // axis.stride
        windows = last + 1 - first
        threads = -(-windows // each)
        covered = (threads * each - 1) * axis.stride + axis.window
        return cls(parts, tile, -first, windows, threads, tile * axis.stride, covered)


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window, whose axis 0 is marched along; None where other kernels do better.
    ``otherwise`` makes the plan of any call."""
    settings = SETTINGS["images" if place.axes[1].window == 1 else "volumes", place.scalar_bytes >= WORD_BYTES]
    access = access_of(place, settings)
    if access.kind != "channels":
        return None
    found = _scatter(place, access, settings, SCALAR_BYTES[operation.compute_type], device)
    if found is None:
        return None
    scatter, blocks, lanes, threads, shared_bytes = found
    function = function_of(operation, place, SOURCE, access, settings, device, BLOCK_LANES=lanes, **PACKS)
    arguments = structure(
        *pointers(3),
        ("scatter", scatter),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (threads, 1, 1), shared_bytes)
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)


@dataclass
class Part:
    """What a block has of axes 1 and 2, and what it takes: threads, packs of a plane of x, bytes of shared memory."""

    rows: Side
    columns: Side
    threads: int
    stage_packs: int
    shared_bytes: int
    brought: int  # packs of a thread, of a plane
    written: int

    @classmethod
    def of(cls, a0: Axis, rows: Side, columns: Side, stages: int, lanes: int, word_bytes: int, sum_bytes: int) -> Part:
        """``word_bytes``, ``sum_bytes``: of a word of x, of its sums."""
        threads, packs = rows.threads * columns.threads * lanes, lanes * word_bytes // PACK_BYTES
        stage_packs, written = rows.covered * columns.covered * packs, rows.written * columns.written
        shared_bytes = a0.stride * written * lanes * sum_bytes + stages * stage_packs * PACK_BYTES
        return cls(
            rows, columns, threads, stage_packs, shared_bytes, -(-stage_packs // threads), -(-written * packs // threads)
        )

    @property
    def looked_at(self) -> int:
        """Windows of all blocks."""
        return self.rows.parts * self.rows.windows * self.columns.parts * self.columns.windows


def _part(place: Place, settings: Settings, lanes: int, word_bytes: int, sum_bytes: int) -> Part | None:
    """How blocks share axes 1 and 2: so that the fewest windows are looked at twice."""
    a0, a1, a2 = place.axes
    each1 = settings.rows if a1.window > a1.stride else 1
    shared_bytes = SHARED_BYTES // settings.blocks - BLOCK_BYTES
    best = None
    for parts2 in range(1, a2.input + 1):
        columns = Side.of(a2, parts2, settings.channel_tile)
        for parts1 in range(1, a1.input + 1):
            rows = Side.of(a1, parts1, each1)
            part = Part.of(a0, rows, columns, settings.stages, lanes, word_bytes, sum_bytes)
            fits = part.threads <= settings.threads and part.shared_bytes <= shared_bytes
            if fits and part.brought <= PACKS["COPIES"] and part.written <= PACKS["WRITES"]:
                if best is None or part.looked_at < best.looked_at:
                    best = part
                break
            if rows.threads == 1:
                break
        if columns.threads == 1:
            break
    return best


def _block_steps(steps: int, blocks: int, at_once: int) -> int:
    """Of ``steps``, how many a block does: few enough that multiprocessors have as much to do as each other."""

    def cost(segments: int) -> tuple[int, int]:
        return -(-blocks * segments // at_once) * (-(-steps // segments) + START_STEPS), segments

    return -(-steps // min(range(1, steps + 1), key=cost))


def _scatter(
    place: Place, access: Access, settings: Settings, compute_bytes: int, device: Any
) -> tuple[ScatterStruct, int, int, int, int] | None:
    """(how blocks share the work, their number; words of channels, threads and bytes of shared memory of each); None if
    that does badly."""
    a0 = place.axes[0]
    word_bytes = max(WORD_BYTES, place.scalar_bytes)
    channels = word_bytes // place.scalar_bytes
    words, lanes = place.channels // channels, settings.group_bytes // word_bytes
    groups = -(-words // lanes)
    part = _part(place, settings, lanes, word_bytes, channels * compute_bytes)
    if part is None or words < LEAST_USED * groups * lanes:
        return None
    rows, columns = part.rows, part.columns
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
        stage_columns=Divisor.of(columns.covered),
        words=words,
        stage_packs=part.stage_packs,
        steps=steps,
        block_steps=block_steps,
    )
    for d, side in enumerate((rows, columns)):
        scatter.tile[d], scatter.before[d], scatter.windows[d] = side.tile, side.before, side.windows
    return scatter, blocks * segments, lanes, part.threads, part.shared_bytes
