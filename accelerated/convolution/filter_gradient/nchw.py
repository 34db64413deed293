"""Compute gradients with respect to filters of one tap of x and dy in NCHW (convolution/filter_gradient/tma.cu). Both
operands of the product have pixels innermost, in place. Where the pixels of a channel are not a multiple of 16 bytes,
nchw.cu multiplies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

from dualdnn.api.enumerations import cudnnDataType_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import BFLOAT16, FLOAT, HALF, NCHW

from ...plans import ELEMENTS
from ...primitives.tma import ROW_BYTES, TiledMap
from .forward_convolution import FilterGradientProblem
from .tma import OF_BOTH, FilterGradientTma, Operand, Product, TileKernel

MIN_FILL = {2: 0.75, 4: 0.5}  # share of the boxes that an image's pixels fill, by bytes of a pixel


@dataclass(frozen=True)
class NchwKernel(TileKernel):
    """Describe a tile of 16-bit types."""

    prefix: ClassVar[str] = "nchw_"
    reads_channels: ClassVar[bool] = False
    kind: ClassVar[str] = ""
    data_types: ClassVar[tuple[cudnnDataType_t, ...]] = (HALF, BFLOAT16)
    merged: ClassVar[int] = 1  # channels in a row of the maps

    @property
    def box_pixels(self) -> int:
        """Return the pixels per K-block. Boxes begin at 16 bytes, so up to three pixels early."""
        return self.box - (self.merged - 1)

    @property
    def name(self) -> str:
        """Return the solver's name."""
        return f"convolution.filter_gradient_nchw_{self.kind}{self.entry.rpartition('_')[2]}"


@dataclass(frozen=True)
class Tf32NchwKernel(NchwKernel):
    """Describe the same tile for TF32, with four boxes per warpgroup instead of two."""

    kind: ClassVar[str] = "tf32_"
    data_types: ClassVar[tuple[cudnnDataType_t, ...]] = (FLOAT,)
    definitions: ClassVar[Mapping[str, str]] = {"TF32": "1"}
    box: ClassVar[int] = ROW_BYTES // 4
    warpgroup_boxes: ClassVar[int] = 2
    products: ClassVar[int] = 1024


@dataclass(frozen=True)
class MergedKernel(Tf32NchwKernel):
    """Describe a tile of TF32 whose rows and columns both pass through registers."""

    prefix: ClassVar[str] = ""
    kind: ClassVar[str] = "tf32_merged_"
    source: ClassVar[str] = "convolution/filter_gradient/nchw.cu"
    definitions: ClassVar[Mapping[str, str]] = {}
    merged: ClassVar[int] = 4
    warpgroup_boxes: ClassVar[int] = 4
    order: ClassVar[int] = OF_BOTH


NCHW_KERNELS: tuple[NchwKernel, ...] = (
    NchwKernel(2, 2, 6, 0.62),
    NchwKernel(1, 2, 8, 0.42),
    Tf32NchwKernel(4, 8, 4, 0.74),
    Tf32NchwKernel(4, 4, 6, 0.62),
    Tf32NchwKernel(2, 4, 8, 0.42),
    MergedKernel(8, 2, 5, 0.4),
)


class FilterGradientNchw(FilterGradientTma):
    """Serve ALGO_1 and ALGO_3 of filters of one tap, without padding and strides, where the math type allows tensor
    cores.

    One kernel multiplies tiles of dy and x in place.
    """

    def __init__(self, kernel: NchwKernel) -> None:
        self.kernel, self.name, self.data_types = kernel, kernel.name, kernel.data_types
        alike = kernel.data_types, kernel.merged
        self.kernels = tuple(other for other in NCHW_KERNELS if (other.data_types, other.merged) == alike)

    def described(self, problem: FilterGradientProblem, kernel: TileKernel) -> Product:
        assert isinstance(kernel, NchwKernel)
        return _NchwProduct(problem, kernel)

    def _is_known(self, problem: FilterGradientProblem) -> bool:
        o, c, kernel = problem.operation, problem.operation.convolution, self.kernel
        assert isinstance(kernel, NchwKernel)
        plain = prod(o.dw.dims[2:]) == prod(c.stride) == 1 and not any(c.padding) and problem.groups == 1
        return plain and super()._is_known(problem) and all(_is_nchw(tensor, kernel) for tensor in (o.x, o.dy))


def _is_nchw(tensor: TensorSpec, kernel: NchwKernel) -> bool:
    """Return whether the pixels of a channel are contiguous, fill most of their boxes, and suit the kernel's maps."""
    (_, channels, *extents), (_, channel, *strides) = tensor.dims, tensor.strides
    pixels = prod(extents)
    packed = TensorSpec.packed(tensor.data_type, tensor.dims, NCHW).strides[2:]
    follow = all(n == 1 or step == wanted for n, step, wanted in zip(extents, strides, packed, strict=True))
    if kernel.merged > 1 and (channels % kernel.merged or channel != pixels or pixels % kernel.merged == 0):
        return False
    filled = pixels >= MIN_FILL[tensor.scalar_bytes] * -(-pixels // kernel.box_pixels) * kernel.box
    return channels > 1 and channel > 1 and follow and filled


class _NchwProduct(Product):
    """Describe one gradient as a product of dy and x in place."""

    def __init__(self, problem: FilterGradientProblem, kernel: NchwKernel) -> None:
        super().__init__(problem, kernel)
        self.kernel: NchwKernel = kernel
        self.rows = None
        self.k_blocks = self.operation.dy.dims[0] * self.extents[2]

    @property
    def extents(self) -> tuple[int, ...]:
        pixels = prod(self.operation.dy.dims[2:])
        return 1, pixels, -(-pixels // self.kernel.box_pixels)

    def _copy(self, name: str) -> TensorSpec | None:
        return None

    @cached_property
    def image(self) -> Operand:
        return self._nchw("x", self.channels)

    @cached_property
    def incoming(self) -> Operand:
        return self._nchw("dy", self.filters)

    def _nchw(self, name: str, channels: int) -> Operand:
        return self._operand(name, self._map_of(name, self.kernel.row_boxes), channels)

    def _map_of(self, name: str, boxes: int) -> TiledMap:
        """Return the map of an operand in boxes of pixels by channels."""
        tensor, box, merged = self.operation.tensor(name), self.kernel.box, self.kernel.merged
        images, channels, *extents = tensor.dims
        strides = [stride * tensor.scalar_bytes for stride in (tensor.strides[1], tensor.strides[0])]
        if images == 1:  # TMA never uses the stride, but it must be valid.
            strides[1] = channels * strides[0]
        factor = "tf32" if tensor.data_type == FLOAT else ELEMENTS[tensor.data_type]
        extent = (merged * prod(extents), channels // merged, images)
        return TiledMap(factor, extent, (merged * strides[0], strides[1]), box=(box, box * boxes // merged, 1))

    def maps(self, rows: Operand, columns: Operand) -> tuple[TiledMap, TiledMap]:
        return self._map_of(rows.name, self.kernel.row_boxes), self._map_of(columns.name, self.kernel.column_boxes)
