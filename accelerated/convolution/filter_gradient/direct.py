"""Plan gradients with respect to the filter without a workspace (convolution/filter_gradient/direct.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from math import prod

from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.operations.specs import NHWC

from ...plans import Launch, arrays_of, factors, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, FastDivmod, blocks
from ...solver import LAUNCH_SECONDS, Solver, seconds_otherwise
from ..problem import AXES, lanes_of, scalar_strides, spatial
from .forward_convolution import FilterGradientProblem

SOURCE = "convolution/filter_gradient/direct.cu"
DIRECT = (
    Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0,
    Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1,
    Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3,
)
PRODUCTS_PER_SECOND = 2.4e11  # multiply-adds a second of a full device, each with an access to L1 and an index
TERM_SECONDS = 4.8e-7  # between two dependent terms of a lane; bounds few elements of dw with long sums
MIN_TERMS = 512  # terms of a sum; a matrix product serves few results with more
TINY = 2**19  # products of a gradient that other solvers might serve later
FEW_RESULTS = 256  # results per group; more of them fill a tile of a matrix product

Integers, Steps, FastDivmods = c_int * AXES, c_longlong * (2 + AXES), FastDivmod * AXES


class FilterGradientDirect(Solver[FilterGradientProblem]):
    """Serve with lanes of a warp that share the images and output positions of an element of dw.

    It serves ALGO_0, and several groups of few elements each. It also serves tensors that are larger than the products
    count to, and addresses that TMA does not take. No other solver fits the workspace.
    """

    name = "convolution.filter_gradient_direct"

    def serves(self, problem: FilterGradientProblem) -> bool:
        return problem.operation.algo in DIRECT or not problem.in_one_launch

    def applies(self, problem: FilterGradientProblem) -> bool:
        o = problem.operation
        if o.algo not in DIRECT[1:]:
            return self.serves(problem)
        few = problem.groups > 1 and prod(o.dw.dims) // problem.groups <= FEW_RESULTS and o.terms < MIN_TERMS
        if few or not problem.in_one_launch or not problem.aligned:
            return True
        # A few products take one short launch.
        return prod(o.dw.dims) * o.terms <= TINY and self.estimated_seconds(problem) < seconds_otherwise(self, problem)

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        o, elements = problem.operation, prod(problem.operation.dw.dims)
        one_by_one = o.terms / lanes_of(o.terms, elements) * TERM_SECONDS
        return LAUNCH_SECONDS + max(elements * o.terms / PRODUCTS_PER_SECOND, one_by_one)

    def launches(self, problem: FilterGradientProblem) -> list[Launch]:
        o, c, elements = problem.operation, problem.operation.convolution, prod(problem.operation.dw.dims)
        lanes = lanes_of(o.terms, elements)
        arguments = structure(
            *pointers(3),
            *factors(o, alpha=o.alpha, beta=o.beta),
            *arrays_of(Steps, x_step=scalar_strides(o.x), dy_step=scalar_strides(o.dy)),
            *arrays_of(Integers, input=spatial(o.x.dims[2:], 1), padding=spatial(c.padding, 0)),
            *arrays_of(Integers, stride=spatial(c.stride, 1), dilation=spatial(c.dilation, 1)),
            *fields_of(c_int, terms=o.terms, elements=elements, channels_last=o.dw.format == NHWC),
            *fields_of(c_int, flipped=c.is_flipped, log_lanes=lanes.bit_length() - 1),
            ("positions", FastDivmods(*map(FastDivmod.of, spatial(o.dy.dims[2:], 1)))),
            ("taps", FastDivmods(*map(FastDivmod.of, spatial(o.dw.dims[2:], 1)))),
            *fields_of(FastDivmod.of, channels=o.dw.dims[1], filters=o.dw.dims[0] // c.group_count),
        )
        function = problem.device.function(
            SOURCE, "convolution_filter_gradient_direct", type_definitions(o.x.data_type, o)
        )
        return [Launch(function, arguments, ("x", "dy", "dw"), blocks(elements * lanes), (THREADS, 1, 1))]
