"""Fused operations (6.1.3.1)."""

from . import finalize, residual

__all__ = ["finalize", "residual"]
