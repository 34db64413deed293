"""Normalizations: which solvers serve which operations, the preferred first."""

from __future__ import annotations

from dualdnn.api.operations import (
    DivisiveNormalizationBackward,
    DivisiveNormalizationForward,
    LRNCrossChannelBackward,
    LRNCrossChannelForward,
)

from ..solver import serve
from .divisive import DivisiveSolver
from .divisive_tile import TileSolver
from .lrn_channels import ChannelsSolver
from .lrn_columns import ColumnsSolver
from .lrn_rows import RowsSolver
from .problem import DivisiveProblem, LRNProblem

serve(LRNProblem, (ChannelsSolver(), RowsSolver(), ColumnsSolver()), LRNCrossChannelForward, LRNCrossChannelBackward)
serve(DivisiveProblem, (TileSolver(), DivisiveSolver()), DivisiveNormalizationForward, DivisiveNormalizationBackward)
