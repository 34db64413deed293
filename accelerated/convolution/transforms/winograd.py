"""Plan Winograd convolutions on the device (convolution/transforms/winograd.cu)."""

from __future__ import annotations

from ctypes import c_int, c_longlong
from typing import Any, NamedTuple

from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t as Algo

from ...plans import Launch, fields_of, pointers, structure, type_definitions
from ...primitives.geometry import THREADS, FastDivmod, blocks
from ..forward import ConvolutionProblem, ConvolutionSolver
from ..implicit_gemm.fp32 import VECTOR, suits
from ..implicit_gemm.product import Product
from ..implicit_gemm.products import kernel_of, product_launch
from ..problem import (
    Convolution,
    ConvolutionStruct,
    Matrices,
    Rates,
    channels_last,
    epilogue,
    mark_vectors,
    matrix_product,
    operand_names,
    operation_product,
    slice_bytes,
)

SOURCE = "convolution/transforms/winograd.cu"
COMPUTE_BYTES = 4  # Transformed values are float.
COMPUTE_DEFINITIONS = (("COMPUTE", "float"), ("ELEMENT", "float"))
ALIGNMENT = 256  # bytes, for each part of the workspace
WINOGRAD, NONFUSED = Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, Algo.CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED
SLICE_BYTES = 2**30  # bytes of the transformed images and products in the workspace at a time
SMALL_SLICE_BYTES = 2**28  # bytes as above, for WINOGRAD, whose workspace must have a reasonable size (5.1.3.10)
TILE = 6  # values across a tile


class Tiling(NamedTuple):
    """Count the tiles of an image."""

    rows: int
    columns: int

    @property
    def of_image(self) -> int:
        return self.rows * self.columns


class Workspace(NamedTuple):
    """Hold the offsets of the transformed operands, and the number of images that are transformed at a time."""

    images: int
    images_at: int
    products_at: int
    nbytes: int


