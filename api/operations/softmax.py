"""Define the operations of cudnnSoftmaxForward (3.2.96) and cudnnSoftmaxBackward (4.1.19)."""

from __future__ import annotations

from ..enumerations import cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from .operation import Operation
from .records import record
from .specs import TensorSpec


@record
class SoftmaxForward(Operation):
    """Compute y = alpha * softmax(x) + beta * y, over C, H, W of each image or over C at each position."""

    algorithm: cudnnSoftmaxAlgorithm_t
    mode: cudnnSoftmaxMode_t
    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec

    inputs = ("x",)
    outputs = ("y",)


@record
class SoftmaxBackward(Operation):
    """Compute dx = alpha * gradient(y, dy) + beta * dx."""

    algorithm: cudnnSoftmaxAlgorithm_t
    mode: cudnnSoftmaxMode_t
    alpha: float
    beta: float
    y: TensorSpec
    dy: TensorSpec
    dx: TensorSpec

    inputs = ("y", "dy")
    outputs = ("dx",)
