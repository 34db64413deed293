"""Implement the calls of the normalizations."""

from . import batch, batch_ex, divisive, lrn, norm, norm_training

__all__ = ["batch", "batch_ex", "divisive", "lrn", "norm", "norm_training"]
