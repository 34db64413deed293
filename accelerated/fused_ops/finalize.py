"""Convert statistics of batch normalisation to a scale and a bias (finalize.cu)."""

from __future__ import annotations

from ctypes import c_int
from math import nan
from typing import Any

from dualdnn.api.operations import BnFinalizeStatisticsTraining, TensorSpec

from ..plans import Launch, factors, pointers, structure, type_definitions
from ..primitives.geometry import blocks
from ..reproducible import NO_SUMS
from ..solver import Problem, Solver

SOURCE = "fused_ops/finalize.cu"
THREADS = 128
OPERANDS = (
    "ySum", "ySqSum", "scale", "bias", "runningMean", "runningVar", "savedMean", "savedInvStd", "eqScale", "eqBias",
)  # fmt: skip


class FinalizeSolver(Solver[Problem]):
    """Serve any strides with a thread per channel."""

    name = "fused_ops.finalize"
    fixed_order = NO_SUMS

    def launches(self, problem: Problem) -> list[Launch]:
        operation = problem.operation
        described = {name: getattr(operation, name, None) for name in OPERANDS}
        training = isinstance(operation, BnFinalizeStatisticsTraining)
        count = operation.count if training else 1
        eq: Any = described["eqScale"] or described["eqBias"]
        parameters: Any = next((described[name] for name in OPERANDS[2:8] if described[name]), None)
        channels = (described["ySum"] or parameters).dims[1]
        arguments = structure(
            *pointers(len(OPERANDS)),
            *factors(
                operation,
                count=count,
                unbiased=count / (count - 1) if count > 1 else nan,
                factor=operation.factor if training else 0.0,
                epsilon=operation.epsilon,
            ),
            ("channels", c_int(channels)),
            *((f"{name}_stride", c_int(_stride(spec))) for name, spec in
              (("sums", described["ySum"]), ("parameter", parameters), ("eq", eq))),
        )  # fmt: skip
        kind = (eq or parameters).scalar_type if eq or parameters else operation.compute_type
        definitions = dict(type_definitions(kind, operation))
        function = problem.device.function(
            SOURCE, "fused_ops_finalize", tuple(sorted({**definitions, "THREADS": str(THREADS)}.items()))
        )
        return [Launch(function, arguments, OPERANDS, blocks(channels, THREADS), (THREADS, 1, 1))]


def _stride(spec: TensorSpec | None) -> int:
    return spec.strides[1] if spec else 0
