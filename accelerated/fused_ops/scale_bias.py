"""Scale, add and activate tensors (scale_bias.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int
from typing import Any

from dualdnn.api.operations import ScaleBiasAddActivationGenBitmask

from ..plans import COMPUTES, ELEMENTS, Launch, pointers, structure, type_definitions
from ..reproducible import NO_SUMS
from ..solver import Problem, Solver
from .problem import GROUP, THREADS, VECTOR_BYTES, WARP, Walk, per_channel

SOURCE = "fused_ops/scale_bias.cu"
OPERANDS = ("x", "z", "eqScale", "eqBias", "zEqScale", "zEqBias", "y", "bitMask")
SINGLE_ELEMENTS = 4  # elements per channel of a lane, along pixels


class ScaleBiasSolver(Solver[Problem]):
    """Serve any strides, along channels or pixels, in vectors where the strides allow it."""

    name = "fused_ops.scale_bias"
    fixed_order = NO_SUMS

    def _walk(self, problem: Problem) -> Walk:
        o: ScaleBiasAddActivationGenBitmask = problem.operation
        tensors = {"x": o.x, "z": o.z, "y": o.y}
        return Walk.of(tensors, problem.device, problem.aligned, o.bitMask, writes_mask=True)

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        return dict.fromkeys(self._walk(problem).wide, VECTOR_BYTES)

    def launches(self, problem: Problem) -> list[Launch]:
        o: ScaleBiasAddActivationGenBitmask = problem.operation
        walk, activation = self._walk(problem), o.activation
        parameters, z_parameters = o.eqScale or o.eqBias, o.zEqScale or o.zEqBias
        arguments = structure(
            *pointers(len(OPERANDS)),
            ("pixels", walk.pixels),
            *((f"{name}_strides", walk.strides[name]) for name in ("x", "z", "y")),
            ("parameter_stride", per_channel(parameters)),
            ("z_parameter_stride", per_channel(z_parameters)),
            ("rectified", c_int(activation is not None)),
            ("keeps_nan", c_int(activation is not None and activation.relu_nan)),
        )
        known: Any = parameters or z_parameters
        kind = ELEMENTS[known.scalar_type] if known else COMPUTES[o.compute_type]
        definitions = type_definitions(o.y.scalar_type, o, PARAMETER=kind, **walk.definitions(o.y.scalar_bytes))
        function = problem.device.function(SOURCE, f"fused_ops_scale_bias_{walk.along}", definitions)
        grid, threads = walk.grid, THREADS
        if walk.along == "pixels":  # A block has one word of some pixels.
            pixels = WARP * (walk.width if walk.width > 1 else SINGLE_ELEMENTS)
            grid, threads = (-(-walk.pixels.rows // pixels) * walk.pixels.groups.divisor, 1, 1), WARP // GROUP * WARP
        return [Launch(function, arguments, OPERANDS, grid, (threads, 1, 1))]
