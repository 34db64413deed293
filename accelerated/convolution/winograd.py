"""Winograd convolutions on the device (convolution/winograd.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from typing import Any, NamedTuple

from ..plans import Launch, pointers, structure, type_definitions
from ..primitives.geometry import THREADS, FastDivmod, blocks
from .implicit_gemm import product_launch
from .implicit_gemm_fp32 import PACK, float_launch, serves
from .problem import (
    Convolution,
    ConvolutionStruct,
    Matrices,
    channels_last,
    epilogue,
    mark_packs,
    matrix_product,
    operand_names,
    operation_product,
)

SOURCE = "convolution/winograd.cu"
COMPUTE_BYTES = 4  # transformed values are float
COMPUTE_DEFINITIONS = (("COMPUTE", "float"), ("ELEMENT", "float"))
ALIGNMENT = 256
SLICE_BYTES = 2**30  # of the transformed images and products that the workspace holds at a time
FUSED_OUTPUTS, FUSED_TILE, BLOCK_FILTERS, BLOCK_TILES = 2, 4, 32, 32
TILE = 6


class Tiling(NamedTuple):
    """Tiles of ``outputs`` x ``outputs`` results."""

    outputs: int
    rows: int
    columns: int

    @property
    def of_image(self) -> int:
        return self.rows * self.columns


class Workspace(NamedTuple):
    """Where the transformed operands begin, and the images that are transformed at a time."""

    images: int
    images_at: int
    products_at: int
    nbytes: int


def _tiling(operation: Convolution, outputs: int) -> Tiling:
    rows, columns = operation.y.dims[2:]
    return Tiling(outputs, -(-rows // outputs), -(-columns // outputs))


def _nonfused_tiling(operation: Convolution) -> Tiling:
    return _tiling(operation, TILE + 1 - operation.w.dims[2])


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _nonfused_workspace(operation: Convolution) -> Workspace:
    """Filters, then images, then products; images slice by slice where they are large."""
    tiling = _nonfused_tiling(operation)
    value_bytes = TILE * TILE * COMPUTE_BYTES
    image, product = (tiling.of_image * value_bytes * tensor.dims[1] for tensor in (operation.x, operation.y))
    images = min(operation.x.dims[0], max(1, SLICE_BYTES // (image + product)))
    filters_bytes = aligned(operation.w.dims[0] * operation.w.dims[1] * value_bytes)
    products_at = filters_bytes + aligned(images * image)
    return Workspace(images, filters_bytes, products_at, products_at + aligned(images * product))


def nonfused_bytes(operation: Convolution) -> int:
    """Workspace of WINOGRAD_NONFUSED: transformed filters, images and products."""
    return _nonfused_workspace(operation).nbytes


def fused_bytes(operation: Convolution) -> int:
    """Workspace of WINOGRAD: transformed filters."""
    return operation.w.dims[0] * operation.w.dims[1] * FUSED_TILE**2 * COMPUTE_BYTES


class _Kernels:
    """Launches of convolution_winograd.cu for one operation."""

    def __init__(self, operation: Convolution, device: Any, tiling: Tiling, workspace: Workspace) -> None:
        self.operation, self.device, self.tiling, self.workspace = operation, device, tiling, workspace
        self.definitions = type_definitions(operation.x.scalar_type, operation)
        self.names = ("x", "w", *operand_names(operation), "workSpace")
        self.groups = operation.convolution.group_count
        self.filters_last = False  # transformed filters: filters innermost, not channels
        self.channels, self.filters = operation.w.dims[1], operation.w.dims[0] // self.groups

    def launch(self, name: str, grid: tuple[int, int, int], first: int = 0, images: int = 1) -> Launch:
        """A kernel for ``images`` images from the first on."""
        arguments = structure(
            *pointers(6),
            ("filters_at", c_longlong(0)),
            ("images_at", c_longlong(self.workspace.images_at)),
            ("products_at", c_longlong(self.workspace.products_at)),
            ("convolution", operation_product(self.operation)),
            ("epilogue", epilogue(self.operation)),
            ("tile_rows", FastDivmod.of(self.tiling.rows)),
            ("tile_columns", FastDivmod.of(self.tiling.columns)),
            ("tiles", FastDivmod.of(images * self.tiling.of_image)),
            ("channels", FastDivmod.of(self.channels)),
            ("filters", FastDivmod.of(self.filters)),
            ("first_image", c_int(first)),
            ("groups", c_int(self.groups)),
            ("x_channels_last", c_int(channels_last(self.operation.x))),
            ("y_channels_last", c_int(channels_last(self.operation.y))),
            ("filters_last", c_int(self.filters_last)),
        )
        function = self.device.function(SOURCE, name, self.definitions)
        return Launch(function, arguments, self.names, grid, (THREADS, 1, 1))


def nonfused(operation: Convolution, device: Any) -> list[Launch]:
    """Transforms of filters and images, a product for each of the 36 values of a tile, the inverse transform."""
    tiling, workspace = _nonfused_tiling(operation), _nonfused_workspace(operation)
    kernels = _Kernels(operation, device, tiling, workspace)
    kernels.filters_last = _filters_last(operation, device)
    channels, filters = operation.x.dims[1], operation.w.dims[0]
    launches = [kernels.launch("winograd_filters", blocks(filters * kernels.channels))]
    for first in range(0, operation.x.dims[0], workspace.images):
        images = min(workspace.images, operation.x.dims[0] - first)
        tiles = images * tiling.of_image
        launches.append(kernels.launch("winograd_images", blocks(tiles * channels), first, images))
        launches.append(_products(operation, device, tiles, workspace))
        launches.append(kernels.launch("winograd_results", blocks(tiles * filters), first, images))
    return launches


def _products(operation: Convolution, device: Any, tiles: int, workspace: Workspace) -> Launch:
    """The products of transformed images and filters, a matrix product for each value of a tile and each group."""
    groups = operation.convolution.group_count
    batch = TILE * TILE * groups
    value = transformed_product(operation, tiles, operation.w.dims[0] // groups, operation.w.dims[1])
    mark_packs(value, batch, COMPUTE_BYTES)
    offsets = (workspace.images_at, 0, workspace.products_at)
    operands = ("workSpace",) * 5
    if _filters_last(operation, device):
        return float_launch(device, value, batch, operands, offsets, filters_last=True)
    return product_launch(device, COMPUTE_DEFINITIONS, value, batch, operands, offsets)


def _filters_last(operation: Convolution, device: Any) -> bool:
    """Whether the product takes transformed filters with filters innermost."""
    filters = operation.w.dims[0] // operation.convolution.group_count
    value = transformed_product(operation, 1, filters, operation.w.dims[1])
    return filters % PACK == 0 and not channels_last(operation.x) and serves(value, device)


def transformed_product(operation: Convolution, tiles: int, filters: int, terms: int) -> ConvolutionStruct:
    """Products of matrices in the workspace: channels innermost where they are in x and y, else tiles."""
    x, y = operation.x, operation.y
    x_matrices = Matrices(terms, 1, terms * tiles) if channels_last(x) else Matrices(1, tiles, terms * tiles)
    y_matrices = Matrices(filters, 1, filters * tiles) if channels_last(y) else Matrices(1, tiles, filters * tiles)
    return matrix_product(tiles, filters, terms, x_matrices, y_matrices)


def fused(operation: Convolution, device: Any) -> list[Launch]:
    """The transform of the filters, and everything else in one kernel."""
    tiling = _tiling(operation, FUSED_OUTPUTS)
    kernels = _Kernels(operation, device, tiling, Workspace(operation.x.dims[0], 0, 0, fused_bytes(operation)))
    images, filters = operation.x.dims[0], operation.w.dims[0]
    tiles = images * tiling.of_image
    grid = -(-kernels.filters // BLOCK_FILTERS) * -(-tiles // BLOCK_TILES) * kernels.groups
    return [
        kernels.launch("winograd_fused_filters", blocks(filters * kernels.channels)),
        kernels.launch("winograd_fused", (grid, 1, 1), 0, images),
    ]
