"""Calls of the normalizations."""

from . import batch, divisive, lrn, norm

__all__ = ["batch", "divisive", "lrn", "norm"]
