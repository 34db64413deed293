"""Operations of the sequences of cudnnFusedOps_t (6.1.3.1), one record each."""

from .convolution import ConvScaleBiasAddActivation, ScaleBiasActivationConvBnstats, ScaleBiasActivationWgrad
from .finalize import BnFinalizeStatisticsInference, BnFinalizeStatisticsTraining
from .residual import DactivationForkDbatchnorm, ScaleBiasAddActivationGenBitmask

__all__ = [
    "BnFinalizeStatisticsInference",
    "BnFinalizeStatisticsTraining",
    "ConvScaleBiasAddActivation",
    "DactivationForkDbatchnorm",
    "ScaleBiasActivationConvBnstats",
    "ScaleBiasActivationWgrad",
    "ScaleBiasAddActivationGenBitmask",
]
