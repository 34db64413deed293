"""Describes and encodes tensor maps, which TMA reads to copy tiles between global and shared memory.

TMA needs compute capability 9.0; primitives/tma.cuh issues the copies. A map contains the tensor's address, so it is
encoded when a kernel is launched.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from .arguments import declared
from .errors import DeviceError

MAP_BYTES = 128
ALIGNMENT = 16  # bytes, alignment of the tensor's address and strides
ROW_BYTES = 128  # bytes per row of a tile, the unit that the 128-byte swizzle permutes
# cuTensorMapEncodeTiled and cuTensorMapEncodeIm2col have these limits.
_LIMITS = {"extent": 2**31 - 1, "stride": 2**40 - 1, "step": 8, "box": 256, "pixels": 1024}
_CORNER_BITS = {4: 8, 5: 5}  # bits per corner coordinate and per offset of the instruction, by rank of the map


@dataclass(frozen=True)
class TensorMap:
    """Describe a tensor, innermost dimension first, and the tiles that are copied.

    element: half, bfloat16, float, or tf32 for floats that the copy rounds to TF32. extent: elements per dimension.
    strides: bytes per dimension, without the innermost one.
    """

    element: str
    extent: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def element_bytes(self) -> int:
        return 4 if self.element in ("float", "tf32") else 2

    @property
    def is_possible(self) -> bool:
        """Return whether the driver encodes the map, for an address that is a multiple of ALIGNMENT."""
        fits = all(0 < extent <= _LIMITS["extent"] for extent in self.extent)
        fits = fits and 3 <= len(self.extent) <= 5 and len(self.strides) == len(self.extent) - 1
        return fits and all(0 < s <= _LIMITS["stride"] and s % ALIGNMENT == 0 for s in self.strides)


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """Describe an im2col map, which reads input pixels in the order of a convolution's output pixels.

    Its dimensions are channels, columns, rows, depth (of volumes) and images. lower, upper: corners of the bounding
    box of the pixels under the first tap, along columns, rows and depth. lower counts from the first pixel, upper from
    the last. step: distance of neighbouring pixels. taps: largest offset of a tap. pixels: rows of a tile.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    step: tuple[int, ...]
    taps: tuple[int, ...]
    pixels: int

    @property
    def is_possible(self) -> bool:
        bits = _CORNER_BITS.get(len(self.extent))
        if bits is None or not super().is_possible:
            return False
        corners = all(-(1 << bits - 1) <= corner < 1 << bits - 1 for corner in (*self.lower, *self.upper))
        shifts = all(0 <= tap < 1 << bits for tap in self.taps) and all(0 < s <= _LIMITS["step"] for s in self.step)
        box = zip(self.extent[1:-1], self.lower, self.upper, strict=True)
        fits = 0 < self.pixels <= _LIMITS["pixels"] and all(extent + upper > lower for extent, lower, upper in box)
        return corners and shifts and fits


@dataclass(frozen=True)
class BoxMap(TensorMap):
    """Describe a map of the tiled mode. box: elements per dimension; the innermost extent is a multiple of 16 bytes."""

    box: tuple[int, ...]

    @property
    def is_possible(self) -> bool:
        aligned = self.box[0] * self.element_bytes % ALIGNMENT == 0 and len(self.box) == len(self.extent)
        return super().is_possible and aligned and all(0 < size <= _LIMITS["box"] for size in self.box)


@dataclass(frozen=True)
class UnswizzledTiledMap(BoxMap):
    """Describe boxes of a four-dimensional tensor that are dense in shared memory, without a swizzle."""


@dataclass(frozen=True)
class TiledMap(BoxMap):
    """Describe boxes with rows of 128 bytes and the 128-byte swizzle, of a tensor of three or five dimensions.

    The fourth and fifth dimensions of a box have one element.
    """

    @property
    def is_possible(self) -> bool:
        return super().is_possible and self.box[0] * self.element_bytes == ROW_BYTES


