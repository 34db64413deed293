"""Define the operations of recurrent networks, and the specifications that their descriptors hold."""

from .backward import RNNBackwardData, RNNBackwardWeights
from .data import RNNDataSpec
from .forward import RNNForward
from .network import RNNClipSpec, RNNPlanSpec, RNNSpec
from .spaces import reserve, workspace

__all__ = [
    "RNNBackwardData",
    "RNNBackwardWeights",
    "RNNClipSpec",
    "RNNDataSpec",
    "RNNForward",
    "RNNPlanSpec",
    "RNNSpec",
    "reserve",
    "workspace",
]
