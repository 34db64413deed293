"""Describe tensors of images, channels and pixels to the kernels of this package: the structures of problem.cuh."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import c_int, c_uint
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec

from ..primitives.geometry import FastDivmod, blocks, merge_along
from ..runtime.arguments import declared

AXES = 3  # dimensions of a pixel within its image: depth, height, width
WARP = 32
RANKS = (1, 2, 4)  # merged dimensions of pixels that have kernels: dense NHWC, NCHW, and any others
GROUP = 8  # channels per warp along pixels
THREADS = 256
VECTOR_BYTES = 16
# Along channels, the registers of the gradient's kernels limit the blocks. Along pixels there are a few more.
BLOCKS_PER_MULTIPROCESSOR = {"channels": 3, "pixels": 4}


class TensorStrides(ctypes.Structure):
    """Mirror ``TensorStrides`` of problem.cuh."""

    _fields_ = [("image", c_int), ("channel", c_int), ("axis", c_int * AXES)]


class Pixels(ctypes.Structure):
    """Mirror ``Pixels`` of problem.cuh."""

    _fields_ = [
        ("extent", FastDivmod * AXES),
        *declared(c_uint, "count rows"),
        ("channels", c_int),
        ("groups", FastDivmod),
        *declared(c_int, "mask_row mask_word"),
        ("vectors", FastDivmod),
        ("step", c_uint),
    ]


class Walk(NamedTuple):
    """Describe the walk over pixels and channels of tensors, ``along`` channels or pixels; ``width`` counts elements
    per access.
    """

    along: str
    width: int
    rank: int  # dimensions of pixels, one of RANKS
    pixels: Any
    strides: Mapping[str, TensorStrides]
    wide: tuple[str, ...]  # tensors that must be aligned to VECTOR_BYTES

    @classmethod
    def of(
        cls,
        tensors: Mapping[str, TensorSpec | None],
        device: Any,
        aligned: bool,
        mask: TensorSpec | None = None,
        writes_mask: bool = False,
    ) -> Walk:
        """Return the walk over tensors of the same dimensions, by the layout of the last one.

        ``aligned``: accesses may have VECTOR_BYTES, where the strides allow it. ``writes_mask``: along pixels groups
        have the channels of a word, and the walk covers all rows and words of the bit mask.
        """
        known = {name: spec for name, spec in tensors.items() if spec is not None}
        *_, last = known.values()
        channels = last.dims[1]
        extents, steps = merge_along((0, *range(2, last.rank)), last.dims, [spec.strides for spec in known.values()])
        along = "channels" if channels > 1 and last.strides[1] == 1 else "pixels"
        width = VECTOR_BYTES // last.scalar_bytes
        inner = channels if along == "channels" else extents[-1]
        for spec, step in zip(known.values(), steps, strict=True):
            apart = [*step, spec.strides[1]]
            unit = len(step) - (along == "pixels")
            fits = apart[unit] == 1 or (along == "pixels" and inner == 1)
            others = [s for d, s in enumerate(apart) if d != unit and (d == len(step) or extents[d] > 1)]
            if not aligned or not fits or inner % width or any(s % width for s in others):
                width = 1
        value: Any = Pixels()
        for d in range(AXES):
            value.extent[d] = FastDivmod.of(1)
        for d, extent in enumerate(extents[:0:-1], 1):
            value.extent[AXES - d] = FastDivmod.of(extent)
        strides = {name: TensorStrides() for name in tensors}
        for (name, spec), step in zip(known.items(), steps, strict=True):
            axes = (0,) * (AXES - len(step) + 1) + tuple(step[1:])
            strides[name] = TensorStrides(step[0], spec.strides[1], (c_int * AXES)(*axes))
        value.count = value.rows = prod(extents)
        value.channels, groups, vectors = channels, -(-channels // GROUP), -(-channels // width)
        if mask is not None:
            value.mask_row, value.mask_word = mask.strides[:2]
        if writes_mask:
            value.rows, groups = (value.rows, -(-channels // WARP)) if mask is None else mask.dims[:2]
            vectors = vectors if mask is None else groups * WARP // width
        value.groups = FastDivmod.of(groups)
        value.vectors = FastDivmod.of(vectors)
        most = BLOCKS_PER_MULTIPROCESSOR[along] * device.multiprocessors * THREADS // vectors
        value.step = min(value.rows, max(1, most))
        rank = next(rank for rank in RANKS if rank >= len(extents))
        return cls(along, width, rank, value, strides, tuple(known) if width > 1 else ())

    @property
    def grid(self) -> tuple[int, int, int]:
        """Return the grid of the walks along channels, or along pixels where each warp has a group of channels."""
        if self.along == "channels":
            return blocks(self.pixels.step * self.pixels.vectors.divisor, THREADS)
        return blocks(-(-self.pixels.rows // (WARP * self.width)) * self.pixels.groups.divisor, THREADS // WARP)

    def definitions(self, element_bytes: int) -> dict[str, str]:
        """Return the definitions of the kernels' module, except the types."""
        constants = {"THREADS": THREADS, "GROUP": GROUP, "RANK": self.rank, "VECTOR_BYTES": self.width * element_bytes}
        return {name: str(value) for name, value in constants.items()}


def per_channel(spec: TensorSpec | None) -> c_int:
    """Return the stride between channels of a tensor in elements, or 0 without a tensor."""
    return c_int(spec.strides[1] if spec else 0)
