"""Compute convolutions and their gradients."""

from . import backward_data, backward_filter, bias, forward

__all__ = ["backward_data", "backward_filter", "bias", "forward"]
