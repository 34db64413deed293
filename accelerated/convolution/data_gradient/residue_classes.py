"""Compute gradients with respect to the input (5.2.8) as forward convolutions of dy.

The elements of dx that are ``stride`` apart form a residue class. They meet the same taps, and under each tap
neighbouring elements of dy. Each class is a forward convolution of dy with stride 1. Its filter is a part of w with
input and output channels exchanged.

Where TMA reads dy and writes dx, one launch computes all classes. It reads their taps from w in place, with input
channels innermost, or from a copy with output channels innermost. Elsewhere a first launch for each class copies its
filter into the workspace. Where tensor cores repay it, dy in NCHW is copied with channels innermost, unless TMA reads
it in place for filters of one tap. dx in NCHW passes through the workspace where it cannot be written in place, or
where this is faster. Where the channels of dy do not fill vectors, filters get gaps between them if TMA can then read
dy in NCHW in place. Otherwise dy is copied with padded channels (pack_nhwc.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnConvolutionBwdDataAlgo_t as Algo
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as ForwardAlgo
from dualdnn.api.enumerations import cudnnConvolutionMode_t as Mode
from dualdnn.api.operations import ConvolutionBackwardData, ConvolutionForward, FilterSpec, SetTensor, TensorSpec
from dualdnn.api.operations.backend import RUN
from dualdnn.api.operations.specs import BFLOAT16, HALF, NCHW, NHWC

from ...plans import Launch, Plan, estimated_seconds, with_alignment
from ...primitives.tma import ALIGNMENT as COPY_ALIGNMENT
from ...primitives.tma import ROW_BYTES, has_wgmma
from ...reproducible import Order, level_of
from ...solver import LAUNCH_SECONDS, SOLVER_FAMILIES, Problem, Solver
from ..composed import At, ComposedLaunch, ComposedPlan, Inner, copied, transposed_filter, within
from ..forward import ConvolutionProblem, may_use_tensor_cores
from ..implicit_gemm.pack_nhwc import MIN_CHANNELS
from ..implicit_gemm.product import Product, ProductKernel, TapWalk
from ..implicit_gemm.simt import SIMT
from ..implicit_gemm.small_channels import SmallChannels
from ..implicit_gemm.tma import JOINED, TMA, TmaKernel, fastest, planes_of, stores_planes_sooner
from ..problem import MAX_OFFSET, VECTOR_BYTES, Rates, channels_last, in_channels, rounded_up, spatial
from ..tiny import Tiny

FILTER_ALIGNMENT = 256  # bytes, for the filter of each residue class and for copies in the workspace
MIN_PRODUCTS = 128  # products per value of dy from which copying saves time (pack_nhwc.py)
MIN_BYTES = ROW_BYTES // 2  # bytes of dy's channels per group from which copying dy for TMA saves time
MIN_MULTIPLIED = 2**24  # multiply-adds of a forward convolution that are worth the launches of pack_nhwc.py
FORWARD = {
    Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1: ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
    Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT: ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_FFT,
    Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING: ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
    Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD: ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
    Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED: ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
}


class Residue(NamedTuple):
    """Describe the elements of one dimension of dx from ``first`` on, a stride apart.

    There are ``extent`` of them. The ``taps`` from ``first_tap`` on meet them, ``step`` apart in the filter's memory.
    ``padding`` and ``dilation`` belong to the forward convolution, which may begin within dy, at a negative padding.
    """

    first: int
    extent: int
    taps: int
    first_tap: int
    step: int
    padding: int
    dilation: int


def residues(extent: int, taps: int, padding: int, stride: int, dilation: int, flipped: bool) -> list[Residue]:
    """Return the residue classes of one dimension of dx."""
    common = gcd(stride, dilation)
    step = stride // common
    found = []
    for first in range(min(stride, extent)):
        base = first + padding
        nearest = next((tap for tap in range(min(step, taps)) if (base - tap * dilation) % stride == 0), None)
        count = 0 if nearest is None else -(-(taps - nearest) // step)
        before = 0 if nearest is None else (count - 1) * (dilation // common) - (base - nearest * dilation) // stride
        first_tap = nearest or 0
        if flipped and count:
            first_tap = taps - 1 - (first_tap + (count - 1) * step)
        found.append(Residue(first, -(-(extent - first) // stride), count, first_tap, step, before, dilation // common))
    return found


class ResidueClass(NamedTuple):
    """Describe one residue in each dimension.

    The fields begin with its forward convolution, whose x is dy and whose y is a part of dx. Its part of w follows, as
    (groups, input channels, output channels, taps ...), then the byte offsets of both.
    ``meets``: whether any tap meets the class. ``filter_row``: stride between filters in elements, where they have gaps
    between them. ``walk``: its taps in w.
    """

    forward: ConvolutionForward
    part: TensorSpec
    part_at: int
    dx_at: int
    meets: bool
    filter_row: int
    walk: TapWalk | None


class DataGradientProblem(Problem):
    """Describe a gradient with respect to the input, by residue classes."""

    operation: ConvolutionBackwardData

    @property
    def in_one_launch(self) -> bool:
        """Return whether 32-bit offsets reach every element of dy and of dx."""
        return max(self.operation.dy.span, self.operation.dx.span) <= MAX_OFFSET

    @cached_property
    def together(self) -> Together | None:
        return together(self)

    @property
    def of_group(self) -> tuple[int, int]:
        """Return the groups, and the output channels per group."""
        groups = self.operation.convolution.group_count
        return groups, self.operation.w.dims[0] // groups

    @cached_property
    def laid_out(self) -> ConvolutionBackwardData:
        """Return the operation with dy and dx as the forward convolutions access them, in place or with channels
        innermost in the workspace.
        """
        o, c = self.operation, self.operation.convolution
        filters, products = o.w.dims[0] // c.group_count, prod(o.w.dims[1:])
        in_vectors, last = filters * o.dy.scalar_bytes % VECTOR_BYTES == 0, channels_last(o.dy)
        if o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or in_vectors == last or products < MIN_PRODUCTS:
            return o
        if min(o.dy.dims[1], o.dx.dims[1]) == 1 or not may_use_tensor_cores(c, o.dy.data_type, self.device):
            return o
        if last:  # Filters of one tap may have gaps between them.
            dy, one = in_channels(o.dy), prod(o.w.dims[2:]) == c.group_count == 1
            repays = one and filters >= MIN_CHANNELS and has_wgmma(self.device) and dy.span <= MAX_OFFSET
            return replace(o, dy=dy) if repays else o
        if filters * o.dy.scalar_bytes < MIN_BYTES or self._is_read_in_planes:
            return o
        planes = replace(o, dy=in_channels(o.dy))
        if channels_last(o.dx) or o.beta != 0 or self._is_written_in_planes(planes):
            return planes
        return replace(planes, dx=in_channels(o.dx))

    def _is_written_in_planes(self, planes: ConvolutionBackwardData) -> bool:
        """Return whether dx in NCHW is stored in place, where that takes no longer than a copy."""
        if prod(planes.convolution.stride) > 1:
            return False
        if prod(planes.dx.dims[2:]) * planes.dx.scalar_bytes % ROW_BYTES == 0:
            return True
        both = (planes, replace(planes, dx=in_channels(planes.dx)))
        in_place, last = (
            ConvolutionProblem(self._classes(each)[0].forward, self.device, aligned=False).products[0] for each in both
        )
        return stores_planes_sooner(in_place, last, planes.dx.nbytes)

    @property
    def _is_read_in_planes(self) -> bool:
        """Return whether TMA reads dy and writes dx in NCHW in place, which needs a filter of one tap and no stride."""
        o, c = self.operation, self.operation.convolution
        if prod(o.w.dims[2:]) * prod(c.stride) > 1 or any(c.padding) or not has_wgmma(self.device):
            return False
        groups, filters = self.of_group
        w = FilterSpec(o.w.data_type, NCHW, (groups * o.w.dims[1], filters, *o.w.dims[2:]))
        forward = ConvolutionForward(c, FORWARD[o.algo], 0, o.alpha, o.beta, o.dy, w, o.dx)
        return planes_of(ConvolutionProblem(forward, self.device, aligned=False).products[0]) is not None

    @cached_property
    def classes(self) -> tuple[ResidueClass, ...]:
        """Return the classes of the operands as they are laid out, with dy's channels in vectors."""
        return tuple(map(self._in_vectors, self._classes(self.laid_out)))

    @cached_property
    def plain_classes(self) -> tuple[ResidueClass, ...]:
        """Return the classes of the operands in place."""
        return self._classes(self.operation)

    def _classes(self, o: ConvolutionBackwardData) -> tuple[ResidueClass, ...]:
        geometry = (o.dx.dims[2:], o.w.dims[2:], o.convolution.padding, o.convolution.stride, o.convolution.dilation)
        of_axes = (residues(*of, o.convolution.is_flipped) for of in zip(*geometry, strict=True))
        return tuple(self._class(o, chosen) for chosen in product(*of_axes))

    def _class(self, o: ConvolutionBackwardData, chosen: tuple[Residue, ...]) -> ResidueClass:
        groups, data_type = o.convolution.group_count, o.w.data_type
        filters, channels = o.w.dims[0] // groups, o.w.dims[1]
        strides, meets = o.w.tensor.strides, all(residue.taps for residue in chosen)
        taps = tuple(residue.taps if meets else 1 for residue in chosen)
        spec = replace(
            o.convolution,
            # The gradient convolves where the forward convolution correlates.
            mode=Mode.CUDNN_CROSS_CORRELATION if o.convolution.is_flipped else Mode.CUDNN_CONVOLUTION,
            padding=tuple(residue.padding for residue in chosen),
            stride=(1,) * len(chosen),
            dilation=tuple(residue.dilation for residue in chosen),
        )
        # Transforms read filters in NCHW. A dy of one pixel has its channels innermost in either format.
        planes = o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or not channels_last(o.dy)
        w = FilterSpec(data_type, NCHW if planes else NHWC, (groups * channels, filters, *taps))
        apart = (s * stride for s, stride in zip(o.dx.strides[2:], o.convolution.stride, strict=True))
        dx = TensorSpec(data_type, (*o.dx.dims[:2], *(r.extent for r in chosen)), (*o.dx.strides[:2], *apart))
        algo = FORWARD[o.algo]
        if groups > 1 and algo == ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM:
            algo = ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM  # This algorithm may combine groups.
        of_taps = (stride * residue.step for stride, residue in zip(strides[2:], chosen, strict=True))
        forward = ConvolutionForward(spec, algo, 0, o.alpha, o.beta, o.dy, w, dx)
        part = (groups, channels, filters, *taps), (filters * strides[0], strides[1], strides[0], *of_taps)
        return ResidueClass(
            forward,
            TensorSpec(data_type, *part),
            sum(stride * residue.first_tap for stride, residue in zip(strides[2:], chosen, strict=True))
            * o.w.tensor.scalar_bytes,
            sum(stride * residue.first for stride, residue in zip(o.dx.strides[2:], chosen, strict=True))
            * o.dx.scalar_bytes,
            meets,
            0,
            self._walk(chosen) if meets else None,
        )

    def _walk(self, chosen: tuple[Residue, ...]) -> TapWalk:
        """Return the taps of a class in w, in the order of its forward convolution."""
        taps = spatial(self.operation.w.dims[2:], 1)
        apart = (taps[1] * taps[2], taps[2], 1)
        # Where the forward convolution convolves, its last tap is the first.
        backwards = not self.operation.convolution.is_flipped
        firsts = spatial(tuple(r.first_tap + (r.taps - 1) * r.step * backwards for r in chosen), 0)
        steps = spatial(tuple(-r.step if backwards else r.step for r in chosen), 0)
        first = sum(at * far for at, far in zip(firsts, apart, strict=True))
        deep, down, right = (step * far for step, far in zip(steps, apart, strict=True))
        return TapWalk(prod(taps), first, deep, down, right)

    def _in_vectors(self, found: ResidueClass) -> ResidueClass:
        """Return the class with padded channels or filter gaps, where dy's channels do not fill vectors."""
        o, forward = self.operation, found.forward
        channels, unit = forward.w.dims[1], VECTOR_BYTES // o.dy.scalar_bytes
        if o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or channels % unit == 0 or channels < MIN_CHANNELS:
            return found
        if not may_use_tensor_cores(o.convolution, o.dy.data_type, self.device):
            return found
        if prod(forward.w.dims[2:]) == 1:
            apart = rounded_up(channels, unit)
            product = ConvolutionProblem(forward, self.device, aligned=False, filter_row=apart).products[0]
            if any(kernel.serves(product) for kernel in TMA):
                return found._replace(filter_row=apart)
        images = self.canonical.operation.dx.dims[0]
        if forward.terms * images * prod(forward.y.dims[1:]) < MIN_MULTIPLIED:
            return found
        algo = ForwardAlgo.CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM
        return found._replace(forward=replace(forward, algo=algo))


