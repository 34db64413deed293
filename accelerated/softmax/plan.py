"""Registers the solvers of softmax, forward (3.2.96) and backward (4.1.19), in order of preference."""

from __future__ import annotations

from dualdnn.api.operations import SoftmaxBackward, SoftmaxForward

from ..solver import serve
from .problem import SoftmaxProblem
from .register_resident import RegisterResident
from .row_tiles import RowTiles
from .staged import Staged

SOLVERS = (
    RegisterResident(),
    RowTiles(),
    Staged(),
)

serve(SoftmaxProblem, SOLVERS, SoftmaxForward, SoftmaxBackward)
