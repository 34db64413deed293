"""Operations of cudnnTransformTensor (3.2.100), cudnnTransformTensorEx (3.2.101), cudnnTransformFilter (3.2.99)."""

from __future__ import annotations

from .operation import Operation
from .records import record
from .specs import FilterSpec, TensorSpec, TransformSpec


@record
class TransformTensor(Operation):
    """y = alpha * x + beta * y, the layouts may differ."""

    alpha: float
    beta: float
    x: TensorSpec
    y: TensorSpec

    inputs = ("x",)
    outputs = ("y",)


@record
class TransformTensorEx(Operation):
    """destData = alpha * transform(srcData) + beta * destData with padding, folding or unfolding."""

    transform: TransformSpec
    alpha: float
    beta: float
    srcData: TensorSpec
    destData: TensorSpec

    inputs = ("srcData",)
    outputs = ("destData",)


@record
class TransformFilter(Operation):
    """As TransformTensorEx, on filters."""

    transform: TransformSpec
    alpha: float
    beta: float
    srcData: FilterSpec
    destData: FilterSpec

    inputs = ("srcData",)
    outputs = ("destData",)