class Together(NamedTuple):
    """Hold all residue classes that taps meet, as products of one launch of a kernel, and the copy of w that they read,
    or None.
    """

    kernel: TmaKernel
    products: tuple[Product, ...]
    copy: FilterSpec | None


def together(problem: DataGradientProblem) -> Together | None:
    """Return the classes as products of one launch, or None where no kernel computes all of them."""
    o = problem.operation
    if (
        not problem.aligned
        or o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1
        or not channels_last(problem.laid_out.dy)
    ):
        return None
    classes = sorted((c for c in problem.classes if c.meets), key=lambda found: -found.forward.terms)
    unaligned = any(found.filter_row or found.dx_at % COPY_ALIGNMENT for found in classes)
    if unaligned or not 2 <= len(classes) <= JOINED:
        return None
    direct = o.w.data_type in (HALF, BFLOAT16) and o.w.tensor.strides[1] == 1
    first, products = _inner(classes[0], problem.device), list[Product]()
    kernel = _kernel_of_all(first)
    if isinstance(kernel, TmaKernel):
        kernel = fastest(replace(first.problem.products[0], divides=False))
    for found in classes:
        inner = _inner(found, problem.device)
        if not isinstance(kernel, TmaKernel) or not isinstance(_kernel_of_all(inner), TmaKernel) or not found.walk:
            return None
        (made, *others) = inner.problem.products
        offsets = (made.offsets[0], 0, found.dx_at)
        made = replace(made, walk=found.walk._replace(n_innermost=direct), offsets=offsets, divides=False)
        if others or not kernel.serves(made):
            return None
        products.append(made)
    assert isinstance(kernel, TmaKernel)
    groups, of_group = problem.of_group
    copy = FilterSpec(o.w.data_type, NHWC, (groups * o.w.dims[1], of_group, *o.w.dims[2:]))
    return Together(kernel, tuple(products), None if direct else copy) if kernel.joins(products) else None


