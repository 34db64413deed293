"""Descriptions of tensors for TMA (compute capability 9.0), which brings tiles to shared memory
(primitives/tma.cuh). They name an address, so they are made when a kernel is launched."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import plans
from ..plans import Launch
from ..runtime.errors import DeviceError

MAP_BYTES = 128
ALIGNMENT = 16  # of the tensor and of its strides
ROW_BYTES = 128  # innermost of a tile
REMEMBERED = 16  # addresses of a launch
_LIMITS = {"extent": 2**31 - 1, "stride": 2**40 - 1, "corner": 128, "tap": 255, "step": 8, "box": 256}


@dataclass(frozen=True)
class TensorMap:
    """A tensor, innermost dimension first, and the tiles that are read from it.

    element: half, bfloat16, float or tf32: floats that are rounded to TF32 on the way. strides: bytes, of all dimensions
    but the innermost.
    """

    element: str
    extent: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def element_bytes(self) -> int:
        return 4 if self.element in ("float", "tf32") else 2

    @property
    def is_possible(self) -> bool:
        """Whether TMA takes it (an address is to be a multiple of ALIGNMENT, too)."""
        fits = all(0 < extent <= _LIMITS["extent"] for extent in self.extent)
        return fits and all(0 < s <= _LIMITS["stride"] and s % ALIGNMENT == 0 for s in self.strides)


@dataclass(frozen=True)
class Im2colMap(TensorMap):
    """Pixels of images (channels, columns, rows, images) in the order of the output positions of a convolution.

    lower, upper: of columns and rows, where the pixels under the first tap begin, and how far before the last pixel
    (0: there, negative) they end. step: between them. pixels: rows of a tile.
    """

    lower: tuple[int, int]
    upper: tuple[int, int]
    step: tuple[int, int]
    taps: tuple[int, int]  # the largest shift
    pixels: int

    @property
    def is_possible(self) -> bool:
        corners = all(-_LIMITS["corner"] <= corner < _LIMITS["corner"] for corner in (*self.lower, *self.upper))
        shifts = all(tap <= _LIMITS["tap"] for tap in self.taps) and all(s <= _LIMITS["step"] for s in self.step)
        return super().is_possible and corners and shifts


@dataclass(frozen=True)
class TiledMap(TensorMap):
    """Boxes of a tensor of three dimensions; ``box`` counts elements of each."""

    box: tuple[int, int, int]


@dataclass(frozen=True)
class UnswizzledTiledMap(TensorMap):
    """Boxes of a tensor of four dimensions that lie in shared memory as in the tensor, without gaps; ``box`` counts
    elements of each, those of the innermost make a multiple of 16 bytes."""

    box: tuple[int, int, int, int]

    @property
    def is_possible(self) -> bool:
        whole = self.box[0] * self.element_bytes % ALIGNMENT == 0
        return super().is_possible and whole and all(0 < size <= _LIMITS["box"] for size in self.box)


class EmulatedMap(ctypes.Structure):
    """What the emulated device makes of a map: ``Map`` in primitives/tma.cuh."""

    _fields_ = [
        ("base", ctypes.c_uint64),
        ("stride", ctypes.c_longlong * 4),
        ("extent", ctypes.c_int * 5),
        ("lower", ctypes.c_int * 2),
        ("upper", ctypes.c_int * 2),
        ("step", ctypes.c_int * 2),
        ("pixels", ctypes.c_int),
        ("box", ctypes.c_int * 4),
        ("rank", ctypes.c_int),
        ("element_bytes", ctypes.c_int),
        ("columns", ctypes.c_int),
        ("rounded", ctypes.c_int),
        ("dense", ctypes.c_int),
    ]


def emulated_map(wanted: TensorMap, address: int) -> bytes:
    """The map as the emulated device reads it; what the driver refuses is refused."""
    if address % ALIGNMENT or not wanted.is_possible:
        raise DeviceError(f"TMA cannot read {wanted} at {address:#x}")
    made = EmulatedMap(base=address, rank=len(wanted.extent), element_bytes=wanted.element_bytes)
    made.stride[: len(wanted.strides)] = wanted.strides
    made.extent[: len(wanted.extent)] = wanted.extent
    made.rounded = wanted.element == "tf32"
    if isinstance(wanted, Im2colMap):
        made.columns, made.pixels = True, wanted.pixels
        made.lower[:], made.upper[:], made.step[:] = wanted.lower, wanted.upper, wanted.step
    elif isinstance(wanted, TiledMap | UnswizzledTiledMap):
        made.box[: len(wanted.box)] = wanted.box
        made.dense = isinstance(wanted, UnswizzledTiledMap)
    return bytes(made).ljust(MAP_BYTES, b"\0")


# Names and numbers of cuda.h
_DATA_TYPES = {"half": 6, "float": 7, "bfloat16": 9, "tf32": 11}  # CU_TENSOR_MAP_DATA_TYPE_FLOAT16 and so on
_NOT_INTERLEAVED, _NOT_SWIZZLED, _SWIZZLE_128B, _L2_PROMOTION_256B, _ZEROS_OUTSIDE = 0, 0, 3, 3, 0
_INT, _UINT, _POINTER = ctypes.c_int, ctypes.c_uint, ctypes.c_void_p
_TILED, _IM2COL = "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col"
_FRONT, _BACK = (_POINTER, _INT, _UINT, ctypes.c_uint64, _POINTER, _POINTER), (_POINTER, _INT, _INT, _INT, _INT)
SIGNATURES = {
    _TILED: (*_FRONT, _POINTER, *_BACK),
    _IM2COL: (*_FRONT, _POINTER, _POINTER, _UINT, _UINT, *_BACK),
}


def driver_map(driver: Any, wanted: TensorMap, address: int) -> bytes:
    """The map as the driver encodes it."""
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
        corners = [(_INT * 2)(*corner) for corner in (wanted.lower, wanted.upper)]
        driver.call(_IM2COL, *front, *corners, channels, wanted.pixels, (_UINT * rank)(*steps), *back)
    elif isinstance(wanted, TiledMap | UnswizzledTiledMap):
        driver.call(_TILED, *front, (_UINT * rank)(*wanted.box), (_UINT * rank)(*steps), *back)
    return bytes(memory)[start : start + MAP_BYTES]


class TmaLaunch(Launch):
    """A launch whose kernel reads operands through maps.

    maps: (byte offset in the arguments, which operand, bytes from its address, map); aligned: other operands whose
    addresses are to be multiples of ALIGNMENT, too; fallback: the launch that takes over where an address is not, and as
    long as the kernel is being compiled.
    """

    def __init__(
        self,
        device: Any,
        module: tuple[str, tuple[tuple[str, str], ...]],
        kernel: str,
        launch: Launch,
        maps: tuple[tuple[int, int, int, TensorMap], ...],
        fallback: Launch,
        aligned: tuple[int, ...] = (),
    ) -> None:
        vars(self).update(vars(launch))
        self.device, self.module, self.kernel = device, module, kernel
        self.maps, self.fallback, self.aligned = maps, fallback, aligned
        self.made: dict[tuple[int, ...], bytes] = {}  # arguments with maps, for the addresses seen last

    def start(self, addresses: Sequence[int], stream: Any) -> None:
        if self.function is None:
            source, definitions = self.module
            self.function = self.device.function_when_ready(source, self.kernel, definitions)
        places = tuple(addresses[operand] + offset for _, operand, offset, _ in self.maps)
        places += tuple(addresses[operand] for operand in self.aligned)
        found = self.made.get(places)
        if found is None:
            if self.function is None or any(place % ALIGNMENT for place in places):
                self.fallback.start(addresses, stream)
                return
            found = self._with_maps(places)
        if plans.launched is not None:
            plans.launched.add(self.kernel)
        arguments = bytearray(found)
        self.pack_addresses(arguments, 0, *addresses)
        self.function.launch(arguments, self.grid, self.block, self.shared_bytes, stream)

    def wait_for_kernel(self) -> None:
        source, definitions = self.module
        self.function = self.device.function(source, self.kernel, definitions)

    def _with_maps(self, places: tuple[int, ...]) -> bytes:
        arguments = bytearray(self.template)
        for (at, _, _, wanted), place in zip(self.maps, places, strict=False):
            arguments[at : at + MAP_BYTES] = self.device.tensor_map(wanted, place)
        if len(self.made) >= REMEMBERED:
            self.made.clear()
        self.made[places] = bytes(arguments)
        return self.made[places]
