"""The gradient of an activated batch normalisation (channel_sums.cu, gradient.cu)."""

from __future__ import annotations

from ctypes import c_longlong

from dualdnn.api.operations import DactivationForkDbatchnorm

from ..plans import WORKSPACE_ALIGNMENT, Launch, Plan, WorkspacePlan, factors, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from ..solver import Problem, Solver
from .channel_sums import Segments, sums
from .problem import THREADS, WARP, Pixels, TensorStrides, per_channel

SOURCE = "fused_ops/gradient.cu"
OPERANDS = ("x", "dy", "bitMask", "scale", "savedMean", "savedInvStd", "workSpace", "dx", "dz")


class GradientSolver(Solver[Problem]):
    """Any strides: the sums of each channel, then dx and dz, in tiles of 32 pixels by 32 channels."""

    name = "fused_ops.gradient"

    def serves(self, problem: Problem) -> bool:
        return True

    def workspace_bytes(self, problem: Problem) -> int:
        o: DactivationForkDbatchnorm = problem.operation
        return Segments.of(o.x, problem.device).nbytes(o.x.dims[1]) + WORKSPACE_ALIGNMENT - 1

    def launches(self, problem: Problem) -> list[Launch]:
        o: DactivationForkDbatchnorm = problem.operation
        device, pixels = problem.device, Pixels.of(o.x, o.bitMask)
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
            *factors(o, share=1 / pixels.count),
        )
        definitions = type_definitions(o.x.scalar_type, o, THREADS=str(THREADS))
        function = device.function(SOURCE, "fused_ops_gradient", definitions)
        return [*found, Launch(function, arguments, OPERANDS, blocks(pixels.tiles, THREADS // WARP), (THREADS, 1, 1))]

    def plan(self, problem: Problem) -> Plan:
        return WorkspacePlan(problem.operation, self.launches(problem), self.name)
