"""Calls of the transform family."""

from __future__ import annotations

from typing import Any

from dualdnn.api.operations import TransformFilter, TransformSpec, TransformTensor, TransformTensorEx

from .caller import Caller, Memory, calls


def transform_descriptor(make: Caller, spec: TransformSpec) -> Any:
    """A transform descriptor with this specification."""
    descriptor = make.cudnn.cudnnCreateTensorTransformDescriptor()
    rank = len(spec.pad_before)
    make.cudnn.cudnnSetTensorTransformDescriptor(
        descriptor, rank, spec.format, spec.pad_before, spec.pad_after, spec.fold, spec.direction
    )
    return descriptor


@calls(TransformTensor)
def transform_tensor(make: Caller, o: TransformTensor, memory: Memory) -> None:
    x, y = make.tensor(o.x), make.tensor(o.y)
    make.cudnn.cudnnTransformTensor(make.handle, o.alpha, x, memory["x"], o.beta, y, memory["y"])


@calls(TransformTensorEx)
def transform_tensor_ex(make: Caller, o: TransformTensorEx, memory: Memory) -> None:
    transform = transform_descriptor(make, o.transform)
    source, destination = make.tensor(o.srcData), make.tensor(o.destData)
    make.cudnn.cudnnTransformTensorEx(
        make.handle, transform, o.alpha, source, memory["srcData"], o.beta, destination, memory["destData"]
    )


@calls(TransformFilter)
def transform_filter(make: Caller, o: TransformFilter, memory: Memory) -> None:
    transform = transform_descriptor(make, o.transform)
    source, destination = make.filter(o.srcData), make.filter(o.destData)
    make.cudnn.cudnnTransformFilter(
        make.handle, transform, o.alpha, source, memory["srcData"], o.beta, destination, memory["destData"]
    )
