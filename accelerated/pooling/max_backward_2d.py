"""Gradients of maxima of images that threads march down, with known windows (pooling/max_backward_2d.cu); half in rows that
are read in packs has pooling_maximum_halves.py."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import c_int
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from dualdnn.api.operations import PoolingBackward

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from ..primitives.geometry import FastDivmod
from .static_window import Access, Place, Settings, access_of, alignment_of, box_of, function_of

KERNEL = "pooling_max_backward_2d"
ENOUGH_THREADS = 2**16  # from which on they march as far as they usually do
LEAST_CHANNELS = 32  # side by side: one by one those of a warp
CACHED_BYTES = 2**25  # of x, up to which most of it is in the cache already
OF_CHANNELS = ("channels", "scattered")  # accesses
# Of these accesses: with more other kernels do better, or were not compared.
MOST_THREADS = {"channels": 2**14, "loose": ENOUGH_THREADS - 1}


@dataclass
class March:
    """How threads march with one kind of access: as measured."""

    settings: Settings
    least_steps: int  # where threads are few
    usual_steps: float
    enough: float = 1.0  # of ENOUGH_THREADS


MARCHES = {
    "wide": March(Settings(128, 4, 1, 8, 1, 1), 2, 3.9),
    "narrow": March(Settings(128, 4, 1, 8, 1, 1), 1, 3.9),
    "loose": March(Settings(128, 8, 1, 8, 1, 1), 1, 3.9),
    "channels": March(Settings(128, 4, 1, 8, 1, 1), 1, 3.9),
    "scattered": March(Settings(128, 6, 1, 8, 1, 2), 2, 9.5, 0.5),  # 31x67x37x41: 2 segments 8.8 us, 3 11.2, 4 9.2
}


def _serves(place: Place, access: Access, threads: int) -> bool:
    """Packs of rows; many channels one by one, of 4 bytes or more; their packs, and single elements of rows, where threads that tell
    each other (pooling_max_backward.cu) would be few."""
    if access.kind in OF_CHANNELS and (place.channels < LEAST_CHANNELS or place.scalar_bytes < 4):
        return False
    return access.kind in MARCHES and threads <= MOST_THREADS.get(access.kind, threads)


def plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; None for other accesses. ``otherwise`` makes the plan of any call."""
    access = access_of(place, MARCHES["wide"].settings)
    if access.kind not in MARCHES:
        return None
    march = MARCHES[access.kind]
    settings = march.settings
    access = access_of(place, settings)
    # A thread takes a strip of columns and marches down some of the rows of windows, and of the lines that begin there.
    _, rows, columns = place.axes
    strips = -(-columns.input // (access.tile * columns.stride))
    marches = access.packs * prod(place.extents) * strips
    steps = -(-(rows.input + rows.padding) // rows.stride)
    box = box_of(place, access, settings, "maximum") if _serves(place, access, marches * steps) else None
    if box is None:
        return None
    least = max(1, min(ceil(ENOUGH_THREADS * march.enough / marches), steps // march.least_steps))
    segments = max(least, round(steps / march.usual_steps))
    box.threads, box.tiles[1], box.tiles[2] = marches * segments, FastDivmod.of(segments), FastDivmod.of(strips)
    arguments = structure(
        *pointers(3),
        ("box", box),
        ("steps", c_int(steps)),
        ("fetches", c_int(operation.nbytes("x") > CACHED_BYTES)),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
    )
    operands = ("dy", "x", "dx")
    function = function_of(operation, place, KERNEL, access, settings, device)
    blocks = -(-box.threads // settings.threads)
    launch = Launch(function, arguments, operands, (blocks, 1, 1), (settings.threads, 1, 1))
    return AlignedPlan(operation, Plan(operation, [launch]), alignment_of(place, access, operands), otherwise)
