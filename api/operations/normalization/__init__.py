"""Operations of the normalizations."""

from .batch import BatchNormalizationForwardInference, NormalizationForwardInference
from .divisive import DivisiveNormalizationBackward, DivisiveNormalizationForward
from .lrn import LRNCrossChannelBackward, LRNCrossChannelForward

__all__ = [
    "BatchNormalizationForwardInference",
    "DivisiveNormalizationBackward",
    "DivisiveNormalizationForward",
    "LRNCrossChannelBackward",
    "LRNCrossChannelForward",
    "NormalizationForwardInference",
]
