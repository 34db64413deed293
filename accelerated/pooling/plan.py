"""Pooling on the device (pooling/forward.cu, pooling_backward.cu): which kernel serves a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import c_int, c_uint
from math import prod
from typing import Any

from dualdnn.api.operations import PoolingBackward, PoolingForward
from dualdnn.api.operations.specs import SCALAR_BYTES

from ..plans import Launch, Plan, factors, implements, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod, blocks, elementwise
from . import global_window, max_backward, small, static_forward_separable, static_window
from .problem import (
    MAXIMA,
    PACK_BYTES,
    Fit,
    Shape,
    TileStruct,
    divisors,
    fit,
    pooling_of,
    power_of_two,
    shape_of,
    tile_of,
    walk_of,
)

FORWARD, BACKWARD = "pooling/forward.cu", "pooling/backward.cu"
BLOCK = (THREADS, 1, 1)
# Shared memory of a block, the first that serves: several blocks share a multiprocessor, so that one computes while
# another waits for memory; and how many times the rows of a window a block must take for that, so that the rows which
# blocks have in common are few.
BUDGETS = ((40 * 1024, 2), (80 * 1024, 1), (112 * 1024, 0), (220 * 1024, 0))
LANE_BYTES = (128, 64, 32)  # channels of a tile, as bytes
LARGE_WINDOW = 256  # positions from which a block shares a window
MANY_THREADS = 2**16  # about what keeps a GPU busy
LOADS = 8  # of a thread in flight
SMALLEST_TEAM = 8  # threads that share a window
REDUCED_BYTES = 128  # of channels whose windows a block shares
MOST_THREADS = 1024
LONGEST_SCAN = 1024  # positions that one thread looks through
# (positions, windows): from so many on, of no more windows, a block looks through a window together: where rows are
# neighbours, and where channels are and few threads would have a window.
SHARED_SCAN = {"rows": (512, 16), "channels": (32, 4)}
MOST_POSITIONS = 2**16 - 1  # winners are 16-bit numbers
WINNER_BYTES = 2


@implements(PoolingForward)
def pooling_forward(operation: PoolingForward, device: Any) -> Plan:
    """Windows over everything and known windows have their kernels."""
    shape = shape_of(operation, operation.x, operation.y, walk_y=True)

    def otherwise() -> Plan:
        return _forward_of_any(operation, shape, device)

    special = (
        global_window.small_average_plan,
        global_window.forward_plan,
        static_forward_separable.plan,
        small.forward_plan,
        static_window.forward_plan,
    )
    return next(filter(None, (one(operation, shape, device, otherwise) for one in special)), None) or otherwise()


def _forward_of_any(operation: PoolingForward, shape: Shape, device: Any) -> Plan:
    """Planes go through shared memory, few large windows are shared by a block, the rest is a thread per pack."""
    pooling = pooling_of(operation, shape)
    walk = walk_of(shape, True, (1, 4, 16) if shape.width == 16 else (1, shape.width))
    definitions = type_definitions(operation.x.scalar_type, operation)
    compute_bytes = SCALAR_BYTES[operation.compute_type]

    def plan(
        kernel: str, grid: tuple[int, int, int], shared_bytes: int, *fields: tuple[str, Any], threads: int = THREADS
    ) -> Plan:
        arguments = structure(*pointers(2), ("pooling", pooling), *fields)
        function = device.function(FORWARD, kernel, definitions)
        return Plan(operation, [Launch(function, arguments, ("x", "y"), grid, (threads, 1, 1), shared_bytes)])

    few = walk.packs < MANY_THREADS and shape.covered >= THREADS // 8
    if few if shape.channels_last else shape.covered >= LARGE_WINDOW:
        row = ("row", FastDivmod.of(min(shape.axes[2].window, shape.axes[2].input)))
        if shape.axes[2].x_stride == 1 and not shape.channels_last:
            team = _team(walk.packs, shape)
            count = -(-walk.packs // (THREADS // team))
            shared_bytes = THREADS // 32 * compute_bytes
            fields = (("walk", walk), ("lanes", c_int(0)), ("team", c_int(team)), row)
            return plan("pooling_forward_reduce", (count, 1, 1), shared_bytes, *fields)
        lanes = power_of_two(min(max(1, REDUCED_BYTES // PACK_BYTES), walk.packs))
        while lanes > 2 and walk.packs // lanes < device.multiprocessors * 7 // 8:
            lanes //= 2
        threads = min(MOST_THREADS, max(THREADS, power_of_two(shape.covered * lanes // LOADS)))
        shared_bytes = threads * compute_bytes * walk.width
        fields = (("walk", walk), ("lanes", c_int(lanes)), ("team", c_int(1)), row)
        return plan("pooling_forward_reduce", (-(-walk.packs // lanes), 1, 1), shared_bytes, *fields, threads=threads)
    if not shape.channels_last and (found := _forward_tile(shape, device)):
        tile, count, shared_bytes = found
        return plan("pooling_forward_tile", (count, 1, 1), shared_bytes, ("tile", tile))
    return plan("pooling_forward", blocks(walk.packs), 0, ("walk", walk))


def _team(windows: int, shape: Shape) -> int:
    """How many threads share a window: each has several loads in flight, and there are enough of them."""
    single = shape.axes[2].window >= shape.covered
    loads = max(1, shape.covered // (shape.width if single else 1))
    team = min(THREADS, max(SMALLEST_TEAM, power_of_two(max(1, loads // LOADS))))
    while team < THREADS and team < loads and 2 * team * windows <= MANY_THREADS:
        team *= 2
    return team


def _forward_tile(shape: Shape, device: Any) -> tuple[TileStruct, int, int] | None:
    """(tile, blocks, shared memory of a block) where x has contiguous rows."""
    a0, a1, a2 = shape.axes
    if a2.x_stride != 1 and a2.input > 1:
        return None
    slice_bytes = a1.input * a2.input * PACK_BYTES // shape.width

    def nbytes(planes: int, rows: int) -> int:
        x_rows = a0.input if rows == a0.output else min(a0.input, (rows - 1) * a0.stride + a0.window)
        return planes * x_rows * slice_bytes + PACK_BYTES

    for budget, windows in BUDGETS:
        enough = max(1, windows * a0.window // a0.stride)
        if share := fit(prod(shape.extents), a0.output, enough, budget, nbytes, device.multiprocessors):
            return *tile_of(shape, share, a0.output, 1, 1), nbytes(share.planes, share.rows)
    return None


@implements(PoolingBackward)
def pooling_backward(operation: PoolingBackward, device: Any) -> Plan:
    """Known windows have their kernel."""
    shape = shape_of(operation, operation.x, operation.dy, walk_y=False)
    whole = operation.pooling.mode not in MAXIMA and all(axis.whole for axis in shape.axes)
    general = _spread if whole else _backward_of_any

    def otherwise() -> Plan:
        return general(operation, shape, device)

    maximum, average = max_backward.plan, static_window.average_plan
    special = global_window.backward_plan if whole else maximum if operation.pooling.mode in MAXIMA else average
    return special(operation, shape, device, otherwise) or otherwise()


def _spread(operation: PoolingBackward, shape: Shape, device: Any) -> Plan:
    """An average over everything: every input gets the same part of its plane's dy."""
    (dims, dx_strides), (_, dy_strides) = operation.dx.scalar_layout(), operation.dy.scalar_layout()
    rank = len(operation.pooling.window)
    narrow = [*dy_strides[:-rank], *[0] * rank]
    layout, grid = elementwise(dims, [narrow, dx_strides], shape.width, device)
    divisor = prod(axis.divisor(operation.pooling.mode) for axis in shape.axes)
    arguments = structure(
        *pointers(2),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, reciprocal=1 / divisor),
        ("geometry", layout),
    )
    function = device.function(
        "pooling/global_average_backward_strided.cu",
        "pooling_spread",
        type_definitions(operation.x.scalar_type, operation),
    )
    return Plan(operation, [Launch(function, arguments, ("dy", "dx"), grid)])