class DataGradient(Solver[DataGradientProblem]):
    """Serve with the forward convolutions of all residue classes, by the forward algorithm of the same name
    (IMPLICIT_GEMM for ALGO_1).
    """

    name = "convolution.data_gradient"

    def serves(self, problem: DataGradientProblem) -> bool:
        return problem.operation.algo in FORWARD and problem.in_one_launch

    def workspace_bytes(self, problem: DataGradientProblem) -> int:
        return with_alignment(_regions(problem).used)

    def summation_order(self, problem: DataGradientProblem) -> Order | None:
        orders = [_inner(found, problem.device).summation_order for found in problem.classes if found.meets]
        return None if None in orders else Order("classes", tuple(orders))

    def estimated_seconds(self, problem: DataGradientProblem) -> float:
        device = problem.device
        # A single launch starts once, not once for each class.
        saved = LAUNCH_SECONDS + Rates.LAUNCH if problem.together else 0.0
        made = (
            LAUNCH_SECONDS
            - saved
            + (_inner(c, device).estimated_seconds if c.filter_row else estimated_seconds(c.forward, device))
            for c in problem.classes
            if c.meets
        )
        copied = (LAUNCH_SECONDS + 2 * spec.nbytes / Rates.BANDWIDTH for spec in _copies(problem).values())
        return sum((*made, *copied), LAUNCH_SECONDS + saved)

    def alignment(self, problem: DataGradientProblem) -> Mapping[str, int]:
        if problem.together:
            return {name: COPY_ALIGNMENT for name in ("w", "dy", "dx") if name != "w" or not problem.together.copy}
        direct = problem.aligned and any(_from_filter(found, problem) for found in problem.classes)
        return dict.fromkeys(("w", "dy", "dx"), COPY_ALIGNMENT) if direct else {}

    def plan(self, problem: DataGradientProblem) -> Plan:
        o, copies, regions, device = problem.operation, _copies(problem), _regions(problem), problem.device
        dy = At("workSpace", regions.dy) if "dy" in copies else At("dy")
        dx = At("workSpace", regions.dx) if "dx" in copies else At("dx")
        launches: list[ComposedLaunch] = []
        if "dy" in copies:
            launches += within([copied(o.dy, copies["dy"], device)], {"x": At("dy"), "y": dy})
        classes, where = problem.classes, {"x": dy, "w": At("workSpace"), "y": dx}
        if o.beta == 0 and sum(not found.meets for found in classes) > 1:
            # One launch fills all of dx. The classes that taps meet are written after it.
            zeros = SetTensor(0.0, problem.laid_out.dx)
            family = SOLVER_FAMILIES[SetTensor]
            launches += within(family.solver(made := family.problem(zeros, device)).launches(made), where)
            classes = tuple(found for found in classes if found.meets)
        if joined := problem.together:
            if joined.copy:
                (first, second, *taps), (groups, of_group) = o.w.tensor.strides, problem.of_group
                part = (groups, o.w.dims[1], of_group, *o.w.dims[2:]), (of_group * first, second, first, *taps)
                laid_out = transposed_filter(TensorSpec(o.w.data_type, *part), joined.copy, device)
                launches += within([laid_out], {"x": At("w"), "y": At("workSpace")})
            launches += within(
                [joined.kernel.launch_together(joined.products)], where if joined.copy else where | {"w": At("w")}
            )
            classes = tuple(found for found in classes if not found.meets)
        at = 0
        for found in classes:
            where = {
                "x": dy,
                "w": At("workSpace", at),
                "y": At(dx.operand, dx.offset + found.dx_at),
                "workSpace": At("workSpace", regions.inner),
            }
            if not found.meets:
                launches += within([_blend(ConvolutionProblem(found.forward, device, aligned=False))], where)
                continue
            if direct := _from_filter(found, problem):
                kernel, made = direct
                launches += within([kernel.launch(made)], where | {"w": At("w")})
                continue
            if _is_filter(found):
                launches += within(_inner(found, device).launches(), where | {"w": At("w")})
                continue
            laid_out = transposed_filter(found.part, found.forward.w, device, found.filter_row)
            launches += within([laid_out], {"x": At("w", found.part_at), "y": where["w"]})
            launches += within(_inner(found, device).launches(), where)
            at += _filter_bytes(found)
        if "dx" in copies:
            launches += within([copied(copies["dx"], o.dx, device)], {"x": dx, "y": At("dx")})
        return ComposedPlan(o, launches, self.name)


