"""Multi-head attention: its operations, and the memory that they share."""

from .operations import (
    MultiHeadAttnBackwardData,
    MultiHeadAttnBackwardWeights,
    MultiHeadAttnForward,
    MultiHeadAttnStep,
)

__all__ = ["MultiHeadAttnBackwardData", "MultiHeadAttnBackwardWeights", "MultiHeadAttnForward", "MultiHeadAttnStep"]
