"""Plan convolutions with few channels and filters, and the gradients of their input (convolution/grouped.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int, c_longlong
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import ConvolutionSpec, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

from ..plans import Launch, arrays_of, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod, blocks
from ..reproducible import Order
from ..solver import seconds_otherwise
from .forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from .problem import (
    AXES,
    MAX_OFFSET,
    ConvolutionStruct,
    EpilogueStruct,
    Rates,
    all_multiples,
    channels_last,
    operand_names,
    operation_product,
    spatial,
)

SOURCE = "convolution/grouped.cu"
THREADS = 128  # per block, as in the kernel
PIXELS = 4  # per thread, as in the kernel
MAX_PER_LANE = 4  # filters, channels, or groups per lane
MAX_LANES = 32  # per block
SHARED_BYTES = 40 * 1024  # bytes per block, so that several blocks share a multiprocessor
BANKS = 32
FEW = 8  # channels and filters per group up to which tiles of products would be mostly zeros
TILED = range(2, 5)  # numbers of channels in NCHW for which small_channels.py is faster
FEW_OF_ONE = 16  # filters without groups up to which tiles of 64 filters would be mostly zeros
DATA_TYPES = (FLOAT, DOUBLE, HALF, BFLOAT16)
INSTRUCTIONS = 8e10  # instructions of threads a second, per multiprocessor of an H200
LATENCY = 3  # minimum clocks between two instructions of a thread
PIXEL_INSTRUCTIONS = 80  # per pixel of a thread
TAP_INSTRUCTIONS = 14  # per tap of a pixel
FILTER_INSTRUCTIONS = 60  # per channel and tap, for all filters of a thread

Integers, FastDivmods = c_int * AXES, FastDivmod * AXES


def seconds_of(threads: int, instructions: float, rate: float) -> float:
    """Return the approximate seconds of this many threads, by instructions per thread and their common rate."""
    return max(threads * instructions / rate, LATENCY * instructions / Rates.CLOCK)


class Lane(NamedTuple):
    """Describe the groups, filters and channels that a thread multiplies at once."""

    groups: int
    filters: int
    channels: int

    @staticmethod
    def of(groups: int, filters: int, channels: int, most: int = MAX_PER_LANE) -> Lane:
        """Return the lane for groups of these filters and channels, at most ``most`` of each. It takes several groups
        if it takes all filters and channels of a group.
        """
        of_lane = [min(most, 1 << (count - 1).bit_length()) for count in (filters, channels)]
        together = min(max(1, MAX_PER_LANE // max(of_lane)), 1 << (groups.bit_length() - 1))
        return Lane(together if of_lane == [filters, channels] else 1, *of_lane)

    @property
    def values(self) -> int:
        return self.groups * self.channels

    @property
    def results(self) -> int:
        return self.groups * self.filters

    @property
    def definitions(self) -> dict[str, str]:
        return {"GROUPS": str(self.groups), "FILTERS": str(self.filters), "CHANNELS": str(self.channels)}


class Backward(NamedTuple):
    """Hold the convolution of a gradient, and the stride between taps of the same residue class."""

    convolution: ConvolutionSpec
    apart: tuple[int, ...]


@dataclass(frozen=True)
class GroupedProduct:
    """Describe one convolution of x to y, or its gradient with dy as x and dx as y.

    ``value``: its geometry; a gradient has the pixels of the first residue class. ``w_steps``: strides of w between
    filters, channels and taps along each axis, in elements. ``taps``: the maximum number that meets a pixel.
    """

    groups: int
    x: TensorSpec
    w: FilterSpec
    y: TensorSpec
    value: ConvolutionStruct
    w_steps: tuple[int, ...]
    channels: int
    taps: int
    backward: Backward | None = None

    @property
    def filters(self) -> int:
        return self.y.dims[1] // self.groups

    @property
    def is_known(self) -> bool:
        """Return whether the kernel has the types, filters fit shared memory, and one launch can have all blocks."""
        known = self.x.data_type in DATA_TYPES and self.y.data_type == self.x.data_type
        return known and self.lanes > 0 and self.blocks <= MAX_OFFSET

    @cached_property
    def lane(self) -> Lane:
        return Lane.of(self.groups, self.filters, self.channels)

    @cached_property
    def filter_blocks(self) -> int:
        return -(-self.filters // self.lane.filters)

    @cached_property
    def vectors(self) -> int:
        return -(-self.channels // self.lane.channels)

    @cached_property
    def all_lanes(self) -> int:
        return -(-self.groups // self.lane.groups) * self.filter_blocks

    @cached_property
    def lane_values(self) -> int:
        """Return the numbers of shared memory per lane. Lanes begin in different banks."""
        values = self.taps * self.vectors * self.lane.values * self.lane.filters
        return values + (MAX_PER_LANE - values) % BANKS

    @property
    def number_bytes(self) -> int:
        return 8 if self.x.data_type == DOUBLE else 4

    @cached_property
    def lanes(self) -> int:
        """Return the lanes per block: the most that fit in shared memory, or 0 where one lane does not fit."""
        most = SHARED_BYTES // (self.lane_values * self.number_bytes)
        lanes = MAX_LANES
        while lanes > min(most, self.all_lanes) and lanes > 1:
            lanes //= 2
        return lanes if most else 0

    @property
    def lane_blocks(self) -> int:
        return -(-self.all_lanes // self.lanes)

    @property
    def residues(self) -> tuple[int, ...]:
        """Return the residues along each axis."""
        if not self.backward:
            return (1,) * AXES
        extents = spatial(self.y.dims[2:], 1)
        return tuple(map(min, spatial(self.backward.convolution.stride, 1), extents))

    @cached_property
    def blocks(self) -> int:
        """Return the number of blocks of threads."""
        (across, _, _) = blocks(self.value.m, THREADS // self.lanes * PIXELS)
        return across * prod(self.residues) * self.lane_blocks

    def estimated_seconds(self, device: Any) -> float:
        """Return the approximate seconds of the launch: memory traffic, or the instructions of its threads."""
        nbytes, lane, taps = self.x.nbytes + self.w.nbytes + self.y.nbytes, self.lane, self.taps
        if self.backward:  # Some residues meet fewer taps.
            taps = -(-prod(self.w.dims[2:]) // prod(self.backward.apart))
        of_vector = 3 * lane.values + lane.values * lane.filters
        pixel = PIXEL_INSTRUCTIONS + taps * (TAP_INSTRUCTIONS + self.vectors * of_vector)
        filters = self.lanes * taps * self.vectors * lane.values * FILTER_INSTRUCTIONS / THREADS
        computing = seconds_of(self.blocks * THREADS, PIXELS * pixel + filters, INSTRUCTIONS * device.multiprocessors)
        return Rates.LAUNCH + max(nbytes / Rates.BANDWIDTH, computing)

    def launch(
        self, operation: Any, device: Any, epilogue: EpilogueStruct, operands: Sequence[str], noting: int = 0
    ) -> Launch:
        """Return the launch.

        ``noting``: number of blocks of an earlier product that has computed y and noted in the first words of
        ``workSpace`` whether its results are right. If all are, this launch does nothing. 0: there is none.
        """
        value, lane, channels = self.value, self.lane, self.channels
        last = channels_last(self.x) and channels_last(self.y)
        value.x_vectors = (
            value.x_channel == 1
            and not self.x.dims[1] % lane.values
            and not channels % lane.channels
            and all_multiples(value, self.groups if lane.groups == 1 else 1, lane.values)
        )
        c = self.backward.convolution if self.backward else None
        w_filter, w_channel, *w_axis = self.w_steps
        arguments = structure(
            *pointers(6),
            ("noting", c_int(noting)),
            ("convolution", value),
            ("epilogue", epilogue),
            *fields_of(FastDivmod.of, lane_blocks=self.lane_blocks, lanes=self.lanes, filter_blocks=self.filter_blocks),
            ("vectors", FastDivmod.of(self.vectors)),
            ("residues", FastDivmods(*map(FastDivmod.of, self.residues))),
            ("backward", c_int(c is not None)),
            *arrays_of(Integers, extent=spatial(self.y.dims[2:], 1), y_axis=spatial(self.y.strides[2:], 0)),
            ("stride", Integers(*spatial(c.stride if c else (), 1))),
            ("padding", Integers(*spatial(c.padding if c else (), 0))),
            ("dilation", Integers(*spatial(c.dilation if c else (), 1))),
            ("apart", Integers(*spatial(self.backward.apart if self.backward else (), 1))),
            *fields_of(c_int, channels=channels, all_channels=self.x.dims[1], all_filters=self.y.dims[1]),
            *fields_of(c_int, all_lanes=self.all_lanes, w_channel=w_channel, w_filter=w_filter),
            ("w_axis", Integers(*spatial(tuple(w_axis), 0))),
            *fields_of(c_int, lane_values=self.lane_values, channels_last=last),
            ("w_group", c_longlong(self.w.dims[0] // self.groups * self.w.tensor.strides[0])),
        )
        definitions = type_definitions(self.x.data_type, operation, **lane.definitions)
        function = device.function(SOURCE, "convolution_grouped", definitions)
        shared_bytes = self.lanes * self.lane_values * self.number_bytes
        operands = (*operands, "workSpace" if noting else operands[2])
        return Launch(function, arguments, operands, (self.blocks, 1, 1), (THREADS, 1, 1), shared_bytes)


class Grouped(ConvolutionSolver):
    """Serve any window and layout. It is preferred for groups of few channels and filters."""

    name = "convolution.grouped"
    algorithms = IMPLICIT

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        plain = problem.in_one_launch and not problem.filter_row and problem.operation.x.vector_length == 1
        return plain and grouped_product(problem).is_known

    def applies(self, problem: ConvolutionProblem) -> bool:
        filters, channels = problem.operation.w.dims[0] // problem.groups, problem.operation.w.dims[1]
        if not self.serves(problem):
            return False
        if problem.groups > 1:
            few = max(filters, channels) <= FEW
            return few and not (problem.tensor_cores and channels in TILED and not channels_last(problem.operation.x))
        return filters <= FEW_OF_ONE and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def summation_order(self, problem: ConvolutionProblem) -> Order:
        return Order("fma", (problem.definitions, "taps, channels"))

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        return grouped_product(problem).estimated_seconds(problem.device)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        o = problem.operation
        operands = ("x", "w", *operand_names(o))
        return [grouped_product(problem).launch(o, problem.device, problem.epilogue, operands)]


def grouped_product(problem: ConvolutionProblem) -> GroupedProduct:
    o = problem.operation
    steps, taps = o.w.tensor.strides, prod(o.w.dims[2:])
    return GroupedProduct(problem.groups, o.x, o.w, o.y, operation_product(o), steps, o.w.dims[1], taps)
