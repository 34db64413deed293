"""Gradients of maxima of images whose rows are read in packs, with known windows (kernels/pooling_known_maximum_rows.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from dataclasses import replace
from typing import Any

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import HALF

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .pooling_known import ROW_BYTES, Place, Settings, access_of, alignment_of, box_of, function_of

SETTINGS = Settings(threads=128, blocks=4, rows=2, lane_bytes=8, channel_tile=2, loose_tile=1)
BLOCKS = {HALF: 5}  # of other data types than in the settings
ENOUGH_THREADS = 2**20  # from which on they march as far as they can
LEAST_STEPS = 2  # that they march


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; None for other accesses. ``otherwise`` makes the plan of any call."""
    data_type = operation.x.scalar_type
    settings = replace(SETTINGS, blocks=BLOCKS.get(data_type, SETTINGS.blocks))
    access = access_of(place, settings)
    box = box_of(place, access, replace(settings, rows=1), "maximum") if access.kind in ROW_BYTES else None
    if box is None:
        return None
    # A thread marches down some of the rows of windows, and of the lines that begin there, or takes a few lines at once.
    rows = place.axes[1]
    strips = box.threads // box.tiles[1].divisor
    if data_type == HALF and access.kind == "wide":
        steps, own_steps = -(-rows.input // rows.stride), SETTINGS.rows
    else:
        steps = -(-(rows.input + rows.padding) // rows.stride)
        segments = max(1, min(-(-ENOUGH_THREADS // strips), steps // LEAST_STEPS))
        own_steps = -(-steps // segments)
    segments = -(-steps // own_steps)
    box.threads, box.tiles[1] = strips * segments, Divisor.of(segments)
    arguments = structure(
        *pointers(3),
        ("box", box),
        ("steps", c_int(steps)),
        ("own_steps", c_int(own_steps)),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    function = function_of(operation, place, "pooling_known_maximum_rows", access, settings, device)
    grid = (-(-box.threads // SETTINGS.threads), 1, 1)
    launch = Launch(function, arguments, operands, grid, (SETTINGS.threads, 1, 1))
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)
