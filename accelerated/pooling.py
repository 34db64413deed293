"""Pooling on the device (kernels/pooling.cu): which kernel serves a call, and its geometry."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int, c_longlong, c_uint
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations import PoolingBackward, PoolingForward, TensorSpec
from dualdnn.api.operations.specs import DOUBLE, SCALAR_BYTES

from .geometry import THREADS, Divisor, blocks, merged
from .plans import Launch, Plan, implements, pointers, structure, type_definitions

MOST_WALKED = 6
MAXIMA = (Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_MAX_DETERMINISTIC)
POSITION_BYTES = 2  # of a winner: its position in the window
MOST_POSITIONS = 2 ** (8 * POSITION_BYTES) - 1
COLUMN_BYTES = 8
PACK_BYTES = 16
# Shared memory of a block: the first that serves. Several blocks share a multiprocessor, so that one computes while
# another waits for memory.
BUDGETS = (40 * 1024, 80 * 1024, 112 * 1024)
LANE_BYTES = (128, 64, 32)  # channels of a tile, as bytes
LARGE_WINDOW = 256  # positions from which a block shares a window
MANY_THREADS = 2**16  # about what keeps a GPU busy
LONGEST_SCAN = 1024  # positions that one thread may look through


class AxisStruct(ctypes.Structure):
    _fields_ = [(name, c_int) for name in ("input", "output", "window", "stride", "padding")] + [("steps", Divisor)]


class PoolingStruct(ctypes.Structure):
    _fields_ = [
        ("axis", AxisStruct * 3),
        ("x_stride", c_longlong * 3),
        ("y_stride", c_longlong * 3),
        ("alpha", c_double),
        ("beta", c_double),
        ("mode", c_int),
        ("propagate", c_int),
    ]


class WalkStruct(ctypes.Structure):
    _fields_ = [
        ("packs", c_uint),
        ("row", c_uint),
        ("width", c_uint),
        ("vectorised", c_uint),
        ("packs_per_row", Divisor),
        ("rank", c_int),
        ("extent", Divisor * MOST_WALKED),
        ("axis", c_int * MOST_WALKED),
        ("walked", c_longlong * MOST_WALKED),
        ("other", c_longlong * MOST_WALKED),
    ]


class TileStruct(ctypes.Structure):
    _fields_ = [
        ("planes", c_int),
        ("rows", c_int),
        ("total_planes", c_int),
        ("parts", Divisor),
        ("lanes", c_int),
        ("channels", c_int),
        ("lane_groups", Divisor),
        ("flat", c_int),
        ("vectorised", c_uint),
        ("y_lane", c_longlong),
        ("outer_rank", c_int),
        ("extent", Divisor * 3),
        ("x_step", c_longlong * 3),
        ("y_step", c_longlong * 3),
    ]


@dataclass
class Axis:
    """One pooled dimension and its strides in x and y."""

    input: int
    output: int
    window: int
    stride: int
    padding: int
    x_stride: int
    y_stride: int

    @property
    def whole(self) -> bool:
        """One window covers all of the input and nothing else counts."""
        return self.output == 1 and self.padding == 0 and self.window >= self.input


@dataclass
class Shape:
    """A pooling call without its formats: three axes, and the dimensions that are not pooled."""

    axes: list[Axis]
    extents: list[int]  # not pooled, the slowest of the walked tensor first
    x_steps: list[int]
    y_steps: list[int]
    width: int  # elements of 16 bytes

    @property
    def covered(self) -> int:
        """The most inputs that a window covers."""
        return prod(min(axis.window, axis.input) for axis in self.axes)

    @property
    def channels_last(self) -> bool:
        """Neighbours in x are neighbours in y and lie in one position."""
        return self.extents[-1] > 1 and self.x_steps[-1] == self.y_steps[-1] == 1

    @property
    def flat(self) -> bool:
        """x is packed planes in row-major order."""
        a0, a1, a2 = self.axes
        slice_ = a1.input * a2.input
        inside = _strides_are(self.axes, (slice_, a2.input, 1))
        return inside and (self.extents == [1] or (len(self.extents) == 1 and self.x_steps == [a0.input * slice_]))


def _strides_are(axes: Sequence[Axis], strides: Sequence[int]) -> bool:
    return all(axis.input == 1 or axis.x_stride == stride for axis, stride in zip(axes, strides, strict=True))


def _shape(operation: PoolingForward | PoolingBackward, x: TensorSpec, y: TensorSpec, walk_y: bool) -> Shape:
    pooling = operation.pooling
    rank = len(pooling.window)
    (x_dims, x_strides), (y_dims, y_strides) = x.scalar_layout(), y.scalar_layout()
    columns = (x_dims[-rank:], y_dims[-rank:], pooling.window, pooling.stride, pooling.padding, x_strides[-rank:], y_strides[-rank:])
    axes = [Axis(*values) for values in zip(*columns, strict=True)]
    lead = len(x_dims) - rank
    strides = [x_strides[:lead], y_strides[:lead]]
    extents, steps = merged(x_dims[:lead], strides if walk_y else strides[::-1])
    x_steps, y_steps = steps if walk_y else steps[::-1]
    return Shape(_three(_merged_axes(axes)), extents, x_steps, y_steps, PACK_BYTES // x.scalar_bytes)


def _merged_axes(axes: list[Axis]) -> list[Axis]:
    """Axes that one window covers become one, where x is contiguous over them: global pooling of a row."""
    for outer, inner in pairwise(axes):
        if outer.whole and inner.whole and outer.x_stride == inner.input * inner.x_stride:
            extent = outer.input * inner.input
            joined = Axis(extent, 1, extent, 1, 0, inner.x_stride, inner.y_stride)
            position = axes.index(outer)
            return _merged_axes([*axes[:position], joined, *axes[position + 2 :]])
    return axes


def _three(axes: list[Axis]) -> list[Axis]:
    """One to three axes as (axis 0, axis 1, axis 2); missing ones have one position."""
    missing = Axis(1, 1, 1, 1, 0, 0, 0)
    if len(axes) == 1:
        return [missing, missing, axes[0]]
    return [axes[0], missing, axes[1]] if len(axes) == 2 else axes


def _pooling(operation: PoolingForward | PoolingBackward, shape: Shape) -> PoolingStruct:
    value = PoolingStruct()
    for d, axis in enumerate(shape.axes):
        sizes = (axis.input, axis.output, axis.window, axis.stride, axis.padding)
        value.axis[d] = AxisStruct(*sizes, Divisor.of(axis.stride))
        value.x_stride[d], value.y_stride[d] = axis.x_stride, axis.y_stride
    value.alpha, value.beta = operation.alpha, operation.beta
    value.mode, value.propagate = operation.pooling.mode, operation.pooling.nan
    return value


def _walk(shape: Shape, walk_y: bool, widths: Sequence[int]) -> WalkStruct:
    """Every position of y (else of dx) in the order of its memory; ``widths``: packs that the kernel knows, ascending."""
    extents, walked, other = list(shape.extents), list(shape.y_steps), list(shape.x_steps)
    if not walk_y:
        walked, other = other, walked
    row = 1
    if shape.channels_last:
        row = extents.pop()
        walked.pop(), other.pop()
    width = next((width for width in widths if width >= row), widths[-1])
    dims = [(step, extent, beyond, -1) for step, extent, beyond in zip(walked, extents, other, strict=True)]
    for d, axis in enumerate(shape.axes):
        dims.append((axis.y_stride, axis.output, 0, d) if walk_y else (axis.x_stride, axis.input, 0, d))
    dims = sorted(dim for dim in dims if dim[1] > 1)
    value = WalkStruct()
    packs_per_row = -(-row // width)
    value.packs = packs_per_row * prod(dim[1] for dim in dims)
    value.row, value.width = row, width
    value.packs_per_row = Divisor.of(packs_per_row)
    value.rank = len(dims)
    for i, (step, extent, beyond, axis) in enumerate(dims):
        value.extent[i], value.walked[i], value.other[i], value.axis[i] = Divisor.of(extent), step, beyond, axis
    spatial = [axis.x_stride if walk_y else axis.y_stride for axis in shape.axes]
    value.vectorised |= all(step % width == 0 for step, *_ in dims)
    value.vectorised |= 2 * all(step % width == 0 for step in (*other, *spatial))
    return value


@dataclass
class Fit:
    """How much of the tensors a block takes."""

    planes: int
    rows: int


def _fit(planes: int, rows: int, enough: int, budget: int, nbytes: Callable[[int, int], int], multiprocessors: int) -> Fit | None:
    """The largest share within ``budget`` bytes: whole planes, or at least ``enough`` rows of one; None if none is.

    nbytes: shared memory of (planes, rows).
    """
    if nbytes(1, rows) <= budget:
        most = max(1, planes // (4 * multiprocessors))
        return Fit(_largest(most, lambda count: nbytes(count, rows) <= budget), rows)
    if nbytes(1, enough) > budget:
        return None
    possible = _largest(rows, lambda count: nbytes(1, count) <= budget)
    parts = -(-rows // possible)
    return Fit(1, -(-rows // parts))


def _largest(most: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to ``most`` that fits; 1 does."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _tile(shape: Shape, fit: Fit, rows: int, lanes: int, channels: int) -> tuple[TileStruct, int]:
    """(the ``Tile``, its number of blocks); ``lanes`` of ``channels`` are not planes."""
    extents, x_steps, y_steps = list(shape.extents), list(shape.x_steps), list(shape.y_steps)
    value = TileStruct()
    value.y_lane = 1
    if channels > 1:
        extents.pop(), x_steps.pop()
        value.y_lane = y_steps.pop()
        aligned_x = [step % shape.width == 0 for step in (*x_steps, *(axis.x_stride for axis in shape.axes))]
        aligned_y = [step % shape.width == 0 for step in (*y_steps, *(axis.y_stride for axis in shape.axes))]
        value.vectorised = all(aligned_x) + 2 * (all(aligned_y) and value.y_lane == 1)
    value.planes, value.rows, value.total_planes = fit.planes, fit.rows, prod(extents)
    parts, groups = -(-rows // fit.rows), -(-channels // lanes)
    value.parts, value.lane_groups = Divisor.of(parts), Divisor.of(groups)
    value.lanes, value.channels, value.flat = lanes, channels, channels == 1 and shape.flat
    value.outer_rank = len(extents)
    for i, d in enumerate(reversed(range(len(extents)))):
        value.extent[i], value.x_step[i], value.y_step[i] = Divisor.of(extents[d]), x_steps[d], y_steps[d]
    return value, -(-value.total_planes // fit.planes) * parts * groups


def _divisors(extents: Sequence[int]) -> Any:
    return (Divisor * 3)(*(Divisor.of(extent) for extent in extents))


@implements(PoolingForward)
def pooling_forward(operation: PoolingForward, device: Any) -> Plan:
    """Packed planes go through shared memory, few large windows are shared by a block, the rest is a thread per pack."""
    x, y = operation.x, operation.y
    shape = _shape(operation, x, y, walk_y=True)
    pooling = _pooling(operation, shape)
    widths = sorted({1, min(4, shape.width), shape.width})
    walk = _walk(shape, True, widths)
    definitions = type_definitions(x.scalar_type, operation)
    few = walk.packs < MANY_THREADS and shape.covered >= THREADS // 8
    if few if shape.channels_last else shape.covered >= LARGE_WINDOW:
        rows = shape.axes[2].x_stride == 1 and not shape.channels_last
        # The fewest channels that fill a sector of memory (32 bytes), so that there are enough blocks.
        lanes = 0 if rows else _power_of_two(min(32, max(2, walk.packs // (4 * device.multiprocessors)), walk.packs))
        arguments = structure(*pointers(2), ("pooling", pooling), ("walk", walk), ("lanes", c_int(lanes)))
        # a pool is its numbers and, for the maximum, a mask
        compute_bytes = SCALAR_BYTES[operation.compute_type]
        pool_bytes = compute_bytes * (1 if rows else walk.width) + compute_bytes
        grid = (walk.packs if rows else -(-walk.packs // lanes), 1, 1)
        function = device.function("pooling.cu", "pooling_forward_reduce", definitions)
        return Plan(operation, [Launch(function, arguments, ("x", "y"), grid, (THREADS, 1, 1), THREADS * pool_bytes)])
    if shape.flat and not shape.channels_last and (found := _forward_tile(shape, device)):
        fit, nbytes = found
        tile, count = _tile(shape, fit, shape.axes[0].output, 1, 1)
        extents = _divisors([axis.output for axis in shape.axes])
        arguments = structure(*pointers(2), ("pooling", pooling), ("tile", tile), ("output", extents))
        function = device.function("pooling.cu", "pooling_forward_tile", definitions)
        return Plan(operation, [Launch(function, arguments, ("x", "y"), (count, 1, 1), (THREADS, 1, 1), nbytes)])
    arguments = structure(*pointers(2), ("pooling", pooling), ("walk", walk))
    function = device.function("pooling.cu", "pooling_forward", definitions)
    return Plan(operation, [Launch(function, arguments, ("x", "y"), blocks(walk.packs))])


def _power_of_two(number: int) -> int:
    """The largest power of two up to ``number``."""
    return 1 << (number.bit_length() - 1)


def _forward_tile(shape: Shape, device: Any) -> tuple[Fit, int] | None:
    """(share of a block, its shared memory)."""
    a0, a1, a2 = shape.axes
    slice_bytes = a1.input * a2.input * PACK_BYTES // shape.width

    def nbytes(planes: int, rows: int) -> int:
        return planes * min(a0.input, (rows - 1) * a0.stride + a0.window) * slice_bytes + PACK_BYTES

    enough = min(a0.output, 1 + 2 * max(a0.window - a0.stride, 0) // a0.stride)
    for budget in BUDGETS:
        if fit := _fit(prod(shape.extents), a0.output, enough, budget, nbytes, device.multiprocessors):
            planes_rows = a0.input if fit.rows == a0.output else None
            size = fit.planes * planes_rows * slice_bytes + PACK_BYTES if planes_rows else nbytes(1, fit.rows)
            return fit, size
    return None


@implements(PoolingBackward)
def pooling_backward(operation: PoolingBackward, device: Any) -> Plan:
    """Tiles where a block can hold its windows; averages over channels, and the rest, a thread per pack of dx."""
    maximum = operation.pooling.mode in MAXIMA
    shape = _shape(operation, operation.x, operation.dy, walk_y=False)
    definitions = type_definitions(operation.x.scalar_type, operation)
    pooling = _pooling(operation, shape)
    names = ("dy", "x", "dx")
    scannable = shape.covered <= LONGEST_SCAN and prod(axis.window for axis in shape.axes) < MOST_POSITIONS
    if (scannable if maximum else not shape.channels_last) and (found := _backward_tile(shape, operation, maximum, device)):
        tile, count, offsets, nbytes = found
        output, input_ = (_divisors([getattr(axis, side) for axis in shape.axes]) for side in ("output", "input"))
        arguments = structure(
            *pointers(3), ("pooling", pooling), ("tile", tile), ("output", output), ("input", input_),
            *((name, c_uint(offset)) for name, offset in offsets.items()),
        )  # fmt: skip
        kind = "average" if not maximum else "channels" if tile.channels > 1 else "maximum"
        function = device.function("pooling.cu", f"pooling_backward_tile_{kind}", definitions)
        return Plan(operation, [Launch(function, arguments, names, (count, 1, 1), (THREADS, 1, 1), nbytes)])
    walk = _walk(shape, False, (1,) if maximum else (1, shape.width))
    arguments = structure(*pointers(3), ("pooling", pooling), ("walk", walk))
    function = device.function("pooling.cu", f"pooling_backward_{'maximum' if maximum else 'average'}", definitions)
    return Plan(operation, [Launch(function, arguments, names, blocks(walk.packs))])


def _backward_tile(
    shape: Shape, operation: PoolingBackward, maximum: bool, device: Any
) -> tuple[TileStruct, int, dict[str, int], int] | None:
    """(tile, blocks, where its parts begin in shared memory, shared memory of a block)."""
    a0, a1, a2 = shape.axes
    scalar_bytes = PACK_BYTES // shape.width
    value_bytes = scalar_bytes if maximum else (8 if operation.compute_type == DOUBLE else 4)
    channels = shape.extents[-1] if maximum and shape.x_steps[-1] == 1 and a2.x_stride != 1 else 1
    copied = maximum and channels == 1 and shape.flat

    def parts(planes: int, rows: int, lanes: int) -> dict[str, int]:
        """Bytes of the copy of x, of the values, of the winners, of the columns."""
        if rows == a0.input:
            windows, x_rows = a0.output, a0.input
        else:
            windows = min(a0.output, (rows + a0.window - 2) // a0.stride + 1)
            x_rows = min(a0.input, (windows - 1) * a0.stride + a0.window)
        held = planes * windows * a1.output * a2.output * (lanes if lanes == 1 else -(-lanes // shape.width) * shape.width)
        sizes = {
            "x": planes * x_rows * a1.input * a2.input * scalar_bytes + PACK_BYTES if copied else 0,
            "values": held * value_bytes,
            "winners": held * POSITION_BYTES if maximum else 0,
            "columns": a2.input * COLUMN_BYTES,
        }
        return {name: -(-size // PACK_BYTES) * PACK_BYTES for name, size in sizes.items()}

    planes = prod(shape.extents) // channels
    choices = sorted({min(size // scalar_bytes, channels) for size in LANE_BYTES}, reverse=True)
    enough = min(a0.input, 2 * max(a0.window, a0.stride))
    for budget in BUDGETS:
        for lanes in choices:
            fit = _fit(planes, a0.input, enough, budget, lambda p, r, n=lanes: sum(parts(p, r, n).values()), device.multiprocessors)  # type: ignore[misc]
            if fit is None:
                continue
            sizes = parts(fit.planes, fit.rows, lanes)
            tile, count = _tile(shape, fit, a0.input, lanes, channels)
            offsets = {"values": sizes["x"], "winners": sizes["x"] + sizes["values"]}
            offsets["columns"] = offsets["winners"] + sizes["winners"]
            return tile, count, offsets, sum(sizes.values())
    return None
