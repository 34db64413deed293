"""The gradient of an activated batch normalisation (channel_sums.cu, gradient.cu)."""

from __future__ import annotations

from ctypes import c_longlong
from dataclasses import replace
from typing import Any

from dualdnn.api.operations import BnFinalizeStatisticsTraining, DactivationForkDbatchnorm, TensorSpec

from ..plans import Launch, Plan, factors, plan, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from ..solver import Problem, Solver
from .channel_sums import Segments, sums
from .problem import THREADS, WARP, Pixels, TensorStrides, per_channel
from .sequence import Part, SequencePlan, Workspace

SOURCE = "fused_ops/gradient.cu"
OPERANDS = ("x", "dy", "bitMask", "scale", "savedMean", "savedInvStd", "workSpace", "dx", "dz")


class GradientSolver(Solver[Problem]):
    """Any strides: the sums of each channel, then dx and dz, in tiles of 32 pixels by 32 channels. Statistics that were
    not saved are computed first."""

    name = "fused_ops.gradient"

    def serves(self, problem: Problem) -> bool:
        return True

    def _pieces(self, problem: Problem) -> tuple[Workspace, tuple[int, ...]]:
        """Return the workspace, and where its pieces begin: sums of the gradient; then sums of x, its mean, its inverse
        deviation."""
        o, workspace = problem.operation, Workspace()
        channels, segments = o.x.dims[1], Segments.of(o.x, problem.device)
        nbytes = segments.nbytes(channels)
        sizes = (nbytes,) if o.savedMean else (nbytes, nbytes, *(channels * segments.number_bytes,) * 2)
        return workspace, tuple(map(workspace.take, sizes))

    def workspace_bytes(self, problem: Problem) -> int:
        return self._pieces(problem)[0].nbytes

    def plan(self, problem: Problem) -> Plan:
        o: DactivationForkDbatchnorm = problem.operation
        device, (_, pieces) = problem.device, self._pieces(problem)
        if o.savedMean is not None:
            return SequencePlan(o, [Part(o, Plan(o, _gradient(o, device)), {"workSpace": pieces[0]})], self.name)
        channels, segments = o.x.dims[1], Segments.of(o.x, device)
        numbers = TensorSpec.packed(o.compute_type, (1, channels, *(1,) * (o.x.rank - 2)))
        _, of_x, mean, inverse = pieces
        first = of_x + segments.totals(channels)
        statistics = BnFinalizeStatisticsTraining(
            o.x.count // channels, 0.0, o.epsilon, numbers, numbers, *(None,) * 4, numbers, numbers, None, None
        )
        saved = replace(o, savedMean=numbers, savedInvStd=numbers)
        where: dict[str, str | int] = {"savedMean": mean, "savedInvStd": inverse}
        sums_of_x = {"ySum": first, "ySqSum": first + channels * segments.number_bytes}
        parts = [
            Part(o, Plan(o, sums(o, device, ("x", o.x), ("", ""))), {"workSpace": of_x}),
            Part(statistics, plan(statistics, device), {**sums_of_x, **where}),
            Part(saved, Plan(saved, _gradient(saved, device)), {"workSpace": pieces[0], **where}),
        ]
        return SequencePlan(o, parts, self.name)


def _gradient(o: DactivationForkDbatchnorm, device: Any) -> list[Launch]:
    """Return the launches of an operation whose statistics were saved."""
    pixels = Pixels.of(o.x, o.bitMask)
    pixels.rows = pixels.count
    found = sums(o, device, ("dy", o.dy), ("dBias", "dScale"), gradient=True)
    if o.dx is None and o.dz is None:
        return found
    arguments = structure(
        *pointers(len(OPERANDS)),
        ("sums", c_longlong(Segments.of(o.x, device).totals(o.x.dims[1]))),
        ("pixels", pixels),
        *((f"{name}_strides", TensorStrides.of(getattr(o, name))) for name in ("x", "dy", "dx", "dz")),
        ("parameter_stride", per_channel(o.savedMean)),
        ("scale_stride", per_channel(o.scale)),
        *factors(o, share=1 / pixels.count),
    )
    definitions = type_definitions(o.x.scalar_type, o, THREADS=str(THREADS))
    function = device.function(SOURCE, "fused_ops_gradient", definitions)
    return [*found, Launch(function, arguments, OPERANDS, blocks(pixels.tiles, THREADS // WARP), (THREADS, 1, 1))]
