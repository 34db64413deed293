"""Offers PyTorch's operators as baselines of memory-bound operations, on the buffers of the benchmark's row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

from dualdnn.api.operations import (
    ActivationBackward,
    ActivationForward,
    BatchNormalizationBackward,
    BatchNormalizationForwardTraining,
    ConvolutionBackwardBias,
    Operation,
    PoolingBackward,
    PoolingForward,
    SoftmaxBackward,
    SoftmaxForward,
)

Work = Callable[[], Any]
Given = Mapping[str, Any]
MODES = {"RELU": "relu", "SIGMOID": "sigmoid", "TANH": "tanh", "ELU": "elu"}
AVERAGES_WITH_PADDING = "CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING"


def operator(torch: Any, operation: Operation, given: Given) -> tuple[str, Work] | None:
    """Return the name of PyTorch's operator and a function that runs it, or None if PyTorch has no such operator.

    given: maps each operand to a tensor on its memory with its strides. Data that only a backward call needs (indices
    of maxima, an autograd graph) is made once, before anything is timed. The results go to new tensors.
    """
    found = OPERATORS.get(type(operation))
    return None if found is None else found(torch, operation, given)


def _activation(torch: Any, o: ActivationForward, given: Given) -> tuple[str, Work] | None:
    name = MODES.get(o.activation.mode.name.removeprefix("CUDNN_ACTIVATION_"))
    function = getattr(torch.nn.functional, name) if name else None
    return None if function is None else (str(name), partial(function, given["x"]))


def _activation_gradient(torch: Any, o: ActivationBackward, given: Given) -> tuple[str, Work] | None:
    aten, dy, x, y = torch.ops.aten, given["dy"], given["x"], given["y"]
    calls = {
        "RELU": ("threshold_backward", (dy, x, 0)),
        "SIGMOID": ("sigmoid_backward", (dy, y)),
        "TANH": ("tanh_backward", (dy, y)),
        "ELU": ("elu_backward", (dy, o.activation.coefficient, 1.0, 1.0, True, y)),
    }
    called = calls.get(o.activation.mode.name.removeprefix("CUDNN_ACTIVATION_"))
    return None if called is None else (called[0], partial(getattr(aten, called[0]), *called[1]))


def _softmax_dim(o: SoftmaxForward | SoftmaxBackward, tensor: Any) -> tuple[Any, int]:
    """Return the tensor and its dimension to reduce: the channels, or all elements of an image in one dimension."""
    if o.mode.name.endswith("CHANNEL") or prod(tensor.shape[2:]) == 1:
        return tensor, 1
    return tensor.reshape(tensor.shape[0], -1), 1


def _softmax(torch: Any, o: SoftmaxForward, given: Given) -> tuple[str, Work]:
    tensor, dim = _softmax_dim(o, given["x"])
    name = "log_softmax" if o.algorithm.name.endswith("LOG") else "softmax"
    return name, partial(getattr(torch.nn.functional, name), tensor, dim)


def _softmax_gradient(torch: Any, o: SoftmaxBackward, given: Given) -> tuple[str, Work]:
    (y, dim), (dy, _) = (_softmax_dim(o, given[name]) for name in ("y", "dy"))
    name = "_log_softmax_backward_data" if o.algorithm.name.endswith("LOG") else "_softmax_backward_data"
    return name, partial(getattr(torch.ops.aten, name), dy, y, dim, y.dtype)


def _pooled(torch: Any, o: PoolingForward | PoolingBackward, x: Any) -> tuple[str, Work]:
    """Return the name and the forward call; ``count_include_pad`` is False if averages exclude the padding."""
    p, rank = o.pooling, len(o.pooling.window)
    form = p.window, p.stride, p.padding
    if p.mode.name.startswith("CUDNN_POOLING_MAX"):
        name = f"max_pool{rank}d"
        return name, partial(getattr(torch.nn.functional, name), x, *form)
    if p.window == tuple(x.shape[2:]) and not any(p.padding):
        name = f"adaptive_avg_pool{rank}d"
        return name, partial(getattr(torch.nn.functional, name), x, 1)
    name = f"avg_pool{rank}d"
    included = p.mode.name == AVERAGES_WITH_PADDING
    return name, partial(getattr(torch.nn.functional, name), x, *form, count_include_pad=included)


def _pooling(torch: Any, o: PoolingForward, given: Given) -> tuple[str, Work]:
    return _pooled(torch, o, given["x"])


def _pooling_gradient(torch: Any, o: PoolingBackward, given: Given) -> tuple[str, Work]:
    x = given["x"].requires_grad_()
    name, forward = _pooled(torch, o, x)
    return f"gradient of {name}", _gradient_of(torch, forward, (x,), given["dy"])


def _batch_forward(torch: Any, o: Any, given: Given) -> Work:
    """Return the forward call in training; PyTorch may choose cuDNN's persistent kernels for it."""
    mean, variance = (torch.zeros_like(given["scale"].flatten()) for _ in range(2))
    weight, bias = given["scale"].flatten(), given.get("bias", given["scale"]).flatten()
    normalize = torch.nn.functional.batch_norm
    return partial(normalize, given["x"], mean, variance, weight, bias, True, 0.1, o.epsilon)


def _batch(torch: Any, o: BatchNormalizationForwardTraining, given: Given) -> tuple[str, Work]:
    return "batch_norm", _batch_forward(torch, o, given)


def _batch_gradient(torch: Any, o: BatchNormalizationBackward, given: Given) -> tuple[str, Work]:
    inputs = given["x"].requires_grad_(), given["scale"].flatten().requires_grad_()
    forward = _batch_forward(torch, o, {"x": inputs[0], "scale": inputs[1]})
    return "gradient of batch_norm", _gradient_of(torch, forward, inputs, given["dy"])


def _bias_gradient(torch: Any, o: ConvolutionBackwardBias, given: Given) -> tuple[str, Work]:
    dims = tuple(d for d in range(given["dy"].dim()) if d != 1)
    return "sum", partial(torch.sum, given["dy"], dims)


def _gradient_of(torch: Any, forward: Work, inputs: tuple[Any, ...], dy: Any) -> Work:
    """Run the forward call once, and return the call of autograd that computes the gradients of ``inputs``."""
    with torch.enable_grad():
        out = forward()
    return partial(torch.autograd.grad, out, inputs, dy.reshape(out.shape), retain_graph=True)


OPERATORS: dict[type[Operation], Callable[[Any, Any, Given], tuple[str, Work] | None]] = {
    ActivationForward: _activation,
    ActivationBackward: _activation_gradient,
    SoftmaxForward: _softmax,
    SoftmaxBackward: _softmax_gradient,
    PoolingForward: _pooling,
    PoolingBackward: _pooling_gradient,
    BatchNormalizationForwardTraining: _batch,
    BatchNormalizationBackward: _batch_gradient,
    ConvolutionBackwardBias: _bias_gradient,
}
