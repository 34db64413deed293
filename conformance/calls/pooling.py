"""Calls of the pooling family."""

from __future__ import annotations

from typing import Any

from dualdnn.api.operations import PoolingBackward, PoolingForward, PoolingSpec

from .caller import Caller, Memory, calls


def pooling_descriptor(make: Caller, spec: PoolingSpec) -> Any:
    """A pooling descriptor with this specification; images take the 2-D setter."""
    descriptor = make.cudnn.cudnnCreatePoolingDescriptor()
    if len(spec.window) == 2:
        make.cudnn.cudnnSetPooling2dDescriptor(
            descriptor, spec.mode, spec.nan, *spec.window, *spec.padding, *spec.stride
        )
    else:
        rank = len(spec.window)
        make.cudnn.cudnnSetPoolingNdDescriptor(
            descriptor, spec.mode, spec.nan, rank, spec.window, spec.padding, spec.stride
        )
    return descriptor


@calls(PoolingForward)
def pooling_forward(make: Caller, o: PoolingForward, memory: Memory) -> None:
    x, y = make.tensor(o.x), make.tensor(o.y)
    descriptor = pooling_descriptor(make, o.pooling)
    make.cudnn.cudnnPoolingForward(make.handle, descriptor, o.alpha, x, memory["x"], o.beta, y, memory["y"])


@calls(PoolingBackward)
def pooling_backward(make: Caller, o: PoolingBackward, memory: Memory) -> None:
    y, dy, x, dx = (make.tensor(spec) for spec in (o.y, o.dy, o.x, o.dx))
    descriptor = pooling_descriptor(make, o.pooling)
    make.cudnn.cudnnPoolingBackward(
        make.handle, descriptor, o.alpha, y, memory["y"], dy, memory["dy"], x, memory["x"], o.beta, dx, memory["dx"]
    )
