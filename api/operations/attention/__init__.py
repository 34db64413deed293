"""Multi-head attention: its operations, and the memory that they share."""

from .operations import MultiHeadAttnForward, MultiHeadAttnStep

__all__ = ["MultiHeadAttnForward", "MultiHeadAttnStep"]
