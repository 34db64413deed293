"""Recurrent networks: what their descriptors hold."""

from .data import RNNDataSpec
from .network import RNNClipSpec, RNNSpec
from .spaces import reserve_bytes, workspace_bytes

__all__ = ["RNNClipSpec", "RNNDataSpec", "RNNSpec", "reserve_bytes", "workspace_bytes"]
