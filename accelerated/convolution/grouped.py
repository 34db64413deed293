"""Convolutions of many groups of few channels and filters (convolution/grouped.cu)."""

from __future__ import annotations

from ctypes import c_int
from math import prod
from typing import NamedTuple

from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF

from ..plans import Launch, pointers, structure
from ..primitives.geometry import FastDivmod, blocks
from .forward import IMPLICIT, ConvolutionProblem, ConvolutionSolver
from .problem import FARTHEST, Rates, all_multiples, channels_last, operand_names, operation_product

SOURCE = "convolution/grouped.cu"
THREADS, PIXELS, FILTERS, CHANNELS = 128, 4, 4, 4  # as in the kernel
MOST_LANES = 32  # per block
SHARED_BYTES = 40 * 1024  # bytes per block, so that several blocks share a multiprocessor
BANKS = 32
FEW = 8  # channels, and filters, of a group up to which products of tiles would be mostly zeros


class Lanes(NamedTuple):
    """Blocks of FILTERS filters of all groups: how many there are, and how many a block of threads has; numbers of
    shared memory that one takes."""

    all: int
    of_block: int
    values: int


class Grouped(ConvolutionSolver):
    """Any window and layout; preferred for groups of few channels and filters."""

    name = "convolution.grouped"
    algorithms = IMPLICIT

    def can_launch(self, problem: ConvolutionProblem) -> bool:
        o = problem.operation
        known = o.x.data_type in (FLOAT, DOUBLE, HALF, BFLOAT16) and o.y.data_type == o.x.data_type
        if problem.groups == 1 or not known or not problem.in_one_launch:
            return False
        lanes = _lanes(problem)
        return lanes.of_block > 0 and _blocks(problem, lanes) <= FARTHEST

    def applies(self, problem: ConvolutionProblem) -> bool:
        few = max(problem.operation.w.dims[1], problem.operation.w.dims[0] // problem.groups) <= FEW
        return few and self.serves(problem)

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        products = prod(problem.operation.y.dims) * problem.operation.terms
        return Rates.LAUNCH + max(problem.memory_seconds, 2 * products / Rates.FLOATS)

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        o, value, lanes = problem.operation, operation_product(problem.operation), _lanes(problem)
        channels, taps = o.w.dims[1], prod(o.w.dims[2:])
        value.x_packs = (
            value.x_channel == 1 and channels % CHANNELS == 0 and all_multiples(value, problem.groups, CHANNELS)
        )
        innermost = value.inner_channels.divisor == channels  # channels of the filter
        arguments = structure(
            *pointers(5),
            ("convolution", value),
            ("epilogue", problem.epilogue),
            ("lane_blocks", FastDivmod.of(-(-lanes.all // lanes.of_block))),
            ("lanes", FastDivmod.of(lanes.of_block)),
            ("filter_blocks", FastDivmod.of(-(-value.n // FILTERS))),
            ("packs", FastDivmod.of(-(-channels // CHANNELS))),
            ("channels", c_int(channels)),
            ("all_lanes", c_int(lanes.all)),
            ("w_tap", c_int(channels if innermost else 1)),
            ("w_channel", c_int(1 if innermost else taps)),
            ("lane_values", c_int(lanes.values)),
            ("channels_last", c_int(channels_last(o.x) and channels_last(o.y))),
        )
        function = problem.device.function(SOURCE, "convolution_grouped", problem.definitions)
        shared_bytes = lanes.of_block * lanes.values * _number_bytes(problem)
        grid, block = (_blocks(problem, lanes), 1, 1), (THREADS, 1, 1)
        return [Launch(function, arguments, ("x", "w", *operand_names(o)), grid, block, shared_bytes)]


def _number_bytes(problem: ConvolutionProblem) -> int:
    """Return the bytes of a number of the arithmetic."""
    return 8 if dict(problem.definitions)["COMPUTE"] == "double" else 4


def _lanes(problem: ConvolutionProblem) -> Lanes:
    """Return the lanes of a block: as many as shared memory holds, 0 where it holds none. Lanes begin in different
    banks."""
    o = problem.operation
    channels = -(-o.w.dims[1] // CHANNELS) * CHANNELS
    values = prod(o.w.dims[2:]) * channels * FILTERS
    values += (FILTERS - values) % BANKS
    count = problem.groups * -(-(o.w.dims[0] // problem.groups) // FILTERS)
    most = SHARED_BYTES // (values * _number_bytes(problem))
    lanes = MOST_LANES
    while lanes > min(most, count) and lanes > 1:
        lanes //= 2
    return Lanes(count, lanes if most else 0, values)


def _blocks(problem: ConvolutionProblem, lanes: Lanes) -> int:
    """Return how many blocks of threads there are."""
    y = problem.operation.y.dims
    (across, _, _) = blocks(prod(y) // y[1], THREADS // lanes.of_block * PIXELS)
    return across * -(-lanes.all // lanes.of_block)
