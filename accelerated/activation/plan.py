"""Activations on the device (activation/activation.cu)."""

from __future__ import annotations

from ctypes import c_int, c_uint
from typing import Any

from dualdnn.api.enumerations import cudnnActivationMode_t
from dualdnn.api.operations import ActivationBackward, ActivationForward

from ..plans import Launch, Plan, factors, implements, pointers, structure, type_definitions
from ..primitives.geometry import BATCH, LONG_BATCH, LONGEST_BATCH, PACK_BYTES, THREADS, Grid, blocks_ahead, elementwise
from ..primitives.small_grid import boxes

LONGEST_BYTES = (
    64 << 20
)  # read and written, from which on halves had better more packs of a thread; fewer, and rows with gaps, took longer
RECTIFIED = (cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_CLIPPED_RELU)


@implements(ActivationForward)
def activation_forward(operation: ActivationForward, device: Any) -> Plan:
    """16 bytes of output a thread, or a few times as many."""
    x, y, activation = operation.x, operation.y, operation.activation
    width, strides = PACK_BYTES // x.scalar_bytes, [x.strides, y.strides]
    rectifies = activation.mode in RECTIFIED
    kernel = "activation_forward_rectified" if rectifies else "activation_forward"
    layout, grid = elementwise(x.dims, strides, width, device, BATCH if rectifies else LONG_BATCH)
    if not rectifies and x.scalar_bytes == 2 and layout.flat and 2 * x.nbytes >= LONGEST_BYTES:
        kernel, (layout, grid) = "activation_forward_long", elementwise(x.dims, strides, width, device, LONGEST_BATCH)
    block: Grid = (THREADS, 1, 1)
    places = [("layout", layout), ("ahead", c_uint(blocks_ahead(x.nbytes + y.nbytes)))]
    if layout.width == 1 and (boxed := boxes(x.dims, strides)):
        kernel, (layout, grid, block) = f"{kernel}_boxes", boxed
        places = [("layout", layout)]
    arguments = structure(
        *pointers(2),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, coefficient=activation.coefficient),
        ("mode", c_int(activation.mode)),
        ("propagate", c_int(activation.relu_nan)),
        *places,
    )
    function = device.function("activation/activation.cu", kernel, type_definitions(x.scalar_type, operation))
    return Plan(operation, [Launch(function, arguments, ("x", "y"), grid, block)])


@implements(ActivationBackward)
def activation_backward(operation: ActivationBackward, device: Any) -> Plan:
    """As activation_forward; of x and y only the one that the mode needs is read."""
    activation = operation.activation
    needed = "x" if activation.mode in RECTIFIED else "y"
    read, dy, dx = operation.tensor(needed), operation.dy, operation.dx
    strides = [read.strides, dy.strides, dx.strides]
    layout, grid = elementwise(dx.dims, strides, 16 // dx.scalar_bytes, device)
    kernel, block = "activation_backward", (THREADS, 1, 1)
    places = [("layout", layout), ("ahead", c_uint(blocks_ahead(3 * dx.nbytes)))]
    if layout.width == 1 and (boxed := boxes(dx.dims, strides)):
        kernel, (layout, grid, block) = f"{kernel}_boxes", boxed
        places = [("layout", layout)]
    arguments = structure(
        *pointers(3),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, coefficient=activation.coefficient),
        ("mode", c_int(activation.mode)),
        *places,
    )
    function = device.function("activation/activation.cu", kernel, type_definitions(dx.scalar_type, operation))
    return Plan(operation, [Launch(function, arguments, (needed, "dy", "dx"), grid, block)])
