"""Fused operations (6.1.3.1)."""

from . import finalize

__all__ = ["finalize"]
