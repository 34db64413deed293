"""Compute two sums for each channel (channel_sums.cu), in a workspace aligned to 16 bytes."""

from __future__ import annotations

import ctypes
from ctypes import c_longlong, c_uint
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import DOUBLE

from ..plans import Launch, factors, fields_of, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from .problem import BLOCKS_PER_MULTIPROCESSOR, GROUP, THREADS, WARP, Walk, per_channel

SOURCE = "fused_ops/channel_sums.cu"
MIN_ACCESSES = 8  # per thread in a segment
FINISH_CHANNELS = 8  # per block that adds segments
FACTORS = 4  # per channel of the gradient
ALIGNMENT = 16  # bytes, for the factors


class Segments(NamedTuple):
    """Divide the pixels of a tensor into segments.

    The fields are channels per block, vectors of channels side by side, and segments. They continue with pixels or
    vectors of pixels per segment, bytes of a number, and channels.
    """

    block_channels: int
    lanes: int
    segments: int
    length: int
    number_bytes: int
    channels: int

    @classmethod
    def of(cls, walk: Walk, spec: TensorSpec, device: Any) -> Segments:
        """Return the division that keeps every multiprocessor busy."""
        channels, pixels = spec.dims[1], walk.pixels.count
        if walk.along == "channels":
            lanes = min(WARP, 1 << (-(-channels // walk.width) - 1).bit_length())
            each, items, rows = lanes * walk.width, pixels, THREADS // lanes
        else:
            lanes, each, items, rows = 1, GROUP, pixels // walk.width, THREADS
        most = BLOCKS_PER_MULTIPROCESSOR[walk.along] * device.multiprocessors
        wanted = -(-most // -(-channels // each))
        least = MIN_ACCESSES if walk.along == "channels" else 1
        length = max(least * rows, -(-items // wanted))
        number_bytes = 8 if spec.data_type == DOUBLE else 4
        return cls(each, lanes, -(-items // length), length, number_bytes, channels)

    @property
    def totals(self) -> int:
        """Return the bytes from the first sum to the totals over all segments."""
        return 2 * self.segments * self.channels * self.number_bytes

    @property
    def factors(self) -> int:
        """Return the bytes from the first sum to the factors of the gradient."""
        end = self.totals + 2 * self.channels * self.number_bytes
        return -(-end // ALIGNMENT) * ALIGNMENT

    @property
    def nbytes(self) -> int:
        """Return the bytes of workspace: the sums of each segment, the totals, and the factors."""
        return self.factors + FACTORS * self.channels * self.number_bytes


class ChannelSums(NamedTuple):
    """Sum a tensor y and its squares, or the gradient dy and its products with x."""

    operation: Any
    device: Any
    name: str  # operand that is summed
    spec: TensorSpec
    walk: Walk
    segments: Segments
    is_gradient: bool

    @classmethod
    def of(cls, operation: Any, device: Any, name: str, spec: TensorSpec, aligned: bool) -> ChannelSums:
        """Return the sums of y, or of x for its mean."""
        walk = Walk.of({name: spec}, device, aligned)
        return cls(operation, device, name, spec, walk, Segments.of(walk, spec, device), False)

    @classmethod
    def of_gradient(cls, operation: Any, device: Any, aligned: bool) -> ChannelSums:
        """Return the sums of dy after the mask bitMask, and of its products with the normalised x."""
        walk = Walk.of({"x": operation.x, "dy": operation.dy}, device, aligned, operation.bitMask)
        segments = Segments.of(walk, operation.dy, device)
        return cls(operation, device, "dy", operation.dy, walk, segments, True)

    def launches(self, results: tuple[str, str], start: int = 0) -> list[Launch]:
        """Return the launches.

        ``results`` are the operands of the two sums, which the call may lack; they are empty where only the workspace
        keeps the sums. ``start`` counts the bytes of workspace before the sums.
        """
        o, walk, segments = self.operation, self.walk, self.segments
        written = next((spec for spec in (getattr(o, result, None) for result in results if result) if spec), None)
        used = ("x", "bitMask", "savedMean", "savedInvStd", "scale") if self.is_gradient else ("",) * 5
        operands = (self.name, *used, "workSpace", *results)
        wants_factors = self.is_gradient and o.dx is not None
        arguments: ctypes.Structure = structure(
            *pointers(len(operands)),
            *fields_of(c_longlong, partials=start, totals=start + segments.totals),
            ("factors", c_longlong(start + segments.factors if wants_factors else 0)),
            ("pixels", walk.pixels),
            ("first_strides", walk.strides[self.name]),
            ("x_strides", walk.strides["x" if self.is_gradient else self.name]),
            ("parameter_stride", per_channel(o.savedMean if self.is_gradient else None)),
            ("scale_stride", per_channel(o.scale if self.is_gradient else None)),
            ("result_stride", per_channel(written)),
            *fields_of(c_uint, segments=segments.segments, segment=segments.length, lanes=segments.lanes),
            *factors(o, share=1 / walk.pixels.count),
        )
        definitions = type_definitions(self.spec.scalar_type, o, **walk.definitions(self.spec.scalar_bytes))
        kind = "gradient" if self.is_gradient else "squares"
        grids = {
            f"fused_ops_channel_{kind}_{walk.along}": (
                -(-segments.channels // segments.block_channels),
                segments.segments,
                1,
            ),
            "fused_ops_channel_sums_finish": blocks(segments.channels, FINISH_CHANNELS),
        }
        return [
            Launch(self.device.function(SOURCE, kernel, definitions), arguments, operands, grid, (THREADS, 1, 1))
            for kernel, grid in grids.items()
        ]
