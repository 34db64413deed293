"""Operations of the normalizations."""

from .divisive import DivisiveNormalizationBackward, DivisiveNormalizationForward
from .lrn import LRNCrossChannelBackward, LRNCrossChannelForward

__all__ = [
    "DivisiveNormalizationBackward",
    "DivisiveNormalizationForward",
    "LRNCrossChannelBackward",
    "LRNCrossChannelForward",
]
