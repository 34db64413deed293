"""Serve convolutions between other steps. Some kernels take the steps that follow along, where they store results.
Otherwise each step has its own solver, and the workspace holds the tensors in between.

Roofline bound: as the convolution's. Separate steps write and read x once more in the prologue, and y in the epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import (
    ConvolutionBackwardFilter,
    ConvolutionForward,
    ConvScaleBiasAddActivation,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
)

from ..convolution.implicit_gemm.product import Product
from ..convolution.implicit_gemm.statistics import SummedConvolution, finished_product, is_preferred
from ..convolution.implicit_gemm.tma import TmaKernel
from ..convolution.problem import EpilogueStruct
from ..plans import Plan, plan, workspace_bytes
from ..primitives.tma import ALIGNMENT
from ..reproducible import OVER_BATCH, Order
from ..scalars import fill
from ..solver import Problem, Solver, summation_order
from .channel_sums import ChannelSums
from .sequence import Part, SequencePlan, Workspace

IGNORED = cudnnNanPropagation_t.CUDNN_NOT_PROPAGATE_NAN
Fused = ScaleBiasActivationConvBnstats | ScaleBiasActivationWgrad | ConvScaleBiasAddActivation


class FusedConvolution(Problem):
    """Describe one of the three sequences: its convolution with its workspace, and the regions of the call's
    workspace.
    """

    operation: Fused

    @cached_property
    def inner(self) -> ConvolutionForward | ConvolutionBackwardFilter:
        """Return the convolution."""
        inner = self.operation.inner
        return replace(inner, workspace_bytes=workspace_bytes(inner, self.device))

    @cached_property
    def sums(self) -> ChannelSums:
        """Return the sums of y and of its squares."""
        return ChannelSums.of(self.operation, self.device, "y", self.operation.tensor("y"), self.aligned)

    @cached_property
    def pieces(self) -> tuple[Workspace, dict[str, int]]:
        """Return the workspace, and the offsets of its regions: a tensor between two steps, the convolution's
        workspace, and sums.
        """
        o, workspace, found = self.operation, Workspace(), {}
        if getattr(o, "prologue", None) is not None:
            found["x"] = workspace.take(o.x.nbytes)
        if isinstance(o, ConvScaleBiasAddActivation) and o.epilogue is not None:
            found["y"] = workspace.take(o.y.nbytes)
        if self.inner.workspace_bytes:
            found["workSpace"] = workspace.take(self.inner.workspace_bytes)
        if isinstance(o, ScaleBiasActivationConvBnstats) and o.ySum is not None:
            found["sums"] = workspace.take(self.sums.segments.nbytes)
        return workspace, found


class ConvolutionSequence(Solver[FusedConvolution]):
    """Run the steps one after the other."""

    name = "fused_ops.convolution"

    def summation_order(self, problem: FusedConvolution) -> Order:
        sums = (OVER_BATCH, problem.aligned) if "sums" in problem.pieces[1] else ()
        return Order(self.name, (summation_order(problem.operation.inner, problem.device), *sums))

    def workspace_bytes(self, problem: FusedConvolution) -> int:
        return problem.pieces[0].nbytes

    def alignment(self, problem: FusedConvolution) -> Mapping[str, int]:
        has_sums = "sums" in problem.pieces[1] and problem.sums.walk.wide
        return {"y": ALIGNMENT} if has_sums else {}

    def plan(self, problem: FusedConvolution) -> Plan:
        o, device, (_, pieces) = problem.operation, problem.device, problem.pieces
        where: dict[str, Any] = {name: pieces[name] for name in ("x", "y", "workSpace") if name in pieces}
        parts = [Part(problem.inner, plan(problem.inner, device), where)]
        prologue = getattr(o, "prologue", None)
        if prologue is not None:
            parts.insert(0, Part(prologue, plan(prologue, device), {"y": pieces["x"]}))
        if isinstance(o, ConvScaleBiasAddActivation) and o.epilogue is not None:
            parts.append(Part(o.epilogue, plan(o.epilogue, device), {"x": pieces["y"]}))
        if isinstance(o, ScaleBiasActivationConvBnstats) and "sums" in pieces:
            made = Plan(o, problem.sums.launches(("ySum", "ySqSum")))
            parts.append(Part(o, made, {"workSpace": pieces["sums"]}))
        return SequencePlan(o, parts, self.name)


class FinishingConvolution(Solver[FusedConvolution]):
    """Serve a convolution by a TMA kernel that finishes y by filter, with channels innermost."""

    prefix = ""

    def __init__(self, kernel: TmaKernel) -> None:
        self.kernel = kernel
        self.name = kernel.name.replace("convolution.implicit_gemm_tma", self.prefix)

    def product(self, problem: FusedConvolution) -> Product | None:
        """Return the product, or None where the kernel does not compute the call."""
        raise TypeError(f"{type(self).__name__} does not define product()")

    def summation_order(self, problem: FusedConvolution) -> Order | None:
        product = self.product(problem)
        return None if product is None else Order(self.prefix, (self.kernel.summation_order(product),))

    def used(self, problem: FusedConvolution) -> Workspace:
        """Return the workspace of the launches."""
        raise TypeError(f"{type(self).__name__} does not define used()")

    def serves(self, problem: FusedConvolution) -> bool:
        return problem.aligned and self.product(problem) is not None

    def applies(self, problem: FusedConvolution) -> bool:
        product = self.product(problem) if problem.aligned else None
        return product is not None and is_preferred(product, self.kernel)

    def workspace_bytes(self, problem: FusedConvolution) -> int:
        return self.used(problem).nbytes

    def alignment(self, problem: FusedConvolution) -> Mapping[str, int]:
        names = ("x", "eqScale", "eqBias", "w", "z", "y")
        return {name: ALIGNMENT for name in names if getattr(problem.operation, name, None) is not None}


class ConvolutionStatistics(FinishingConvolution):
    """Run the prologue, then a convolution that sums y and its squares as it stores y."""

    prefix = "fused_ops.convolution_statistics"

    def product(self, problem: FusedConvolution) -> Product | None:
        o = problem.operation
        if not isinstance(o, ScaleBiasActivationConvBnstats) or (o.ySum or o.ySqSum) is None:
            return None
        found = finished_product(o.inner, problem.device, self.kernel)
        return replace(found, statistics=True) if found else None

    def summation_order(self, problem: FusedConvolution) -> Order | None:
        order = super().summation_order(problem)
        return order and Order(self.name, order.walk)  # Tiles of pixels divide the sums of y.

    def _pieces(self, problem: FusedConvolution) -> tuple[Workspace, SummedConvolution, int, int]:
        """Return the workspace, the convolution, the offset of the scaled x, and the offset of the blocks' sums."""
        o, workspace, product = problem.operation, Workspace(), self.product(problem)
        assert isinstance(o, ScaleBiasActivationConvBnstats) and product is not None
        summed = SummedConvolution(product, self.kernel)
        scaled = workspace.take(o.x.nbytes if o.prologue else 0)
        return workspace, summed, scaled, workspace.take(summed.nbytes)

    def used(self, problem: FusedConvolution) -> Workspace:
        return self._pieces(problem)[0]

    def plan(self, problem: FusedConvolution) -> Plan:
        o, device, (_, summed, scaled, sums_at) = problem.operation, problem.device, self._pieces(problem)
        assert isinstance(o, ScaleBiasActivationConvBnstats)
        where: dict[str, Any] = {"workSpace": sums_at}
        parts = []
        if o.prologue is not None:
            parts.append(Part(o.prologue, plan(o.prologue, device), {"y": scaled}))
            where["x"] = scaled
        of = o.ySum or o.ySqSum
        assert of is not None
        parts.append(Part(o, Plan(o, summed.launches(("ySum", "ySqSum"), of)), where))
        return SequencePlan(o, parts, self.name)


