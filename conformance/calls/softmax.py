"""Calls of the softmax family."""

from __future__ import annotations

from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward

from .caller import Caller, Memory, calls


@calls(SoftmaxForward)
def softmax_forward(make: Caller, o: SoftmaxForward, memory: Memory) -> None:
    x, y = make.tensor(o.x), make.tensor(o.y)
    make.cudnn.cudnnSoftmaxForward(make.handle, o.algorithm, o.mode, o.alpha, x, memory["x"], o.beta, y, memory["y"])


@calls(SoftmaxBackward)
def softmax_backward(make: Caller, o: SoftmaxBackward, memory: Memory) -> None:
    y, dy, dx = (make.tensor(spec) for spec in (o.y, o.dy, o.dx))
    make.cudnn.cudnnSoftmaxBackward(
        make.handle, o.algorithm, o.mode, o.alpha, y, memory["y"], dy, memory["dy"], o.beta, dx, memory["dx"]
    )
