"""Calls of the tensor arithmetic family."""

from __future__ import annotations

from typing import Any

from dualdnn.api.operations import AddTensor, OpTensor, OpTensorSpec, ScaleTensor, SetTensor

from .caller import Caller, Memory, calls


def op_tensor_descriptor(make: Caller, spec: OpTensorSpec) -> Any:
    """An op tensor descriptor with this specification."""
    descriptor = make.cudnn.cudnnCreateOpTensorDescriptor()
    make.cudnn.cudnnSetOpTensorDescriptor(descriptor, spec.op, spec.compute_type, spec.nan)
    return descriptor


@calls(AddTensor)
def add_tensor(make: Caller, o: AddTensor, memory: Memory) -> None:
    a, c = make.tensor(o.A), make.tensor(o.C)
    make.cudnn.cudnnAddTensor(make.handle, o.alpha, a, memory["A"], o.beta, c, memory["C"])


@calls(OpTensor)
def op_tensor(make: Caller, o: OpTensor, memory: Memory) -> None:
    a, b, c = (make.tensor(spec) for spec in (o.A, o.B, o.C))
    descriptor = op_tensor_descriptor(make, o.op_tensor)
    make.cudnn.cudnnOpTensor(
        make.handle, descriptor, o.alpha1, a, memory["A"], o.alpha2, b, memory["B"], o.beta, c, memory["C"]
    )


@calls(ScaleTensor)
def scale_tensor(make: Caller, o: ScaleTensor, memory: Memory) -> None:
    make.cudnn.cudnnScaleTensor(make.handle, make.tensor(o.y), memory["y"], o.alpha)


@calls(SetTensor)
def set_tensor(make: Caller, o: SetTensor, memory: Memory) -> None:
    make.cudnn.cudnnSetTensor(make.handle, make.tensor(o.y), memory["y"], o.value)
