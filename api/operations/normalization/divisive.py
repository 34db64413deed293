"""Define the operations of cudnnDivisiveNormalizationForward (3.2.33) and cudnnDivisiveNormalizationBackward (4.1.6)."""

from __future__ import annotations

from ..operation import Operation
from ..records import record
from ..specs import LRNSpec, TensorSpec


@record
class DivisiveNormalizationForward(Operation):
    """Compute y = alpha * x * (k + lrnAlpha / n^d * sum of (x - means)^2 over a window of positions)^-lrnBeta + beta * y."""

    lrn: LRNSpec
    alpha: float
    beta: float
    x: TensorSpec
    means: TensorSpec | None
    y: TensorSpec

    inputs = ("x", "means")
    outputs = ("y",)
    optional = ("means",)
    raw = {"temp": "x", "temp2": "x"}  # noqa: RUF012


@record
class DivisiveNormalizationBackward(Operation):
    """Compute dx = alpha * gradient of x + beta * dx, dMeans = alpha * gradient of means + beta * dMeans."""

    lrn: LRNSpec
    alpha: float
    beta: float
    x: TensorSpec
    means: TensorSpec | None
    dy: TensorSpec
    dx: TensorSpec
    dMeans: TensorSpec | None

    inputs = ("x", "means", "dy")
    outputs = ("dx", "dMeans")
    optional = ("means", "dMeans")
    raw = {"temp": "x", "temp2": "x"}  # noqa: RUF012
