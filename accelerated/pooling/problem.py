"""Geometry of the pooling kernels: the structures of pooling/problem.cuh and the shares of their blocks."""

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

from ..primitives.geometry import THREADS, FastDivmod, merge_dimensions

MAXIMA = (Mode.CUDNN_POOLING_MAX, Mode.CUDNN_POOLING_MAX_DETERMINISTIC)
MOST_WALKED = 6
PACK_BYTES = 16
MOST_COLUMNS_BITS = 5  # a warp
WELL_USED = 0.75


class AxisStruct(ctypes.Structure):
    _fields_ = [(name, c_int) for name in ("input", "output", "window", "stride", "padding")] + [("steps", FastDivmod)]


class PoolingStruct(ctypes.Structure):
    _fields_ = [
        ("axis", AxisStruct * 3),
        ("x_stride", c_longlong * 3),
        ("y_stride", c_longlong * 3),
        ("alpha", c_double),
        ("beta", c_double),
        ("divisor", c_double),
        ("mode", c_int),
        ("propagate", c_int),
    ]


class WalkStruct(ctypes.Structure):
    _fields_ = [
        ("packs", c_uint),
        ("row", c_uint),
        ("width", c_uint),
        ("vectorised", c_uint),
        ("packs_per_row", FastDivmod),
        ("rank", c_int),
        ("extent", FastDivmod * MOST_WALKED),
        ("axis", c_int * MOST_WALKED),
        ("walked", c_longlong * MOST_WALKED),
        ("other", c_longlong * MOST_WALKED),
    ]


