"""Plan the gradient of an activated batch normalisation (channel_sums.cu, gradient.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_longlong
from dataclasses import replace
from typing import Any

from dualdnn.api.operations import BnFinalizeStatisticsTraining, DactivationForkDbatchnorm, TensorSpec

from ..plans import Launch, Plan, plan, pointers, structure, type_definitions
from ..reproducible import Order
from ..solver import Problem, Solver
from .channel_sums import ChannelSums
from .problem import THREADS, VECTOR_BYTES, Walk
from .sequence import Part, SequencePlan, Workspace

SOURCE = "fused_ops/gradient.cu"
OPERANDS = ("x", "dy", "bitMask", "workSpace", "dx", "dz")
TENSORS = ("x", "dy", "dx", "dz")


def walk_of(problem: Problem) -> Walk:
    """Return the walk over the tensors of a gradient."""
    o = problem.operation
    return Walk.of({name: getattr(o, name) for name in TENSORS}, problem.device, problem.aligned, o.bitMask)


class GradientSolver(Solver[Problem]):
    """Serve any strides: the sums of each channel, then dx and dz, along channels or pixels. Statistics that were not
    saved are computed first.
    """

    name = "fused_ops.gradient"

    def _pieces(self, problem: Problem) -> tuple[Workspace, tuple[int, ...]]:
        """Return the workspace, and the offsets of its regions: sums of the gradient, then sums of x, its mean, and its
        inverse deviation.
        """
        o, workspace = problem.operation, Workspace()
        sizes: tuple[int, ...] = (ChannelSums.of_gradient(o, problem.device, problem.aligned).segments.nbytes,)
        if o.savedMean is None:
            of_x = ChannelSums.of(o, problem.device, "x", o.x, problem.aligned).segments
            sizes = (*sizes, of_x.nbytes, *(of_x.channels * of_x.number_bytes,) * 2)
        return workspace, tuple(map(workspace.take, sizes))

    def workspace_bytes(self, problem: Problem) -> int:
        return self._pieces(problem)[0].nbytes

    def summation_order(self, problem: Problem) -> Order:
        return Order(self.name, (problem.operation, problem.aligned))

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        o, device, aligned = problem.operation, problem.device, problem.aligned
        sums = [ChannelSums.of_gradient(o, device, aligned)]
        sums += [ChannelSums.of(o, device, "x", o.x, aligned)] if o.savedMean is None else []
        return dict.fromkeys((*walk_of(problem).wide, *(name for one in sums for name in one.walk.wide)), VECTOR_BYTES)

    def plan(self, problem: Problem) -> Plan:
        o: DactivationForkDbatchnorm = problem.operation
        device, (_, pieces) = problem.device, self._pieces(problem)
        if o.savedMean is not None:
            made = Plan(o, self._gradient(problem))
            return SequencePlan(o, [Part(o, made, {"workSpace": pieces[0]})], self.name)
        channels, of_x = o.x.dims[1], ChannelSums.of(o, device, "x", o.x, problem.aligned)
        numbers = TensorSpec.packed(o.compute_type, (1, channels, *(1,) * (o.x.rank - 2)))
        _, at, mean, inverse = pieces
        first = at + of_x.segments.totals
        statistics = BnFinalizeStatisticsTraining(
            o.x.count // channels, 0.0, o.epsilon, numbers, numbers, *(None,) * 4, numbers, numbers, None, None
        )
        saved = replace(o, savedMean=numbers, savedInvStd=numbers)
        where: dict[str, str | int] = {"savedMean": mean, "savedInvStd": inverse}
        sums_of_x = {"ySum": first, "ySqSum": first + channels * of_x.segments.number_bytes}
        made = Plan(saved, self._gradient(Problem(saved, device, problem.aligned)))
        parts = [
            Part(o, Plan(o, of_x.launches(("", ""))), {"workSpace": at}),
            Part(statistics, plan(statistics, device), {**sums_of_x, **where}),
            Part(saved, made, {"workSpace": pieces[0], **where}),
        ]
        return SequencePlan(o, parts, self.name)

    def _gradient(self, problem: Problem) -> list[Launch]:
        """Return the launches of an operation whose statistics were saved."""
        o, device = problem.operation, problem.device
        sums, walk = ChannelSums.of_gradient(o, device, problem.aligned), walk_of(problem)
        found = sums.launches(("dBias", "dScale"))
        if o.dx is None and o.dz is None:
            return found
        arguments = structure(
            *pointers(len(OPERANDS)),
            ("factors", c_longlong(sums.segments.factors)),
            ("pixels", walk.pixels),
            *((f"{name}_strides", walk.strides[name]) for name in TENSORS),
        )
        definitions: Any = type_definitions(o.x.scalar_type, o, **walk.definitions(o.x.scalar_bytes))
        function = device.function(SOURCE, f"fused_ops_gradient_{walk.along}", definitions)
        return [*found, Launch(function, arguments, OPERANDS, walk.grid, (THREADS, 1, 1))]
