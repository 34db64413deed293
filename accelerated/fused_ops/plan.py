"""List the solvers of each sequence of fused operations (6.1.3.1)."""

from __future__ import annotations

from dualdnn.api.operations import (
    BnFinalizeStatisticsInference,
    BnFinalizeStatisticsTraining,
    ConvScaleBiasAddActivation,
    DactivationForkDbatchnorm,
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ScaleBiasAddActivationGenBitmask,
)

from ..solver import Problem, serve
from .bias_activation import BiasActivation
from .convolution import ConvolutionSequence, FusedConvolution
from .finalize import FinalizeSolver
from .gradient import GradientSolver
from .scale_bias import ScaleBiasSolver

serve(Problem, (FinalizeSolver(),), BnFinalizeStatisticsTraining, BnFinalizeStatisticsInference)
serve(Problem, (ScaleBiasSolver(),), ScaleBiasAddActivationGenBitmask)
serve(Problem, (GradientSolver(),), DactivationForkDbatchnorm)
serve(
    FusedConvolution,
    (BiasActivation(), ConvolutionSequence()),
    ScaleBiasActivationConvBnstats,
    ScaleBiasActivationWgrad,
    ConvScaleBiasAddActivation,
)
