"""From operations to the documented calls of a subject, derived from the function table."""

from .caller import Caller, described, roomy, sized

__all__ = ["Caller", "described", "roomy", "sized"]
