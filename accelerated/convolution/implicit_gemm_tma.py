"""Matrix products of convolutions on the tensor cores of compute capability 9.0, fed by its TMA
(convolution/implicit_gemm_tma.cu)."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_longlong, c_ubyte, c_uint
from math import prod
from typing import Any, NamedTuple

from ..plans import Launch, pointers, structure
from ..primitives.geometry import FastDivmod
from ..primitives.tma import ALIGNMENT as COPY_ALIGNMENT
from ..primitives.tma import MAP_BYTES, ROW_BYTES, Im2colMap, TensorMap, TiledMap, TmaLaunch
from .problem import AXES, ConvolutionStruct, EpilogueStruct

SOURCE = "convolution/implicit_gemm_tma.cu"
WARPGROUP = 128
ALIGNMENT = 64  # of the arguments
SWIZZLE_BYTES = 1024
LEAST_ARCHITECTURE = 90
WARP_ROWS = 16  # positions whose sums a warp has
BOXES = 2  # of results that a warp has in flight
LEAST_FILL = 0.5  # of the 128 bytes that a tap's channels come in
LEAST_FILL_OF_BOXES = 0.75  # with positions of an image that lies in planes
# Positions x filters whose results take a clock, from TMA and from the warps; clocks that warpgroups with tiles
# of their own begin and end with.
RESULTS, RESULTS_OF_WARPS, ALTERNATION = 64, 3, 2000
# Where a tile takes no more rounds than these, blocks that stay for the whole launch share part of the tiles, if that is enough
# for each; the others go to later blocks of so many results: larger ones even out less, smaller ones begin too often.
FEW_ROUNDS, FIRST_SHARE, LEAST_TILES, LATER_RESULTS = 2, 0.75, 4, 2**16
PRODUCTS = 32  # positions x filters that the tensor cores multiply with 128 bytes of terms in a clock


class Tile(NamedTuple):
    """What a block computes at once. consumers: warpgroups that multiply. alternating: they have tiles of their own.
    planes: y lies in planes; turned: x, too, as it was given. pace: the share of the tensor cores' rate that long sums
    reach, moves: bytes of x and y in a clock of a multiprocessor that short ones do, both measured on an H200 (moves of
    128 x 256, alternating and turned tiles; the others are taken to do no worse)."""

    positions: int
    filters: int
    consumers: int
    stages: int
    alternating: bool
    planes: bool
    pace: float
    turned: bool = False
    moves: float = 15.0

    @property
    def kernel(self) -> str:
        kind = "turned_" if self.turned else "planes_" if self.planes else ""
        kind += "alternating_" if self.alternating else ""
        return f"specialized_{kind}{self.positions}x{self.filters}"

    @property
    def threads(self) -> int:
        return (self.consumers + 1) * WARPGROUP

    @property
    def shared_bytes(self) -> int:
        scratch = self.consumers * WARPGROUP // 32 * BOXES * WARP_ROWS * ROW_BYTES
        return self.stages * (self.positions + self.filters) * ROW_BYTES + SWIZZLE_BYTES + scratch

    def clocks(self, count: int, rounds: int, results: int) -> float:
        """Of ``count`` tiles, one after another."""
        size = self.positions * self.filters
        multiplied, written = rounds * size / PRODUCTS / self.pace, size / results
        if self.alternating:
            return count * max(multiplied, written) + ALTERNATION
        return count * (multiplied + written)


TILES = (
    Tile(128, 256, 2, 4, False, False, 0.74),
    Tile(192, 128, 3, 4, False, False, 0.69),
    Tile(128, 128, 2, 6, False, False, 0.67),
    Tile(128, 64, 2, 8, False, False, 0.53),
    Tile(256, 64, 2, 4, False, False, 0.58),
    Tile(128, 128, 2, 6, True, False, 0.70, moves=14.3),
    Tile(256, 128, 2, 4, False, True, 0.74),
    Tile(256, 128, 2, 4, False, True, 0.74, turned=True, moves=13.9),
    Tile(128, 128, 2, 6, True, True, 0.70, turned=True, moves=14.3),
)


class Shares(NamedTuple):
    """Of blocks in the tiles: the first ones take ``first_end`` of them, in turn, then there are ``later`` for each."""

    first_blocks: int
    first_end: int
    later: int
    blocks: int

    @property
    def fields(self) -> list[tuple[str, Any]]:
        return [(name, c_uint(getattr(self, name))) for name in ("first_blocks", "first_end", "later")]


def share_tiles(tile: Tile, count: int, rounds: int, multiprocessors: int) -> Shares:
    """Multiprocessors write at different rates: where tiles are mostly written, the last ones go to who is free."""
    first, later = min(count, multiprocessors), max(1, LATER_RESULTS // (tile.positions * tile.filters))
    kept = int(count // first * FIRST_SHARE) if rounds <= FEW_ROUNDS else 0
    if kept < LEAST_TILES:
        return Shares(first, count, later, first)
    return Shares(first, kept * first, later, first + -(-(count - kept * first) // later))


def choose_tile(
    value: ConvolutionStruct, groups: int, rounds: int, multiprocessors: int, element_bytes: int, result: TiledMap | None,
    planes: bool, turned: bool = False,
) -> Tile:  # fmt: skip
    """The tile with which the device is done first, of those that the memory keeps waiting the one that computes least;
    result: the map of y, whose order only tiles for planes, or the others, can write."""
    possible = [tile for tile in TILES if tile.turned == turned and (planes or not tile.planes)]
    moved = value.positions * (value.filters + value.lanes.divisor) * groups * element_bytes / multiprocessors

    def clocks(tile: Tile) -> tuple[float, float]:
        count = -(-value.filters // tile.filters) * -(-value.positions // tile.positions) * groups
        mapped = result is not None and tile.planes == planes
        computing = tile.clocks(-(-count // multiprocessors), rounds, RESULTS if mapped else RESULTS_OF_WARPS)
        return max(computing, moved / tile.moves), computing

    return min(possible, key=clocks)


def _factor(element: str) -> str:
    """As the tensor cores multiply it."""
    return "tf32" if element == "float" else element


def _maps(
    value: ConvolutionStruct, groups: int, element: str, element_bytes: int, tile: Tile
) -> tuple[Im2colMap, TiledMap] | None:
    """(of x, of w), or None where TMA cannot read them."""
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
    image = Im2colMap(
        _factor(element), extent, tuple(stride * element_bytes for stride in strides),
        lower=tuple(-value.padding[d] for d in axes),
        upper=tuple(value.padding[d] - spans[d] for d in axes),
        step=tuple(value.step[d] for d in axes),
        taps=tuple(spans[d] for d in axes),
        pixels=tile.positions,
    )  # fmt: skip
    filters = _filter_map(value, groups, element, element_bytes, tile)
    return (image, filters) if image.is_possible and filters.is_possible else None


def _filter_map(value: ConvolutionStruct, groups: int, element: str, element_bytes: int, tile: Tile) -> TiledMap:
    channels, taps = value.lanes.divisor, prod(filter.divisor for filter in value.filter)
    return TiledMap(
        _factor(element), (channels, taps, value.filters * groups), (channels * element_bytes, value.row * element_bytes),
        box=(ROW_BYTES // element_bytes, 1, tile.filters),
    )  # fmt: skip


def _whole_boxes(value: ConvolutionStruct, element_bytes: int) -> int:
    """Positions of an image up to whole boxes of planes."""
    box = ROW_BYTES // element_bytes
    return -(-prod(output.divisor for output in value.output) // box) * box


def _turned_map(value: ConvolutionStruct, groups: int, element: str, element_bytes: int) -> TiledMap | None:
    """Of x in planes (positions, channels, images), where filters of one position can be multiplied with it as it lies."""
    if value.x_lane == 1 or value.lanes.divisor != value.terms:
        return None
    channels, box, extents = value.terms, ROW_BYTES // element_bytes, [output.divisor for output in value.output]
    plane = prod(extents)
    images, step = value.positions // plane, 1
    for extent, stride in zip(extents[::-1], value.x_position[:0:-1], strict=True):
        if extent > 1 and stride != step:
            return None
        step *= extent
    if extents != list(value.input) or value.first_position or value.x_origin:
        return None
    if plane < LEAST_FILL_OF_BOXES * _whole_boxes(value, element_bytes):
        return None
    if groups > 1 and (value.x_group != channels * value.x_lane or channels % box):
        return None
    strides = (value.x_lane, value.x_position[0] if images > 1 else value.x_lane * channels * groups)
    made = TiledMap(
        _factor(element), (plane, channels * groups, images), tuple(stride * element_bytes for stride in strides),
        box=(box, box, 1),
    )  # fmt: skip
    return made if made.is_possible else None


def reads_planes(
    device: Any, value: ConvolutionStruct, groups: int, element: str, element_bytes: int, finish: EpilogueStruct
) -> bool:
    """Whether x and y lie in planes, which are read and written as they are."""
    if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
        return False
    filled = value.lanes.divisor * element_bytes >= LEAST_FILL * ROW_BYTES
    return filled and _turned_maps(value, groups, element, element_bytes, finish) is not None


def _turned_maps(
    value: ConvolutionStruct, groups: int, element: str, element_bytes: int, finish: EpilogueStruct
) -> tuple[TiledMap, TiledMap] | None:
    """(of x, of y), if both lie in planes and filters are as TMA reads them."""
    image = _turned_map(value, groups, element, element_bytes)
    if image is None or value.row * element_bytes % COPY_ALIGNMENT:
        return None
    result, planes = _result_map(value, groups, element, element_bytes, finish, whole=True) or (None, False)
    return (image, result) if result is not None and planes else None


def _result_map(
    value: ConvolutionStruct, groups: int, element: str, element_bytes: int, finish: EpilogueStruct, whole: bool = False
) -> tuple[TiledMap, bool] | None:
    """(of y and what is blended in, whether in planes), where positions lie at equal distances. whole: boxes begin with an
    image."""
    if value.y_vector or finish.reordered_bias:
        return None
    if groups > 1 and (value.y_group, value.y_filters) != (0, value.filters):
        return None
    extents = [output.divisor for output in value.output]
    planes = value.y_channel != 1
    pitch = (
        1
        if planes
        else next(
            (step for step, extent in zip(value.y_position[:0:-1], extents[::-1], strict=True) if extent > 1),
            value.filters * groups,
        )
    )
    step = pitch
    for d in range(AXES, 0, -1):
        if extents[d - 1] > 1 and value.y_position[d] != step:
            return None
        step *= extents[d - 1]
    plane = prod(extents)
    images = value.positions // plane
    if planes:
        extent = (plane, value.filters * groups, images)
        strides = (value.y_channel, value.y_position[0] if images > 1 else value.y_channel * extent[1])
        if groups > 1 and value.filters % WARP_ROWS:
            return None  # the last rows of a group would reach into the next one's
        if images > 1 and not whole and plane * element_bytes % ROW_BYTES:
            return None  # a box would hold the end of an image and the beginning of the next
    else:
        if images > 1 and value.y_position[0] != step:
            return None
        extent = (value.filters, value.positions, groups)
        strides = (pitch, value.filters if groups > 1 else pitch * value.positions)
    made = TiledMap(
        element, extent, tuple(stride * element_bytes for stride in strides),
        box=(ROW_BYTES // element_bytes, WARP_ROWS, 1),
    )  # fmt: skip
    return (made, planes) if made.is_possible else None


def warp_specialized_launch(
    device: Any,
    definitions: tuple[tuple[str, str], ...],
    value: ConvolutionStruct,
    groups: int,
    element_bytes: int,
    operands: tuple[str, ...],
    offsets: tuple[int, int, int],
    finish: EpilogueStruct,
    fallback: Launch,
) -> Launch | None:
    """The product of every group, or None where TMA cannot read x or w. operands: x, w, y, prior, bias,
    workspace; offsets: bytes to the beginning of x, w and y; fallback: what serves addresses that it cannot read."""
    if device.kind == "gpu" and int(device.architecture.removeprefix("sm_")) < LEAST_ARCHITECTURE:
        return None
    channel_rounds = -(-value.lanes.divisor * element_bytes // ROW_BYTES)
    if value.lanes.divisor * element_bytes < LEAST_FILL * channel_rounds * ROW_BYTES:
        return None
    rounds = channel_rounds * prod(filter.divisor for filter in value.filter)
    element = dict(definitions)["ELEMENT"]
    positions, plane = value.positions, prod(output.divisor for output in value.output)
    maps: tuple[TensorMap, TiledMap] | None
    result: TiledMap | None
    if turned := _turned_maps(value, groups, element, element_bytes, finish):
        image, result = turned
        tile = choose_tile(value, groups, rounds, device.multiprocessors, element_bytes, result, True, turned=True)
        maps = (image, _filter_map(value, groups, element, element_bytes, tile))
        positions, plane = positions // plane * _whole_boxes(value, element_bytes), _whole_boxes(value, element_bytes)
    else:
        result, planes = _result_map(value, groups, element, element_bytes, finish) or (None, False)
        tile = choose_tile(value, groups, rounds, device.multiprocessors, element_bytes, result, planes)
        if tile.planes != planes:
            result = None
        maps = _maps(value, groups, element, element_bytes, tile)
    if maps is None or (offsets[2] and result is None):  # the warps write to y itself
        return None
    filter_tiles, position_tiles = -(-value.filters // tile.filters), -(-positions // tile.positions)
    count = filter_tiles * position_tiles * groups
    shares = share_tiles(tile, count, rounds, device.multiprocessors)
    fields = [
        *pointers(6),
        ("reserved", (c_longlong * 2)()),
        *((name, (c_ubyte * MAP_BYTES)()) for name in ("image", "filter", "result", "blended")),
        ("convolution", value),
        ("epilogue", finish),
        ("position_tiles", FastDivmod.of(position_tiles)),
        ("filter_tiles", FastDivmod.of(filter_tiles)),
        ("tiles", c_uint(count)),
        ("group_channels", c_int(value.lanes.divisor)),
        ("channel_rounds", c_int(channel_rounds)),
        ("boxes", c_int(result is not None)),
        ("plane", FastDivmod.of(plane)),
        ("blends", c_int(result is not None and finish.beta != 0)),
        *shares.fields,
    ]
    size = ctypes.sizeof(structure(*fields))
    arguments: Any = structure(*fields, ("padding", (c_ubyte * (-size % ALIGNMENT))()))
    function = device.function_when_ready(SOURCE, tile.kernel, definitions)
    launch = Launch(function, arguments, operands, (shares.blocks, 1, 1), (tile.threads, 1, 1), tile.shared_bytes)
    places = [(maps[0], "image", 0, offsets[0]), (maps[1], "filter", 1, offsets[1])]
    if result is not None:
        places.append((result, "result", 2, offsets[2]))
        if finish.beta != 0:
            places.append((result, "blended", 3, 0))
    placed = tuple(
        (getattr(type(arguments), name).offset, operand, offset, wanted) for wanted, name, operand, offset in places
    )
    return TmaLaunch(device, (SOURCE, definitions), tile.kernel, launch, placed, fallback)
