"""Plan depthwise convolutions in NHWC whose rows TMA loads; it needs compute capability 9.0
(convolution/depthwise/tma.cuh).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from ctypes import c_int
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import TensorSpec

from ...plans import ELEMENTS
from ...primitives.geometry import FastDivmod
from ...primitives.tma import ALIGNMENT, UnswizzledTiledMap, has_tma
from ...runtime.arguments import declared
from ..problem import Convolution, rounded_up

TYPES = ("half", "bfloat16", "float")
WARP = 32
BOX_CHANNEL_BYTES = 128  # bytes per column of a box
BOX_ALIGNMENT = 128  # bytes
MAX_BOX = 256  # columns per box
STAGES = 4  # maximum per block
START = 6  # cost of starting and ending a block, in rows
LAST = 0.25  # cost of waiting for the last blocks, as a share of their rows
HALO = 0.25  # cost of columns that two blocks read, as a share of a block's time
NARROW = 0.06  # cost of one box per stage, as a share of a block's time


class Window(NamedTuple):
    """Describe the work of a thread, and the blocks of a multiprocessor, for the fastest kernel measured on an H200.

    Widths of common networks are multiples of seven. For 3 x 3 filters, seven columns of two channels per thread give
    a block eight computing warps, two for each scheduler.
    """

    narrow: int  # channels of 16 bits per thread
    wide: int  # channels of 32 bits per thread
    columns: int  # columns of y per thread
    threads: int  # maximum per block; one of its warps loads rows by TMA
    blocks: int  # per multiprocessor

    @property
    def block_bytes(self) -> int:
        """Return the bytes of shared memory per block."""
        return 224 * 1024 // self.blocks


WINDOWS: dict[tuple[int, ...], Window] = {
    (3, 3): Window(2, 2, 7, 288, 2), (5, 5): Window(2, 2, 4, 256, 2), (7, 7): Window(2, 1, 2, 256, 1)
}  # fmt: skip


class RingStruct(ctypes.Structure):
    """Mirror ``Ring`` of depthwise.cu."""

    _fields_ = [
        ("vectors", FastDivmod),
        *declared(c_int, "stages boxes box_bytes row_bytes columns"),
    ]


class Shape(NamedTuple):
    """Describe the work of a block.

    ``vectors``: number of channel vectors. ``boxes``: TMA boxes per stage, one per group of channels. ``box``: extents
    of a box (channels, columns, rows, images). ``column_tiles``: thread tiles along a row. ``columns``, ``rows``: the
    block's part of y.
    """

    vectors: int
    boxes: int
    box: tuple[int, int, int, int]
    box_bytes: int
    column_tiles: int
    columns: int
    rows: int
    window: Window

    @property
    def threads(self) -> int:
        return rounded_up(self.vectors * self.column_tiles, WARP) + WARP

    @property
    def stages(self) -> int:
        return min(STAGES, (self.window.block_bytes - BOX_ALIGNMENT) // (self.boxes * self.box_bytes))

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.boxes * self.box_bytes + BOX_ALIGNMENT

    def blocks(self, o: Convolution) -> tuple[int, int, int]:
        """Return the number of blocks along channels, columns and rows."""
        channels, height, width = o.y.dims[1:]
        return -(-channels // (self.boxes * self.box[0])), -(-width // self.columns), -(-height // self.rows)


class Ring(NamedTuple):
    """Hold the TMA map of x, the argument structure, and the work of a block."""

    image: UnswizzledTiledMap
    arguments: RingStruct
    shape: Shape


def ring_definitions(o: Convolution, device: Any) -> dict[str, int]:
    """Return the kernel's macros; empty if TMA cannot read x or if vectors of y would be unaligned."""
    if not has_tma(device):
        return {}
    window = WINDOWS[o.w.dims[2:]]
    channels = window.narrow if o.x.scalar_bytes == 2 else window.wide
    steps = (*o.y.strides[:1], *o.y.strides[2:])
    if ELEMENTS[o.x.scalar_type] not in TYPES or any(n % channels for n in (o.x.dims[1], *steps)):
        return {}
    if not tiled_map(o.x, (ALIGNMENT // o.x.scalar_bytes, 1, 1, 1)).is_possible:
        return {}
    return {
        "CHANNELS": channels, "COLUMNS": window.columns, "RING_THREADS": window.threads, "RING_BLOCKS": window.blocks
    }  # fmt: skip


def box_fill(x: TensorSpec) -> float:
    """Return the share of each box that channels of x fill; the rest is padding."""
    nbytes = x.dims[1] * x.scalar_bytes
    return nbytes / rounded_up(nbytes, BOX_CHANNEL_BYTES)


def ring(o: Convolution, definitions: Mapping[str, int], device: Any) -> Ring:
    """Return the ring with the least estimated time for the operation."""
    shape = min(_shapes(o, definitions), key=lambda shape: _clocks(o, shape, device.multiprocessors))
    row_bytes = prod(shape.box[:2]) * o.x.scalar_bytes
    arguments = RingStruct(
        FastDivmod.of(shape.vectors), shape.stages, shape.boxes, shape.box_bytes, row_bytes, shape.columns
    )
    return Ring(tiled_map(o.x, shape.box), arguments, shape)


def tiled_map(tensor: TensorSpec, box: tuple[int, int, int, int]) -> UnswizzledTiledMap:
    """Return the TMA map of a tensor with the dimensions (channels, columns, rows, images)."""
    order, bytes_ = (1, 3, 2, 0), tensor.scalar_bytes
    extent = tuple(tensor.dims[d] for d in order)
    strides = [tensor.strides[d] * bytes_ for d in order[1:]]
    for d, size in enumerate(extent[1:]):
        if size == 1:  # TMA never uses the stride, but it must be valid.
            step = extent[d] * (strides[d - 1] if d else bytes_)
            strides[d] = rounded_up(step, ALIGNMENT)
    return UnswizzledTiledMap(ELEMENTS[tensor.scalar_type], extent, tuple(strides), box)


def _shapes(o: Convolution, definitions: Mapping[str, int]) -> Iterator[Shape]:
    """Yield the widest shape for each number of boxes, at each height that divides the rows almost equally."""
    window, (taps, step) = WINDOWS[o.w.dims[2:]], (o.w.dims[3], o.convolution.stride[1])
    channels, columns = definitions["CHANNELS"], window.columns
    box_channels = BOX_CHANNEL_BYTES // o.x.scalar_bytes
    vectors, total, height = box_channels // channels, -(-o.y.dims[3] // columns), o.y.dims[2]
    for boxes in range(1, -(-o.x.dims[1] // box_channels) + 1):
        most = min((window.threads - WARP) // (boxes * vectors), ((MAX_BOX - taps) // step + 1) // columns)
        if not most:
            break
        column_tiles = -(-total // -(-total // most))
        box = (box_channels, (column_tiles * columns - 1) * step + taps, step, 1)
        for rows in dict.fromkeys(-(-height // count) for count in range(1, height + 1)):
            yield Shape(
                boxes * vectors, boxes, box, prod(box) * o.x.scalar_bytes,
                column_tiles, column_tiles * columns, rows, window
            )  # fmt: skip


def _clocks(o: Convolution, shape: Shape, multiprocessors: int) -> float:
    """Return the estimated time of a multiprocessor, in rows times threads. If it has room for more blocks than it
    gets, it waits for memory as long as those would compute.
    """
    window = shape.window
    resident = min(
        window.blocks * window.threads // shape.threads, window.blocks * window.block_bytes // shape.shared_bytes
    )
    count = -(-o.x.dims[0] * prod(shape.blocks(o)) // multiprocessors)
    own = shape.columns * o.convolution.stride[1]
    rows = max(count, resident) * (shape.rows + START) + resident * LAST * shape.rows
    longer = HALO * max(0, shape.box[1] - own) / own + NARROW * (shape.boxes == 1)
    return rows * (shape.threads - WARP) * (1 + longer)