class _Regions(NamedTuple):
    """Hold the byte offsets of the workspace: filters at its beginning, dy and dx with channels innermost, and the
    workspace that the forward convolutions use in turn.
    """

    dy: int
    dx: int
    inner: int
    used: int


def _regions(problem: DataGradientProblem) -> _Regions:
    copies, dy = _copies(problem), sum(map(_filter_bytes, problem.classes))
    if (joined := problem.together) and joined.copy:
        dy = max(dy, rounded_up(joined.copy.nbytes, FILTER_ALIGNMENT))
    sizes = [rounded_up(copies[name].nbytes, FILTER_ALIGNMENT) if name in copies else 0 for name in ("dy", "dx")]
    inner = dy + sum(sizes)
    used = max(_inner(found, problem.device).used_bytes if found.meets else 0 for found in problem.classes)
    return _Regions(dy, dy + sizes[0], inner, inner + used)


def _copies(problem: DataGradientProblem) -> dict[str, TensorSpec]:
    """Return the descriptions of those copies of dy and dx that the workspace holds."""
    o, made = problem.operation, problem.laid_out
    return {name: made.tensor(name) for name in ("dy", "dx") if made.tensor(name) != o.tensor(name)}


def _inner(found: ResidueClass, device: Any) -> Inner:
    return Inner(found.forward, device, found.filter_row)


