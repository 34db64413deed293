"""Gradients of maxima of half in rows that are read in packs, with known windows (kernels/pooling_known_maximum_halves_marched.cu of
images, kernels/pooling_known_maximum_halves_volumes.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from math import prod
from typing import Any, ClassVar

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import FLOAT

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .pooling_known import ROW_BYTES, Access, Place, PlaceStruct, Settings, access_of, alignment_of, function_of

VOLUMES = "pooling_known_maximum_halves_volumes"
SETTINGS = {VOLUMES: Settings(448, 2, 1, 8, 1, 1, stages=1)}
ACCESSES = {VOLUMES: {"narrow": 8, "word": 4}}
COLUMNS = {"wide": 8, "narrow": 4, "word": 4}  # of a thread
WARP = 32
START_STEPS = 1
FORCED_SEGMENTS = 0
USED = True


class VolumesStruct(PlaceStruct):
    """The ``Volumes`` of the kernel."""

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
    ]


def volumes_plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of volumes; None for other accesses."""
    if not USED or operation.compute_type != FLOAT:
        return None
    settings = SETTINGS[VOLUMES]
    access = access_of(place, settings, ACCESSES[VOLUMES])
    if access.kind not in ACCESSES[VOLUMES]:
        return None
    depth, rows, columns = place.axes
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

    segments = FORCED_SEGMENTS or min(range(1, steps + 1), key=cost)
    own_steps = -(-steps // segments)
    segments = -(-steps // own_steps)
    arguments = structure(
        *pointers(3),
        ("volumes", VolumesStruct(
            place, access, strips=Divisor.of(strips), row_parts=Divisor.of(parts), segments=Divisor.of(segments),
            warp_rows=warp_rows, block_rows=written, rows_before=around, rows=taken,
            before=int(segments > 1 and carried > 0), block_steps=own_steps, steps=steps,
        )),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    pairs = width // 4
    shared_bytes = taken * strips * (2 * 4 * pairs + 12 * pairs) if carried else 0
    function = function_of(operation, place, VOLUMES, access, settings, device)
    blocks = volumes * parts * segments
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (warps * WARP, 1, 1), shared_bytes)
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)
