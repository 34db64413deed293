"""Define the operations of multi-head attention, and the memory that they share."""

from .memory import allows_tensor_cores
from .operations import (
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
)

__all__ = [
    "allows_tensor_cores",
    "MultiHeadAttnBackwardData",
    "MultiHeadAttnBackwardWeights",
    "MultiHeadAttnForward",
    "MultiHeadAttnStep",
]
