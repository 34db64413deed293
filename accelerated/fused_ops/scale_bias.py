"""Scaled tensors, added and activated (scale_bias.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any

from dualdnn.api.operations import ScaleBiasAddActivationGenBitmask

from ..plans import COMPUTES, ELEMENTS, Launch, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from ..solver import Problem, Solver
from .problem import THREADS, WARP, Pixels, TensorStrides, per_channel

SOURCE = "fused_ops/scale_bias.cu"
OPERANDS = ("x", "z", "eqScale", "eqBias", "zEqScale", "zEqBias", "y", "bitMask")


class ScaleBiasSolver(Solver[Problem]):
    """Any strides: tiles of 32 pixels by 32 channels."""

    name = "fused_ops.scale_bias"

    def serves(self, problem: Problem) -> bool:
        return True

    def launches(self, problem: Problem) -> list[Launch]:
        o: ScaleBiasAddActivationGenBitmask = problem.operation
        pixels, activation = Pixels.of(o.y, o.bitMask), o.activation
        parameters, z_parameters = o.eqScale or o.eqBias, o.zEqScale or o.zEqBias
        arguments = structure(
            *pointers(len(OPERANDS)),
            ("pixels", pixels),
            *((f"{name}_strides", TensorStrides.of(getattr(o, name))) for name in ("x", "z", "y")),
            ("parameter_stride", per_channel(parameters)),
            ("z_parameter_stride", per_channel(z_parameters)),
            ("rectifies", c_int(activation is not None)),
            ("propagates", c_int(activation.relu_nan if activation is not None else 0)),
        )
        known: Any = parameters or z_parameters
        kind = ELEMENTS[known.scalar_type] if known else COMPUTES[o.compute_type]
        definitions = type_definitions(o.y.scalar_type, o, PARAMETER=kind, THREADS=str(THREADS))
        function = problem.device.function(SOURCE, "fused_ops_scale_bias", definitions)
        return [Launch(function, arguments, OPERANDS, blocks(pixels.tiles, THREADS // WARP), (THREADS, 1, 1))]
