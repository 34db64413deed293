"""Plan gradients with respect to the filter of few channels and filters (convolution/filter_gradient/grouped.cu)."""

from __future__ import annotations

from ctypes import c_int
from functools import cached_property
from math import prod

from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.operations.specs import DOUBLE

from ...plans import Launch, Plan, factors, fields_of, pointers, structure, type_definitions, with_alignment
from ...primitives.geometry import FastDivmod
from ...solver import Solver, seconds_otherwise
from ..composed import At, ComposedPlan, within
from ..grouped import DATA_TYPES, MAX_PER_LANE, PIXEL_INSTRUCTIONS, TAP_INSTRUCTIONS, Lane, seconds_of
from ..problem import MAX_OFFSET, Rates, all_multiples, channels_last, describe, with_result
from .forward_convolution import FilterGradientProblem
from .sum import sum_launch

SOURCE = "convolution/filter_gradient/grouped.cu"
THREADS = 256  # threads per block, as in the kernel
MAX_LANES = 32  # per block
MAX_OF_ONE_TAP = 8  # filters and channels per lane where a filter has one tap
MAX_SUMS = 48  # sums per thread
MAX_TAPS = 9  # taps per thread
MIN_PIXELS = 512  # per part
MAX_PARTS = 256  # parts of all pixels
INSTRUCTIONS = 1.1e11  # instructions of threads a second, per multiprocessor of an H200
SUM_INSTRUCTIONS = 20  # instructions of a thread per sum


class _Division:
    """Divide lanes, taps and pixels among blocks, by the sizes of the operation alone."""

    def __init__(self, problem: FilterGradientProblem) -> None:
        self.problem, self.operation = problem, problem.operation
        o = self.operation
        self.filters, self.channels, self.taps = o.dw.dims[0] // problem.groups, o.dw.dims[1], prod(o.dw.dims[2:])
        most = MAX_OF_ONE_TAP if self.taps == 1 and o.x.scalar_bytes < 8 else MAX_PER_LANE
        self.lane = Lane.of(problem.groups, self.filters, self.channels, most)
        self.filter_blocks, self.vectors = (
            -(-self.filters // self.lane.filters),
            -(-self.channels // self.lane.channels),
        )
        self.all_lanes = -(-problem.groups // self.lane.groups) * self.filter_blocks * self.vectors
        self.lanes = MAX_LANES
        while self.lanes > self.all_lanes:
            self.lanes //= 2
        self.of_part = max(MIN_PIXELS, -(-o.terms // MAX_PARTS))
        self.parts = -(-o.terms // self.of_part)
        self.products = self.lane.values * self.lane.filters  # products under one tap
        max_taps = max(1, min(MAX_TAPS, MAX_SUMS // self.products))
        self.lane_blocks, self.tap_blocks = -(-self.all_lanes // self.lanes), -(-self.taps // max_taps)
        self.of_block = -(-self.taps // self.tap_blocks)  # taps per block

    @cached_property
    def blocks(self) -> int:
        return self.lane_blocks * self.tap_blocks * self.parts

    @property
    def seconds(self) -> float:
        """Return the approximate seconds of the products: memory traffic, or the instructions of all threads."""
        o, lane = self.operation, self.lane
        of_tap = TAP_INSTRUCTIONS + 3 * lane.values + self.products
        pixel = PIXEL_INSTRUCTIONS + 3 * lane.results + self.of_block * of_tap
        thread = (
            -(-min(self.of_part, o.terms) * self.lanes // THREADS) * pixel
            + SUM_INSTRUCTIONS * self.of_block * self.products
        )
        computing = seconds_of(self.blocks * THREADS, thread, INSTRUCTIONS * self.problem.device.multiprocessors)
        return max(computing, (o.x.nbytes + o.dy.nbytes) / Rates.BANDWIDTH)

    def launch(self) -> Launch:
        o, lane = self.operation, self.lane
        value = with_result(describe(o.convolution, o.x, o.dw, o.dy.dims), o.dy)
        value.x_vectors = (
            value.x_channel == 1
            and not o.x.dims[1] % lane.values
            and not self.channels % lane.channels
            and all_multiples(value, self.problem.groups if lane.groups == 1 else 1, lane.values)
        )
        steps = [s for s, extent in zip(o.dy.strides, o.dy.dims, strict=True) if extent > 1 and s != 1]
        dy_vectors = o.dy.strides[1] == 1 and not self.filters % lane.filters
        dy_vectors = dy_vectors and not any(n % lane.results for n in (o.dy.dims[1], *steps))
        innermost = value.inner_channels.divisor == self.channels  # channels of dw
        arguments = structure(
            *pointers(4),
            *factors(o, alpha=o.alpha, beta=o.beta),
            ("convolution", value),
            *fields_of(FastDivmod.of, lane_blocks=self.lane_blocks, tap_blocks=self.tap_blocks, lanes=self.lanes),
            *fields_of(FastDivmod.of, filter_blocks=self.filter_blocks, vectors=self.vectors),
            *fields_of(c_int, channels=self.channels, all_channels=o.x.dims[1], all_filters=o.dy.dims[1]),
            *fields_of(c_int, all_lanes=self.all_lanes, taps=self.taps, w_tap=self.channels if innermost else 1),
            *fields_of(c_int, w_channel=1 if innermost else self.taps, elements=o.dw.tensor.count),
            *fields_of(c_int, of_part=self.of_part, one_part=self.parts == 1),
            *fields_of(c_int, channels_last=channels_last(o.x) and channels_last(o.dy), dy_vectors=dy_vectors),
        )
        definitions = type_definitions(o.x.data_type, o, TAPS=str(self.of_block), **lane.definitions)
        function = self.problem.device.function(SOURCE, "convolution_filter_gradient_grouped", definitions)
        operands = ("x", "dy", "dw" if self.parts == 1 else "partial", "dw")
        return Launch(function, arguments, operands, (self.blocks, 1, 1), (THREADS, 1, 1))


class FilterGradientGrouped(Solver[FilterGradientProblem]):
    """Serve ALGO_1 of any window and layout. It is preferred where tiles of products would be mostly zeros."""

    name = "convolution.filter_gradient_grouped"

    def serves(self, problem: FilterGradientProblem) -> bool:
        o = problem.operation
        known = o.algo == Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 and o.x.data_type in DATA_TYPES
        return known and problem.in_one_launch and _Division(problem).blocks <= MAX_OFFSET

    def applies(self, problem: FilterGradientProblem) -> bool:
        return self.serves(problem) and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def workspace_bytes(self, problem: FilterGradientProblem) -> int:
        number_bytes, parts = 8 if problem.operation.compute_type == DOUBLE else 4, _Division(problem).parts
        return with_alignment(parts * problem.operation.dw.tensor.count * number_bytes if parts > 1 else 0)

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        division = _Division(problem)
        if division.parts == 1:
            return Rates.LAUNCH + division.seconds
        summed = 2 * division.parts * problem.operation.dw.tensor.count * 4 / Rates.BANDWIDTH
        return 2 * Rates.LAUNCH + division.seconds + summed

    def plan(self, problem: FilterGradientProblem) -> Plan:
        division = _Division(problem)
        where = {"x": At("x"), "dy": At("dy"), "dw": At("dw"), "partial": At("workSpace")}
        launches = [division.launch()]
        if division.parts > 1:
            launches.append(sum_launch(problem.operation, division.parts, problem.device))
        return ComposedPlan(problem.operation, within(launches, where), self.name)
