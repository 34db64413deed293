"""Plan gradients with respect to the input without a workspace (convolution/data_gradient/direct.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from math import gcd, prod

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo

from ...plans import Launch, arrays_of, factors, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, FastDivmod, blocks
from ...reproducible import Order
from ...solver import LAUNCH_SECONDS, Solver, seconds_otherwise
from ..grouped import INSTRUCTIONS, seconds_of
from ..problem import AXES, MAX_LANES, channels_last, lanes_of, scalar_strides, spatial
from .residue_classes import DataGradientProblem

SOURCE = "convolution/data_gradient/direct.cu"
TINY = 2**19  # products of a gradient by ALGO_1, which other solvers might serve later
# These instructions of a thread agree with the times of 20 of 22 drawn gradients on an H200 within a factor of 1.75.
ELEMENT_INSTRUCTIONS = 74  # per element
TAP_INSTRUCTIONS = 15  # per tap, for testing whether it adds to an element
MET_INSTRUCTIONS = 9  # per tap that adds to an element
PRODUCT_INSTRUCTIONS = 24  # per product
UNROLLED = 4  # terms that a lane loads together
BATCH_SECONDS = 4.8e-7  # seconds between one such group of terms and the next

Integers, Steps, FastDivmods = c_int * AXES, c_longlong * (2 + AXES), FastDivmod * AXES


class DataGradientDirect(Solver[DataGradientProblem]):
    """Serve with lanes of a warp that share the output channels of an element of dx.

    It serves every algorithm for tensors that are too large for the forward kernels, and small gradients by ALGO_1.
    """

    name = "convolution.data_gradient_direct"

    def serves(self, problem: DataGradientProblem) -> bool:
        o = problem.operation
        tiny = o.convolution.group_count == 1 and prod(problem.canonical.operation.dx.dims) * o.terms <= TINY
        return (tiny and o.algo == Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1) or self._is_alone(problem)

    def applies(self, problem: DataGradientProblem) -> bool:
        if self._is_alone(problem):
            return True
        return self.serves(problem) and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def _is_alone(self, problem: DataGradientProblem) -> bool:
        """Return whether no other solver serves the problem."""
        return problem.operation.algo == Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 or not problem.in_one_launch

    def _lanes(self, problem: DataGradientProblem) -> int:
        """Return the number of lanes that share the output channels of an element of dx."""
        o = problem.operation
        return lanes_of(o.w.dims[0] // o.convolution.group_count, prod(o.dx.dims))

    def summation_order(self, problem: DataGradientProblem) -> Order:
        o = problem.operation
        return Order("fma", (o.dx.data_type, o.compute_type, "taps, filters in lanes", self._lanes(problem)))

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        o, c, lanes = problem.operation, problem.operation.convolution, self._lanes(problem)
        taps = spatial(o.w.dims[2:], 1)
        strides = zip(taps, spatial(c.stride, 1), spatial(c.dilation, 1), strict=True)
        deep, down, right = (-(-tap * gcd(stride, dilation) // stride) for tap, stride, dilation in strides)
        tested = taps[0] + deep * (taps[1] + down * taps[2])
        # Threads of a warp have neighbouring columns of dx, so that together they use all taps of a row.
        met = deep * down * (right if channels_last(o.dx) or lanes == MAX_LANES else taps[2])
        filters = -(-o.w.dims[0] // c.group_count // lanes)
        of_met = MET_INSTRUCTIONS + PRODUCT_INSTRUCTIONS * filters
        thread = ELEMENT_INSTRUCTIONS + TAP_INSTRUCTIONS * tested + met * of_met
        rate = INSTRUCTIONS * problem.device.multiprocessors
        waiting = met * -(-filters // UNROLLED) * BATCH_SECONDS
        return LAUNCH_SECONDS + max(seconds_of(prod(o.dx.dims) * lanes, thread, rate), waiting)

    def launches(self, problem: DataGradientProblem) -> list[Launch]:
        o, c, elements = problem.operation, problem.operation.convolution, prod(problem.operation.dx.dims)
        filters, lanes = o.w.dims[0] // c.group_count, self._lanes(problem)
        arguments = structure(
            *pointers(3),
            *factors(o, alpha=o.alpha, beta=o.beta),
            *arrays_of(Steps, w_step=scalar_strides(o.w.tensor), dy_step=scalar_strides(o.dy)),
            ("dx_step", Steps(*scalar_strides(o.dx))),
            *arrays_of(Integers, positions=spatial(o.dy.dims[2:], 1), padding=spatial(c.padding, 0)),
            *arrays_of(Integers, stride=spatial(c.stride, 1), dilation=spatial(c.dilation, 1)),
            ("taps", Integers(*spatial(o.w.dims[2:], 1))),
            *fields_of(c_int, filters=filters, channels_last=channels_last(o.dx), flipped=c.is_flipped),
            *fields_of(c_int, log_lanes=lanes.bit_length() - 1, elements=elements),
            ("extent", FastDivmods(*map(FastDivmod.of, spatial(o.dx.dims[2:], 1)))),
            *fields_of(FastDivmod.of, channels=o.dx.dims[1], channels_of_group=o.w.dims[1]),
        )
        function = problem.device.function(
            SOURCE, "convolution_data_gradient_direct", type_definitions(o.dx.data_type, o)
        )
        return [Launch(function, arguments, ("w", "dy", "dx"), blocks(elements * lanes), (THREADS, 1, 1))]
