"""Registers the solver of reductions (3.2.71), which serves every layout and operation, with or without indices."""

from __future__ import annotations

from dualdnn.api.operations import ReduceTensor

from ..solver import serve
from .generic import AnyTensor
from .problem import ReduceProblem

serve(ReduceProblem, (AnyTensor(),), ReduceTensor)
