"""Compute gradients with respect to the filter (6.2.2) as forward convolutions of x with dy.

With images and channels of x exchanged, dy is a filter as large as the output. dw is then the convolution of channels
of x, as images, with output channels of dy, as filters. Images replace channels, and stride and dilation are
exchanged. Where the images fill vectors of 16 bytes, both operands are first transposed so that images are innermost,
as channels are in NHWC. Parts of the images are groups whose sums are added in the end, so that few elements of dw fill
a device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnConvolutionBwdFilterAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as ForwardAlgo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.operations import (
    ConvolutionBackwardFilter,
    ConvolutionForward,
    ConvolutionSpec,
    FilterSpec,
    TensorSpec,
)
from dualdnn.api.operations.specs import NCHW, NHWC

from ...plans import Plan, estimated_seconds, with_alignment
from ...reproducible import Order, order_of_batch
from ...solver import Problem, Solver
from ..composed import BY_COORDINATES, At, ComposedLaunch, ComposedPlan, Inner, copied, transposed_filter, within
from ..forward import ConvolutionProblem
from ..implicit_gemm.product import Product
from ..implicit_gemm.products import kernel_of
from ..problem import MAX_OFFSET, VECTOR_BYTES, Rates, mark_vectors, operation_product, rounded_up
from .sum import sum_launch

ALIGNMENT = 256  # bytes, for the regions of the workspace
TILE = 128  # rows and columns of dw per block
BLOCKS = 2  # per multiprocessor
ALGORITHMS = (Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3)
IMPLICIT_GEMM = ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM
FOURIER = {
    Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT: ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_FFT,
    Algo.CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING: ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
}


class FilterGradientProblem(Problem):
    """Describe a gradient with respect to the filter, and its operands in a forward convolution."""

    operation: ConvolutionBackwardFilter

    def order_by(self, solver: Solver[Any]) -> Order | None:
        return order_of_batch(solver, self.operation)

    @cached_property
    def products(self) -> dict[Any, Any]:
        """Hold the products that solvers described, by solver class and kernel."""
        return {}

    @property
    def groups(self) -> int:
        return self.operation.convolution.group_count

    @property
    def in_one_launch(self) -> bool:
        """Return whether 32-bit offsets reach every element of x and of dy."""
        return max(self.operation.x.span, self.operation.dy.span) <= MAX_OFFSET

    @property
    def images(self) -> int:
        return self.operation.x.dims[0]

    @cached_property
    def exchanged(self) -> TensorSpec:
        """Return x in place, with the channels of one group as images, and its images as channels."""
        x = self.operation.x
        (images, channels, *extents), (image, channel, *steps) = x.dims, x.strides
        return TensorSpec(x.data_type, (channels // self.groups, images, *extents), (channel, image, *steps))

    def convolution(self, groups: int) -> ConvolutionSpec:
        """Return the forward convolution's geometry. Its stride is the dilation, and its dilation is the stride."""
        c = self.operation.convolution
        return replace(c, mode=Mode.CUDNN_CROSS_CORRELATION, stride=c.dilation, dilation=c.stride, group_count=groups)

    def incoming(self, parts: int, channels_last: bool) -> tuple[TensorSpec, FilterSpec]:
        """Return dy in place, (parts of the images, output channels, images, positions ...), and the forward
        convolution's filter.
        """
        dy = self.operation.dy
        (images, filters, *extents), (image, channel, *steps) = dy.dims, dy.strides
        each = images // parts
        source = TensorSpec(dy.data_type, (parts, filters, each, *extents), (each * image, channel, image, *steps))
        return source, FilterSpec(dy.data_type, NHWC if channels_last else NCHW, (parts * filters, each, *extents))

    def result(self, data_type: object, filters: int) -> tuple[TensorSpec, int]:
        """Return the forward convolution's output, and the bytes to its first element, which in mode CUDNN_CONVOLUTION
        is the last tap.

        The output has ``filters`` output channels of dw by channels as images, in memory of dw's order.
        """
        dw = self.operation.dw.tensor
        (_, channels, *taps), (filter_step, channel_step, *steps) = dw.dims, dw.strides
        flipped = self.operation.convolution.is_flipped
        signed = [-step if flipped else step for step in steps]
        strides = (channel_step, filter_step, *signed)
        spec = TensorSpec(data_type, (channels, filters, *taps), strides)  # type: ignore[arg-type]
        last = sum((tap - 1) * step for tap, step in zip(taps, steps, strict=True))
        return spec, last * spec.scalar_bytes if flipped else 0


