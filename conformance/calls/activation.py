"""Calls of the activation family."""

from __future__ import annotations

from typing import Any

from dualdnn.api.operations import ActivationBackward, ActivationForward, ActivationSpec

from .caller import Caller, Memory, calls


def activation_descriptor(make: Caller, spec: ActivationSpec) -> Any:
    """An activation descriptor with this specification."""
    descriptor = make.cudnn.cudnnCreateActivationDescriptor()
    make.cudnn.cudnnSetActivationDescriptor(descriptor, spec.mode, spec.relu_nan, spec.coefficient)
    return descriptor


@calls(ActivationForward)
def activation_forward(make: Caller, o: ActivationForward, memory: Memory) -> None:
    x, y = make.tensor(o.x), make.tensor(o.y)
    descriptor = activation_descriptor(make, o.activation)
    make.cudnn.cudnnActivationForward(make.handle, descriptor, o.alpha, x, memory["x"], o.beta, y, memory["y"])


@calls(ActivationBackward)
def activation_backward(make: Caller, o: ActivationBackward, memory: Memory) -> None:
    y, dy, x, dx = (make.tensor(spec) for spec in (o.y, o.dy, o.x, o.dx))
    descriptor = activation_descriptor(make, o.activation)
    make.cudnn.cudnnActivationBackward(
        make.handle, descriptor, o.alpha, y, memory["y"], dy, memory["dy"], x, memory["x"], o.beta, dx, memory["dx"]
    )
