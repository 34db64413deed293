"""Small global averages, which are sums with another factor (reduce_tensor/small.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.specs import ReduceTensorSpec

from ..plans import Launch
from ..reduce_tensor import small
from ..solver import Solver
from .problem import FORWARD, MAXIMA, PoolingProblem


class GlobalAverageSmall(Solver[PoolingProblem]):
    """Averages of up to some MB over one window for every plane."""

    name = "pooling.global_average_small"

    def _made(self, problem: PoolingProblem) -> tuple[Launch, int] | None:
        """Return the launch, and the bytes at a multiple of which x has to begin."""
        operation = problem.operation
        if problem.kind != FORWARD or operation.pooling.mode in MAXIMA or operation.x.vector_length > 1:
            return None
        if not problem.shape.is_global or not problem.aligned:
            return None
        spec = ReduceTensorSpec(
            cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_ADD, operation.compute_type, operation.pooling.nan,
            cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES, cudnnIndicesType_t.CUDNN_32BIT_INDICES,
        )  # fmt: skip
        alpha = operation.alpha / problem.divisor
        total = ReduceTensor(spec, 0, 0, alpha, operation.beta, operation.x, operation.y)
        return small.launch(total, problem.device, ("x", "y")) if total.length > 1 else None

    def serves(self, problem: PoolingProblem) -> bool:
        return self._made(problem) is not None

    def launches(self, problem: PoolingProblem) -> list[Launch]:
        made = self._made(problem)
        assert made is not None
        return [made[0]]

    def alignment(self, problem: PoolingProblem) -> Mapping[str, int]:
        made = self._made(problem)
        assert made is not None
        return {"x": made[1]}
