"""Turn operations into the documented calls of a subject, derived from the function table."""

from .caller import Caller, described, function_of, roomy, sized
from .exceptions import attention_buffers

__all__ = ["Caller", "attention_buffers", "described", "function_of", "roomy", "sized"]
