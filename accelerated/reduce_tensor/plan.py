"""Reductions (3.2.71): their solvers, in order of preference."""

from __future__ import annotations

from dualdnn.api.operations import ReduceTensor

from ..solver import serve
from .any import AnyTensor
from .problem import ReduceProblem
from .short_rows import ShortRows
from .small import Small
from .to_scalar import ToScalar

serve(ReduceProblem, (ToScalar(), Small(), ShortRows(), AnyTensor()), ReduceTensor)
