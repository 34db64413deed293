"""Matrix products of convolutions on tensor cores (convolution/implicit_gemm_mma.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any

from dualdnn.api.enumerations import cudnnMathType_t
from dualdnn.api.operations import allows_tf32
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF

from ..plans import Launch, pointers, structure
from ..primitives.geometry import THREADS
from .implicit_gemm_tma import warp_specialized_launch
from .problem import PLAIN, Convolution, ConvolutionStruct, EpilogueStruct, product_fields

SOURCE = "convolution/implicit_gemm_mma.cu"
POSITIONS = 128  # of a block
ROW_BYTES = 128  # of an operand in one round
STAGES = {("packs", 64): 4, ("packs", 128): 3, ("packs", 256): 4, ("values", 64): 4, ("values", 128): 4}
LEAST_ARCHITECTURE = 80  # with these data types
SWIZZLE_BYTES = 1024  # to whose multiple the stages are aligned
# Tensor cores drop the lower 13 bits of a float. Rounding them to nearest halves the error and costs a detour through
# registers instead of asynchronous copies.
ROUND_TF32 = True
# Hopper's instruction for a whole warpgroup; without it the warp's, which every tensor core has and is slower there.
WGMMA_INSTRUCTIONS = True
MANY_ROUNDS = 8  # from which the larger tile's pace outweighs its longer beginning and end


def allows_tensor_cores(operation: Convolution, device: Any) -> bool:
    """Data type and math type let tensor cores compute this, and the device has them."""
    if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
        return False
    if operation.x.data_type == FLOAT:
        return allows_tf32(operation.convolution)
    fused = operation.convolution.math_type != cudnnMathType_t.CUDNN_FMA_MATH
    return fused and operation.x.data_type in (HALF, BFLOAT16)


def _filters_of_block(value: ConvolutionStruct, groups: int, kind: str, rounds: int, device: Any) -> int:
    """The tile that occupies the device for the shortest time."""

    def tiles(filters: int) -> int:
        return -(-value.filters // filters) * -(-value.positions // POSITIONS) * groups

    if value.filters <= 64 or tiles(128) < device.multiprocessors:
        return 64
    if kind == "values" or rounds < MANY_ROUNDS or value.filters <= 128 or tiles(128) <= device.multiprocessors:
        return 128
    # Two blocks of 128 filters share a multiprocessor: one round of them is as much work as one block of 256.
    pairs = -(-tiles(128) // (2 * device.multiprocessors))
    return 256 if -(-tiles(256) // device.multiprocessors) <= pairs else 128


def tensor_core_launch(
    device: Any,
    definitions: tuple[tuple[str, str], ...],
    value: ConvolutionStruct,
    groups: int,
    element_bytes: int,
    operands: tuple[str, ...],
    offsets: tuple[int, int, int] = (0, 0, 0),
    finish: EpilogueStruct = PLAIN,
    *,
    precomputed: bool = False,
    rounded: bool = False,
) -> Launch:
    """The product of every group. operands: x, w, y, prior, bias; offsets: bytes to the beginning of x, w and y; rounded:
    x and w hold nothing that TF32 has not."""
    kind = "packs" if value.x_packs else "values"
    rounds = -(-value.terms * element_bytes // ROW_BYTES)
    filters = _filters_of_block(value, groups, kind, rounds, device)
    filter_tiles, position_tiles = -(-value.filters // filters), -(-value.positions // POSITIONS)
    arguments = structure(
        *pointers(6),
        *product_fields(value, finish, offsets, position_tiles, filter_tiles),
        ("precomputed", c_int(precomputed)),
        ("rounded", c_int(element_bytes == 4 and ROUND_TF32 and not rounded)),
    )
    variant = () if WGMMA_INSTRUCTIONS else (("MMA_SYNC_ONLY", "1"),)
    function = device.function(SOURCE, f"tensor_core_{kind}_{filters}", (*definitions, *variant))
    shared_bytes = STAGES[kind, filters] * (POSITIONS + filters) * ROW_BYTES + SWIZZLE_BYTES
    grid = (filter_tiles * position_tiles * groups, 1, 1)
    launch = Launch(function, arguments, (*operands, "workSpace"), grid, (THREADS, 1, 1), shared_bytes)
    faster = warp_specialized_launch(
        device, definitions, value, groups, element_bytes, launch.operands, offsets, finish, launch
    )
    return faster or launch