def _backward_of_any(operation: PoolingBackward, shape: Shape, device: Any) -> Plan:
    """Tiles where a block can hold its windows; averages over channels, and the rest, a thread per pack of dx."""
    maximum = operation.pooling.mode in MAXIMA
    pooling = pooling_of(operation, shape)
    definitions = type_definitions(operation.x.scalar_type, operation)
    compute_bytes = SCALAR_BYTES[operation.compute_type]

    def plan(kernel: str, count: int, shared_bytes: int, *fields: tuple[str, Any]) -> Plan:
        arguments = structure(*pointers(3), ("pooling", pooling), *fields)
        function = device.function(BACKWARD, f"pooling_backward_{kernel}", definitions)
        return Plan(operation, [Launch(function, arguments, ("dy", "x", "dx"), (count, 1, 1), BLOCK, shared_bytes)])

    positions, windows = SHARED_SCAN["channels" if shape.lanes > 1 else "rows"]
    few_large = shape.covered >= positions and shape.windows <= windows
    if maximum and (shape.covered > LONGEST_SCAN or few_large):
        if scan := _scan(shape, compute_bytes, device):
            tile, count, parts, shared_bytes = scan
            return plan("scan", count, shared_bytes, ("tile", tile), *_offsets(("winners", "candidates"), parts))
    elif (maximum or not shape.channels_last) and (found := _backward_tile(shape, compute_bytes, maximum, device)):
        tile, count, parts, shared_bytes = found
        phases = divisors([axis.overlapping for axis in shape.axes])
        kind = "tile_average" if not maximum else "tile_channels" if tile.channels > 1 else "tile_maximum"
        return plan(
            kind,
            count,
            shared_bytes,
            ("tile", tile),
            ("phases", phases),
            *_offsets(("sums", "values", "winners"), parts),
        )
    walk = walk_of(shape, False, (1,) if maximum else (1, shape.width))
    return plan("maximum" if maximum else "average", blocks(walk.packs)[0], 0, ("walk", walk))


