"""Compute gradients with respect to the input (5.2.8) of few channels and filters, without a workspace
(convolution/grouped.cu).
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.operations import FilterSpec, TensorSpec

from ...plans import Launch
from ...reproducible import Order
from ...scalars import fill
from ...solver import Solver, seconds_otherwise
from ..composed import Inner
from ..depthwise.depthwise import DepthwiseSolver
from ..grouped import FEW, Backward, GroupedProduct
from ..problem import EpilogueStruct, describe, with_result
from .residue_classes import DataGradientProblem

FEW_CHANNELS = 4  # channels without groups, which leave tiles of tensor cores mostly zeros
FEW_FILTERS = 32  # filters without groups, which leave tiles of tensor cores mostly zeros
MARGIN = 2  # ratio by which the next solver must be estimated slower, as these estimates are rough


class DataGradientGrouped(Solver[DataGradientProblem]):
    """Serve ALGO_1 of any window, stride and layout in one launch.

    It is preferred for groups of few channels and filters, and where tiles of products would be mostly zeros.
    """

    name = "convolution.data_gradient_grouped"

    def serves(self, problem: DataGradientProblem) -> bool:
        if problem.operation.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or not problem.in_one_launch:
            return False
        return _product(problem).is_known

    def applies(self, problem: DataGradientProblem) -> bool:
        o, c = problem.operation, problem.operation.convolution
        filters, channels = o.w.dims[0] // c.group_count, o.w.dims[1]
        if not self.serves(problem):
            return False
        if c.group_count == 1:
            if channels <= FEW_CHANNELS and filters <= FEW_FILTERS:
                return True
            return MARGIN * self.estimated_seconds(problem) < seconds_otherwise(self, problem)
        if max(filters, channels) > FEW:
            return False
        if prod(c.stride) > 1 and _leaves_tiles_empty(problem):
            return True
        if self.estimated_seconds(problem) > seconds_otherwise(self, problem):
            return False
        # Without strides the gradient is one convolution. Common windows of one channel have their own kernels
        # (depthwise.py).
        one = prod(c.stride) == max(filters, channels) == 1 and Inner(problem.classes[0].forward, problem.device)
        return not (one and isinstance(one.solver, DepthwiseSolver))

    def summation_order(self, problem: DataGradientProblem) -> Order:
        return Order("fma", (problem.operation.dx.data_type, problem.operation.compute_type, "taps, filters"))

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        return _product(problem).estimated_seconds(problem.device)

    def launches(self, problem: DataGradientProblem) -> list[Launch]:
        o = problem.operation
        epilogue = fill(EpilogueStruct(), alpha=o.alpha, beta=o.beta)
        return [_product(problem).launch(o, problem.device, epilogue, ("dy", "w", "dx", "dx", "dx"))]


def _leaves_tiles_empty(problem: DataGradientProblem) -> bool:
    """Return whether some residue class is computed in tiles of products, which such groups leave mostly empty."""
    classes = (found for found in problem.classes if found.meets)
    return any(Inner(found.forward, problem.device).solver is None for found in classes)


def _product(problem: DataGradientProblem) -> GroupedProduct:
    """Return the gradient as a product from dy to dx."""
    o, c, rank = problem.operation, problem.operation.convolution, problem.operation.convolution.rank
    filters, channels = o.w.dims[0] // c.group_count, o.w.dims[1]
    plain = replace(c, padding=(0,) * rank, stride=(1,) * rank)
    w = FilterSpec(o.w.data_type, o.w.format, (c.group_count * channels, filters, *o.w.dims[2:]))
    first = tuple(-(-extent // step) for extent, step in zip(o.dx.dims[2:], c.stride, strict=True))
    apart = (step * stride for step, stride in zip(c.stride, o.dx.strides[2:], strict=True))
    pixels = TensorSpec(o.dx.data_type, (*o.dx.dims[:2], *first), (*o.dx.strides[:2], *apart))
    value = with_result(describe(plain, o.dy, w, pixels.dims), pixels)
    taps_apart = tuple(step // gcd(step, dilation) for step, dilation in zip(c.stride, c.dilation, strict=True))
    taps = prod(-(-taps // step) for taps, step in zip(o.w.dims[2:], taps_apart, strict=True))
    filter_step, channel_step, *steps = o.w.tensor.strides
    w_steps = (channel_step, filter_step, *steps)
    return GroupedProduct(c.group_count, o.dy, o.w, o.dx, value, w_steps, filters, taps, Backward(c, taps_apart))
