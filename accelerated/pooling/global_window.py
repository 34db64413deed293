"""Global pooling: one window covers a plane (pooling/global_forward.cu, pooling_whole_backward.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_longlong, c_uint
from dataclasses import dataclass
from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from dualdnn.api.operations import PoolingBackward, PoolingForward, ReduceTensor
from dualdnn.api.operations.specs import SCALAR_BYTES, ReduceTensorSpec

from ..plans import AlignedPlan, Launch, Plan, factors, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod
from ..reduce_tensor import small as reduce_tensor_small
from .problem import MAXIMA, PACK_BYTES, Axis, Shape, column_bits, power_of_two

MOST_OUTER = 3
MOST_SPAN = 2**31  # of a plane, in elements
WARP = 32
BLOCK = 128
FEW_BLOCK = 256  # of few planes: the fewer blocks, the less their launch takes
LARGEST_BLOCK = 1024
SMALLEST_TEAM = 8  # threads of a plane
FEW_LOADS = 4  # of a thread, from which more threads are of no use
MANY_LOADS = 8
MOST_PITCH = 2  # of lines, in their lengths, so that gaps are read, too
ENOUGH_THREADS = 2**16  # about what keeps a GPU busy
CHANNEL_THREADS = 512
CHANNEL_BYTES = 128  # of a block
SPREAD_THREADS = 256
SPREAD_STORES = 8  # of a thread
SPREAD_TEAM = 128
MOST_LINE_BYTES = 2**25  # of dx, from which lines apart are better written in whole sectors, gaps and all


class WholeStruct(ctypes.Structure):
    _fields_ = [
        ("planes", c_uint),
        ("lines", c_uint),
        ("columns", c_uint),
        ("line_stride", c_uint),
        ("team_bits", c_uint),
        ("column_bits", c_uint),
        ("over_gaps", c_uint),
        ("pitch", FastDivmod),
        ("outer_rank", c_int),
        ("channels", FastDivmod),
        ("extent", FastDivmod * MOST_OUTER),
        ("x_step", c_longlong * MOST_OUTER),
        ("y_step", c_longlong * MOST_OUTER),
    ]


@dataclass
class Work:
    """A kernel and how it shares the work."""

    kernel: str
    arguments: WholeStruct
    blocks: int
    threads: int
    pack: int  # elements of the accesses that need alignment
    shared_bytes: int = 0


def small_average_plan(
    operation: PoolingForward, shape: Shape, device: Any, otherwise: Callable[[], Plan]
) -> Plan | None:
    """The plan of a small average over everything, which is a sum with another factor (reduce_tensor/small.cu); None for
    other windows and sizes.
    """
    x, y, pooling = operation.x, operation.y, operation.pooling
    if pooling.mode in MAXIMA or x.vector_length > 1 or not all(axis.whole for axis in shape.axes):
        return None
    spec = ReduceTensorSpec(
        cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_ADD, operation.compute_type, pooling.nan,
        cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES, cudnnIndicesType_t.CUDNN_32BIT_INDICES,
    )  # fmt: skip
    total = ReduceTensor(spec, 0, 0, operation.alpha / _divisor(operation, shape), operation.beta, x, y)
    made = reduce_tensor_small.launch(total, device, ("x", "y")) if total.length > 1 else None
    return made and AlignedPlan(
        operation,
        Plan(operation, [made[0]]),
        {"x": made[1]},
        lambda: _otherwise(operation, shape, device, otherwise),
    )


def _otherwise(operation: PoolingForward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan:
    return forward_plan(operation, shape, device, otherwise) or otherwise()


def forward_plan(operation: PoolingForward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of global pooling; None for other windows and layouts."""
    work = _channels(shape, operation, device) if shape.channels_last else _rows(shape, WARP, FEW_BLOCK)
    if work is None:
        return None
    extra = [("mode", c_int(operation.pooling.mode)), ("propagate", c_int(operation.pooling.nan))]
    return _plan(operation, work, shape, device, ("pooling_whole", ("x", "y")), extra, otherwise)


def backward_plan(operation: PoolingBackward, shape: Shape, device: Any, otherwise: Callable[[], Plan]) -> Plan | None:
    """The plan of an average over everything, backward; None for other windows and layouts."""
    work = _spread_channels(shape, device) if shape.channels_last else _rows(shape, SPREAD_TEAM, BLOCK)
    if work is None or (
        work.arguments.lines > 1 and not shape.channels_last and operation.nbytes("dx") > MOST_LINE_BYTES
    ):
        return None
    return _plan(operation, work, shape, device, ("pooling_spread", ("dy", "dx")), [], otherwise)


SOURCES = {"pooling_whole": "pooling/global_forward.cu", "pooling_spread": "pooling/global_average_backward.cu"}


def _plan(
    operation: PoolingForward | PoolingBackward,
    work: Work,
    shape: Shape,
    device: Any,
    named: tuple[str, tuple[str, str]],
    extra: list[tuple[str, Any]],
    otherwise: Callable[[], Plan],
) -> Plan:
    name, operands = named
    arguments = structure(
        *pointers(2),
        ("whole", work.arguments),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, reciprocal=1 / _divisor(operation, shape)),
        *extra,
    )
    definitions = type_definitions(operation.x.scalar_type, operation)
    function = device.function(SOURCES[name], f"{name}_{work.kernel}", definitions)
    launch = Launch(function, arguments, operands, (work.blocks, 1, 1), (work.threads, 1, 1), work.shared_bytes)
    nbytes = work.pack * operation.x.scalar_bytes
    return AlignedPlan(operation, Plan(operation, [launch]), dict.fromkeys(operands, nbytes), otherwise)


