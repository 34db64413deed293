"""Arithmetic on whole tensors on the device (tensor_arithmetic/tensor_arithmetic.cu)."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_byte, c_double, c_int, c_uint
from typing import Any

from dualdnn.api.operations import AddTensor, Operation, OpTensor, ScaleTensor, SetTensor, TensorSpec

from ..plans import Launch, Plan, factors, implements, pointers, structure, type_definitions
from ..primitives.geometry import (
    THREADS,
    Grid,
    blocks,
    broadcast_strides,
    elementwise,
    geometry,
    merge_dimensions,
    packs_per_thread,
)
from ..primitives.small_grid import small_grid

SOURCE = "tensor_arithmetic/tensor_arithmetic.cu"
PACK_BYTES = 16
UNIFORM, ALIGNED, PIECES, SINGLE = range(4)  # the kernels' enum Walk
PIECE = 4
DENSE_BATCH = 2  # packs of a thread, as the kernels read them together


@implements(AddTensor)
def add_tensor(operation: AddTensor, device: Any) -> Plan:
    """16 bytes of C a thread, or a few times as many."""
    dims, c = operation.C.scalar_layout()
    a = _broadcast(operation.A, dims)
    width = PACK_BYTES // operation.C.scalar_bytes
    scalars = factors(operation, alpha=operation.alpha, beta=operation.beta)
    layout, grid = elementwise(dims, [a, c], width, device)
    if layout.width == 1 and _dense(dims, c):
        spread, walk = _spread(dims, a, c, width)
        count, packs = operation.C.count, -(-operation.C.count // width)
        each = min(DENSE_BATCH, packs_per_thread(packs, device))
        extent = ("count", c_uint(count)), ("walk", c_int(walk)), ("packs_per_thread", c_uint(each))
        arguments = structure(*pointers(2), *scalars, *extent, ("spread", spread))
        grid = blocks(packs, THREADS * each)
        kernel = "add_tensor_uniform" if walk == UNIFORM else "add_tensor_dense"
        return _plan(operation, device, kernel, operation.C, arguments, ("A", "C"), grid)
    if layout.width == 1 and (boxed := small_grid(dims, [a, c])):
        arguments = structure(*pointers(2), *scalars, ("small_grid", boxed.layout))
        return _plan(
            operation, device, "add_tensor_small_grid", operation.C, arguments, ("A", "C"), boxed.grid, boxed.block
        )
    arguments = structure(*pointers(2), *scalars, ("geometry", layout))
    return _plan(operation, device, "add_tensor", operation.C, arguments, ("A", "C"), grid)


@implements(OpTensor)
def op_tensor(operation: OpTensor, device: Any) -> Plan:
    """16 bytes of the wider of A and C a thread, or a few times as many."""
    dims, c = operation.C.scalar_layout()
    a, b = _broadcast(operation.A, dims), _broadcast(operation.B, dims)
    width = PACK_BYTES // max(operation.A.scalar_bytes, operation.C.scalar_bytes)
    formula = structure(
        *factors(operation, alpha1=operation.alpha1, alpha2=operation.alpha2, beta=operation.beta),
        ("operation", c_byte(operation.op_tensor.op)),
        ("propagate", c_byte(operation.op_tensor.nan)),
        ("output", c_byte(operation.C.scalar_type)),
    )
    operands = ("A", "B", "C")
    layout, grid = elementwise(dims, [a, b, c], width, device)
    if layout.width == 1 and _dense(dims, a, c):
        spread, walk = _spread(dims, b, c, width)
        count = operation.C.count
        extent = ("count", c_uint(count)), ("walk", c_int(walk))
        arguments = structure(*pointers(3), ("formula", formula), *extent, ("spread", spread))
        return _plan(operation, device, "op_tensor_dense", operation.A, arguments, operands, blocks(-(-count // width)))
    if layout.width == 1 and (boxed := small_grid(dims, [a, b, c])):
        arguments = structure(*pointers(3), ("formula", formula), ("small_grid", boxed.layout))
        return _plan(
            operation, device, "op_tensor_small_grid", operation.A, arguments, operands, boxed.grid, boxed.block
        )
    arguments = structure(*pointers(3), ("formula", formula), ("geometry", layout))
    return _plan(operation, device, "op_tensor", operation.A, arguments, operands, grid)


@implements(ScaleTensor)
def scale_tensor(operation: ScaleTensor, device: Any) -> Plan:
    """alpha * y + 0 * y by the kernel of cudnnAddTensor, in place."""
    dims, strides = operation.y.scalar_layout()
    layout, grid = elementwise(dims, [strides, strides], PACK_BYTES // operation.y.scalar_bytes, device)
    scalars = factors(operation, alpha=operation.alpha, beta=0.0)
    if layout.width == 1 and (boxed := small_grid(dims, [strides, strides])):
        arguments = structure(*pointers(2), *scalars, ("small_grid", boxed.layout))
        return _plan(
            operation, device, "add_tensor_small_grid", operation.y, arguments, ("y", "y"), boxed.grid, boxed.block
        )
    arguments = structure(*pointers(2), *scalars, ("geometry", layout))
    return _plan(operation, device, "add_tensor", operation.y, arguments, ("y", "y"), grid)


@implements(SetTensor)
def set_tensor(operation: SetTensor, device: Any) -> Plan:
    """16 bytes of y a thread, or a few times as many."""
    dims, strides = operation.y.scalar_layout()
    layout, grid = elementwise(dims, [strides], PACK_BYTES // operation.y.scalar_bytes, device)
    arguments = structure(*pointers(1), ("value", c_double(operation.value)), ("geometry", layout))
    return _plan(operation, device, "set_tensor", operation.y, arguments, ("y",), grid)


def _plan(
    operation: Operation,
    device: Any,
    kernel: str,
    element: TensorSpec,
    arguments: Any,
    operands: Sequence[str],
    grid: Grid,
    block: Grid = (THREADS, 1, 1),
) -> Plan:
    """One launch of a kernel compiled for the element type."""
    function = device.function(SOURCE, kernel, type_definitions(element.scalar_type, operation))
    return Plan(operation, [Launch(function, arguments, operands, grid, block)])


def _broadcast(spec: TensorSpec, onto: Sequence[int]) -> list[int]:
    dims, strides = spec.scalar_layout()
    return broadcast_strides(dims, strides, onto)


def _dense(dims: Sequence[int], *strides: Sequence[int]) -> bool:
    """All operands have the same layout, and it has no gaps."""
    extents, steps = merge_dimensions(dims, strides)
    return len(extents) == 1 and all(step == [1] for step in steps)


def _spread(dims: Sequence[int], strides: Sequence[int], dense: Sequence[int], width: int) -> tuple[Any, int]:
    """How a dense output finds the elements of an operand in packs of ``width``: the operand's rows, the walk."""
    rows = geometry(dims, [strides, dense], 1)
    while rows.outer_rank and rows.outer[rows.outer_rank - 1].stride[0] == 0:
        rows.outer_rank -= 1  # the outermost positions do not move the operand: no need to compute them
    step, row, whole = rows.row_stride[0], rows.row, rows.packs
    if step == 0 and row >= width:
        return rows, UNIFORM
    if step == 1 and (row % width == 0 or row == whole):
        return rows, ALIGNED
    if step == 1 and row % PIECE == 0:  # no row of whole packs: width > PIECE
        return rows, PIECES
    return rows, SINGLE
