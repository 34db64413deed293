"""Plan depthwise convolutions and their input gradients of any window (convolution/depthwise/windows.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_int
from dataclasses import dataclass
from functools import cached_property
from math import gcd, lcm, prod
from typing import Any

from dualdnn.api.operations import ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

from ...plans import Launch, arrays_of, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import FastDivmod
from ...runtime.arguments import declared
from ...solver import seconds_otherwise
from ..forward import ConvolutionProblem
from ..grouped import INSTRUCTIONS, seconds_of
from ..problem import AXES, MAX_OFFSET, PLAIN, EpilogueStruct, Rates, channels_last, operand_names, spatial
from .depthwise import DepthwiseSolver, steps_around, vector_of

SOURCE = "convolution/depthwise/windows.cu"
THREADS = 128  # per block, as in the kernel
COLUMNS = 4  # per thread, as in the kernel
AHEAD = 4  # taps whose columns of x are read at once, as in the kernel
MAX_CHANNELS = {HALF: 4, BFLOAT16: 4, FLOAT: 4, DOUBLE: 2}  # per thread, where channels are innermost
MAX_LANES = 32  # vectors of channels per block
MAX_RESIDUES = 16  # residue classes of a stride, as in the kernel
SHARED_BYTES = 40 * 1024  # bytes per block, so that several blocks share a multiprocessor
MAX_REPEATED = 16  # tiles per thread
WAVES = 16  # blocks per multiprocessor, beyond which a thread computes several tiles
TILE_INSTRUCTIONS = 80  # fixed cost per thread tile
ROW_INSTRUCTIONS = 25  # per row of taps


class TapsStruct(ctypes.Structure):
    """Mirror ``Taps`` of windows.cu."""

    _fields_ = [*declared(c_int, "count first at")]


class AxisStruct(ctypes.Structure):
    """Mirror ``Axis`` of windows.cu."""

    _fields_ = [
        ("stride", FastDivmod),
        *declared(c_int, "factor padding step tap_step extent pitch"),
        ("taps", TapsStruct * MAX_RESIDUES),
    ]


def gradient_axis(taps: int, stride: int, padding: int, dilation: int) -> AxisStruct:
    """Return an axis of an input gradient. Each residue counts its taps backwards, so that positions in dy increase."""
    common = gcd(stride, dilation)
    step = stride // common
    axis = AxisStruct(FastDivmod.of(stride), 1, padding, dilation // common, -step)
    for residue in range(stride):
        met = [tap for tap in range(taps) if (residue - tap * dilation) % stride == 0]
        if met:
            axis.taps[residue] = TapsStruct(len(met), met[-1], (residue - met[-1] * dilation) // stride)
    return axis


def convolution_axis(taps: int, stride: int, padding: int, dilation: int, parts: int = 1) -> AxisStruct:
    """Return an axis of a convolution. Each of ``parts`` parts has every ``parts``-th tap."""
    axis = AxisStruct(FastDivmod.of(1), stride, 0, parts * dilation, parts)
    for part in range(min(parts, taps)):
        axis.taps[part] = TapsStruct(-(-(taps - part) // parts), part, part * dilation - padding)
    return axis


@dataclass(frozen=True)
class Windows:
    """Describe a convolution where each channel of y depends on one channel of x, or its input gradient. For a
    gradient, ``x`` is dy and ``y`` is dx.
    """

    convolution: ConvolutionSpec
    x: TensorSpec
    w: FilterSpec
    y: TensorSpec
    backward: bool
    aligned: bool

    @property
    def is_known(self) -> bool:
        """Return whether the kernel supports the types, strides and sizes, and shared memory holds its filters."""
        groups, strides = self.convolution.group_count, self.convolution.stride
        filters, channels = self.w.dims[0] // groups, self.w.dims[1]
        known = self.x.data_type in MAX_CHANNELS and self.y.data_type == self.x.data_type
        depthwise = groups > 1 and (filters if self.backward else channels) == 1
        if not known or not depthwise or max(strides) > MAX_RESIDUES:
            return False
        return self._filter_bytes(1) <= SHARED_BYTES and self._farthest <= MAX_OFFSET

    @property
    def _farthest(self) -> int:
        """Return an upper bound of the positions that a thread computes along an axis."""
        c = self.convolution
        axes = zip(self.y.dims[2:], self.w.dims[2:], c.stride, c.padding, c.dilation, strict=True)
        beyond = 2 * COLUMNS + AHEAD  # columns of a tile, and taps that are read ahead
        return max(
            extent * stride + 2 * padding + (taps + beyond) * lcm(stride, dilation)
            for extent, taps, stride, padding, dilation in axes
        )

    @cached_property
    def last(self) -> bool:
        return channels_last(self.x) and channels_last(self.y)

    @property
    def multiple(self) -> int:
        """Return how many channels of y share a channel of x."""
        return self.y.dims[1] // self.x.dims[1]

    @cached_property
    def channels(self) -> int:
        """Return the channels per thread."""
        if not self.last or self.multiple > 1 or not self.aligned:
            return 1
        steps = (*steps_around(self.x, 1), *steps_around(self.y, 1))
        return vector_of(MAX_CHANNELS[self.x.data_type], self.x.dims[1], steps)

    def alignment(self, *operands: str) -> dict[str, int]:
        """Return the alignment in bytes by operand, if threads move vectors; otherwise an empty dictionary."""
        return dict.fromkeys(operands, self.channels * self.x.scalar_bytes) if self.channels > 1 else {}

    @property
    def taps(self) -> tuple[int, ...]:
        return spatial(self.w.dims[2:], 1)

    def _filter_bytes(self, lanes: int) -> int:
        return prod(self.taps) * lanes * self.channels * (8 if self.x.data_type == DOUBLE else 4)

    @cached_property
    def apart(self) -> int:
        """Return the distance, in columns of y, between the columns of a thread, which all need the same taps."""
        stride, dilation = self.convolution.stride[-1], self.convolution.dilation[-1]
        return lcm(stride, dilation) if self.backward else dilation // gcd(stride, dilation)

    @cached_property
    def parts(self) -> int:
        """Return the number of parts into which the taps of a row of the window are divided; 1 for a gradient."""
        stride, dilation = self.convolution.stride[-1], self.convolution.dilation[-1]
        return 1 if self.backward else min(stride // gcd(stride, dilation), self.taps[-1])

    @cached_property
    def residues(self) -> int:
        """Return the number of residue classes of columns of y; each has its own tiles."""
        return min(self.apart, self.y.dims[-1])

    @cached_property
    def tiles(self) -> int:
        steps = -(-self.y.dims[-1] // self.apart)
        return -(-steps // COLUMNS)

    @cached_property
    def pixels(self) -> int:
        """Return the number of thread tiles of one channel."""
        return self.y.dims[0] * prod(self.y.dims[2:-1]) * self.residues * self.tiles

    @cached_property
    def lanes(self) -> int:
        """Return the vectors of channels per block.

        In NHWC the choice weighs unused lanes against long contiguous reads. In NCHW a block has several channels only
        if one channel does not fill it.
        """
        vectors = self.y.dims[1] // self.channels
        counts = [count for count in (32, 16, 8, 4, 2) if self._filter_bytes(count) <= SHARED_BYTES]
        if not self.last:
            return next((count for count in counts if count * self.pixels <= THREADS and count <= vectors), 1)
        return min((*counts, 1), key=lambda count: -(-vectors // count) * (count + 1))

    @property
    def lane_blocks(self) -> int:
        return -(-self.y.dims[1] // (self.lanes * self.channels))

    def axes(self) -> tuple[AxisStruct, ...]:
        c = self.convolution
        steps = (spatial(c.stride, 1), spatial(c.padding, 0), spatial(c.dilation, 1))
        axes = []
        for d, of_axis in enumerate(zip(self.taps, *steps, strict=True)):
            if self.backward:
                axis = gradient_axis(*of_axis)
            else:
                stride, dilation = steps[0][d], steps[2][d]
                axis = convolution_axis(*of_axis, parts=stride // gcd(stride, dilation) if d == AXES - 1 else 1)
            axis.extent, axis.pitch = spatial(self.x.dims[2:], 1)[d], spatial(self.x.strides[2:], 0)[d]
            axes.append(axis)
        return tuple(axes)

    def estimated_seconds(self, device: Any) -> float:
        """Return the approximate seconds of the launch: the maximum of memory traffic and instructions."""
        strides = self.convolution.stride if self.backward else (1,) * len(self.convolution.stride)
        rows, columns = prod(self.taps[:-1]) / prod(strides[:-1]), self.taps[-1] / strides[-1]
        read = (self.parts * (COLUMNS - 1) + columns) * (4 + self.channels)
        multiplied = columns * (3 + COLUMNS * self.channels)
        tile = TILE_INSTRUCTIONS + rows * (ROW_INSTRUCTIONS + read + multiplied) + COLUMNS * (6 + 2 * self.channels)
        threads = self.pixels * self.lane_blocks * self.lanes
        computing = seconds_of(threads, tile, INSTRUCTIONS * device.multiprocessors)
        nbytes = self.x.nbytes + self.w.nbytes + self.y.nbytes
        return Rates.LAUNCH + max(nbytes / Rates.BANDWIDTH, computing)

    def launch(self, operation: Any, device: Any, epilogue: EpilogueStruct, operands: Sequence[str]) -> Launch:
        """Return the launch."""
        outputs, across = spatial(self.y.dims[2:], 1), THREADS // self.lanes
        axes, pixel_blocks = self.axes(), -(-self.pixels // across)
        most = max(1, pixel_blocks * self.lane_blocks // (WAVES * device.multiprocessors))
        repeated = min(MAX_REPEATED, most)
        filter_step, channel_step, *steps = self.w.tensor.strides
        of_group, of_channel = (
            (filter_step, channel_step) if self.backward else (self.multiple * filter_step, filter_step)
        )
        arguments = structure(
            *pointers(5),
            ("epilogue", epilogue),
            *fields_of(FastDivmod.of, tiles=self.tiles, residues=self.residues, rows=outputs[1], planes=outputs[0]),
            *fields_of(FastDivmod.of, lane_blocks=self.lane_blocks, lanes=self.lanes, across=across),
            *fields_of(FastDivmod.of, taps=prod(self.taps), multiple=self.multiple),
            ("axes", (AxisStruct * AXES)(*axes)),
            *fields_of(c_int, parts=self.parts, apart=self.apart),
            *arrays_of(c_int * 2, window=(self.taps[1] * self.taps[2], self.taps[2])),
            *fields_of(c_int, pixels=self.pixels, repeated=repeated, channels=self.y.dims[1], channels_last=self.last),
            *fields_of(c_int, flipped=self.convolution.is_flipped, width=outputs[2]),
            ("plain", c_int(bytes(epilogue) == bytes(PLAIN))),
            *fields_of(c_int, of_block=self.lanes * self.channels, x_step=axes[-1].step * axes[-1].pitch),
            *fields_of(c_int, w_group=of_group, w_channel=of_channel, w_tap=steps[-1]),
            *fields_of(c_int, x_image=self.x.strides[0], x_channel=self.x.strides[1]),
            *fields_of(c_int, y_image=self.y.strides[0], y_channel=self.y.strides[1]),
            *arrays_of(c_int * AXES, y_axis=spatial(self.y.strides[2:], 0)),
        )
        definitions = type_definitions(self.x.data_type, operation, CHANNELS=str(self.channels))
        function = device.function(SOURCE, "convolution_depthwise_windows", definitions)
        grid = (self.lane_blocks * -(-pixel_blocks // repeated), 1, 1)
        return Launch(function, arguments, operands, grid, (THREADS, 1, 1), self._filter_bytes(self.lanes))


class DepthwiseWindows(DepthwiseSolver):
    """Serve any window, stride and layout, where a group has one channel and any number of filters."""

    name = "convolution.depthwise_windows"

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        plain = problem.in_one_launch and not problem.filter_row and problem.operation.x.vector_length == 1
        return plain and _windows(problem).is_known

    def applies(self, problem: ConvolutionProblem) -> bool:
        if not self.serves(problem):
            return False
        one = _windows(problem).multiple == 1
        return one or self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        return _windows(problem).estimated_seconds(problem.device)

    def alignment(self, problem: ConvolutionProblem) -> Mapping[str, int]:
        return _windows(problem).alignment("x", "y")

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        o = problem.operation
        operands = ("x", "w", *operand_names(o))
        return [_windows(problem).launch(o, problem.device, problem.epilogue, operands)]


def _windows(problem: ConvolutionProblem) -> Windows:
    o = problem.operation
    return Windows(o.convolution, o.x, o.w, o.y, False, problem.aligned)
