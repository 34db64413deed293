"""Small global averages, which are sums with another factor (reduce_tensor/small.cu)."""

from __future__ import annotations

from collections.abc import Mapping

from dualdnn.api.enumerations import cudnnIndicesType_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from dualdnn.api.operations import ReduceTensor
from dualdnn.api.operations.specs import ReduceTensorSpec

from ..plans import Launch
from ..reduce_tensor.small import Found, fastest
from ..solver import Solver
from .problem import FORWARD, MAXIMA, PoolingProblem

MOST_BYTES = 1 << 20  # of x


class GlobalAverageSmall(Solver[PoolingProblem]):
    """Averages over one window for every plane, of up to 1 MB."""

    name = "pooling.global_average_small"

    def _found(self, problem: PoolingProblem) -> Found | None:
        """Return the launch, and the bytes at a multiple of which x has to begin."""
        operation = problem.operation
        if problem.kind != FORWARD or operation.pooling.mode in MAXIMA or operation.x.vector_length > 1:
            return None
        if not problem.shape.is_global or not problem.aligned or operation.x.nbytes > MOST_BYTES:
            return None
        spec = ReduceTensorSpec(
            cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_ADD, operation.compute_type, operation.pooling.nan,
            cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_NO_INDICES, cudnnIndicesType_t.CUDNN_32BIT_INDICES,
        )  # fmt: skip
        alpha = operation.alpha / problem.divisor
        total = ReduceTensor(spec, 0, 0, alpha, operation.beta, operation.x, operation.y)
        return fastest(total, problem.device, ("x", "y")) if total.length > 1 else None

    def serves(self, problem: PoolingProblem) -> bool:
        return self._found(problem) is not None

    def launches(self, problem: PoolingProblem) -> list[Launch]:
        found = self._found(problem)
        assert found is not None
        return [found[0]]

    def alignment(self, problem: PoolingProblem) -> Mapping[str, int]:
        found = self._found(problem)
        assert found is not None
        return {"x": found[1]}
