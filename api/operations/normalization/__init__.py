"""Operations of the normalizations."""

from .batch import (
    BatchNormalizationBackward,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    NormalizationForwardInference,
)
from .divisive import DivisiveNormalizationBackward, DivisiveNormalizationForward
from .lrn import LRNCrossChannelBackward, LRNCrossChannelForward

__all__ = [
    "BatchNormalizationBackward",
    "BatchNormalizationForwardInference",
    "BatchNormalizationForwardTraining",
    "DivisiveNormalizationBackward",
    "DivisiveNormalizationForward",
    "LRNCrossChannelBackward",
    "LRNCrossChannelForward",
    "NormalizationForwardInference",
]
