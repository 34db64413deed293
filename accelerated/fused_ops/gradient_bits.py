"""The gradient of an activated batch normalisation of planes: the bits of the mask channel by channel
(gradient_bits.cu), then the gradient of batch normalisation by persistent blocks, which reads them."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_int, c_uint
from typing import Any

from dualdnn.api.enumerations import cudnnBatchNormMode_t, cudnnBatchNormOps_t
from dualdnn.api.operations import BatchNormalizationBackwardEx, TensorSpec

from ..normalization.batch import BatchProblem, bytes_of_bits
from ..normalization.batch_planes_persistent import BatchPlanesPersistentSolver
from ..plans import Launch, Plan, pointers, structure
from ..primitives.geometry import FastDivmod, blocks
from ..runtime.device import bytes_to_spread
from ..solver import Problem, Solver
from .gradient import GradientSolver
from .problem import WARP
from .sequence import Part, SequencePlan, Workspace

SOURCE = "fused_ops/gradient_bits.cu"
THREADS = 128
TILE_PIXELS = 256  # of a warp: 32 bytes of bits of a channel
WORDS = 4  # of a pixel that a lane reads together, where there are so many warps for a multiprocessor with them
MANY_WARPS = 4
# Fewer than one for so many multiprocessors, of more bytes of x and dy: no blocks keep one each
FEW_CHANNELS, LARGE_CHANNEL = 4, 128 << 10
NORMALIZATION = BatchPlanesPersistentSolver()


class MaskedGradient(BatchProblem):
    """The gradient of a batch normalisation whose mask has bits, of one channel after the other."""

    has_bits = True


def bits_launch(o: Any, device: Any) -> Launch:
    """Return the launch that writes the bits of the channels."""
    mask: TensorSpec = o.bitMask
    channels, pixels = o.x.dims[1], o.x.count // o.x.dims[1]
    words, tiles = -(-channels // WARP), -(-pixels // TILE_PIXELS)
    beside = mask.strides[1] == 1 and words % WORDS == 0 and mask.strides[0] % WORDS == 0
    many = tiles * words >= MANY_WARPS * WORDS * device.multiprocessors
    width = WORDS if beside and many else 1
    packs = words // width
    arguments = structure(
        *pointers(2),
        ("pixels", c_uint(pixels)),
        ("channels", c_uint(channels)),
        ("row", c_uint(bytes_of_bits(pixels) // 16)),
        ("mask_row", c_int(mask.strides[0])),
        ("mask_word", c_int(mask.strides[1])),
        ("packs", FastDivmod.of(packs)),
    )
    constants = {"THREADS": THREADS, "TILE_PIXELS": TILE_PIXELS, "WORDS": width}
    definitions = tuple(sorted((name, str(value)) for name, value in constants.items()))
    function = device.function(SOURCE, "fused_ops_gradient_bits", definitions)
    grid = blocks(tiles * packs, THREADS // WARP)
    shared_bytes = bytes_to_spread(device, grid[0])
    return Launch(function, arguments, ("bitMask", "workSpace"), grid, (THREADS, 1, 1), shared_bytes)


class GradientBitsSolver(Solver[Problem]):
    """Packed planes, statistics that were saved, and a dx that is wanted, of large channels."""

    name = "fused_ops.gradient_bits"

    @staticmethod
    def _normalization(problem: Problem) -> MaskedGradient | None:
        """Return the gradient behind the mask as a call of batch normalisation; None where it is none."""
        o = problem.operation
        if None in (o.bitMask, o.savedMean, o.dx) or not o.x.spatially_packed:  # rows of the mask are in that order
            return None
        written = [spec for spec in (o.dScale, o.dBias) if spec is not None]
        if any(spec.strides[1] != o.scale.strides[1] for spec in written):
            return None
        mode, ops = cudnnBatchNormMode_t.CUDNN_BATCHNORM_SPATIAL, cudnnBatchNormOps_t.CUDNN_BATCHNORM_OPS_BN
        tensors = (o.x, o.dy, o.dx, o.scale, o.savedMean)
        of_bits = o.x.dims[1] * bytes_of_bits(o.x.count // o.x.dims[1])
        call = BatchNormalizationBackwardEx(
            mode, 1.0, 0.0, 1.0, 0.0, *tensors, o.epsilon, o.savedMean, 0, of_bits, ops, None, o.dz, None
        )
        return MaskedGradient(call, problem.device, problem.aligned)

    @staticmethod
    def _workspace(problem: Problem) -> tuple[Workspace, dict[str, str | int]]:
        """Return the workspace, and where the operands of batch normalisation are."""
        o, workspace = problem.operation, Workspace()
        found = GradientBitsSolver._normalization(problem)
        assert found is not None
        where: dict[str, str | int] = {
            "savedInvVariance": "savedInvStd",
            "workspace": "workSpace",
            "reserveSpace": workspace.take(found.operation.reserve_bytes),
        }
        for name in ("dScale", "dBias"):  # which it always writes
            if getattr(o, name) is None:
                where[name] = workspace.take(o.scale.nbytes)
        return workspace, where

    def serves(self, problem: Problem) -> bool:
        found = self._normalization(problem)
        return found is not None and NORMALIZATION.serves(found)

    def applies(self, problem: Problem) -> bool:
        found, o = self._normalization(problem), problem.operation
        if found is None:
            return False
        few = FEW_CHANNELS * o.x.dims[1] < problem.device.multiprocessors
        large = 2 * (o.x.nbytes // o.x.dims[1]) > LARGE_CHANNEL
        return NORMALIZATION.applies(found) or (few and large and NORMALIZATION.serves(found))

    def workspace_bytes(self, problem: Problem) -> int:
        # The fallback needs its own.
        return max(self._workspace(problem)[0].nbytes, GradientSolver().workspace_bytes(problem))

    def alignment(self, problem: Problem) -> Mapping[str, int]:
        return {name: 16 for name in ("x", "dy", "bitMask", "dx", "dz") if getattr(problem.operation, name) is not None}

    def plan(self, problem: Problem) -> Plan:
        o, found = problem.operation, self._normalization(problem)
        assert found is not None
        _, where = self._workspace(problem)
        parts = [
            Part(o, Plan(o, [bits_launch(o, problem.device)]), {"workSpace": where["reserveSpace"]}),
            Part(found.operation, Plan(found.operation, NORMALIZATION.launches(found)), where),
        ]
        return SequencePlan(o, parts, self.name)
