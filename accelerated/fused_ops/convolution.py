"""Serve convolutions between other steps. Each step has its own solver, and the workspace holds the tensors in between.

Roofline bound: as the convolution's. Steps write and read x once more in the prologue, and y in the epilogue.
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

from ..plans import Plan, plan, workspace_bytes
from ..primitives.tma import ALIGNMENT
from ..reproducible import OVER_BATCH, Order
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