def _tiling(operation: Convolution) -> Tiling:
    outputs, (rows, columns) = TILE + 1 - operation.w.dims[2], operation.y.dims[2:]
    return Tiling(-(-rows // outputs), -(-columns // outputs))


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _workspace(operation: Convolution, device: Any) -> Workspace:
    """Return the workspace: filters, then images, then products. Large images are transformed slice by slice."""
    tiling, most = _tiling(operation), SMALL_SLICE_BYTES if operation.algo == WINOGRAD else SLICE_BYTES
    value_bytes = TILE * TILE * COMPUTE_BYTES
    image, product = (tiling.of_image * value_bytes * tensor.dims[1] for tensor in (operation.x, operation.y))
    images = min(operation.x.dims[0], max(1, slice_bytes(most, device) // (image + product)))
    filters_bytes = aligned(operation.w.dims[0] * operation.w.dims[1] * value_bytes)
    products_at = filters_bytes + aligned(images * image)
    return Workspace(images, filters_bytes, products_at, products_at + aligned(images * product))


class _Kernels:
    """Launch the kernels of winograd.cu for one operation."""

    def __init__(self, operation: Convolution, device: Any, tiling: Tiling, workspace: Workspace) -> None:
        self.operation, self.device, self.tiling, self.workspace = operation, device, tiling, workspace
        self.definitions = type_definitions(operation.x.scalar_type, operation)
        self.names = ("x", "w", *operand_names(operation), "workSpace")
        self.groups = operation.convolution.group_count
        self.filters_last = False  # Transformed filters have channels innermost.
        self.channels, self.filters = operation.w.dims[1], operation.w.dims[0] // self.groups

    def launch(self, name: str, grid: tuple[int, int, int], first: int = 0, images: int = 1) -> Launch:
        """Return a kernel for ``images`` images from the first on."""
        arguments = structure(
            *pointers(6),
            *fields_of(c_longlong, images_at=self.workspace.images_at, products_at=self.workspace.products_at),
            ("convolution", operation_product(self.operation)),
            ("epilogue", epilogue(self.operation)),
            *fields_of(FastDivmod.of, tile_rows=self.tiling.rows, tile_columns=self.tiling.columns),
            *fields_of(FastDivmod.of, tiles=images * self.tiling.of_image, channels=self.channels),
            ("filters", FastDivmod.of(self.filters)),
            *fields_of(c_int, first_image=first, groups=self.groups, x_channels_last=channels_last(self.operation.x)),
            *fields_of(c_int, y_channels_last=channels_last(self.operation.y), filters_last=self.filters_last),
        )
        function = self.device.function(SOURCE, name, self.definitions)
        return Launch(function, arguments, self.names, grid, (THREADS, 1, 1))


class WinogradNonfused(ConvolutionSolver):
    """Serve with transforms of filters and images, a product for each of the 36 values of a tile, and the inverse
    transform. WINOGRAD and WINOGRAD_NONFUSED differ in how many images they transform at a time.
    """

    name = "convolution.winograd_nonfused"
    algorithms = (WINOGRAD, NONFUSED)

    def used_bytes(self, problem: ConvolutionProblem) -> int:
        return _workspace(problem.operation, problem.device).nbytes

    def estimated_seconds(self, problem: ConvolutionProblem) -> float:
        o, device = problem.operation, problem.device
        workspace, of_image = _workspace(o, device), _tiling(o).of_image
        slices = -(-o.x.dims[0] // workspace.images)
        transformed_bytes = COMPUTE_BYTES * TILE**2 * o.x.dims[0] * of_image * (o.x.dims[1] + o.y.dims[1])
        product = _product(o, device, workspace.images * of_image, workspace)
        moved = 2 * transformed_bytes / Rates.BANDWIDTH + problem.memory_seconds
        computing = o.x.dims[0] / workspace.images * kernel_of(product).computing_seconds(product)
        return (1 + 3 * slices) * Rates.LAUNCH + moved + computing

    def launches(self, problem: ConvolutionProblem) -> list[Launch]:
        operation, device = problem.operation, problem.device
        tiling, workspace = _tiling(operation), _workspace(operation, device)
        kernels = _Kernels(operation, device, tiling, workspace)
        kernels.filters_last = _filters_last(operation, device)
        channels, filters = operation.x.dims[1], operation.w.dims[0]
        launches = [kernels.launch("convolution_winograd_filters", blocks(filters * kernels.channels))]
        for first in range(0, operation.x.dims[0], workspace.images):
            images = min(workspace.images, operation.x.dims[0] - first)
            tiles = images * tiling.of_image
            launches.append(kernels.launch("convolution_winograd_images", blocks(tiles * channels), first, images))
            launches.append(product_launch(_product(operation, device, tiles, workspace)))
            launches.append(kernels.launch("convolution_winograd_results", blocks(tiles * filters), first, images))
        return launches


def _product(
    operation: Convolution, device: Any, tiles: int, workspace: Workspace, filters_last: bool | None = None
) -> Product:
    """Return the products of transformed images and filters, a matrix product for each value of a tile and each
    group.
    """
    groups = operation.convolution.group_count
    batch = TILE * TILE * groups
    value = transformed_product(operation, tiles, operation.w.dims[0] // groups, operation.w.dims[1])
    if filters_last is None:
        filters_last = _filters_last(operation, device)
    return Product(
        device, COMPUTE_DEFINITIONS, mark_vectors(value, batch, COMPUTE_BYTES), batch, ("workSpace",) * 5,
        (workspace.images_at, 0, workspace.products_at), filters_last=filters_last,
    )  # fmt: skip


def _filters_last(operation: Convolution, device: Any) -> bool:
    """Return whether the product takes transformed filters with filters innermost."""
    filters = operation.w.dims[0] // operation.convolution.group_count
    if filters % VECTOR or channels_last(operation.x):
        return False
    return suits(_product(operation, device, 1, Workspace(1, 0, 0, 0), filters_last=True))


def transformed_product(operation: Convolution, tiles: int, filters: int, channels: int) -> ConvolutionStruct:
    """Return products of matrices in the workspace. Channels are innermost where they are in x and y, and otherwise
    tiles.
    """
    x, y = operation.x, operation.y
    x_matrices = Matrices(channels, 1, channels * tiles) if channels_last(x) else Matrices(1, tiles, channels * tiles)
    y_matrices = Matrices(filters, 1, filters * tiles) if channels_last(y) else Matrices(1, tiles, filters * tiles)
    return matrix_product(tiles, filters, channels, x_matrices, y_matrices)