class TileStruct(ctypes.Structure):
    _fields_ = [
        ("planes", c_int),
        ("rows", c_int),
        ("total_planes", c_int),
        ("parts", FastDivmod),
        ("lanes", c_int),
        ("channels", c_int),
        ("lane_groups", FastDivmod),
        ("flat", c_int),
        ("vectorised", c_uint),
        ("y_lane", c_longlong),
        ("outer_rank", c_int),
        ("extent", FastDivmod * 3),
        ("x_step", c_longlong * 3),
        ("y_step", c_longlong * 3),
        ("lane_bits", c_int),
        ("x_bits", c_int),
        ("y_bits", c_int),
        ("input", FastDivmod * 3),
        ("output", FastDivmod * 3),
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

    @property
    def windows(self) -> int:
        """How many windows there are, or would have to begin for every input to lie between the starts of some."""
        return max(self.output, -(-self.input // self.stride))

    @property
    def overlapping(self) -> int:
        """How many neighbouring windows overlap."""
        return min(-(-self.window // self.stride), self.output)

    def divisor(self, mode: Mode) -> int:
        """How many positions every window counts in an average; 0 where windows differ."""
        last = (self.output - 1) * self.stride - self.padding + self.window
        exclude = mode == Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING
        inside = last <= self.input + (0 if exclude else max(self.padding, 0)) and not (exclude and self.padding > 0)
        if inside:
            return self.window
        return self.input if self.whole else 0


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
    def windows(self) -> int:
        """Outputs of one plane."""
        return prod(axis.output for axis in self.axes)

    @property
    def channels_last(self) -> bool:
        """Neighbours in x are neighbours in y and lie in one position."""
        return self.extents[-1] > 1 and self.x_steps[-1] == self.y_steps[-1] == 1

    @property
    def lanes(self) -> int:
        """Channels that are neighbours in x, 1 where rows are."""
        return self.extents[-1] if self.x_steps[-1] == 1 and self.axes[2].x_stride != 1 else 1

    @property
    def flat(self) -> bool:
        """x is packed planes in row-major order."""
        a0, a1, a2 = self.axes
        strides = (a1.input * a2.input, a2.input, 1)
        inside = all(
            axis.input == 1 or axis.x_stride == stride for axis, stride in zip(self.axes, strides, strict=True)
        )
        return inside and (self.extents == [1] or self.x_steps == [a0.input * strides[0]])


def shape_of(operation: PoolingForward | PoolingBackward, x: TensorSpec, y: TensorSpec, walk_y: bool) -> Shape:
    """The shape of a call; ``walk_y``: threads go over y, else over x."""
    pooling = operation.pooling
    rank = len(pooling.window)
    (x_dims, x_strides), (y_dims, y_strides) = x.scalar_layout(), y.scalar_layout()
    lead = len(x_dims) - rank
    columns = (
        x_dims[lead:],
        y_dims[lead:],
        pooling.window,
        pooling.stride,
        pooling.padding,
        x_strides[lead:],
        y_strides[lead:],
    )
    axes = [Axis(*values) for values in zip(*columns, strict=True)]
    strides = [x_strides[:lead], y_strides[:lead]]
    extents, steps = merge_dimensions(x_dims[:lead], strides if walk_y else strides[::-1])
    x_steps, y_steps = steps if walk_y else steps[::-1]
    return Shape(_three(_joined(axes)), extents, x_steps, y_steps, PACK_BYTES // x.scalar_bytes)


def _joined(axes: list[Axis]) -> list[Axis]:
    """Axes that one window covers become one, where x is contiguous over them: global pooling of a row."""
    for position, (outer, inner) in enumerate(pairwise(axes)):
        if outer.whole and inner.whole and outer.x_stride == inner.input * inner.x_stride:
            extent = outer.input * inner.input
            joined = Axis(extent, 1, extent, 1, 0, inner.x_stride, inner.y_stride)
            return _joined([*axes[:position], joined, *axes[position + 2 :]])
    return axes


def _three(axes: list[Axis]) -> list[Axis]:
    """One to three axes as (axis 0, axis 1, axis 2); missing ones have one position."""
    missing = Axis(1, 1, 1, 1, 0, 0, 0)
    if len(axes) == 1:
        return [missing, missing, axes[0]]
    return [axes[0], missing, axes[1]] if len(axes) == 2 else axes


def pooling_of(operation: PoolingForward | PoolingBackward, shape: Shape) -> PoolingStruct:
    """The ``Pooling`` of a call."""
    value = PoolingStruct()
    for d, axis in enumerate(shape.axes):
        sizes = (axis.input, axis.output, axis.window, axis.stride, axis.padding)
        value.axis[d] = AxisStruct(*sizes, FastDivmod.of(axis.stride))
        value.x_stride[d], value.y_stride[d] = axis.x_stride, axis.y_stride
    value.alpha, value.beta = operation.alpha, operation.beta
    value.divisor = prod(axis.divisor(operation.pooling.mode) for axis in shape.axes)
    value.mode, value.propagate = operation.pooling.mode, operation.pooling.nan
    return value


def walk_of(shape: Shape, walk_y: bool, widths: Sequence[int]) -> WalkStruct:
    """The ``Walk`` over y, else over dx; ``widths``: packs that the kernel knows, ascending."""
    extents, walked, other = list(shape.extents), list(shape.y_steps), list(shape.x_steps)
    if not walk_y:
        walked, other = other, walked
    row = 1
    if shape.channels_last:
        row = extents.pop()
        del walked[-1], other[-1]
    width = next((width for width in widths if width >= row), widths[-1])
    dims = [(step, extent, beyond, -1) for step, extent, beyond in zip(walked, extents, other, strict=True)]
    for d, axis in enumerate(shape.axes):
        dims.append((axis.y_stride, axis.output, 0, d) if walk_y else (axis.x_stride, axis.input, 0, d))
    dims = sorted(dim for dim in dims if dim[1] > 1)
    value = WalkStruct()
    packs_per_row = -(-row // width)
    value.packs = packs_per_row * prod(dim[1] for dim in dims)
    value.row, value.width = row, width
    value.packs_per_row = FastDivmod.of(packs_per_row)
    value.rank = len(dims)
    for i, (step, extent, beyond, axis_number) in enumerate(dims):
        value.extent[i], value.walked[i], value.other[i], value.axis[i] = (
            FastDivmod.of(extent),
            step,
            beyond,
            axis_number,
        )
    spatial = [axis.x_stride if walk_y else axis.y_stride for axis in shape.axes]
    value.vectorised |= all(step % width == 0 for step, *_ in dims)
    value.vectorised |= 2 * all(step % width == 0 for step in (*other, *spatial))
    return value


@dataclass
class Fit:
    """How much of the tensors a block takes."""

    planes: int
    rows: int


def fit(
    planes: int, rows: int, enough: int, budget: int, nbytes: Callable[[int, int], int], multiprocessors: int
) -> Fit | None:
    """The largest share within ``budget`` bytes: whole planes, or at least ``enough`` rows of one; None if none is.

    nbytes: shared memory of (planes, rows).
    """
    if nbytes(1, rows) <= budget:
        most = max(1, planes // (4 * multiprocessors))
        return Fit(_largest(most, lambda count: nbytes(count, rows) <= budget), rows)
    if nbytes(1, min(enough, rows)) > budget:
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


def tile_of(shape: Shape, share: Fit, rows: int, lanes: int, channels: int) -> tuple[TileStruct, int]:
    """(the ``Tile``, its number of blocks). ``lanes`` of ``channels`` are not planes; ``rows``: of axis 0 in all."""
    extents, x_steps, y_steps = list(shape.extents), list(shape.x_steps), list(shape.y_steps)
    value = TileStruct()
    value.y_lane = 1
    if channels > 1:
        value.y_lane = y_steps.pop()
        del extents[-1], x_steps[-1]
        aligned_x = [step % shape.width == 0 for step in (*x_steps, *(axis.x_stride for axis in shape.axes))]
        aligned_y = [step % shape.width == 0 for step in (*y_steps, *(axis.y_stride for axis in shape.axes))]
        value.vectorised = all(aligned_x) + 2 * (all(aligned_y) and value.y_lane == 1)
    value.planes, value.rows, value.total_planes = share.planes, share.rows, prod(extents)
    parts, groups = -(-rows // share.rows), -(-channels // lanes)
    value.parts, value.lane_groups = FastDivmod.of(parts), FastDivmod.of(groups)
    value.lanes, value.channels, value.flat = lanes, channels, channels == 1 and shape.flat
    value.outer_rank = len(extents)
    for i, d in enumerate(reversed(range(len(extents)))):
        value.extent[i], value.x_step[i], value.y_step[i] = FastDivmod.of(extents[d]), x_steps[d], y_steps[d]
    value.lane_bits = (-(-lanes // shape.width) - 1).bit_length() if channels > 1 else 0
    value.x_bits = column_bits(shape.axes[2].input, value.lane_bits)
    value.y_bits = column_bits(shape.axes[2].output, value.lane_bits)
    value.input = divisors([axis.input for axis in shape.axes])
    value.output = divisors([axis.output for axis in shape.axes])
    return value, -(-value.total_planes // share.planes) * parts * groups


def column_bits(extent: int, lane_bits: int) -> int:
    """How many columns threads take at a time, as a power of two: the most that are mostly used."""
    choices = range(min(MOST_COLUMNS_BITS, (THREADS - 1).bit_length() - lane_bits), -1, -1)

    def used(bits: int) -> float:
        return extent / (-(-extent // 2**bits) * 2**bits)

    return next((bits for bits in choices if used(bits) >= WELL_USED), max(choices, key=used))


def divisors(numbers: Sequence[int]) -> Any:
    """Three ``FastDivmod``."""
    return (FastDivmod * 3)(*(FastDivmod.of(number) for number in numbers))


def power_of_two(number: int) -> int:
    """The largest power of two up to ``number``."""
    return 1 << (number.bit_length() - 1)
