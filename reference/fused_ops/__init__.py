"""Compute fused operations (6.1.3.1)."""

from . import convolution, finalize, residual

__all__ = ["convolution", "finalize", "residual"]
