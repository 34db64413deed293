"""Matrix products of convolutions on the tensor cores of compute capability 9.0, fed by its copy engine
(kernels/convolution_warp_specialized.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_ubyte
from math import prod
from typing import Any, NamedTuple

from .convolution_problem import AXES, ConvolutionStruct, EpilogueStruct
from .geometry import Divisor
from .plans import Launch, pointers, structure
from .tensor_maps import MAP_BYTES, ROW_BYTES, Boxes, Columns, MappedLaunch

SOURCE = "convolution_warp_specialized.cu"
THREADS = 384
ALIGNMENT = 64  # of the arguments
SWIZZLE_BYTES = 1024
LEAST_ARCHITECTURE = 90
# Clocks: rows of a product that the tensor cores take in one, bytes that shared memory moves in one, the time that a block
# begins and ends with, and what results cost (positions x filters in one).
PRODUCTS, SHARED_BYTES, LATENCY, RESULTS = 32, 128, 2500, 16


class Tile(NamedTuple):
    """What a block computes at once. alternating: its warpgroups have tiles of their own."""

    positions: int
    filters: int
    stages: int
    alternating: bool

    @property
    def kernel(self) -> str:
        return f"specialized_{'alternating_' if self.alternating else ''}{self.positions}x{self.filters}"

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.positions + self.filters) * ROW_BYTES + SWIZZLE_BYTES

    @property
    def round_clocks(self) -> float:
        """Of 128 bytes of terms: what the tensor cores need, or shared memory."""
        written = (self.positions + self.filters) * ROW_BYTES
        read = self.positions // 64 * (64 + self.filters) * ROW_BYTES
        return max(self.positions * self.filters / PRODUCTS, (written + read) / SHARED_BYTES)

    def clocks(self, rounds: int) -> float:
        results = self.positions * self.filters / RESULTS
        return rounds * self.round_clocks + (0 if self.alternating else results) + LATENCY / max(1, rounds)


TILES = (
    Tile(128, 256, 4, False),
    Tile(256, 128, 4, False),
    Tile(128, 128, 6, False),
    Tile(128, 64, 8, False),
    Tile(256, 64, 5, False),
    Tile(128, 128, 6, True),
    Tile(64, 256, 5, True),
    Tile(128, 64, 8, True),
)


def choose_tile(value: ConvolutionStruct, groups: int, rounds: int, multiprocessors: int) -> Tile:
    """The tile with which the device is done first."""

    def clocks(tile: Tile) -> float:
        count = -(-value.filters // tile.filters) * -(-value.positions // tile.positions) * groups
        blocks = -(-count // multiprocessors)
        return blocks * tile.clocks(rounds)

    return min(TILES, key=clocks)


def _maps(
    value: ConvolutionStruct, groups: int, element: str, element_bytes: int, tile: Tile
) -> tuple[Columns, Boxes] | None:
    """(of x, of w), or None where the copy engine cannot read them."""
    channels, taps = value.lanes.divisor, [filter.divisor for filter in value.filter]
    plain = (
        value.x_lane == 1
        and value.terms == channels * prod(taps)
        and (taps[0], value.input[0], value.output[0].divisor) == (1, 1, 1)
        and value.first_position == 0
        and all(
            value.x_position[d + 1] == value.step[d] * value.x_axis[d]
            for d in range(AXES)
            if value.output[d].divisor > 1
        )
        and value.x_origin == -sum(value.padding[d] * value.x_axis[d] for d in range(AXES))
        and (groups == 1 or (value.x_group == channels and channels * element_bytes % ROW_BYTES == 0))
        and min(value.step) > 0
    )
    if not plain:
        return None
    images = value.positions // prod(output.divisor for output in value.output)
    spans = [(taps[d] - 1) * value.dilation[d] for d in range(AXES)]
    axes = (2, 1)  # columns, rows
    strides, extent = (
        [value.x_axis[2], value.x_axis[1], value.x_position[0]],
        (channels * groups, value.input[2], value.input[1], images),
    )
    for d, size in enumerate(extent[1:]):
        if size == 1:  # never used, but it has to be possible
            strides[d] = extent[d] * (strides[d - 1] if d else 1)
    image = Columns(
        element, extent, tuple(stride * element_bytes for stride in strides),
        lower=tuple(-value.padding[d] for d in axes),
        upper=tuple(value.padding[d] - spans[d] for d in axes),
        step=tuple(value.step[d] for d in axes),
        taps=tuple(spans[d] for d in axes),
        pixels=tile.positions,
    )  # fmt: skip
    filters = Boxes(
        element, (channels, prod(taps), value.filters * groups),
        (channels * element_bytes, value.row * element_bytes), box=(ROW_BYTES // element_bytes, 1, tile.filters),
    )  # fmt: skip
    return (image, filters) if image.is_possible and filters.is_possible else None


def warp_specialized_launch(
    device: Any,
    definitions: tuple[tuple[str, str], ...],
    value: ConvolutionStruct,
    groups: int,
    element_bytes: int,
    operands: tuple[str, ...],
    offsets: tuple[int, int, int],
    finish: EpilogueStruct,
    otherwise: Launch,
) -> Launch | None:
    """The product of every group, or None where the copy engine cannot read x or w. operands: x, w, y, prior, bias,
    workspace; offsets: bytes to the beginning of x and w; otherwise: what serves addresses that it cannot read."""
    if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
        return None
    channel_rounds = -(-value.lanes.divisor * element_bytes // ROW_BYTES)
    rounds = channel_rounds * prod(filter.divisor for filter in value.filter)
    tile = choose_tile(value, groups, rounds, device.multiprocessors)
    maps = _maps(value, groups, dict(definitions)["ELEMENT"], element_bytes, tile)
    if maps is None or offsets[2]:
        return None
    filter_tiles, position_tiles = -(-value.filters // tile.filters), -(-value.positions // tile.positions)
    count = filter_tiles * position_tiles * groups
    fields = [
        *pointers(6),
        ("reserved", (c_longlong * 2)()),
        ("image", (c_ubyte * MAP_BYTES)()),
        ("filter", (c_ubyte * MAP_BYTES)()),
        ("convolution", value),
        ("epilogue", finish),
        ("position_tiles", Divisor.of(position_tiles)),
        ("filter_tiles", Divisor.of(filter_tiles)),
        ("tiles", c_int(count)),
        ("group_channels", c_int(value.lanes.divisor)),
        ("channel_rounds", c_int(channel_rounds)),
    ]
    size = ctypes.sizeof(structure(*fields))
    arguments: Any = structure(*fields, ("padding", (c_ubyte * (-size % ALIGNMENT))()))
    function = device.function(SOURCE, tile.kernel, definitions)
    grid = (min(count, device.multiprocessors), 1, 1)
    launch = Launch(function, arguments, operands, grid, (THREADS, 1, 1), tile.shared_bytes)
    image, filters = maps
    places = (
        (type(arguments).image.offset, 0, offsets[0], image),
        (type(arguments).filter.offset, 1, offsets[1], filters),
    )
    return MappedLaunch(device, launch, places, otherwise)
