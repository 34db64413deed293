"""The gradient of a maximum over small images with a static window (small_max_backward.cu)."""

from __future__ import annotations

from ctypes import c_int

from dualdnn.api.operations.specs import SCALAR_BYTES

from .problem import MAX_BACKWARD, Configuration, PoolingProblem, PoolingSolver, arguments
from .small import SETTINGS, planes_of, rows_around
from .static_window import alignment_of, window_definitions


class SmallMaxBackward(PoolingSolver):
    """Images whose windows fit in a block: a thread has one window and the inputs that begin there."""

    name = "pooling.small_max_backward"
    kinds = (MAX_BACKWARD,)

    def configuration(self, problem: PoolingProblem) -> Configuration | None:
        planes = planes_of(problem, gradient=True)
        if planes is None:
            return None
        fields = arguments(
            problem,
            *problem.factors,
            ("propagate", c_int(problem.operation.pooling.nan)),
            ("planes", planes.layout),
        )
        around = sum(rows_around(planes.static))
        x, y, z = planes.block
        cells = z * (x + around) * (y + around)
        if planes.static.channels > 1:
            cells = x * (y + around) * (z + around)
        cell_bytes = 2 * SCALAR_BYTES[problem.operation.compute_type] * planes.access.channels
        return Configuration(
            "pooling/small_max_backward.cu",
            f"pooling_small_max_backward_{planes.access.kind}",
            window_definitions(problem, planes.static, SETTINGS),
            fields,
            planes.grid,
            planes.block,
            cells * cell_bytes,
            alignment_of(problem, planes.static, planes.access),
            planes.preferred,
        )
