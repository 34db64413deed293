"""Registers the solvers of reductions (3.2.71), in order of preference."""

from __future__ import annotations

from dualdnn.api.operations import ReduceTensor

from ..solver import serve
from .generic import AnyTensor
from .problem import ReduceProblem
from .small import Small

serve(ReduceProblem, (Small(), AnyTensor()), ReduceTensor)
