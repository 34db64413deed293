"""Activations on the device (kernels/activation.cu)."""

from __future__ import annotations

from ctypes import c_int
from typing import Any

from dualdnn.api.enumerations import cudnnActivationMode_t
from dualdnn.api.operations import ActivationBackward, ActivationForward

from .geometry import BATCH, LONG_BATCH, elementwise
from .plans import Launch, Plan, factors, implements, pointers, structure, type_definitions

RECTIFIED = (cudnnActivationMode_t.CUDNN_ACTIVATION_RELU, cudnnActivationMode_t.CUDNN_ACTIVATION_CLIPPED_RELU)


@implements(ActivationForward)
def activation_forward(operation: ActivationForward, device: Any) -> Plan:
    """16 bytes of output a thread, or a few times as many."""
    x, y, activation = operation.x, operation.y, operation.activation
    rectifies, halves = activation.mode in RECTIFIED, x.scalar_bytes == 2
    kernel = (
        "activation_forward_rectified" if rectifies else "activation_forward_long" if halves else "activation_forward"
    )
    most = BATCH if rectifies else LONG_BATCH[halves]
    layout, grid = elementwise(x.dims, [x.strides, y.strides], 16 // x.scalar_bytes, device, most)
    arguments = structure(
        *pointers(2),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, coefficient=activation.coefficient),
        ("mode", c_int(activation.mode)),
        ("propagate", c_int(activation.relu_nan)),
        ("geometry", layout),
    )
    function = device.function("activation.cu", kernel, type_definitions(x.scalar_type, operation))
    return Plan(operation, [Launch(function, arguments, ("x", "y"), grid)])


@implements(ActivationBackward)
def activation_backward(operation: ActivationBackward, device: Any) -> Plan:
    """As activation_forward; of x and y only the one that the mode needs is read."""
    activation = operation.activation
    needed = "x" if activation.mode in RECTIFIED else "y"
    read, dy, dx = operation.tensor(needed), operation.dy, operation.dx
    strides = [read.strides, dy.strides, dx.strides]
    layout, grid = elementwise(dx.dims, strides, 16 // dx.scalar_bytes, device)
    arguments = structure(
        *pointers(3),
        *factors(operation, alpha=operation.alpha, beta=operation.beta, coefficient=activation.coefficient),
        ("mode", c_int(activation.mode)),
        ("geometry", layout),
    )
    function = device.function("activation.cu", "activation_backward", type_definitions(dx.scalar_type, operation))
    return Plan(operation, [Launch(function, arguments, (needed, "dy", "dx"), grid)])
