"""Gradients of maxima of images whose rows are read in packs, with known windows (kernels/pooling_known_maximum_rows.cu, of half
kernels/pooling_known_maximum_halves.cu)."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from typing import Any

from dualdnn.api.operations import PoolingBackward
from dualdnn.api.operations.specs import HALF, SCALAR_BYTES

from .geometry import Divisor
from .plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .pooling_known import ROW_BYTES, Place, Settings, access_of, alignment_of, box_of, function_of

ROWS, HALVES = "pooling_known_maximum_rows", "pooling_known_maximum_halves"
MARCHED = "pooling_known_maximum_halves_marched"
HALF_KERNEL = MARCHED
SETTINGS = {ROWS: Settings(128, 4, 1, 8, 1, 1), HALVES: Settings(256, 6, 1, 8, 1, 1),
    MARCHED: Settings(128, 8, 1, 8, 1, 1, stages=1)}
ACCESSES = {ROWS: ROW_BYTES, HALVES: {**ROW_BYTES, "word": 4}, MARCHED: {**ROW_BYTES, "word": 4}}
HALF_COLUMNS = {"wide": 8, "narrow": 4, "word": 4}
HALF_THREADS = 2**17
FORCED_SEGMENTS = FORCED_STEPS = 0
WARP = 32
ENOUGH_THREADS = 2**20  # from which on they march as far as they can
LEAST_STEPS = 2  # that they march
LEAST_USEFUL = 4  # a part of the threads of a block that has to write


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; None for other accesses. ``otherwise`` makes the plan of any call."""
    kernel = HALF_KERNEL if operation.x.scalar_type == HALF else ROWS
    settings = SETTINGS[kernel]
    access = access_of(place, settings, ACCESSES[kernel])
    box = box_of(place, access, settings, "maximum") if access.kind in ACCESSES[kernel] else None
    if box is None:
        return None
    if kernel == MARCHED:
        return _marched(operation, place, access, box, settings, device, otherwise)
    # A thread takes a strip of columns and marches down some of the rows of windows, and of the lines that begin there.
    _, rows, columns = place.axes
    strips = -(-columns.input // (access.tile * columns.stride))
    if kernel == HALVES:  # a strip's windows are told by the thread that has it
        strips = max(strips, -(-columns.output // access.tile))
    marches = box.threads // (box.tiles[1].divisor * box.tiles[2].divisor) * strips
    steps = -(-(rows.input + rows.padding) // rows.stride)
    segments = max(1, min(-(-ENOUGH_THREADS // marches), steps // LEAST_STEPS))
    own_steps = settings.rows if kernel == HALVES else FORCED_STEPS or -(-steps // segments)
    segments = steps // own_steps + (steps % own_steps > (kernel == ROWS))  # the last one takes a step more, if that is all there is
    box.threads, box.tiles[1], box.tiles[2] = marches * segments, Divisor.of(segments), Divisor.of(strips)
    arguments = structure(
        *pointers(3),
        ("box", box),
        *([("steps", c_int(steps)), ("own_steps", c_int(own_steps))] if kernel == ROWS else []),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    useful, shared_bytes = settings.threads, 0
    if kernel == HALVES and columns.window > columns.stride:
        # Strips tell those beside them and below something: one of a warp, and a row of them of a block, does not write.
        told = settings.threads // WARP * (WARP - 1)
        useful, shared_bytes = told - strips, told * access.x_pack * SCALAR_BYTES[operation.compute_type]
    if useful < settings.threads // LEAST_USEFUL:
        return None
    function = function_of(operation, place, kernel, access, settings, device)
    launch = Launch(
        function, arguments, operands, (-(-box.threads // useful), 1, 1), (settings.threads, 1, 1), shared_bytes
    )
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)


def _marched(operation, place, access, box, settings, device, otherwise):
    _, rows, columns = place.axes
    width = HALF_COLUMNS[access.kind]
    strips = max(-(-columns.input // width), -(-columns.output * 2 // width))
    marches = box.threads // (box.tiles[1].divisor * box.tiles[2].divisor) * strips
    steps = max(-(-(rows.input + rows.padding) // rows.stride), rows.output)
    segments = max(1, min(FORCED_SEGMENTS or -(-HALF_THREADS // marches), steps // LEAST_STEPS))
    own_steps = -(-steps // segments)
    segments = -(-steps // own_steps)
    box.threads, box.tiles[1], box.tiles[2] = marches * segments, Divisor.of(segments), Divisor.of(strips)
    whole = WARP // strips * strips
    sided = columns.window > columns.stride
    useful, first = (whole, 0) if whole >= WARP - 2 else (WARP - 2, 1) if sided else (WARP, 0)
    arguments = structure(
        *pointers(3),
        ("box", box),
        ("before", c_int(segments > 1 and rows.window > rows.stride)),
        ("own_steps", c_int(own_steps)),
        ("first_useful", c_int(first)),
        ("useful", c_int(useful)),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    function = function_of(operation, place, MARCHED, access, settings, device)
    blocks = -(-box.threads // (useful * (settings.threads // WARP)))
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (settings.threads, 1, 1), 0)
    return AlignedPlan(operation, [launch], alignment_of(place, access, operands), otherwise)
