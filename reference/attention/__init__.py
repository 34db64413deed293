"""Compute multi-head attention (7.2.35, 8.2.15, 8.2.16). docs/errata.md, D312, D327, D356 and D358, holds the
decisions.
"""

from . import backward, forward

__all__ = ["backward", "forward"]
