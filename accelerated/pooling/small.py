"""Small images with known windows, of which a block has whole planes and a thread one window (pooling/small.cuh)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any

from dualdnn.api.operations import PoolingBackward, PoolingForward
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure
from .problem import Shape
from .static_window import Access, Place, Settings, access_of, alignment_of, function_of, place_of

MOST_THREADS, MOST_DEEP = 512, 64  # of a block, and along its third dimension
MOST_BLOCKS = 264  # more would be in each other's way, and other kernels do better
LEAST_THREADS = 128  # of a block that has planes enough
LANES = 8  # packs of channels of a block
LEAST_SHARES = 3  # of rows: of fewer, what two blocks look at takes longer than more blocks save
OUTER = 2  # dimensions of a launch beside that which blocks share
SETTINGS = Settings(MOST_THREADS, 1, 1, 4, 1, 1)


class PlanesStruct(ctypes.Structure):
    """The ``Planes`` of the kernels."""

    _fields_ = [
        ("beside", c_uint),
        ("rows_before", c_int),
        ("own_rows", c_int),
        ("input", c_int * 2),
        ("output", c_int * 2),
        ("x_stride", c_int * 2),
        ("y_stride", c_int * 2),
        ("x_step", c_int * (1 + OUTER)),
        ("y_step", c_int * (1 + OUTER)),
    ]


@dataclass
class Planes:
    """Planes as the kernels walk them: the argument, the launch's dimensions."""

    layout: PlanesStruct
    access: Access
    grid: tuple[int, int, int]
    block: tuple[int, int, int]


def planes_of(place: Place, windows: tuple[int, int], around: tuple[int, int], device: Any) -> Planes | None:
    """Blocks of planes of so many ``windows`` along axes 1 and 2; None where they are too large or too many. around: rows of windows
    before and behind those of a block that it looks at, where it has some of the rows."""
    access = access_of(place, SETTINGS, {})
    rows = place.channels == 1
    if place.axes[0].window != 1 or rows != (access.kind == "loose"):
        return None
    # The dimension that blocks share: planes, or packs of channels; the others are the launch's.
    shared = (
        (place.extents[-1], place.x_steps[-1], place.y_steps[-1])
        if rows
        else (access.packs, access.lanes, access.lanes)
    )
    others = [*zip(place.extents, place.x_steps, place.y_steps, strict=True)][: -1 if rows else None]
    others = [other for other in reversed(others) if other[0] > 1]
    if len(others) > OUTER:
        return None
    others += [(1, 0, 0)] * (OUTER - len(others))
    if not rows and others[1][0] > 1:  # that dimension of the launch divides rows of windows
        return None
    most = min(MOST_THREADS // prod(windows), MOST_DEEP)
    if rows:
        most = min(most, max(-(-LEAST_THREADS // prod(windows)), -(-prod(place.extents) // device.multiprocessors)))
    else:
        most = min(most, LANES)
    if most == 0 or windows[0] > MOST_DEEP:
        return None
    parts = -(-shared[0] // most)
    beside = -(-shared[0] // parts)
    grid = (parts, others[0][0], others[1][0])
    own_rows = windows[0]
    if not rows:
        shares = max(1, device.multiprocessors // prod(grid))
        own_rows = -(-windows[0] // (shares if shares >= LEAST_SHARES or not any(around) else 1))
        grid = (*grid[:2], -(-windows[0] // own_rows))
    if prod(grid) > MOST_BLOCKS:
        return None
    before, behind = around if own_rows < windows[0] else (0, 0)
    layout = PlanesStruct(beside=shared[0], rows_before=before, own_rows=own_rows)
    for d, axis in enumerate(place.axes[1:]):
        layout.input[d], layout.output[d] = axis.input, axis.output
        layout.x_stride[d], layout.y_stride[d] = axis.x_stride, axis.y_stride
    for d, (_, x_step, y_step) in enumerate([shared, *others]):
        layout.x_step[d], layout.y_step[d] = x_step, y_step
    block = (windows[1], windows[0], beside) if rows else (beside, windows[1], before + own_rows + behind)
    if prod(block) > MOST_THREADS:
        return None
    return Planes(layout, access, grid, block)


def maximum_plan(operation: PoolingBackward, place: Place, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of the gradient of a maximum; ``otherwise`` makes that of any call."""
    _, a1, a2 = place.axes
    # Windows around those that begin in a place reach its inputs.
    before, behind = -((a1.padding - a1.window) // a1.stride + 1), (a1.stride - 1 + a1.padding) // a1.stride
    planes = planes_of(place, (a1.windows, a2.windows), (before, behind), device)
    if planes is None:
        return None
    function = function_of(operation, place, "pooling_small_max_backward", planes.access, SETTINGS, device)
    arguments = structure(
        *pointers(3),
        *factors(operation, alpha=operation.alpha, beta=operation.beta),
        ("propagate", c_int(operation.pooling.nan)),
        ("planes", planes.layout),
    )
    operands = ("dy", "x", "dx")
    around = before + behind
    x, y, z = planes.block
    cells = z * (x + around) * (y + around) if place.channels == 1 else x * (y + around) * (z + around)
    cell_bytes = 2 * SCALAR_BYTES[operation.compute_type] * planes.access.lanes
    launch = Launch(function, arguments, operands, planes.grid, planes.block, cells * cell_bytes)
    return AlignedPlan(operation, Plan(operation, [launch]), alignment_of(place, planes.access, operands), otherwise)


def forward_plan(operation: PoolingForward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of a call with a known window; ``otherwise`` makes that of any call."""
    place = place_of(shape)
    if place is None:
        return None
    _, a1, a2 = place.axes
    planes = planes_of(place, (a1.output, a2.output), (0, 0), device)
    if planes is None:
        return None
    function = function_of(operation, place, "pooling_small_forward", planes.access, SETTINGS, device)
    divisor = prod(axis.divisor(operation.pooling.mode) for axis in place.axes)
    arguments = structure(
        *pointers(2),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, reciprocal=1 / divisor if divisor else 0.0),
        ("mode", c_int(operation.pooling.mode)),
        ("propagate", c_int(operation.pooling.nan)),
        ("planes", planes.layout),
    )
    operands = ("x", "y")
    launch = Launch(function, arguments, operands, planes.grid, planes.block)
    return AlignedPlan(operation, Plan(operation, [launch]), alignment_of(place, planes.access, operands), otherwise)