class EmulatedMap(ctypes.Structure):
    """Lay out a map of the emulated device, field by field like ``Map`` in primitives/tma.cuh."""

    _fields_ = [
        ("base", ctypes.c_uint64),
        ("stride", ctypes.c_longlong * 4),
        ("extent", ctypes.c_int * 5),
        *declared(ctypes.c_short * 3, "lower upper step"),
        ("pixels", ctypes.c_int),
        ("box", ctypes.c_int * 5),
        *declared(ctypes.c_int, "rank element_bytes columns rounded dense"),
    ]


def emulated_map(wanted: TensorMap, address: int) -> bytes:
    """Return the MAP_BYTES of a map for the emulated device. Raises DeviceError where the driver would refuse it."""
    if address % ALIGNMENT or not wanted.is_possible:
        raise DeviceError(f"TMA cannot read {wanted} at {address:#x}")
    made = EmulatedMap(base=address, rank=len(wanted.extent), element_bytes=wanted.element_bytes)
    made.stride[: len(wanted.strides)] = wanted.strides
    made.extent[: len(wanted.extent)] = wanted.extent
    made.rounded = wanted.element == "tf32"
    if isinstance(wanted, Im2colMap):
        made.columns, made.pixels = True, wanted.pixels
        axes = len(wanted.lower)
        made.lower[:axes], made.upper[:axes], made.step[:axes] = wanted.lower, wanted.upper, wanted.step
    elif isinstance(wanted, BoxMap):
        made.box[: len(wanted.box)] = wanted.box
        made.dense = isinstance(wanted, UnswizzledTiledMap)
    return bytes(made).ljust(MAP_BYTES, b"\0")


# These numbers are enumerators of cuda.h.
_DATA_TYPES = {"half": 6, "float": 7, "bfloat16": 9, "tf32": 11}  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16 and so on
_NOT_INTERLEAVED = 0
_NOT_SWIZZLED = 0
_SWIZZLE_128B = 3
_L2_PROMOTION_256B = 3
_ZEROS_OUTSIDE = 0
_INT, _UINT, _POINTER = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
_TILED = "cuTensorMapEncodeTiled"
_IM2COL = "cuTensorMapEncodeIm2col"
_FRONT = (_POINTER, _INT, _UINT, ctypes.c_uint64, _POINTER, _POINTER)
_BACK = (_POINTER, _INT, _INT, _INT, _INT)
SIGNATURES = {_TILED: (*_FRONT, _POINTER, *_BACK), _IM2COL: (*_FRONT, _POINTER, _POINTER, _UINT, _UINT, *_BACK)}


def driver_map(driver: Any, wanted: TensorMap, address: int) -> bytes:
    """Return the MAP_BYTES of a map that the driver encodes. Raises DeviceError where the driver refuses it."""
    memory = (ctypes.c_uint64 * (2 * MAP_BYTES // 8))()
    start = -ctypes.addressof(memory) % 64
    rank = len(wanted.extent)
    steps = (1,) * rank
    front = (
        ctypes.addressof(memory) + start, _DATA_TYPES[wanted.element], rank, address,
        (ctypes.c_uint64 * rank)(*wanted.extent), (ctypes.c_uint64 * (rank - 1))(*wanted.strides),
    )  # fmt: skip
    swizzle = _NOT_SWIZZLED if isinstance(wanted, UnswizzledTiledMap) else _SWIZZLE_128B
    back = (_NOT_INTERLEAVED, swizzle, _L2_PROMOTION_256B, _ZEROS_OUTSIDE)
    channels = ROW_BYTES // wanted.element_bytes
    if isinstance(wanted, Im2colMap):
        steps = (1, *wanted.step, 1)
        corners = [(_INT * len(corner))(*corner) for corner in (wanted.lower, wanted.upper)]
        driver.call(_IM2COL, *front, *corners, channels, wanted.pixels, (_UINT * rank)(*steps), *back)
    elif isinstance(wanted, BoxMap):
        driver.call(_TILED, *front, (_UINT * rank)(*wanted.box), (_UINT * rank)(*steps), *back)
    return bytes(memory)[start : start + MAP_BYTES]
