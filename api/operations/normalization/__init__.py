"""Define the operations of the normalizations."""

from .batch import (
    BatchNormalizationBackward,
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationForwardTrainingEx,
    NormalizationBackward,
    NormalizationForwardInference,
    NormalizationForwardTraining,
)
from .divisive import DivisiveNormalizationBackward, DivisiveNormalizationForward
from .lrn import LRNCrossChannelBackward, LRNCrossChannelForward

__all__ = [
    "BatchNormalizationBackwardEx",
    "BatchNormalizationForwardTrainingEx",
    "NormalizationBackward",
    "NormalizationForwardTraining",
    "BatchNormalizationBackward",
    "BatchNormalizationForwardInference",
    "BatchNormalizationForwardTraining",
    "DivisiveNormalizationBackward",
    "DivisiveNormalizationForward",
    "LRNCrossChannelBackward",
    "LRNCrossChannelForward",
    "NormalizationForwardInference",
]
