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
from .batch_columns.batch_columns import BatchColumnsSolver
from .batch_columns.together import BatchColumnsTogetherSolver
from .batch_planes import BatchPlanesHeldSolver, BatchPlanesSolver
from .batch_strided import BatchStridedSolver
from .divisive import DivisiveSolver
from .lrn_channels import ChannelsSolver
from .lrn_columns import ColumnsSolver
from .lrn_rows import RowsSolver
from .problem import DivisiveProblem, LRNProblem

serve(LRNProblem, (ChannelsSolver(), RowsSolver(), ColumnsSolver()), LRNCrossChannelForward, LRNCrossChannelBackward)
serve(DivisiveProblem, (DivisiveSolver(),), DivisiveNormalizationForward, DivisiveNormalizationBackward)
serve(
    BatchProblem,
    (
        BatchColumnsTogetherSolver(),
        BatchColumnsSolver(),
        BatchPlanesHeldSolver(),
        BatchPlanesSolver(),
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
