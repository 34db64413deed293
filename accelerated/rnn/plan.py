"""List the solvers of each operation of recurrent networks, the preferred first."""

from __future__ import annotations

from dualdnn.api.operations import RNNBackwardData, RNNBackwardWeights, RNNForward

from ..solver import serve
from .gradient import GradientSolver
from .persistent_backward import PersistentBackwardSolver
from .persistent_forward import PersistentForwardSolver
from .problem import RNNProblem
from .recurrence import RecurrenceSolver
from .wavefront import WavefrontBackwardSolver, WavefrontForwardSolver
from .weight_gradient import WeightGradientSolver

serve(RNNProblem, (WavefrontForwardSolver(), PersistentForwardSolver(), RecurrenceSolver()), RNNForward)
serve(RNNProblem, (WavefrontBackwardSolver(), PersistentBackwardSolver(), GradientSolver()), RNNBackwardData)
serve(RNNProblem, (WeightGradientSolver(),), RNNBackwardWeights)
