"""Compute gradients with respect to the input (5.2.8) of strided convolutions as one product for all residue classes.

The elements of dx that are a stride apart become channels of a folded dx: the residues of all dimensions, outermost
first, then the channels. Where the stride divides the filter, all residues have equally many taps. The folded dx
is then a forward convolution of dy with stride 1. A last launch unfolds it. Patches, whose stride is their filter, are
a plain matrix product. Other filters would need taps of zeros, which give NaN where dy is infinite.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import prod
from typing import NamedTuple

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as ForwardAlgo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.enumerations import cudnnFoldingDirection_t
from dualdnn.api.operations import (
    ConvolutionForward,
    FilterSpec,
    TensorSpec,
    TransformSpec,
    TransformTensor,
)
from dualdnn.api.operations.specs import NCHW, NHWC

from ...plans import Launch, Plan, with_alignment
from ...reproducible import Order
from ...solver import LAUNCH_SECONDS, Solver
from ...transform.plan import launch, spread_filter, transformed
from ..composed import At, ComposedLaunch, ComposedPlan, Inner, copied, within
from ..problem import MAX_OFFSET, Rates, channels_last, in_channels, rounded_up
from .residue_classes import FILTER_ALIGNMENT, DataGradientProblem

PLANES_UNFOLDED = 1.1e11  # elements of dx in NCHW that are unfolded per second


class Regions(NamedTuple):
    """Hold the byte offsets of the workspace: the filter at its beginning, dy with channels innermost, the folded dx,
    and the workspace of the product.
    """

    dy: int
    dx: int
    inner: int
    used: int


class Folded:
    """Describe a data gradient with all residues among the channels of dx.

    ``taps`` belong to the window. ``first`` is the step of the stride, counted from the padding, in which dx begins.
    """

    def __init__(self, problem: DataGradientProblem) -> None:
        self.device, self.operation = problem.device, problem.operation
        self.dy = problem.laid_out.dy
        o, c = self.operation, self.operation.convolution
        self.stride, self.classes = c.stride, prod(c.stride)
        self.taps = tuple(taps // step for taps, step in zip(o.w.dims[2:], c.stride, strict=True))
        self.first = tuple(padding // step for padding, step in zip(c.padding, c.stride, strict=True))

    @cached_property
    def dx(self) -> TensorSpec:
        """Return the folded dx in the workspace, channels innermost."""
        o, c = self.operation, self.operation.convolution
        ends = zip(o.dx.dims[2:], c.padding, c.stride, self.first, strict=True)
        steps = ((extent - 1 + padding) // step - first + 1 for extent, padding, step, first in ends)
        dims = (o.dx.dims[0], self.classes * o.dx.dims[1], *steps)
        return in_channels(TensorSpec(o.dx.data_type, dims, (0,) * len(dims)))

    @cached_property
    def forward(self) -> ConvolutionForward:
        """Return the product. It counts taps backwards from a step, as a convolution does."""
        o, c, rank = self.operation, self.operation.convolution, len(self.taps)
        padding = tuple(taps - 1 - first for taps, first in zip(self.taps, self.first, strict=True))
        spec = replace(c, mode=Mode.CUDNN_CONVOLUTION, padding=padding, stride=(1,) * rank, dilation=(1,) * rank)
        dims = (self.dx.dims[1], o.w.dims[0], *self.taps)
        w = FilterSpec(o.w.data_type, NHWC if channels_last(self.dy) else NCHW, dims)
        algo = ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
        return ConvolutionForward(spec, algo, 0, o.alpha, o.beta, self.dy, w, self.dx)

    @cached_property
    def inner(self) -> Inner:
        return Inner(self.forward, self.device)

    @property
    def copies_dy(self) -> bool:
        return self.dy != self.operation.dy

    @cached_property
    def regions(self) -> Regions:
        dy = rounded_up(self.forward.w.nbytes, FILTER_ALIGNMENT)
        dx = dy + (rounded_up(self.dy.nbytes, FILTER_ALIGNMENT) if self.copies_dy else 0)
        inner = dx + rounded_up(self.dx.nbytes, FILTER_ALIGNMENT)
        return Regions(dy, dx, inner, inner + self.inner.used_bytes)

    @property
    def moved_seconds(self) -> float:
        """Return the seconds in which the filter is copied and the folded dx is unfolded."""
        dx = self.operation.dx
        unfolded = (self.dx.nbytes + dx.nbytes) / Rates.BANDWIDTH
        if not channels_last(dx):
            unfolded = prod(dx.dims) / PLANES_UNFOLDED
        return unfolded + 2 * self.forward.w.nbytes / Rates.BANDWIDTH

    @property
    def saved_seconds(self) -> float:
        """Return the seconds that residue classes take longer: the launches of a product and a filter for each."""
        return (2 * self.classes - 3) * LAUNCH_SECONDS

    def unfolding(self) -> Launch:
        """Return the launch that unfolds ``x`` into dx, ``y``."""
        o, c = self.operation, self.operation.convolution
        cropped = tuple(-(padding % step) for padding, step in zip(c.padding, c.stride, strict=True))
        before = (0, 0, *cropped)
        unfold = cudnnFoldingDirection_t.CUDNN_TRANSFORM_UNFOLD
        spec = TransformSpec(NCHW, before, (0,) * len(before), c.stride, unfold)
        (walk,) = transformed(spec, self.dx, o.dx)
        return launch(walk, TransformTensor(1.0, 0.0, self.dx, o.dx), ("x", "y"), self.device)

    def filter_launch(self) -> Launch:
        """Return the launch that copies the filter ``x`` to ``y``."""
        source, target = self.operation.w.tensor, self.forward.w.tensor
        walk = spread_filter(source, target, self.stride)
        return launch(walk, TransformTensor(1.0, 0.0, source, target), ("x", "y"), self.device)


class DataGradientFolded(Solver[DataGradientProblem]):
    """Serve ALGO_1 of correlations whose stride divides the filter, without groups, dilation and blending.

    It takes one product, whatever the stride. It is preferred where launches of residue classes would take longer than
    unfolding dx.
    """

    name = "convolution.data_gradient_folded"

    def serves(self, problem: DataGradientProblem) -> bool:
        o, c = problem.operation, problem.operation.convolution
        if o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or c.is_flipped or c.group_count > 1 or max(c.stride) == 1:
            return False
        dilated = any(apart > 1 and taps > 1 for apart, taps in zip(c.dilation, o.w.dims[2:], strict=True))
        divides = all(taps % step == 0 for taps, step in zip(o.w.dims[2:], c.stride, strict=True))
        if dilated or not divides or o.beta != 0 or not problem.in_one_launch:
            return False
        folded = Folded(problem)
        return max(folded.dx.span, prod(folded.forward.w.dims)) <= MAX_OFFSET

    def applies(self, problem: DataGradientProblem) -> bool:
        if problem.together or not self.serves(problem):
            return False
        folded = Folded(problem)
        return folded.saved_seconds > folded.moved_seconds

    def summation_order(self, problem: DataGradientProblem) -> Order | None:
        order = Folded(problem).inner.summation_order
        return order and Order("folded", (order,))

    def workspace_bytes(self, problem: DataGradientProblem) -> int:
        return with_alignment(Folded(problem).regions.used)

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        folded = Folded(problem)
        copied_seconds = 2 * folded.dy.nbytes / Rates.BANDWIDTH + LAUNCH_SECONDS if folded.copies_dy else 0.0
        return folded.inner.estimated_seconds + folded.moved_seconds + copied_seconds + 3 * LAUNCH_SECONDS

    def plan(self, problem: DataGradientProblem) -> Plan:
        o, folded = problem.operation, Folded(problem)
        regions = folded.regions
        w, dx = At("workSpace"), At("workSpace", regions.dx)
        dy = At("workSpace", regions.dy) if folded.copies_dy else At("dy")
        launches: list[ComposedLaunch] = within([folded.filter_launch()], {"x": At("w"), "y": w})
        if folded.copies_dy:
            launches += within([copied(o.dy, folded.dy, problem.device)], {"x": At("dy"), "y": dy})
        where = {"x": dy, "w": w, "y": dx, "workSpace": At("workSpace", regions.inner)}
        launches += within(folded.inner.launches(), where)
        launches += within([folded.unfolding()], {"x": dx, "y": At("dx")})
        return ComposedPlan(o, launches, self.name)
