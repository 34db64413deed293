"""Registers the solvers of normalizations, in order of preference."""

from __future__ import annotations

from dualdnn.api.operations import (
    BatchNormalizationBackward,
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationForwardTrainingEx,
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
    NormalizationBackward,
    NormalizationForwardInference,
    NormalizationForwardTraining,
)

from ..solver import serve
from .batch import BatchProblem
from .batch_nchw import BatchNchwInRegistersSolver, BatchNchwSolver
from .batch_nhwc.batch_nhwc import BatchNhwcSolver
from .batch_nhwc.cooperative import BatchNhwcCooperativeSolver
from .batch_strided import BatchStridedSolver
from .divisive import DivisiveSolver
from .lrn_channels import ChannelsSolver
from .lrn_generic import GenericSolver
from .lrn_rows import RowsSolver
from .problem import DivisiveProblem, LRNProblem

serve(LRNProblem, (ChannelsSolver(), RowsSolver(), GenericSolver()), LRNCrossChannelForward, LRNCrossChannelBackward)
serve(DivisiveProblem, (DivisiveSolver(),), DivisiveNormalizationForward, DivisiveNormalizationBackward)
serve(
    BatchProblem,
    (
        BatchNhwcCooperativeSolver(),
        BatchNhwcSolver(),
        BatchNchwInRegistersSolver(),
        BatchNchwSolver(),
        BatchStridedSolver(),
    ),
    BatchNormalizationBackward,
    BatchNormalizationBackwardEx,
    BatchNormalizationForwardInference,
    BatchNormalizationForwardTraining,
    BatchNormalizationForwardTrainingEx,
    NormalizationBackward,
    NormalizationForwardInference,
    NormalizationForwardTraining,
)
