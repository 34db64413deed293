"""Recurrent networks: which solvers serve which operations, the preferred first."""

from __future__ import annotations

from dualdnn.api.operations import RNNForward

from ..solver import serve
from .problem import RNNProblem
from .recurrence import RecurrenceSolver

serve(RNNProblem, (RecurrenceSolver(),), RNNForward)
