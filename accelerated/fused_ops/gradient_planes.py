"""The gradient of an activated batch normalisation of planes, channels of which blocks have in registers: the bits of
the mask channel by channel (gradient_bits.cu), then the gradient (gradient_planes.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_uint

from dualdnn.api.operations.specs import DOUBLE

from ..normalization.batch import bytes_of_bits
from ..plans import Launch, Plan, factors, pointers, structure, type_definitions, with_alignment
from ..solver import Problem, Solver
from .gradient import GradientSolver, channel_fields, walk_of
from .gradient_bits import bits_launch
from .problem import PACK_BYTES, WARP, Walk
from .sequence import Part, SequencePlan

SOURCE = "fused_ops/gradient_planes.cu"
OPERANDS = ("x", "dy", "workSpace", "savedMean", "savedInvStd", "scale", "dx", "dz", "dScale", "dBias")
MOST_WARPS, MOST_HELD = 32, 25
# Registers of a thread: of a quarter of a multiprocessor, at most, and those that packs do not have
REGISTERS, MOST_REGISTERS, OTHER_REGISTERS = 512, 255, 28


class GradientPlanesSolver(Solver[Problem]):
    """Planes of packs, statistics that were saved, and a dx that is wanted; float and 16 bits."""

    name = "fused_ops.gradient_planes"

    @staticmethod
    def _held(walk: Walk) -> tuple[int, int] | None:
        """Return the packs of a thread and the threads of a block, as many as have registers for a channel."""
        packs = walk.pixels.count // walk.width
        for held in range(1, MOST_HELD + 1):
            warps = -(-packs // (held * WARP))
            room = min(REGISTERS // -(-warps // 4), MOST_REGISTERS)
            if warps <= MOST_WARPS and 2 * held * PACK_BYTES // 4 + OTHER_REGISTERS <= room:
                return held, warps * WARP
        return None

    def serves(self, problem: Problem) -> bool:
        o = problem.operation
        if None in (o.bitMask, o.savedMean, o.dx) or o.x.data_type == DOUBLE:
            return False
        walk = walk_of(problem)
        return walk.along == "pixels" and walk.width > 1 and self._held(walk) is not None

    def workspace_bytes(self, problem: Problem) -> int:
        x = problem.operation.x
        of_bits = with_alignment(x.dims[1] * bytes_of_bits(x.count // x.dims[1]))
        return max(of_bits, GradientSolver().workspace_bytes(problem))  # the fallback needs its own

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        return dict.fromkeys((*walk_of(problem).wide, "bitMask"), PACK_BYTES)

    def plan(self, problem: Problem) -> Plan:
        o, walk = problem.operation, walk_of(problem)
        found = self._held(walk)
        assert found is not None
        held, threads = found
        arguments = structure(
            *pointers(len(OPERANDS)),
            *channel_fields(o, walk),
            ("packs", c_uint(walk.pixels.count // walk.width)),
            ("row", c_uint(bytes_of_bits(walk.pixels.count))),
            *factors(o, share=1 / walk.pixels.count),
        )
        names = {**walk.definitions(o.x.scalar_bytes), "THREADS": str(threads), "HELD": str(held)}
        definitions = type_definitions(o.x.scalar_type, o, **names)
        function = problem.device.function(SOURCE, "fused_ops_gradient_planes", definitions)
        launch = Launch(function, arguments, OPERANDS, (o.x.dims[1], 1, 1), (threads, 1, 1))
        parts = [Part(o, Plan(o, [step]), {"workSpace": 0}) for step in (bits_launch(o, problem.device), launch)]
        return SequencePlan(o, parts, self.name)
