"""Pooling of images in rows, columns first (pooling/static_forward_separable.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int, c_uint
from math import prod
from typing import Any, ClassVar

from dualdnn.api.operations import PoolingForward
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from ..primitives.geometry import FastDivmod
from .problem import Shape
from .static_window import (
    LARGE_WINDOWS,
    MOST_PACK,
    ROW_BYTES,
    Access,
    Place,
    PlaceStruct,
    Settings,
    alignment_of,
    function_of,
    place_of,
)

WARP = 32
SETTINGS = Settings(threads=256, blocks=4, rows=1, lane_bytes=16, channel_tile=1, loose_tile=1)
MOST_SHARED_BYTES = 32 * 1024  # of a block; several share a multiprocessor


class RowsStruct(PlaceStruct):
    """The ``Rows`` of the kernel."""

    _fields_: ClassVar = [
        ("total", c_uint),
        ("slots", c_uint),
        ("packs", FastDivmod),
        ("outputs", FastDivmod),
        ("lines", FastDivmod),
    ]


def plan(operation: PoolingForward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    place = None if shape.channels_last else place_of(shape, LARGE_WINDOWS)
    if place is None or place.axes[0].input > 1:
        return None
    _, lines, along = place.axes
    access = _access(place)
    if access is None:
        return None
    packs = along.input // access.x_pack
    held_bytes = along.input * SCALAR_BYTES[operation.compute_type]
    total = prod(place.extents) * lines.output
    slots = min(SETTINGS.threads // packs, MOST_SHARED_BYTES // held_bytes, total)
    if slots == 0:
        return None
    rows = RowsStruct(
        place,
        access,
        total=total,
        slots=slots,
        packs=FastDivmod.of(packs),
        outputs=FastDivmod.of(along.output),
        lines=FastDivmod.of(lines.output),
    )
    divisor = prod(axis.divisor(operation.pooling.mode) for axis in place.axes)
    arguments = structure(
        *pointers(2),
        ("rows", rows),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, reciprocal=1 / divisor if divisor else 0.0),
        ("mode", c_int(operation.pooling.mode)),
        ("propagate", c_int(operation.pooling.nan)),
    )
    function = function_of(operation, place, "pooling_static_forward_separable", access, SETTINGS, device)
    threads = -(-slots * packs // WARP) * WARP
    launch = Launch(function, arguments, ("x", "y"), (-(-total // slots), 1, 1), (threads, 1, 1), slots * held_bytes)
    return AlignedPlan(operation, Plan(operation, [launch]), alignment_of(place, access, ("x", "y")), otherwise)


def _access(place: Place) -> Access | None:
    """The widest packs of columns; None where there are none."""
    for kind, nbytes in ROW_BYTES.items():
        pack = min(nbytes // place.scalar_bytes, MOST_PACK)
        if pack > 1 and place.divided_by(pack, False)[0]:
            return Access(kind, 1, 1, pack, False, 1)
    return None
