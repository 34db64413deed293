"""Recurrent networks: what their descriptors hold."""

from .data import RNNDataSpec

__all__ = ["RNNDataSpec"]
