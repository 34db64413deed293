"""Tensors of images, channels and pixels as the kernels of this room read them: the structures of problem.cuh."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_uint
from math import prod
from typing import Any

from dualdnn.api.operations import TensorSpec

from ..primitives.geometry import FastDivmod

AXES = 3  # depth, height, width; the depth of an image is 1
WARP = 32
THREADS = 256


class TensorStrides(ctypes.Structure):
    """``TensorStrides`` in problem.cuh."""

    _fields_ = [("image", c_int), ("channel", c_int), ("axis", c_int * AXES)]

    @classmethod
    def of(cls, spec: TensorSpec | None) -> TensorStrides:
        """Return the strides of a tensor; zeros where there is none."""
        if spec is None:
            return cls()
        image, channel, *axes = spec.strides
        return cls(image, channel, (c_int * AXES)(*(0,) * (AXES - len(axes)), *axes))


class Pixels(ctypes.Structure):
    """``Pixels`` in problem.cuh."""

    _fields_ = [
        ("extent", FastDivmod * AXES),
        ("count", c_uint),
        ("channels", c_int),
        ("channels_last", c_int),
        ("words", FastDivmod),
        ("rows", c_uint),
        ("mask_row", c_int),
        ("mask_word", c_int),
    ]

    @classmethod
    def of(cls, spec: TensorSpec, mask: TensorSpec | None = None) -> Pixels:
        """Return the pixels of a tensor, with a bit mask's rows and words."""
        value: Any = cls()
        images, channels, *axes = spec.dims
        for d, extent in enumerate((*(1,) * (AXES - len(axes)), *axes)):
            value.extent[d] = FastDivmod.of(extent)
        value.count = value.rows = images * prod(axes)
        value.channels, value.channels_last = channels, spec.strides[1] == 1 and channels > 1
        value.words = FastDivmod.of(-(-channels // WARP))
        if mask is not None:
            value.words, value.rows = FastDivmod.of(mask.dims[1]), mask.dims[0]
            value.mask_row, value.mask_word = mask.strides[:2]
        return value

    @property
    def tiles(self) -> int:
        """Tiles of 32 pixels by 32 channels that cover the bit mask, or the tensor."""
        value: Any = self
        return int(-(-value.rows // WARP) * value.words.divisor)


def per_channel(spec: TensorSpec | None) -> c_int:
    """Return the elements from one channel of a tensor to the next; 0 where there is none."""
    return c_int(spec.strides[1] if spec else 0)
