"""Forward pooling of small images with a static window (small_forward.cu)."""

from __future__ import annotations

from ctypes import c_int

from .problem import FORWARD, Configuration, PoolingProblem, PoolingSolver, arguments
from .small import SETTINGS, planes_of
from .static_window import alignment_of, window_definitions


class SmallForward(PoolingSolver):
    """Images whose windows fit in a block: a thread has one window, found by the dimensions of the launch."""

    name = "pooling.small_forward"
    kinds = (FORWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        planes = planes_of(problem, gradient=False)
        if planes is None:
            return None
        fields = arguments(
            problem,
            *problem.factors_and_reciprocal,
            ("mode", c_int(problem.operation.pooling.mode)),
            ("propagate", c_int(problem.operation.pooling.nan)),
            ("planes", planes.layout),
        )
        return Configuration(
            "pooling/small_forward.cu",
            f"pooling_small_forward_{planes.access.kind}",
            window_definitions(problem, planes.static, SETTINGS),
            fields,
            planes.grid,
            planes.block,
            alignment=alignment_of(problem, planes.static, planes.access),
            preferred=planes.preferred,
        )
