"""Two sums for each channel (channel_sums.cu), in a workspace that begins at a multiple of 16 bytes."""

from __future__ import annotations

import ctypes
from ctypes import c_longlong, c_uint
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from .problem import THREADS, WARP, Pixels, TensorStrides, per_channel

SOURCE = "fused_ops/channel_sums.cu"
LEAST_PIXELS = 64  # of a segment
BLOCKS_PER_MULTIPROCESSOR = 4


class Segments(NamedTuple):
    """How the pixels of a tensor are divided: so many segments, pixels of each, bytes of a sum."""

    segments: int
    pixels: int
    number_bytes: int

    @classmethod
    def of(cls, spec: TensorSpec, device: Any) -> Segments:
        """Return the division that keeps every multiprocessor busy."""
        pixels, channels = spec.count // spec.dims[1], spec.dims[1]
        wanted = -(-BLOCKS_PER_MULTIPROCESSOR * device.multiprocessors // -(-channels // WARP))
        length = max(LEAST_PIXELS, -(-pixels // wanted))
        return cls(-(-pixels // length), length, 8 if spec.data_type == DOUBLE else 4)

    def nbytes(self, channels: int) -> int:
        """Return the bytes of workspace: the sums of each segment, and those of all behind them."""
        return self.totals(channels) + 2 * channels * self.number_bytes

    def totals(self, channels: int) -> int:
        """Return the bytes from the first sum to those of all segments."""
        return 2 * self.segments * channels * self.number_bytes


def sums(
    operation: Any,
    device: Any,
    of: tuple[str, TensorSpec],
    results: tuple[str, str],
    start: int = 0,
    gradient: bool = False,
) -> list[Launch]:
    """Return the launches. of: the operand y or dy, and its description; results: the operands of the two sums, which
    the call may lack, empty where only the workspace keeps them; start: bytes of workspace before the sums; gradient:
    of dy behind the operand bitMask and with the normalised operand x."""
    name, spec = of
    mask = operation.bitMask if gradient else None
    segments, pixels = Segments.of(spec, device), Pixels.of(spec, mask)
    written = next((spec for spec in (getattr(operation, result, None) for result in results if result) if spec), None)
    used = ("x", "bitMask", "savedMean", "savedInvStd") if gradient else ("",) * 4
    operands = (name, *used, "workSpace", *results)
    arguments: ctypes.Structure = structure(
        *pointers(len(operands)),
        ("partials", c_longlong(start)),
        ("pixels", pixels),
        ("first_strides", TensorStrides.of(spec)),
        ("x_strides", TensorStrides.of(operation.x if gradient else None)),
        ("parameter_stride", per_channel(operation.savedMean if gradient else None)),
        ("result_stride", per_channel(written)),
        ("segments", c_uint(segments.segments)),
        ("segment", c_uint(segments.pixels)),
    )
    definitions = type_definitions(spec.scalar_type, operation, THREADS=str(THREADS))
    channels = spec.dims[1]
    grids = {
        f"fused_ops_channel_sums_{'gradient' if gradient else 'squares'}": (-(-channels // WARP), segments.segments, 1),
        "fused_ops_channel_sums_finish": blocks(channels, THREADS),
    }
    return [
        Launch(device.function(SOURCE, kernel, definitions), arguments, operands, grid, (THREADS, 1, 1))
        for kernel, grid in grids.items()
    ]
