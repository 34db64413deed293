"""Implement the calls of recurrent networks."""

from . import (
    backward,
    clip,
    data,
    descriptor,
    forward,
    legacy_backward,
    legacy_descriptor,
    legacy_forward,
    legacy_weights,
    persistent,
    searches,
    spaces,
    weights,
)

__all__ = [
    "backward",
    "clip",
    "data",
    "descriptor",
    "forward",
    "legacy_backward",
    "legacy_descriptor",
    "legacy_forward",
    "legacy_weights",
    "persistent",
    "searches",
    "spaces",
    "weights",
]
