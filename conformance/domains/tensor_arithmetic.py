"""Draw additions, operations on two tensors, scaling and setting, with operands broadcast along any dimensions."""

from __future__ import annotations

from typing import Any

from dualdnn.api.cudnn.tensor_arithmetic import OP_TENSOR_TYPES, PLAIN_TYPES
from dualdnn.api.enumerations import cudnnNanPropagation_t, cudnnOpTensorOp_t
from dualdnn.api.operations import AddTensor, OpTensor, OpTensorSpec, ScaleTensor, SetTensor

from .pieces import ALPHAS, Drawn, Source

OPERATIONS = (AddTensor, OpTensor, ScaleTensor, SetTensor)
ROOT = cudnnOpTensorOp_t.CUDNN_OP_TENSOR_SQRT


def draw(source: Source) -> Drawn:
    """Draw one of the four calls."""
    kind = source.pick(OPERATIONS)
    whole = source.dims(source.pick((4, 5)) if kind in (ScaleTensor, SetTensor) else source.pick((4, 5, 3)))
    alpha, beta = source.blend()
    if kind in (ScaleTensor, SetTensor):
        y = source.tensor(source.pick(PLAIN_TYPES), whole)
        value = float(source.pick((source.integer(-3, 3), -128, 127))) if kind is SetTensor else alpha
        return Drawn((kind(value, y),), source.inputs())
    part = tuple(extent if source.chance(50) else 1 for extent in whole)
    operation: Any
    if kind is AddTensor:
        data_type = source.pick(PLAIN_TYPES)
        operation = AddTensor(alpha, beta, source.tensor(data_type, part), source.tensor(data_type, whole))
        return Drawn((operation,), source.inputs())
    types = source.pick(tuple(OP_TENSOR_TYPES))
    op = source.pick(tuple(cudnnOpTensorOp_t))
    rules = OpTensorSpec(op, OP_TENSOR_TYPES[types], source.pick(tuple(cudnnNanPropagation_t)))
    operands = [source.tensor(t, dims) for t, dims in zip(types, (whole, part, whole), strict=True)]
    operation = OpTensor(rules, 1.0 if op == ROOT else alpha, source.pick(ALPHAS), beta, *operands)
    return Drawn((operation,), "positive" if op == ROOT and not source.profile.special else source.inputs())
