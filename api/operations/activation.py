"""Define the operations of cudnnActivationForward (3.2.1) and cudnnActivationBackward (4.1.1)."""

from __future__ import annotations

from .operation import Operation
from .records import record
from .specs import ActivationSpec, TensorSpec


@record
class ActivationForward(Operation):
    """Compute y = alpha * f(x) + beta * y."""

    activation: ActivationSpec
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec

    inputs = ("x",)
    outputs = ("y",)


@record
class ActivationBackward(Operation):
    """Compute dx = alpha * f'(x, y) * dy + beta * dx."""

    activation: ActivationSpec
    alpha: float
    beta: float
    y: TensorSpec
    dy: TensorSpec
    x: TensorSpec
    dx: TensorSpec

    inputs = ("y", "dy", "x")
    outputs = ("dx",)
