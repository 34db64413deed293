"""Gradients of maxima of volumes whose channels lie side by side, with known windows (pooling/max_backward_3d_nhwc.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from ..primitives.geometry import FastDivmod
from .problem import PACK_BYTES, Axis
from .static_window import Place, PlaceStruct, Settings, access_of, alignment_of, function_of

WORD_BYTES = 4  # of channels of a thread
CARRIERS = 384  # threads of a block that bring planes and write what the others found
MOST_PACKS = {"COPIES": 7, "WRITES": 5}  # of a plane, that each of those brings and writes
# Of the threads of the device; measured with 0.74, where it takes 0.69 to 0.80 of the time of the other kernel
LEAST_USED = 0.6
SHARED_BYTES, BLOCK_BYTES = 228 * 1024, 1024  # of a multiprocessor; of them that every block takes

# By the bytes of an element: as measured with half and float.
SETTINGS = {
    2: Settings(512, 1, 2, 16, 2, 1, group_bytes=128, stages=2),
    4: Settings(512, 1, 2, 16, 2, 1, group_bytes=128, stages=3),
}


class ScatterStruct(PlaceStruct):
    """The ``Scatter`` of the kernel."""

    _fields_: ClassVar = [
        ("groups", FastDivmod),
        ("parts2", FastDivmod),
        ("parts1", FastDivmod),
        ("threads2", FastDivmod),
        ("columns", FastDivmod),
        ("stage_columns", FastDivmod),
        ("words", c_uint),
        ("stage_packs", c_uint),
        ("tile", c_int * 2),
        ("before", c_int * 2),
        ("windows", c_int * 2),
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
        tile = -(-axis.windows // parts)
        whole = parts == 1
        first = 0 if whole else (axis.padding - axis.window) // axis.stride + 1
        last = axis.output - 1 if whole else (tile * axis.stride - 1 + axis.padding) // axis.stride
        windows = last + 1 - first
        threads = -(-windows // each)
        covered = (threads * each - 1) * axis.stride + axis.window
        return cls(parts, tile, -first, windows, threads, tile * axis.stride, covered)


@dataclass
class Part:
    """What a block has of axes 1 and 2, and what it takes: threads, packs of a plane of x, bytes of shared memory."""

    rows: Side
    columns: Side
    lanes: int  # words of channels
    threads: int
    stage_packs: int
    written_packs: int
    shared_bytes: int

    @classmethod
    def of(cls, place: Place, rows: Side, columns: Side, settings: Settings, sum_bytes: int) -> Part:
        """``sum_bytes``: of the sum of a channel."""
        lanes, packs = settings.group_bytes // WORD_BYTES, settings.group_bytes // PACK_BYTES
        covered, written = rows.covered * columns.covered, rows.written * columns.written
        sums_bytes = place.axes[0].window * written * packs * (PACK_BYTES // place.scalar_bytes) * sum_bytes
        shared_bytes = sums_bytes + settings.stages * covered * settings.group_bytes
        threads = rows.threads * columns.threads * lanes
        return cls(rows, columns, lanes, threads, covered * packs, written * packs, shared_bytes)

    @property
    def looked_at(self) -> int:
        """Windows of all blocks."""
        return self.rows.parts * self.rows.windows * self.columns.parts * self.columns.windows

    def fits(self, settings: Settings) -> bool:
        """Whether a block can have it."""
        return (
            self.threads <= settings.threads
            and self.shared_bytes <= SHARED_BYTES // settings.blocks - BLOCK_BYTES
            and self.stage_packs <= MOST_PACKS["COPIES"] * CARRIERS
            and self.written_packs <= MOST_PACKS["WRITES"] * CARRIERS
        )


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a volume with a known window; None where other kernels do better. ``otherwise`` makes the plan of any call."""
    settings = SETTINGS.get(place.scalar_bytes)
    if settings is None:
        return None
    access = access_of(place, settings)
    part = _part(place, settings, SCALAR_BYTES[operation.compute_type]) if access.kind == "channels" else None
    if part is None:
        return None
    _, a1, a2 = place.axes
    rows, columns = part.rows, part.columns
    words = place.channels * place.scalar_bytes // WORD_BYTES
    groups, planes = -(-words // part.lanes), prod(place.extents)
    blocks, at_once = groups * rows.parts * columns.parts * planes, settings.blocks * device.multiprocessors
    possible = -(-blocks // at_once) * at_once * settings.threads * settings.rows * settings.channel_tile
    if a1.output * a2.output * words * planes < LEAST_USED * possible:
        return None
    scatter = ScatterStruct(
        place,
        access,
        groups=FastDivmod.of(groups),
        parts2=FastDivmod.of(columns.parts),
        parts1=FastDivmod.of(rows.parts),
        threads2=FastDivmod.of(columns.threads),
        columns=FastDivmod.of(columns.written),
        stage_columns=FastDivmod.of(columns.covered),
        words=words,
        stage_packs=part.stage_packs,
    )
    for d, side in enumerate((rows, columns)):
        scatter.tile[d], scatter.before[d], scatter.windows[d] = side.tile, side.before, side.windows
    arguments = structure(
        *pointers(3),
        ("scatter", scatter),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    source = "pooling_max_backward_3d_nhwc"
    function = function_of(
        operation, place, source, access, settings, device, BLOCK_LANES=part.lanes, CARRIERS=CARRIERS, **MOST_PACKS
    )
    operands = ("dy", "x", "dx")
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (part.threads + CARRIERS, 1, 1), part.shared_bytes)
    return AlignedPlan(operation, Plan(operation, [launch]), alignment_of(place, access, operands), otherwise)


def _part(place: Place, settings: Settings, sum_bytes: int) -> Part | None:
    """How blocks share axes 1 and 2: so that the fewest windows are looked at twice."""
    _, a1, a2 = place.axes
    most = settings.threads * WORD_BYTES // settings.group_bytes  # threads that share an axis
    best = None
    for columns in _sides(a2, settings.channel_tile, most):
        for rows in _sides(a1, settings.rows, most):
            part = Part.of(place, rows, columns, settings, sum_bytes)
            if part.fits(settings):
                best = part if best is None or part.looked_at < best.looked_at else best
                break  # of more parts more is looked at
    return best


def _sides(axis: Axis, each: int, most: int) -> list[Side]:
    """The ways to share an axis among blocks of at most ``most`` threads, those of the fewest blocks first."""
    windows = axis.windows
    parts = {-(-windows // tile) for tile in range(1, min(windows, most * each) + 1)}
    return [Side.of(axis, count, each) for count in sorted(parts)]