def _kernel_of_all(inner: Inner) -> ProductKernel | None:
    """Return the kernel that computes this class and others in one launch, which SmallChannels cannot."""
    return inner.problem.kernel if isinstance(inner.solver, SmallChannels) else inner.kernel


def _from_filter(found: ResidueClass, problem: DataGradientProblem) -> tuple[TmaKernel, Product] | None:
    """Return the product of a class that reads w in place, or None where no kernel does."""
    o, walk = problem.operation, found.walk
    if not (problem.aligned and walk) or found.filter_row or o.w.data_type not in (HALF, BFLOAT16):
        return None
    if o.algo != Algo.CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 or o.w.tensor.strides[1] != 1:
        return None
    inner = _inner(found, problem.device)
    if len(inner.problem.products) > 1:
        return None
    made, kernel = replace(inner.problem.products[0], walk=walk), inner.kernel
    # One launch that reads w in place is faster than a copy of w and a second launch.
    if isinstance(inner.solver, Tiny) and level_of(problem.device) == RUN:
        kernel = fastest(made)
    return (kernel, made) if isinstance(kernel, TmaKernel) and kernel.serves(made) else None


def _is_filter(found: ResidueClass) -> bool:
    """Return whether the filter of a class is w itself, for example in depthwise convolutions with stride 1."""
    (step, *strides), channels = found.forward.w.tensor.strides, found.part.dims[1]
    same = zip(found.part.dims, found.part.strides, (channels * step, step, *strides), strict=True)
    return not found.part_at and not found.filter_row and all(n == 1 or one == other for n, one, other in same)


def _filter_bytes(found: ResidueClass) -> int:
    w = found.forward.w
    if _is_filter(found):
        return 0
    nbytes = w.dims[0] * found.filter_row * w.tensor.scalar_bytes if found.filter_row else w.nbytes
    return rounded_up(nbytes, FILTER_ALIGNMENT) if found.meets else 0


def _blend(forward: ConvolutionProblem) -> Launch:
    """Return the launch for elements of dx that no tap meets: a product without terms, which alpha and beta blend."""
    made = forward.product(forward.value)
    made.value.k = 0
    return SIMT[-1].launch(made)
