"""The three GEMM algorithms of forward convolution on the ordinary arithmetic units (convolution/implicit_gemm.cu, and
implicit_gemm_fp32.py for float)."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import c_int
from math import prod
from typing import Any, NamedTuple

from dualdnn.api.operations import Im2Col
from dualdnn.api.operations.specs import FLOAT

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod, blocks
from ..runtime.errors import DeviceError
from . import implicit_gemm_fp32
from .implicit_gemm_mma import allows_tensor_cores, tensor_core_launch
from .implicit_gemm_tma import reads_planes as x_in_planes
from .problem import (
    AXES,
    PACK_BYTES,
    PLAIN,
    WORD,
    Convolution,
    ConvolutionStruct,
    EpilogueStruct,
    Matrices,
    describe,
    epilogue,
    in_words,
    mark_packs,
    matrix_product,
    operand_names,
    operation_product,
    positions_in_packs,
    product_fields,
    with_result,
)

SOURCE = "convolution/implicit_gemm.cu"
MATRIX_BYTES = 2**26  # of one slice of the explicit matrix
LARGEST_TILE = 128
POSITION_PACKS = {"float": 4, "double": 2, "half": 8, "bfloat16": 8}  # 16 bytes
FEW_FILTERS = (16, 256)  # and positions of a block
FARTHEST = 2**31 - 1  # values of x that a kernel counts to, from the first of its launch


def rounded_up(value: int, step: int) -> int:
    return -(-value // step) * step


class _Tile(NamedTuple):
    """What a block computes. pace: its products per clock against the fastest tile's; resident: blocks that share a
    multiprocessor."""

    filters: int
    positions: int
    pace: float
    resident: int


SMALL_TILE = _Tile(64, 64, 0.6, 4)
TILES = (_Tile(128, 128, 1.0, 2), _Tile(128, 64, 0.85, 3), _Tile(64, 128, 0.85, 3), SMALL_TILE)
ALONE = 0.25  # how much longer a block takes that shares its multiprocessor with none


def _tile(value: ConvolutionStruct, groups: int, small_only: bool, device: Any) -> tuple[int, int]:
    """The tile that occupies the device for the shortest time."""

    def duration(tile: _Tile) -> float:
        count = -(-value.filters // tile.filters) * -(-value.positions // tile.positions) * groups
        rounds = -(-count // device.multiprocessors)
        alone = ALONE if rounds % tile.resident == 1 else 0.0
        return (rounds + alone) * tile.filters * tile.positions / tile.pace

    if value.filters <= FEW_FILTERS[0]:
        return FEW_FILTERS
    best = SMALL_TILE if small_only else min(TILES, key=duration)
    return best.filters, best.positions


def product_launch(
    device: Any,
    definitions: tuple[tuple[str, str], ...],
    value: ConvolutionStruct,
    groups: int,
    operands: tuple[str, ...],
    offsets: tuple[int, int, int] = (0, 0, 0),
    finish: EpilogueStruct = PLAIN,
    *,
    words: bool = False,
    float_result: bool = False,
    reordered_filters: int = 0,
    precomputed: bool = False,
) -> Launch:
    """The product of every group. operands: x, w, y, prior, bias; offsets: bytes to the beginning of x, w and y."""
    kinds = dict(definitions)
    if kinds["ELEMENT"] == "float" and implicit_gemm_fp32.serves(value, device):
        return implicit_gemm_fp32.float_launch(device, value, groups, operands, offsets, finish)
    scalars = kinds["ELEMENT"] in ("int8", "uint8") and not words
    filters, positions = _tile(value, groups, scalars or kinds["COMPUTE"] == "double", device)
    filter_tiles, position_tiles = -(-value.filters // filters), -(-value.positions // positions)
    arguments = structure(
        *pointers(6),
        *product_fields(value, finish, offsets, position_tiles, filter_tiles),
        ("words", c_int(words)),
        ("float_result", c_int(float_result)),
        ("reordered_filters", c_int(reordered_filters)),
        ("precomputed", c_int(precomputed)),
        ("position_packs", c_int(positions_in_packs(value, groups, POSITION_PACKS.get(kinds["ELEMENT"], 0)))),
    )
    function = device.function(SOURCE, f"gemm_{filters}x{positions}", definitions)
    grid = (filter_tiles * position_tiles * groups, 1, 1)
    return Launch(function, arguments, (*operands, "workSpace"), grid, (THREADS, 1, 1))


def described(operation: Convolution) -> tuple[ConvolutionStruct, bool]:
    """(the product, whether it counts in words)."""
    value, groups = operation_product(operation), operation.convolution.group_count
    element_bytes = operation.x.scalar_bytes
    words = element_bytes == 1 and in_words(value, groups)
    return mark_packs(value, groups, 4 if words else element_bytes), words


def implicit_gemm(operation: Convolution, device: Any) -> list[Launch]:
    """Kernels that find the terms of the sums as they go: one, but for very large tensors."""
    return products_in_reach(operation, device, *described(operation))


def products_in_reach(
    operation: Convolution, device: Any, value: ConvolutionStruct, words: bool, *, precomputed: bool = False
) -> list[Launch]:
    """The product of x and w as they lie, in as many launches as it takes for 32 bits to count to every value of x: tensors
    with vectors of channels have up to 2**36 of them."""
    unit_bytes = WORD if words else operation.x.scalar_bytes
    return [
        implicit_product(
            operation, device, part, offsets=(unit_bytes * first, 0, 0), words=words, precomputed=precomputed
        )
        for part, first in images_in_reach(value)
    ]


def images_in_reach(value: ConvolutionStruct) -> Iterator[tuple[ConvolutionStruct, int]]:
    """Slices of whole images, each with how many elements of x come before it."""
    outputs = prod(output.divisor for output in value.output)
    image, images = value.x_position[0], value.positions // outputs
    span = furthest(value)
    if span > FARTHEST:
        raise DeviceError(f"an image of x spans {span + 1} elements or words, the kernels count to {FARTHEST}")
    count = min(images, (FARTHEST - span) // max(image, 1) + 1)
    for first in range(0, images, count):
        part = ConvolutionStruct.from_buffer_copy(value)
        part.first_position, part.positions = first * outputs, min(count, images - first) * outputs
        part.x_origin -= first * image
        yield part, first * image


def furthest(value: ConvolutionStruct) -> int:
    """From the first value of an image of x that a group meets to the last."""
    taps = prod(tap.divisor for tap in value.filter)
    blocks_of_channels = value.terms // (value.lanes.divisor * taps)
    extents = (*value.input, value.lanes.divisor, blocks_of_channels)
    steps = (*value.x_axis, value.x_lane, value.x_block)
    return sum((extent - 1) * step for extent, step in zip(extents, steps, strict=True))


def reads_planes(operation: Convolution, device: Any) -> bool:
    """Whether the tensor cores multiply x and write y as they lie, in planes."""
    value, groups = operation_product(operation), operation.convolution.group_count
    if not allows_tensor_cores(operation, device):
        return False
    element = dict(type_definitions(operation.x.scalar_type, operation))["ELEMENT"]
    return x_in_planes(device, value, groups, element, operation.x.scalar_bytes, epilogue(operation))


def reads_terms(operation: Convolution, device: Any) -> bool:
    """Whether the product reads the place of every term from the workspace; those in float find them quickly enough."""
    if operation.x.data_type != FLOAT or allows_tensor_cores(operation, device):
        return True
    return not implicit_gemm_fp32.serves(described(operation)[0], device)


def terms_launch(operation: Convolution, value: ConvolutionStruct, device: Any) -> Launch:
    """Writes the place of every term to the beginning of the workspace."""
    arguments = structure(*pointers(1), ("convolution", value))
    function = device.function(SOURCE, "convolution_terms", type_definitions(operation.x.scalar_type, operation))
    return Launch(function, arguments, ("workSpace",), blocks(value.terms))


def implicit_product(
    operation: Convolution,
    device: Any,
    value: ConvolutionStruct,
    factors: tuple[str, str] = ("x", "w"),
    offsets: tuple[int, int, int] = (0, 0, 0),
    *,
    result: str = "y",
    words: bool = False,
    precomputed: bool = False,
    rounded: bool = False,
) -> Launch:
    """The whole convolution as one product. factors, result: operands that hold x and w, and y, ``offsets`` bytes into them;
    rounded: the factors are rounded for tensor cores already."""
    groups, finish = operation.convolution.group_count, epilogue(operation)
    names = (*factors, *(result if name == "y" else name for name in operand_names(operation)))
    definitions = type_definitions(operation.x.scalar_type, operation)
    if allows_tensor_cores(operation, device):
        element_bytes = operation.x.scalar_bytes
        return tensor_core_launch(
            device, definitions, value, groups, element_bytes, names, offsets, finish,
            precomputed=precomputed, rounded=rounded,
        )  # fmt: skip
    return product_launch(
        device,
        definitions,
        value,
        groups,
        names,
        offsets,
        finish,
        words=words,
        float_result=operation.y.data_type == FLOAT,
        reordered_filters=operation.w.dims[0] // 32 if operation.filter_is_reordered else 0,
        precomputed=precomputed,
    )


def _matrix_row(operation: Convolution) -> int:
    """Elements of one row of the explicit matrix: its terms, up to a multiple of 16 bytes."""
    return rounded_up(operation.terms, PACK_BYTES // operation.x.scalar_bytes)


def _slice_positions(operation: Convolution) -> int:
    """Rows of the explicit matrix that the workspace holds at a time."""
    value = describe(operation.convolution, operation.x, operation.w, operation.y.dims)
    row_bytes = operation.convolution.group_count * _matrix_row(operation) * operation.x.scalar_bytes
    return min(value.positions, max(LARGEST_TILE, MATRIX_BYTES // row_bytes // LARGEST_TILE * LARGEST_TILE))


def matrix_bytes(operation: Convolution) -> int:
    """Workspace of GEMM: the explicit matrix, or a slice of it where that is large."""
    groups = operation.convolution.group_count
    return _slice_positions(operation) * groups * _matrix_row(operation) * operation.x.scalar_bytes


def gemm(operation: Convolution, device: Any) -> list[Launch]:
    """The matrix of the input slice by slice, and the product of each slice with the filter."""
    o, groups = operation, operation.convolution.group_count
    definitions = type_definitions(o.x.scalar_type, o)
    row, rows, width = _matrix_row(o), _slice_positions(o), PACK_BYTES // o.x.scalar_bytes
    launches = []
    total = describe(o.convolution, o.x, o.w, o.y.dims).positions
    for first in range(0, total, rows):
        source = describe(o.convolution, o.x, o.w, o.y.dims)
        source.first_position, source.positions = first, min(rows, total - first)
        launches.append(matrix_launch(device, definitions, source, groups, row, width, ("x", "workSpace")))
        rows_of_matrix = Matrices(groups * row, 1, row)
        value = matrix_product(source.positions, source.filters, source.terms, rows_of_matrix, Matrices(0, 0, 0))
        with_result(value, o.y)
        _follow_positions(value, source, groups * row)
        mark_packs(value, groups, o.x.scalar_bytes)
        value.x_packs = True  # the rows of the matrix end in zeros up to a multiple of a pack
        launches.append(implicit_product(o, device, value, ("workSpace", "w")))
    return launches


def _follow_positions(value: ConvolutionStruct, source: ConvolutionStruct, row: int) -> None:
    """Let a product of matrix rows that lie ``row`` apart write the output positions of ``source``."""
    value.first_position, value.y_filters = source.first_position, source.filters
    value.x_origin = -source.first_position * row
    step = row
    for d in reversed(range(AXES)):
        value.output[d] = source.output[d]
        value.x_position[d + 1] = step
        step *= source.output[d].divisor
    value.x_position[0] = step


def matrix_launch(
    device: Any,
    definitions: tuple[tuple[str, str], ...],
    value: ConvolutionStruct,
    groups: int,
    row: int,
    width: int,
    operands: tuple[str, str],
) -> Launch:
    """Writes the explicit matrix with rows of ``row`` elements, ``width`` of them at once."""
    packs = -(-row // width)
    arguments = structure(
        *pointers(2),
        ("convolution", value),
        ("packs", FastDivmod.of(packs)),
        ("groups", FastDivmod.of(groups)),
        ("row", c_int(row)),
        ("packed", c_int(row % width == 0)),
    )
    function = device.function(SOURCE, "convolution_matrix", definitions)
    return Launch(function, arguments, operands, blocks(value.positions * groups * packs))


def matrix_of_any(operation: Im2Col, device: Any) -> list[Launch]:
    """The explicit matrix of cudnnIm2Col, of a filter of any size: columns (channel, row, column of the filter)."""
    o = operation
    dims = o.convolution.output_dims(o.srcData.dims, o.filter.dims)
    value = describe(o.convolution, o.srcData, o.filter, dims)
    value.lanes = FastDivmod.of(1)
    value.x_block = value.x_lane
    definitions = type_definitions(o.srcData.data_type, o)
    width = PACK_BYTES // o.srcData.scalar_bytes
    return [matrix_launch(device, definitions, value, 1, value.terms, width, ("srcData", "colBuffer"))]
