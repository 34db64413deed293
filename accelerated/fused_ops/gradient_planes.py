"""The gradient of an activated batch normalisation of tensors in planes, in one launch (gradient_planes.cu)."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_uint
from typing import Any, NamedTuple

from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import FastDivmod
from ..solver import Problem
from .gradient import TENSORS, GradientSolver
from .problem import GROUP, PACK_BYTES, TensorStrides, merged, per_channel

SOURCE, KERNEL = "fused_ops/gradient_planes.cu", "fused_ops_gradient_planes"
OPERANDS = ("x", "dy", "bitMask", "savedMean", "savedInvStd", "scale", "workSpace", "dx", "dz", "dBias", "dScale")
THREADS = 704
CHANNELS = (16, 8, 4, 2, 1)  # of a group, all of one word of the bit mask
SLOTS, MOST_SLOTS = 8, 32  # groups in shared memory, at least where there are more
RESERVED_BYTES = 4096  # of shared memory
WORD_BYTES = 4
LEAST_ELEMENTS = 1 << 20  # of a tensor: less is latency


class Division(NamedTuple):
    """Packs of a plane, of all images, of a block; blocks; channels of a group, groups of them, slots for groups."""

    plane: int
    packs: int
    share: int
    blocks: int
    group: int
    groups: int
    slots: int
    strides: Mapping[str, TensorStrides]

    @classmethod
    def of(cls, problem: Problem) -> Division | None:
        """Return the division of a call; None where a kernel does not take its tensors, or shared memory its groups."""
        o, device = problem.operation, problem.device
        tensors = {name: getattr(o, name) for name in TENSORS if getattr(o, name) is not None}
        extents, steps = merged(o.x.dims, [spec.strides for spec in tensors.values()])
        width, channels = PACK_BYTES // o.x.scalar_bytes, o.x.dims[1]
        strides = {
            name: TensorStrides(step[0] if len(extents) > 1 else 0, spec.strides[1])
            for (name, spec), step in zip(tensors.items(), steps, strict=True)
        }
        lies = len(extents) < 3 and all(step[-1] == 1 for step in steps) and extents[-1] % width == 0
        if "dx" not in tensors or not lies or any(s.image % width or s.channel % width for s in strides.values()):
            return None
        plane = extents[-1] // width
        packs = plane * (extents[0] if len(extents) > 1 else 1)
        # The emulated device runs one block at a time. Two launches whose blocks wait for each other have no room together.
        share = -(-packs // (device.multiprocessors if device.kind == "gpu" else 1))
        blocks = -(-packs // share)
        if blocks > 1 and 2 * blocks <= device.multiprocessors:
            return None
        room = (device.shared_bytes_per_block - RESERVED_BYTES) // PACK_BYTES - _word_packs(share, width)
        for group in CHANNELS:
            groups = channels // group
            slots = min(groups, room // (2 * group * share), MOST_SLOTS)
            if channels % group == 0 and slots >= min(SLOTS, groups):
                return cls(plane, packs, share, blocks, group, groups, slots, strides)
        return None


def _word_packs(share: int, width: int) -> int:
    """Return the packs of 16 bytes that the words of the bit mask of a share take, and those of the next channels."""
    return -(-2 * share * width * WORD_BYTES // PACK_BYTES)


class GradientPlanesSolver(GradientSolver):
    """Planes made of packs, whose channels the shared memory of all blocks holds, a few at a time, between their sums and their
    gradients."""

    name = "fused_ops.gradient_planes"

    def serves(self, problem: Problem) -> bool:
        return problem.aligned and Division.of(problem) is not None

    def applies(self, problem: Problem) -> bool:
        return problem.operation.x.count >= LEAST_ELEMENTS and self.serves(problem)

    def _of_gradient(self, problem: Problem) -> int:
        division, o = Division.of(problem), problem.operation
        assert division is not None
        return 2 * division.blocks * o.x.dims[1] * (8 if o.x.data_type == DOUBLE else 4)

    def workspace_bytes(self, problem: Problem) -> int:
        fallback = Problem(problem.operation, problem.device, aligned=False)
        return max(self._pieces(problem)[0].nbytes, GradientSolver()._pieces(fallback)[0].nbytes)

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        wide = (name for name in TENSORS if getattr(problem.operation, name) is not None)
        return {**super().alignment(problem), **dict.fromkeys(wide, PACK_BYTES)}

    def _gradient(self, problem: Problem) -> list[Launch]:
        o, division = problem.operation, Division.of(problem)
        assert division is not None
        row, word = o.bitMask.strides[:2] if o.bitMask is not None else (0, 0)
        arguments = structure(
            *pointers(len(OPERANDS)),
            *((f"{name}_strides", division.strides.get(name, TensorStrides())) for name in TENSORS),
            ("plane", FastDivmod.of(division.plane)),
            ("packs", c_uint(division.packs)),
            ("share", c_uint(division.share)),
            ("group", c_uint(division.group)),
            ("groups", c_uint(division.groups)),
            ("slots", c_uint(division.slots)),
            ("mask_row", c_int(row)),
            ("mask_word", c_int(word)),
            ("parameter_stride", per_channel(o.savedMean)),
            ("scale_stride", per_channel(o.scale)),
            ("result_stride", per_channel(o.dBias or o.dScale)),
            *factors(o, count_share=o.x.dims[1] / o.x.count),
        )
        constants = {"THREADS": THREADS, "GROUP": GROUP, "RANK": 1, "PACK_BYTES": PACK_BYTES}
        definitions: Any = type_definitions(
            o.x.scalar_type, o, **{name: str(value) for name, value in constants.items()}
        )
        words = _word_packs(division.share, PACK_BYTES // o.x.scalar_bytes)
        shared = (words + 2 * division.slots * division.group * division.share) * PACK_BYTES
        function = problem.device.function(SOURCE, KERNEL, definitions)
        cooperative = division.blocks > 1
        return [Launch(function, arguments, OPERANDS, (division.blocks, 1, 1), (THREADS, 1, 1), shared, cooperative)]
