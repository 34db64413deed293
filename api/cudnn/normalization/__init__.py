"""Calls of the normalizations."""

from . import divisive, lrn

__all__ = ["divisive", "lrn"]
