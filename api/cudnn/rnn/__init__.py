"""Calls of recurrent networks."""

from . import clip, data, descriptor, forward, legacy_descriptor, legacy_weights, spaces, weights

__all__ = ["clip", "data", "descriptor", "forward", "legacy_descriptor", "legacy_weights", "spaces", "weights"]
