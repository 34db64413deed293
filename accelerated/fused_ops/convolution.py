"""Convolutions between other steps: each by the solver of its own operation, what lies between them in the workspace.

Roofline bound: what the prologue and the epilogue move is not saved: x once more read and written, y once more read.
"""

from __future__ import annotations

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

from ..plans import Plan, plan, workspace_bytes
from ..solver import Problem, Solver
from .channel_sums import Segments, sums
from .sequence import Part, SequencePlan, Workspace

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
            found["sums"] = workspace.take(Segments.of(o.y, self.device).nbytes(o.y.dims[1]))
        return workspace, found


class ConvolutionSequence(Solver[FusedConvolution]):
    """The steps, one after the other."""

    name = "fused_ops.convolution"

    def serves(self, problem: FusedConvolution) -> bool:
        return True

    def workspace_bytes(self, problem: FusedConvolution) -> int:
        return problem.pieces[0].nbytes

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
            launches = sums(o, device, ("y", o.y), ("ySum", "ySqSum"))
            parts.append(Part(o, Plan(o, launches), {"workSpace": pieces["sums"]}))
        return SequencePlan(o, parts, self.name)
