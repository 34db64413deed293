"""Registers the solvers of pooling, forward (3.2.69) and backward (4.1.18), in order of preference."""

from __future__ import annotations

from dualdnn.api.operations import PoolingBackward, PoolingForward

from ..solver import serve
from .generic.generic_average_backward import GenericAverageBackward
from .generic.generic_forward import GenericForward
from .generic.generic_max_backward import GenericMaxBackward
from .global_average_backward import GlobalAverageBackward
from .global_forward import GlobalForward
from .max_backward.max_backward import MaxBackward
from .problem import PoolingProblem
from .static_average_backward import StaticAverageBackward
from .static_forward import StaticForward

SOLVERS = (
    GlobalForward(),
    GlobalAverageBackward(),
    StaticForward(),
    StaticAverageBackward(),
    MaxBackward(),
    GenericForward(),
    GenericAverageBackward(),
    GenericMaxBackward(),
)

serve(PoolingProblem, SOLVERS, PoolingForward, PoolingBackward)
