"""Arithmetic on whole tensors on the device (kernels/tensor_arithmetic.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double, c_int, c_uint
from typing import Any

from dualdnn.api.operations import AddTensor, Operation, OpTensor, ScaleTensor, SetTensor, TensorSpec

from .geometry import blocks, broadcast_strides, geometry, merged
from .plans import Launch, Plan, implements, pointers, structure, type_definitions

SOURCE = "tensor_arithmetic.cu"
PACK_BYTES = 16


@implements(AddTensor)
def add_tensor(operation: AddTensor, device: Any) -> Plan:
    """One thread per 16 bytes of C."""
    dims, c = operation.C.scalar_layout()
    a = _broadcast(operation.A, dims)
    width = PACK_BYTES // operation.C.scalar_bytes
    factors = [("alpha", c_double(operation.alpha)), ("beta", c_double(operation.beta))]
    if _dense(dims, c):
        count = operation.C.count
        arguments = structure(*pointers(2), ("spread", _spread(dims, a, c)), *factors, ("count", c_uint(count)))
        name, packs = "add_tensor_dense", -(-count // width)
    else:
        layout = geometry(dims, [a, c], width)
        arguments = structure(*pointers(2), ("geometry", layout), *factors)
        name, packs = "add_tensor", layout.packs
    return Plan(
        operation, [Launch(_function(device, name, operation.C, operation), arguments, ("A", "C"), blocks(packs))]
    )


@implements(OpTensor)
def op_tensor(operation: OpTensor, device: Any) -> Plan:
    """One thread per 16 bytes of the wider of A and C."""
    dims, c = operation.C.scalar_layout()
    a, b = _broadcast(operation.A, dims), _broadcast(operation.B, dims)
    width = PACK_BYTES // max(operation.A.scalar_bytes, operation.C.scalar_bytes)
    factors = [("alpha1", operation.alpha1), ("alpha2", operation.alpha2), ("beta", operation.beta)]
    scalars = [(name, c_double(value)) for name, value in factors]
    kinds = [
        ("operation", c_int(operation.op_tensor.op)),
        ("propagate", c_int(operation.op_tensor.nan)),
        ("output", c_int(operation.C.scalar_type)),
    ]
    if _dense(dims, a, c):
        count = operation.C.count
        spread = _spread(dims, b, c)
        arguments = structure(*pointers(3), ("spread", spread), *scalars, ("count", c_uint(count)), *kinds)
        name, packs = "op_tensor_dense", -(-count // width)
    else:
        layout = geometry(dims, [a, b, c], width)
        arguments = structure(*pointers(3), ("geometry", layout), *scalars, *kinds)
        name, packs = "op_tensor", layout.packs
    return Plan(
        operation, [Launch(_function(device, name, operation.A, operation), arguments, ("A", "B", "C"), blocks(packs))]
    )


@implements(ScaleTensor)
def scale_tensor(operation: ScaleTensor, device: Any) -> Plan:
    """One thread per 16 bytes of y."""
    dims, strides = operation.y.scalar_layout()
    layout = geometry(dims, [strides, strides], PACK_BYTES // operation.y.scalar_bytes)
    arguments = structure(*pointers(1), ("geometry", layout), ("alpha", c_double(operation.alpha)))
    function = _function(device, "scale_tensor", operation.y, operation)
    return Plan(operation, [Launch(function, arguments, ("y",), blocks(layout.packs))])


@implements(SetTensor)
def set_tensor(operation: SetTensor, device: Any) -> Plan:
    """One thread per 16 bytes of y."""
    dims, strides = operation.y.scalar_layout()
    layout = geometry(dims, [strides], PACK_BYTES // operation.y.scalar_bytes)
    arguments = structure(*pointers(1), ("geometry", layout), ("value", c_double(operation.value)))
    function = _function(device, "set_tensor", operation.y, operation)
    return Plan(operation, [Launch(function, arguments, ("y",), blocks(layout.packs))])


def _function(device: Any, name: str, element: TensorSpec, operation: Operation) -> Any:
    return device.function(SOURCE, name, type_definitions(element.scalar_type, operation))


def _broadcast(spec: TensorSpec, onto: Sequence[int]) -> list[int]:
    dims, strides = spec.scalar_layout()
    return broadcast_strides(dims, strides, onto)


def _dense(dims: Sequence[int], *strides: Sequence[int]) -> bool:
    """All operands have the same layout, and it has no gaps."""
    extents, steps = merged(dims, strides)
    return len(extents) == 1 and all(step == [1] for step in steps)


def _spread(dims: Sequence[int], strides: Sequence[int], dense: Sequence[int]) -> Any:
    """The geometry that finds an operand's element by the position in a dense output."""
    layout = geometry(dims, [strides, dense], 1)
    while layout.outer_rank and layout.stride[0][layout.outer_rank - 1] == 0:
        layout.outer_rank -= 1  # the outermost positions do not move the operand: no need to compute them
    return layout
