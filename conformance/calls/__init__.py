"""From operations to the documented calls of a subject."""

from . import activation, convolution, pooling, reduce_tensor, softmax, tensor_arithmetic, transform
from .caller import CALLS, Caller, calls

__all__ = [
    "CALLS",
    "Caller",
    "activation",
    "calls",
    "convolution",
    "pooling",
    "reduce_tensor",
    "softmax",
    "tensor_arithmetic",
    "transform",
]
