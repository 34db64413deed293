"""Convolutions between other steps: each by the solver of its own operation, what lies between them in the workspace.

Where the kernel of the convolution adds up what it stores, y is not read again for its statistics.

Roofline bound: what the prologue moves is not saved, x once more read and written; nor an epilogue, y once more read and written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from dualdnn.api.operations import (
    ConvolutionBackwardFilter,
    ConvolutionForward,
    ConvScaleBiasAddActivation,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
)

from ..convolution.implicit_gemm_tma import TmaKernel
from ..convolution.statistics import SummedConvolution
from ..plans import Plan, plan, workspace_bytes
from ..solver import Problem, Solver
from .channel_sums import ChannelSums
from .sequence import ALIGNMENT, Part, SequencePlan, Workspace

Fused = ScaleBiasActivationConvBnstats | ScaleBiasActivationWgrad | ConvScaleBiasAddActivation


class FusedConvolution(Problem):
    """One of the three sequences: its convolution with the workspace that this takes, and the pieces of the call's
    workspace."""

    operation: Fused

    @cached_property
    def inner(self) -> ConvolutionForward | ConvolutionBackwardFilter:
        """The convolution."""
        inner = self.operation.inner
        return replace(inner, workspace_bytes=workspace_bytes(inner, self.device))

    @cached_property
    def sums(self) -> ChannelSums:
        """The sums of y and of its squares."""
        return ChannelSums.of(self.operation, self.device, "y", self.operation.y, self.aligned)

    @cached_property
    def pieces(self) -> tuple[Workspace, dict[str, int]]:
        """The workspace, and where its pieces begin: a tensor between two steps, what the convolution takes, sums."""
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
    """The steps, one after the other."""

    name = "fused_ops.convolution"

    def serves(self, problem: FusedConvolution) -> bool:
        return True

    def workspace_bytes(self, problem: FusedConvolution) -> int:
        # Where y is not aligned the fallback serves, whose sums are divided otherwise.
        fallback = FusedConvolution(problem.operation, problem.device, aligned=False)
        return max(problem.pieces[0].nbytes, fallback.pieces[0].nbytes)

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


class ConvolutionStatistics(Solver[FusedConvolution]):
    """The prologue, and a convolution that adds up y and its squares where it stores y."""

    def __init__(self, kernel: TmaKernel) -> None:
        self.kernel = kernel
        self.name = kernel.name.replace("convolution.implicit_gemm_tma", "fused_ops.convolution_statistics")

    def _summed(self, problem: FusedConvolution) -> SummedConvolution | None:
        """Return the convolution; None where the call has no statistics or the kernel does not compute it."""
        o = problem.operation
        if not isinstance(o, ScaleBiasActivationConvBnstats) or (o.ySum or o.ySqSum) is None or not problem.aligned:
            return None
        return SummedConvolution.of(o.inner, problem.device, self.kernel)

    def serves(self, problem: FusedConvolution) -> bool:
        return self._summed(problem) is not None

    def applies(self, problem: FusedConvolution) -> bool:
        summed = self._summed(problem)
        return summed is not None and summed.is_preferred

    def _pieces(self, problem: FusedConvolution) -> tuple[Workspace, int, int]:
        """Return the workspace, where the scaled x is in it, and the sums of blocks."""
        o, summed, workspace = problem.operation, self._summed(problem), Workspace()
        assert isinstance(o, ScaleBiasActivationConvBnstats) and summed is not None
        scaled = workspace.take(o.x.nbytes if o.prologue else 0)
        return workspace, scaled, workspace.take(summed.nbytes)

    def workspace_bytes(self, problem: FusedConvolution) -> int:
        # The fallback needs its own.
        others = FusedConvolution(problem.operation, problem.device, aligned=False)
        return max(self._pieces(problem)[0].nbytes, others.pieces[0].nbytes)

    def alignment(self, problem: FusedConvolution) -> Mapping[str, int]:
        o = problem.operation
        scaled = isinstance(o, ScaleBiasActivationConvBnstats) and o.prologue is not None
        return dict.fromkeys(("w", "y") if scaled else ("x", "w", "y"), ALIGNMENT)

    def plan(self, problem: FusedConvolution) -> Plan:
        o, device, summed = problem.operation, problem.device, self._summed(problem)
        assert isinstance(o, ScaleBiasActivationConvBnstats) and summed is not None
        _, scaled, sums_at = self._pieces(problem)
        where: dict[str, Any] = {"workSpace": sums_at}
        parts = []
        if o.prologue is not None:
            parts.append(Part(o.prologue, plan(o.prologue, device), {"y": scaled}))
            where["x"] = scaled
        of = o.ySum or o.ySqSum
        assert of is not None
        parts.append(Part(o, Plan(o, summed.launches(("ySum", "ySqSum"), of)), where))
        return SequencePlan(o, parts, self.name)
