"""Fused operations (6.1.3.1): the solvers of each sequence."""

from __future__ import annotations

from dualdnn.api.operations import BnFinalizeStatisticsInference, BnFinalizeStatisticsTraining

from ..solver import Problem, serve
from .finalize import FinalizeSolver

serve(Problem, (FinalizeSolver(),), BnFinalizeStatisticsTraining, BnFinalizeStatisticsInference)