class ConvolutionFactors(FinishingConvolution):
    """Serve a convolution that scales y and z, adds the bias and rectifies as it stores y, in one launch."""

    prefix = "fused_ops.convolution_factors"

    def product(self, problem: FusedConvolution) -> Product | None:
        o = problem.operation
        if not isinstance(o, ConvScaleBiasAddActivation) or o.z not in (None, o.y):
            return None
        known = [spec for spec in (o.eqScale, o.zEqScale, o.zEqBias) if spec is not None]
        plain = all(spec.data_type == o.y.data_type and spec.strides[1] == 1 for spec in known)
        ignores_nan = o.activation is None or o.activation.relu_nan == IGNORED
        found = finished_product(o.inner, problem.device, self.kernel) if known and plain and ignores_nan else None
        if found is None:
            return None
        adds, biased = o.z is not None, o.zEqBias is not None
        names = ("x", "w", "y", "z" if adds else "y", "zEqBias" if biased else "y")
        finish = fill(EpilogueStruct(), alpha=1.0, beta=float(adds), biased=biased, rectified=o.activation is not None)
        return replace(found, operands=names, finish=finish, factors=("eqScale", "zEqScale"))

    def used(self, problem: FusedConvolution) -> Workspace:
        return Workspace()

    def plan(self, problem: FusedConvolution) -> Plan:
        product = self.product(problem)
        assert product is not None
        return SequencePlan(
            problem.operation,
            [Part(problem.operation, Plan(problem.operation, [self.kernel.launch(product)]))],
            self.name,
        )
