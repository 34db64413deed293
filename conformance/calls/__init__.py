"""From operations to the documented calls of a subject."""

from . import activation, pooling, reduce_tensor, softmax, tensor_arithmetic, transform
from .caller import CALLS, Caller, calls

__all__ = [
    "CALLS",
    "Caller",
    "activation",
    "calls",
    "pooling",
    "reduce_tensor",
    "softmax",
    "tensor_arithmetic",
    "transform",
]
