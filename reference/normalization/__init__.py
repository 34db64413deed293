"""Compute the normalizations."""

from . import batch, divisive, lrn

__all__ = ["batch", "divisive", "lrn"]
