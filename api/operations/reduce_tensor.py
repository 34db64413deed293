"""Define the operation of cudnnReduceTensor (3.2.71)."""

from __future__ import annotations

from functools import cached_property
from math import prod

from ..enumerations import cudnnIndicesType_t, cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from .operation import MemoryRequirement, Operation
from .records import record
from .specs import ReduceTensorSpec, TensorSpec

INDEXED = (cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MIN, cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MAX)
INDEX_BYTES = {
    cudnnIndicesType_t.CUDNN_32BIT_INDICES: 4,
    cudnnIndicesType_t.CUDNN_64BIT_INDICES: 8,
    cudnnIndicesType_t.CUDNN_16BIT_INDICES: 2,
    cudnnIndicesType_t.CUDNN_8BIT_INDICES: 1,
}
FLATTENED = cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES
MIN_WORKSPACE_BYTES = 16  # bytes, so that every call can be given too little (cudnnReduceTensor/c31)


@record
class ReduceTensor(Operation):
    """Compute C = alpha * reduce(A) + beta * C over the dimensions where C has extent 1.

    For MIN and MAX, ``indices`` receives the position of the first extremum inside the reduced dimensions, counted in
    row-major order. It holds one unsigned integer per element of C, in C's row-major order. ``workspace`` holds partial
    results of long reductions. ``workspace_bytes`` is what the backend needs for this operation
    (``Backend.workspace_bytes``); it is 0 in the query for that size.
    """

    reduction: ReduceTensorSpec
    indices_bytes: int
    workspace_bytes: int
    alpha: float
    beta: float
    A: TensorSpec
    C: TensorSpec

    inputs = ("A",)
    outputs = ("C",)
    raw = {"indices": "indices_bytes", "workspace": "workspace_bytes"}  # noqa: RUF012 (a class constant)
    public = ("indices",)

    @property
    def wants_indices(self) -> bool:
        return self.reduction.indices == FLATTENED

    def memory_requirements(self) -> dict[str, MemoryRequirement]:
        required = super().memory_requirements()
        if self.wants_indices:
            alignment = INDEX_BYTES[self.reduction.indices_type]
            required["indices"] = required["indices"]._replace(alignment=alignment)
        return required

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """Return the dimensions of A that are reduced."""
        return reduced_dimensions(self.A, self.C)

    @cached_property
    def length(self) -> int:
        """Return how many elements of A are reduced into one element of C."""
        return prod(self.A.dims[i] for i in self.reduced)


def reduced_dimensions(A: TensorSpec, C: TensorSpec) -> tuple[int, ...]:
    """Return the dimensions where C has extent 1 and A has more."""
    return tuple(i for i, (a, c) in enumerate(zip(A.dims, C.dims, strict=False)) if c == 1 and a != 1)


def required_indices(reduction: ReduceTensorSpec, C: TensorSpec) -> int:
    """Return the bytes for one index of the chosen width per element of C, or 0 if no indices are requested."""
    return C.count * INDEX_BYTES[reduction.indices_type] if reduction.indices == FLATTENED else 0
