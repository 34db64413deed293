"""Compute recurrent networks."""

from . import backward, forward

__all__ = ["backward", "forward"]