class Regions(NamedTuple):
    """Hold the byte offsets of the workspace: dy as a filter is at its beginning. x, the partial sums, and the
    workspace of the forward convolution follow.
    """

    x: int
    partial: int
    inner: int
    used: int


class FilterGradient(Solver[FilterGradientProblem]):
    """Serve ALGO_1 and ALGO_3 with the forward convolution of transposed operands, by the solvers of IMPLICIT_GEMM."""

    name = "convolution.filter_gradient"

    def serves(self, problem: FilterGradientProblem) -> bool:
        return problem.operation.algo in ALGORITHMS and problem.in_one_launch

    def workspace_bytes(self, problem: FilterGradientProblem) -> int:
        return with_alignment(_Division(problem).regions.used)

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        o, division = problem.operation, _Division(problem)
        copied = 2 * (o.dy.nbytes + division.transposed * o.x.nbytes) / Rates.BANDWIDTH
        if division.inner:
            computing = division.inner.estimated_seconds
        else:
            computing = Rates.LAUNCH + _computing_seconds(grouped_product(problem, division.forward))
        return 4 * Rates.LAUNCH + copied + computing

    def is_one_product(self, problem: FilterGradientProblem) -> bool:
        """Return whether the gradient is one convolution, of transposed operands."""
        division = _Division(problem)
        return division.transposed and division.parts == 1 and division.inner is not None

    def plan(self, problem: FilterGradientProblem) -> Plan:
        return ComposedPlan(problem.operation, list(_Division(problem).launches()), self.name)


