"""Gradients with respect to the filter in TF32 (convolution/gradients/filter_gradient_tf32.cu): tensor cores do not
transpose 32 bits, so that dy is copied with pixels side by side."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import ClassVar

from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import FLOAT

from ...plans import Launch
from ...primitives.tma import ALIGNMENT, ROW_BYTES, TiledMap
from ..problem import rounded_up
from .composed import copied
from .filter_gradient import FilterGradientProblem
from .filter_gradient_tma import FilterGradientTma, Operand, Product, TileKernel

SOURCE = "convolution/gradients/filter_gradient_tf32.cu"
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Tf32Kernel(TileKernel):
    """A tile whose rows are channels under taps, which come through registers."""

    source: ClassVar[str] = SOURCE
    box: ClassVar[int] = ROW_BYTES // FLOAT_BYTES
    warpgroup_boxes: ClassVar[int] = 4
    products: ClassVar[int] = 1024
    choices: ClassVar[tuple[bool, ...]] = (False,)


TF32_KERNELS = (Tf32Kernel(8, 4, 4, 0.74), Tf32Kernel(4, 4, 6, 0.6), Tf32Kernel(4, 2, 8, 0.5))


class FilterGradientTf32(FilterGradientTma):
    """ALGO_1 of float where the math type allows TF32: a product of x with channels innermost, as it lies or copied,
    and dy with pixels innermost, in tiles of one kernel."""

    data_types = (FLOAT,)
    kernels = TF32_KERNELS

    def product(self, problem: FilterGradientProblem, kernel: TileKernel) -> Product:
        return _Tf32Product(problem, kernel)


class _Tf32Product(Product):
    """One gradient as a product of a copy of dy and x."""

    def _copy(self, name: str) -> TensorSpec | None:
        if name == "x":
            return super()._copy(name)
        dy = self.operation.dy
        images, filters, *extents = dy.dims
        pitch = rounded_up(images * prod(extents), ALIGNMENT // FLOAT_BYTES)
        steps = (prod(extents[1:]), 1) if extents else ()
        return TensorSpec(dy.data_type, (filters, images, *extents), (pitch, prod(extents), *steps))

    def _copy_launch(self, name: str, made: TensorSpec) -> Launch:
        if name == "x":
            return super()._copy_launch(name, made)
        dy = self.operation.dy
        (image, channel, *steps) = dy.strides
        source = TensorSpec(dy.data_type, made.dims, (channel, image, *steps))
        return copied(source, made, self.problem.device)

    @cached_property
    def incoming(self) -> Operand:
        filters, images, *extents = self.copies["dy"].dims
        pixels, pitch = images * prod(extents), self.copies["dy"].strides[0] * FLOAT_BYTES
        box = self.kernel.box
        map_ = TiledMap(
            "tf32", (pixels, filters, 1), (pitch, pitch * filters), box=(box, box * self.kernel.column_boxes, 1)
        )
        return self._operand("dy", map_, self.filters, (1, 1), (1, 1), (0, 0), (0, 0))
