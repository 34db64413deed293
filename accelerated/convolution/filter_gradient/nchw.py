"""Compute gradients with respect to filters of one tap of x and dy in NCHW (convolution/filter_gradient/tma.cu). Both
operands of the product have pixels innermost, in place.
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
from .tma import FilterGradientTma, Operand, Product, TileKernel

MIN_FILL = 0.75  # share of the boxes that an image's pixels fill


@dataclass(frozen=True)
class NchwKernel(TileKernel):
    """Describe a tile of 16-bit types."""

    prefix: ClassVar[str] = "nchw_"
    kind: ClassVar[str] = ""
    data_types: ClassVar[tuple[cudnnDataType_t, ...]] = (HALF, BFLOAT16)

    @property
    def name(self) -> str:
        """Return the solver's name."""
        return f"convolution.filter_gradient_nchw_{self.kind}{self.entry.rpartition('_')[2]}"


@dataclass(frozen=True)
class Tf32NchwKernel(NchwKernel):
    """Describe the same tile for TF32, in twice as many boxes."""

    kind: ClassVar[str] = "tf32_"
    data_types: ClassVar[tuple[cudnnDataType_t, ...]] = (FLOAT,)
    definitions: ClassVar[Mapping[str, str]] = {"TF32": "1"}
    box: ClassVar[int] = ROW_BYTES // 4
    warpgroup_boxes: ClassVar[int] = 2
    products: ClassVar[int] = 1024


NCHW_KERNELS: tuple[NchwKernel, ...] = (
    NchwKernel(2, 2, 6, 0.62),
    NchwKernel(1, 2, 8, 0.42),
    Tf32NchwKernel(4, 8, 4, 0.74),
    Tf32NchwKernel(4, 4, 6, 0.62),
    Tf32NchwKernel(2, 4, 8, 0.42),
)


class FilterGradientNchw(FilterGradientTma):
    """Serve ALGO_1 and ALGO_3 of filters of one tap, without padding and strides, where the math type allows tensor
    cores.

    One kernel multiplies tiles of dy and x in place.
    """

    def __init__(self, kernel: NchwKernel) -> None:
        self.kernel, self.name, self.data_types = kernel, kernel.name, kernel.data_types
        self.kernels = tuple(other for other in NCHW_KERNELS if other.data_types == kernel.data_types)

    def product(self, problem: FilterGradientProblem, kernel: TileKernel) -> Product:
        return _NchwProduct(problem, kernel)

    def _is_known(self, problem: FilterGradientProblem) -> bool:
        o, c = problem.operation, problem.operation.convolution
        plain = prod(o.dw.dims[2:]) == prod(c.stride) == 1 and not any(c.padding) and problem.groups == 1
        return plain and super()._is_known(problem) and all(map(_is_nchw, (o.x, o.dy)))


def _is_nchw(tensor: TensorSpec) -> bool:
    """Return whether the pixels of a channel are contiguous, and fill most of their boxes."""
    (_, channels, *extents), (_, channel, *strides) = tensor.dims, tensor.strides
    box, pixels = ROW_BYTES // tensor.scalar_bytes, prod(extents)
    packed = TensorSpec.packed(tensor.data_type, tensor.dims, NCHW).strides[2:]
    follow = all(n == 1 or step == wanted for n, step, wanted in zip(extents, strides, packed, strict=True))
    return channels > 1 and channel > 1 and follow and pixels >= MIN_FILL * -(-pixels // box) * box


class _NchwProduct(Product):
    """Describe one gradient as a product of dy and x in place."""

    def __init__(self, problem: FilterGradientProblem, kernel: TileKernel) -> None:
        super().__init__(problem, kernel)
        self.rows = None
        self.k_blocks = self.operation.dy.dims[0] * self.extents[2]

    @property
    def extents(self) -> tuple[int, ...]:
        return 1, 1, -(-prod(self.operation.dy.dims[2:]) // self.kernel.box)

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
        tensor, box = self.operation.tensor(name), self.kernel.box
        images, channels, *extents = tensor.dims
        strides = [stride * tensor.scalar_bytes for stride in (tensor.strides[1], tensor.strides[0])]
        if images == 1:  # TMA never uses the stride, but it must be valid.
            strides[1] = channels * strides[0]
        factor = "tf32" if tensor.data_type == FLOAT else ELEMENTS[tensor.data_type]
        return TiledMap(factor, (prod(extents), channels, images), (strides[0], strides[1]), box=(box, box * boxes, 1))

    def maps(self, rows: Operand, columns: Operand) -> tuple[TiledMap, TiledMap]:
        return self._map_of(rows.name, self.kernel.row_boxes), self._map_of(columns.name, self.kernel.column_boxes)
