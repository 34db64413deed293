"""Implement the calls of convolutions."""

from . import (
    algorithms,
    backward_data,
    backward_filter,
    descriptors,
    folded,
    forward,
    gradient_algorithms,
    gradients,
    searches,
)

__all__ = [
    "algorithms",
    "backward_data",
    "backward_filter",
    "descriptors",
    "folded",
    "forward",
    "gradient_algorithms",
    "gradients",
    "searches",
]
