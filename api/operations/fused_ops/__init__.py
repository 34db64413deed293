"""Define the operations of the cudnnFusedOps_t sequences (6.1.3.1), one record per sequence."""

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
