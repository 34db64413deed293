"""Implement fused operations (6.1.3.1): parameter packs, plans, their execution."""

from . import packs, plans

__all__ = ["packs", "plans"]
