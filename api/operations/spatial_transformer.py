"""Define the operations of the spatial transformer (3.2.97, 3.2.98, 4.1.20, 4.1.21). Formulas: docs/errata.md, D135,
D136, D191 and D192."""

from __future__ import annotations

from typing import ClassVar

from .operation import Operation
from .records import record
from .specs import SpatialTransformerSpec, TensorSpec


@record
class SpatialTfGridGeneratorForward(Operation):
    """Compute grid[n, i, j] = theta[n] (xt, yt, 1)^T, where (xt, yt) are the coordinates of pixel (i, j), from -1 to 1."""

    transformer: SpatialTransformerSpec

    inputs = ("theta",)
    outputs = ("grid",)

    @property
    def theta(self) -> TensorSpec:
        return self.transformer.theta

    @property
    def grid(self) -> TensorSpec:
        return self.transformer.grid


@record
class SpatialTfGridGeneratorBackward(Operation):
    """Compute dtheta[n] = sum over pixels of dgrid[n, i, j] (xt, yt, 1)."""

    transformer: SpatialTransformerSpec

    inputs = ("dgrid",)
    outputs = ("dtheta",)

    @property
    def dgrid(self) -> TensorSpec:
        return self.transformer.grid

    @property
    def dtheta(self) -> TensorSpec:
        return self.transformer.theta


@record
class SpatialTfSamplerForward(Operation):
    """Compute y = alpha * (x, interpolated bilinearly at the coordinates of grid) + beta * y."""

    transformer: SpatialTransformerSpec
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec

    inputs = ("x", "grid")
    outputs = ("y",)

    @property
    def grid(self) -> TensorSpec:
        return self.transformer.grid


@record
class SpatialTfSamplerBackward(Operation):
    """Compute dx = alpha * (gradient of x) + beta * dx; dgrid = alphaDgrid * (gradient of grid) + betaDgrid * dgrid."""

    transformer: SpatialTransformerSpec
    alpha: float
    beta: float
    alphaDgrid: float  # The document uses this spelling.
    betaDgrid: float
    x: TensorSpec
    dx: TensorSpec
    dy: TensorSpec

    inputs = ("x", "dy", "grid")
    outputs = ("dx", "dgrid")
    blends: ClassVar = {"dgrid": ("alphaDgrid", "betaDgrid")}

    @property
    def grid(self) -> TensorSpec:
        return self.transformer.grid

    @property
    def dgrid(self) -> TensorSpec:
        return self.transformer.grid
