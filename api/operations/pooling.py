"""Define the operations of cudnnPoolingForward (3.2.69) and cudnnPoolingBackward (4.1.18)."""

from __future__ import annotations

from .operation import Operation
from .records import record
from .specs import PoolingSpec, TensorSpec


@record
class PoolingForward(Operation):
    """Compute y = alpha * pool(x) + beta * y."""

    pooling: PoolingSpec
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec

    inputs = ("x",)
    outputs = ("y",)


@record
class PoolingBackward(Operation):
    """Compute dx = alpha * gradient(y, dy, x) + beta * dx."""

    pooling: PoolingSpec
    alpha: float
    beta: float
    y: TensorSpec
    dy: TensorSpec
    x: TensorSpec
    dx: TensorSpec

    inputs = ("y", "dy", "x")
    outputs = ("dx",)
