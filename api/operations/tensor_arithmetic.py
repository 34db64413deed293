"""Define the operations of cudnnAddTensor (3.2.2), cudnnOpTensor (3.2.68), cudnnScaleTensor (3.2.75) and cudnnSetTensor
(3.2.90)."""

from __future__ import annotations

from .operation import Operation
from .records import record
from .specs import OpTensorSpec, TensorSpec


@record
class AddTensor(Operation):
    """Compute C = alpha * A + beta * C; A is broadcast along its dimensions of extent 1."""

    alpha: float
    beta: float
    A: TensorSpec
    C: TensorSpec

    inputs = ("A",)
    outputs = ("C",)


@record
class OpTensor(Operation):
    """Compute C = op(alpha1 * A, alpha2 * B) + beta * C; B is broadcast along its dimensions of extent 1."""

    op_tensor: OpTensorSpec
    alpha1: float
    alpha2: float
    beta: float
    A: TensorSpec
    B: TensorSpec
    C: TensorSpec

    inputs = ("A", "B")
    outputs = ("C",)


@record
class ScaleTensor(Operation):
    """Compute y = alpha * y in place."""

    alpha: float
    y: TensorSpec

    inputs = ("y",)
    outputs = ("y",)


@record
class SetTensor(Operation):
    """Set every element of y to ``value``, which has the data type of y."""

    value: float
    y: TensorSpec

    outputs = ("y",)
