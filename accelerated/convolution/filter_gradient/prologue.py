"""Compute gradients with respect to the filter of an x that is scaled, biased and rectified between its loads and its
products (convolution/filter_gradient/tma.cu with PROLOGUE).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from dualdnn.api.operations.specs import BFLOAT16, HALF

from ..composed import At, ComposedLaunch
from .forward_convolution import FilterGradientProblem
from .tma import Product, TileKernel

DEFINITIONS = {"PROLOGUE": "1"}


@dataclass(frozen=True)
class PrologueKernel(TileKernel):
    """Describe a tile whose rows, of x, pass through registers."""

    prefix: ClassVar[str] = "prologue_"
    definitions: ClassVar[Mapping[str, str]] = DEFINITIONS
    operands: ClassVar[tuple[str, ...]] = ("eqScale", "eqBias")


KERNEL = PrologueKernel(1, 2, 8, 0.4)


class PrologueProduct(Product):
    """Describe the gradient as a product of x, as rows, and dy, both with channels innermost and without groups.

    Padding is not allowed, because the prologue would change its zeros.
    """

    def __init__(self, problem: FilterGradientProblem, prologue: tuple[bool, bool, bool]) -> None:
        super().__init__(problem, KERNEL)
        self.prologue = prologue

    @property
    def choices(self) -> tuple[bool, ...]:
        return (False,)

    @property
    def serves(self) -> bool:
        """Return whether the launches can compute the gradient."""
        o = self.operation
        plain = self.groups == 1 and not any(o.convolution.padding) and o.x.data_type in (HALF, BFLOAT16)
        return plain and not self.copies and self.is_possible

    def launches_of(self, scale: str, bias: str) -> list[ComposedLaunch]:
        """Return the launches, on operands that scale and bias x."""
        where = {"eqScale": At(scale), "eqBias": At(bias), "x": At("x"), "dy": At("dy"), "dw": At("dw")}
        where["partial"] = At("workSpace", self.regions.partial)
        return [
            ComposedLaunch(launch, tuple(where[name] for name in launch.operands))
            for launch in self._product_launches()
        ]
