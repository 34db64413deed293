"""Recurrent networks."""

from . import forward

__all__ = ["forward"]
