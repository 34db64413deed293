"""Define the operations of cudnnLRNCrossChannelForward (3.2.65) and cudnnLRNCrossChannelBackward (4.1.14)."""

from __future__ import annotations

from ..operation import Operation
from ..records import record
from ..specs import LRNSpec, TensorSpec


@record
class LRNCrossChannelForward(Operation):
    """Compute y = alpha * x * (k + lrnAlpha / n * sum of x^2 over a window of channels)^-lrnBeta + beta * y."""

    lrn: LRNSpec
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec

    inputs = ("x",)
    outputs = ("y",)


@record
class LRNCrossChannelBackward(Operation):
    """Compute dx = alpha * gradient(y, dy, x) + beta * dx."""

    lrn: LRNSpec
    alpha: float
    beta: float
    y: TensorSpec
    dy: TensorSpec
    x: TensorSpec
    dx: TensorSpec

    inputs = ("y", "dy", "x")
    outputs = ("dx",)