class _Division:
    """Lay out and divide the operands of a gradient."""

    def __init__(self, problem: FilterGradientProblem) -> None:
        self.problem, self.operation = problem, problem.operation
        o = self.operation
        vector = VECTOR_BYTES // o.x.scalar_bytes
        self.transposed = problem.images % vector == 0
        self.parts = self._parts(vector if self.transposed else 1)
        # Groups of channels are not groups of a convolution over images. Code below adds a group's offset to the
        # address of x.
        self.source, self.filter = problem.incoming(self.parts, self.transposed)
        self.x = problem.exchanged
        if self.transposed:
            self.x = TensorSpec.packed(o.x.data_type, problem.exchanged.dims, NHWC)
        sums = o.x.data_type if self.parts == 1 else o.compute_type
        result, self.result_at = problem.result(sums, self.parts * o.dw.dims[0])
        blended = (o.alpha, o.beta) if self.parts == 1 else (1.0, 0.0)
        spec = problem.convolution(self.parts * problem.groups)
        self.forward = ConvolutionForward(spec, IMPLICIT_GEMM, 0, *blended, self.x, self.filter, result)
        self.inner = Inner(self.forward, problem.device) if problem.groups == 1 else None

    def _parts(self, vector: int) -> int:
        """Return the number of parts of the images, enough for a few blocks on each multiprocessor."""
        o = self.operation
        filters, *others = o.dw.dims
        if self.problem.groups > 1:
            return 1
        blocks = -(-filters // TILE) * -(-prod(others) // TILE)
        wanted = BLOCKS * self.problem.device.multiprocessors // blocks
        images = self.problem.images
        possible = (parts for parts in range(1, images + 1) if images % parts == 0 and images // parts % vector == 0)
        return max((parts for parts in possible if parts <= wanted), default=1)

    @cached_property
    def regions(self) -> Regions:
        o = self.operation
        x = rounded_up(self.filter.nbytes, ALIGNMENT)
        partial = x + (rounded_up(prod(o.x.dims) * o.x.scalar_bytes, ALIGNMENT) if self.transposed else 0)
        sums_bytes = self.parts * o.dw.tensor.count * self.forward.y.scalar_bytes if self.parts > 1 else 0
        inner = partial + rounded_up(sums_bytes, ALIGNMENT)
        return Regions(x, partial, inner, inner + (self.inner.used_bytes if self.inner else 0))

    def launches(self) -> Iterator[ComposedLaunch]:
        o, device, regions = self.operation, self.problem.device, self.regions
        result = At("dw") if self.parts == 1 else At("workSpace", regions.partial)
        where = {
            "x": At("workSpace", regions.x) if self.transposed else At("x"),
            "w": At("workSpace"),
            "y": At(result.operand, result.offset + self.result_at),
            "workSpace": At("workSpace", regions.inner),
        }
        made = transposed_filter(self.source, self.filter, device)
        yield from within([made], {"x": At("dy"), "y": where["w"]})
        if self.transposed:
            channels, images, *extents = o.x.dims[1], self.problem.images, *o.x.dims[2:]
            target = TensorSpec.packed(o.x.data_type, (channels, images, *extents), NHWC)
            (image, channel, *steps) = o.x.strides
            source = TensorSpec(o.x.data_type, target.dims, (channel, image, *steps))
            yield from within([copied(source, target, device)], {"x": At("x"), "y": where["x"]})
        if self.inner:
            yield from within(self.inner.launches(), where)
        else:
            product = grouped_product(self.problem, self.forward)
            yield from within([kernel_of(product, BY_COORDINATES).launch(product)], where)
        if self.parts > 1:
            yield from within([sum_launch(o, self.parts, device)], {"partial": result, "dw": At("dw")})


def grouped_product(problem: FilterGradientProblem, forward: ConvolutionForward) -> Product:
    """Return the implicit GEMM of a forward convolution whose groups are groups of its images."""
    value = operation_product(forward)
    value.x_group = forward.x.dims[0] * forward.x.strides[0]
    mark_vectors(value, problem.groups, forward.x.scalar_bytes)
    return ConvolutionProblem(forward, problem.device, aligned=False).product(value)


def _computing_seconds(product: Product) -> float:
    return kernel_of(product, BY_COORDINATES).computing_seconds(product)


class FilterGradientFft(Solver[FilterGradientProblem]):
    """Serve FFT and FFT_TILING with the forward convolution of each group by the algorithm of the same name."""

    name = "convolution.filter_gradient_fft"

    def serves(self, problem: FilterGradientProblem) -> bool:
        return problem.operation.algo in FOURIER and problem.in_one_launch

    def workspace_bytes(self, problem: FilterGradientProblem) -> int:
        first = rounded_up(problem.incoming(1, False)[1].nbytes, ALIGNMENT)
        return with_alignment(first + Inner(self._forward(problem), problem.device).used_bytes)

    def _forward(self, problem: FilterGradientProblem) -> ConvolutionForward:
        """Return the forward convolution of one group."""
        o = problem.operation
        w = problem.incoming(1, False)[1]
        filters = o.dw.dims[0] // problem.groups
        result = problem.result(o.x.data_type, filters)[0]
        one = replace(w, dims=(filters, *w.dims[1:]))
        return ConvolutionForward(
            problem.convolution(1), FOURIER[o.algo], 0, o.alpha, o.beta, problem.exchanged, one, result
        )

    def estimated_seconds(self, problem: FilterGradientProblem) -> float:
        one = estimated_seconds(self._forward(problem), problem.device)
        return Rates.LAUNCH + 2 * problem.operation.dy.nbytes / Rates.BANDWIDTH + problem.groups * one

    def plan(self, problem: FilterGradientProblem) -> Plan:
        o, forward = problem.operation, self._forward(problem)
        source, w = problem.incoming(1, False)
        _, result_at = problem.result(o.x.data_type, forward.w.dims[0])
        inner = At("workSpace", rounded_up(w.nbytes, ALIGNMENT))
        launches = within([transposed_filter(source, w, problem.device)], {"x": At("dy"), "y": At("workSpace")})
        steps = Inner(forward, problem.device).launches()
        group_bytes = forward.w.dims[0] * o.dw.tensor.strides[0] * o.dw.tensor.scalar_bytes
        for group in range(problem.groups):
            x = At("x", group * forward.x.dims[0] * forward.x.strides[0] * o.x.scalar_bytes)
            y = At("dw", result_at + group * group_bytes)
            launches += within(
                steps, {"x": x, "w": At("workSpace", group * forward.w.nbytes), "y": y, "workSpace": inner}
            )
        return ComposedPlan(o, launches, self.name)