def _divisor(operation: PoolingForward | PoolingBackward, shape: Shape) -> int:
    """Of an average: how many positions its window counts."""
    return prod(axis.divisor(operation.pooling.mode) for axis in shape.axes)


def _whole(shape: Shape, outer: int) -> WholeStruct | None:
    """The planes (images, where ``outer`` leaves out channels) and where they are."""
    if not all(axis.whole for axis in shape.axes) or outer > MOST_OUTER:
        return None
    value = WholeStruct(channels=FastDivmod.of(1), planes=prod(shape.extents[:outer]))
    dims = zip(shape.extents[:outer], shape.x_steps[:outer], shape.y_steps[:outer], strict=True)
    for extent, x_step, y_step in _merged(list(dims)):
        i = value.outer_rank
        value.extent[i], value.x_step[i], value.y_step[i] = FastDivmod.of(extent), x_step, y_step
        value.outer_rank += 1
    return value


def _merged(dims: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """(extent, distance in x, in y) of dimensions, the fastest first: one instead of two where one follows the other without a gap."""
    merged: list[tuple[int, int, int]] = []
    for extent, x_step, y_step in reversed(dims):
        if extent == 1:
            continue
        if merged and (x_step, y_step) == (merged[-1][0] * merged[-1][1], merged[-1][0] * merged[-1][2]):
            merged[-1] = (merged[-1][0] * extent, *merged[-1][1:])
        else:
            merged.append((extent, x_step, y_step))
    return merged


def _rows(shape: Shape, usual_team: int, few_block: int) -> Work | None:
    value = _whole(shape, len(shape.extents))
    lines, row = _lines(shape), shape.axes[2]
    if value is None or lines is None or (row.x_stride != 1 and row.input > 1):
        return None
    value.lines, value.columns, value.line_stride = lines.input, row.input, lines.x_stride
    if lines.input * lines.x_stride >= MOST_SPAN:
        return None
    loads = row.input // shape.width if lines.input == 1 else lines.input * row.input
    team = WARP
    while team > SMALLEST_TEAM and loads <= FEW_LOADS * team // 2 and value.planes * team // 2 >= ENOUGH_THREADS:
        team //= 2
    while team < usual_team and loads > MANY_LOADS * team:
        team *= 2
    while team < LARGEST_BLOCK and loads > MANY_LOADS * team and value.planes * team < ENOUGH_THREADS:
        team *= 2
    value.team_bits = team.bit_length() - 1
    value.column_bits = column_bits(row.input, 0)
    value.pitch = FastDivmod.of(max(1, lines.x_stride))
    # A pack reaches over one gap at most, and what lies beside packs is part of the first line, or of the last one.
    pitch_fits = shape.width - 1 <= row.input <= lines.x_stride <= MOST_PITCH * row.input
    value.over_gaps = lines.input > 1 and pitch_fits
    threads = max(team, few_block if value.planes * team < ENOUGH_THREADS else BLOCK)
    return Work("rows", value, -(-value.planes * team // threads), threads, 1)


def _lines(shape: Shape) -> Axis | None:
    """The axis whose lines a plane consists of, beside axis 2; None if there are two."""
    longer = [axis for axis in shape.axes[:2] if axis.input > 1]
    if len(longer) > 1:
        return None
    return longer[0] if longer else Axis(1, 1, 1, 1, 0, 0, 0)


def _positions(shape: Shape) -> WholeStruct | None:
    """Packs of channels; None if a plane is not one row of positions, or packs do not divide it."""
    value = _whole(shape, len(shape.extents) - 1)
    longer = [axis for axis in shape.axes if axis.input > 1]
    channels = shape.extents[-1]
    if value is None or len(longer) > 1 or channels % shape.width:
        return None
    axis = longer[0] if longer else shape.axes[2]
    if any(step % shape.width for step in (*shape.x_steps[:-1], *shape.y_steps[:-1], axis.x_stride)):
        return None
    if axis.input * axis.x_stride >= MOST_SPAN:
        return None
    value.lines, value.line_stride = axis.input, axis.x_stride
    value.channels = FastDivmod.of(channels // shape.width)
    value.planes *= channels // shape.width
    return value


def _channels(shape: Shape, operation: PoolingForward, device: Any) -> Work | None:
    value = _positions(shape)
    if value is None:
        return None
    lanes = min(CHANNEL_BYTES // PACK_BYTES, power_of_two(value.planes))
    while lanes > 2 and value.planes // lanes < device.multiprocessors:
        lanes //= 2
    threads = min(CHANNEL_THREADS, max(BLOCK, power_of_two(-(-value.lines * lanes // MANY_LOADS))))
    value.team_bits = lanes.bit_length() - 1
    warp_bytes = min(lanes, WARP) * shape.width * SCALAR_BYTES[operation.compute_type]
    return Work("channels", value, -(-value.planes // lanes), threads, shape.width, threads // WARP * warp_bytes)


def _spread_channels(shape: Shape, device: Any) -> Work | None:
    value = _positions(shape)
    if value is None:
        return None
    lanes = min(SPREAD_THREADS, power_of_two(value.planes))
    groups, slices = -(-value.planes // lanes), SPREAD_THREADS // lanes
    value.team_bits = lanes.bit_length() - 1
    # Positions of a block: as many as its threads may write, as long as there are enough blocks.
    most = max(1, value.lines * groups // (4 * device.multiprocessors))
    value.columns = max(slices, min(slices * SPREAD_STORES, most))
    return Work("channels", value, groups * -(-value.lines // value.columns), SPREAD_THREADS, shape.width)
