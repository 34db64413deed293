"""Gradients of maxima of images whose rows are read in packs, with known windows (kernels/pooling_known_maximum_rows.cu); half has
pooling_maximum_halves.py."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from typing import Any

from dualdnn.api.operations import PoolingBackward

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .pooling_known import ROW_BYTES, Place, Settings, access_of, alignment_of, box_of, function_of

KERNEL = "pooling_known_maximum_rows"
SETTINGS = Settings(128, 4, 1, 8, 1, 1)
ENOUGH_THREADS = 2**16  # from which on they march as far as they can
LEAST_STEPS, MOST_STEPS = 2, 4  # that they march


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; None for other accesses. ``otherwise`` makes the plan of any call."""
    access = access_of(place, SETTINGS)
    box = box_of(place, access, SETTINGS, "maximum") if access.kind in ROW_BYTES else None
    if box is None:
        return None
    # A thread takes a strip of columns and marches down some of the rows of windows, and of the lines that begin there.
    _, rows, columns = place.axes
    strips = -(-columns.input // (access.tile * columns.stride))
    marches = box.threads // (box.tiles[1].divisor * box.tiles[2].divisor) * strips
    steps = -(-(rows.input + rows.padding) // rows.stride)
    segments = max(1, min(-(-ENOUGH_THREADS // marches), steps // LEAST_STEPS))
    own_steps = min(-(-steps // segments), MOST_STEPS)
    # The last one takes a step more, if that is all there is.
    segments = max(1, steps // own_steps + (steps % own_steps > 1))
    box.threads, box.tiles[1], box.tiles[2] = marches * segments, Divisor.of(segments), Divisor.of(strips)
    arguments = structure(
        *pointers(3),
        ("box", box),
        ("steps", c_int(steps)),
        ("own_steps", c_int(own_steps)),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    function = function_of(operation, place, KERNEL, access, SETTINGS, device)
    blocks = -(-box.threads // SETTINGS.threads)
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (SETTINGS.threads, 1, 1))
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)
