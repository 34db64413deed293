"""Compute gradients with respect to the filter in TF32 (convolution/filter_gradient/tf32.cu). Tensor cores do not
transpose 32 bits, so one operand is copied with pixels innermost.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import FLOAT, NCHW

from ...plans import Launch
from ...primitives.tma import ALIGNMENT, ROW_BYTES, TiledMap
from ..composed import copied
from ..problem import rounded_up
from .forward_convolution import FilterGradient, FilterGradientProblem
from .tma import OF_ROWS, FilterGradientTma, Operand, Product, TileKernel

SOURCE = "convolution/filter_gradient/tf32.cu"
FLOAT_BYTES = 4
TRANSPOSED_SHARE = 1.1  # estimate of FilterGradient, in units of this product's, up to which it is preferred


@dataclass(frozen=True)
class Tf32Kernel(TileKernel):
    """Describe a tile whose rows pass through registers."""

    source: ClassVar[str] = SOURCE
    box: ClassVar[int] = ROW_BYTES // FLOAT_BYTES
    warpgroup_boxes: ClassVar[int] = 4
    products: ClassVar[int] = 1024
    order: ClassVar[int] = OF_ROWS


TF32_KERNELS = (Tf32Kernel(8, 4, 4, 0.74), Tf32Kernel(4, 4, 6, 0.6), Tf32Kernel(4, 2, 8, 0.5))


class FilterGradientTf32(FilterGradientTma):
    """Serve ALGO_1 and ALGO_3 of float where the math type allows TF32.

    One kernel multiplies tiles of an operand with channels innermost, in place or copied, and of the other operand with
    pixels innermost.
    """

    data_types = (FLOAT,)
    kernels = TF32_KERNELS

    def applies(self, problem: FilterGradientProblem) -> bool:
        if not super().applies(problem):
            return False
        made, transposed = self.product(problem, self.kernel), FilterGradient()
        # Where both operands are copied anyway, copies with images innermost, in full boxes, need not pass registers.
        comparable = len(made.copies) == 2 and not made.rows and problem.images % made.kernel.box == 0
        if not comparable or not transposed.serves(problem) or not transposed.is_one_product(problem):
            return True
        return made.seconds * TRANSPOSED_SHARE <= transposed.estimated_seconds(problem)

    def described(self, problem: FilterGradientProblem, kernel: TileKernel) -> Product:
        return _Tf32Product(problem, kernel)


class _Tf32Product(Product):
    """Describe one gradient as a product of one operand in place and a copy of the other with pixels innermost.

    The copy is dy, or x where x is not larger and the filter has one tap, which meets every pixel of dy.
    """

    @cached_property
    def by_pixels(self) -> str:
        """Return the operand that is copied with pixels innermost."""
        no_larger = not self.rows and self.channels <= self.filters
        return "x" if no_larger and prod(self.taps) == 1 and not any(self.operation.convolution.padding) else "dy"

    @property
    def choices(self) -> tuple[bool, ...]:
        return (self.by_pixels == "x",)

    def _copy(self, name: str) -> TensorSpec | None:
        if name != self.by_pixels:
            return super()._copy(name)
        source = self._as_pixels()
        pixels = prod(source.dims[1:])
        pitch = rounded_up(pixels, ALIGNMENT // FLOAT_BYTES)
        _, *strides = TensorSpec.packed(source.data_type, source.dims, NCHW).strides
        return TensorSpec(source.data_type, source.dims, (pitch, *strides))

    def _copy_launch(self, name: str, made: TensorSpec) -> Launch:
        if name != self.by_pixels:
            return super()._copy_launch(name, made)
        return copied(self._as_pixels(), made, self.problem.device)

    def _as_pixels(self) -> TensorSpec:
        """Return the operand in place, by channels; x has only the pixels that dy meets."""
        o = self.operation
        tensor = o.tensor(self.by_pixels)
        steps = o.convolution.stride if self.by_pixels == "x" else (1,) * o.convolution.rank
        (image, channel, *strides), (images, channels, *_) = tensor.strides, tensor.dims
        apart = (stride * step for stride, step in zip(strides, steps, strict=True))
        return TensorSpec(tensor.data_type, (channels, images, *o.dy.dims[2:]), (channel, image, *apart))

    @cached_property
    def image(self) -> Operand:
        return self._pixel_operand(self.channels) if self.by_pixels == "x" else super().image

    @cached_property
    def incoming(self) -> Operand:
        return self._pixel_operand(self.filters) if self.by_pixels == "dy" else super().incoming

    def _pixel_operand(self, channels: int) -> Operand:
        made, box = self.copies[self.by_pixels], self.kernel.box
        pitch, count = made.strides[0] * FLOAT_BYTES, made.dims[0]
        map_ = TiledMap(
            "tf32",
            (prod(made.dims[1:]), count, 1),
            (pitch, pitch * count),
            box=(box, box * self.kernel.column_boxes, 1),
        )
        return self._operand(self.by_pixels, map_, channels)