def _offsets(names: Sequence[str], parts: Sequence[int]) -> list[tuple[str, Any]]:
    """Where parts of shared memory begin: after the first part, after the second, ..."""
    return [(name, c_uint(sum(parts[: i + 1]))) for i, name in enumerate(names)]


def _padded(*sizes: int) -> list[int]:
    return [-(-size // PACK_BYTES) * PACK_BYTES for size in sizes]


def _backward_tile(
    shape: Shape, compute_bytes: int, maximum: bool, device: Any
) -> tuple[TileStruct, int, list[int], int] | None:
    """(tile, blocks, parts of shared memory, their sum)."""
    a0, a1, a2 = shape.axes
    scalar_bytes = PACK_BYTES // shape.width
    channels = shape.lanes if maximum else 1
    slice_, narrow = a1.input * a2.input, a1.output * a2.output

    def parts(planes: int, rows: int, lanes: int) -> list[int]:
        """Bytes of x or of the shares along axis 2, of the sums, of the values, of the winners."""
        if rows == a0.input:
            windows, x_rows = a0.output, a0.input
        else:
            windows = min(a0.output, (rows + a0.window - 2) // a0.stride + 1)
            x_rows = min(a0.input, (windows - 1) * a0.stride + a0.window)
        held = planes * windows * narrow
        sums = (planes * rows * slice_ + 2 * shape.width) * compute_bytes + PACK_BYTES
        if channels > 1:
            held *= -(-lanes // shape.width) * shape.width
            return _padded(0, 0, held * scalar_bytes, held * WINNER_BYTES)
        if maximum:
            copied = planes * x_rows * slice_ * scalar_bytes + PACK_BYTES
            return _padded(copied, sums, held * scalar_bytes, held * WINNER_BYTES)
        return _padded(planes * windows * a1.output * a2.input * compute_bytes, sums, held * compute_bytes, 0)

    def nbytes_of(lanes: int) -> Callable[[int, int], int]:
        return lambda planes, rows: sum(parts(planes, rows, lanes))

    if maximum and channels > 1 and prod(axis.window for axis in shape.axes) > MOST_POSITIONS:
        return None
    planes = prod(shape.extents) // channels
    choices = sorted({min(size // scalar_bytes, channels) for size in LANE_BYTES}, reverse=True)
    for budget, windows in BUDGETS:
        enough = max(a0.stride, windows * a0.window)
        for lanes in choices:
            share = fit(planes, a0.input, enough, budget, nbytes_of(lanes), device.multiprocessors)
            if share is None or (maximum and channels == 1 and share.planes * share.rows * slice_ > MOST_POSITIONS):
                continue
            sizes = parts(share.planes, share.rows, lanes)
            return *tile_of(shape, share, a0.input, lanes, channels), sizes, sum(sizes)
    return None


def _scan(shape: Shape, compute_bytes: int, device: Any) -> tuple[TileStruct, int, list[int], int] | None:
    """(tile, blocks, parts of shared memory, their sum) of as many channels as there is room for."""
    channels = shape.lanes
    candidate_bytes = 2 * compute_bytes
    lanes = power_of_two(min(64 * shape.width // PACK_BYTES, channels))
    while lanes > 0:
        held = shape.windows * lanes
        sizes = _padded(held * compute_bytes, held * 4, THREADS * candidate_bytes)
        if sum(sizes) <= BUDGETS[-1][0]:
            return *tile_of(shape, Fit(1, shape.axes[0].input), shape.axes[0].input, lanes, channels), sizes, sum(sizes)
        lanes //= 2
    return None
