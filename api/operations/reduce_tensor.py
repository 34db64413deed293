"""The operation of cudnnReduceTensor (3.2.71)."""

from __future__ import annotations

from functools import cached_property
from math import prod

from ..enumerations import cudnnReduceTensorIndices_t, cudnnReduceTensorOp_t
from .operation import Operation
from .records import record
from .specs import DOUBLE, ReduceTensorSpec, TensorSpec

INDICES_BYTES = 4  # only CUDNN_32BIT_INDICES computes
INDEXED = (cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MIN, cudnnReduceTensorOp_t.CUDNN_REDUCE_TENSOR_MAX)
_LONGEST_UNSPLIT_REDUCTION = 4096
_MOST_SEGMENTS = 256


@record
class ReduceTensor(Operation):
    """C = alpha * reduce(A) + beta * C over the dimensions where C has extent 1.

    ``indices`` receives, for MIN and MAX, the row-major position inside the reduced dimensions of the first extremum,
    one unsigned int per element of C in C's row-major order. ``workspace`` holds partial results of long reductions.
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

    @property
    def wants_indices(self) -> bool:
        flattened = cudnnReduceTensorIndices_t.CUDNN_REDUCE_TENSOR_FLATTENED_INDICES
        return self.reduction.indices == flattened and self.reduction.op in INDEXED

    @cached_property
    def reduced(self) -> tuple[int, ...]:
        """The dimensions of A that are reduced."""
        return tuple(i for i, (a, c) in enumerate(zip(self.A.dims, self.C.dims, strict=True)) if c == 1 and a != 1)

    @cached_property
    def length(self) -> int:
        """How many elements of A one element of C reduces."""
        return prod(self.A.dims[i] for i in self.reduced)

    @cached_property
    def segments(self) -> int:
        """Into how many parts a reduction is split when there are too few outputs to fill a device."""
        return reduction_segments(self.length, self.C.count)


def reduction_segments(length: int, outputs: int) -> int:
    """Parts of one reduction: a function of the shape alone, so that every backend and device agrees on the workspace."""
    wanted = min(_MOST_SEGMENTS, -(-length // _LONGEST_UNSPLIT_REDUCTION), -(-65536 // outputs))
    return max(1, wanted)


def required_workspace(A: TensorSpec, C: TensorSpec) -> int:
    """Bytes for one partial result (compute type) and one partial index (4 bytes, padded to 8) per segment and output.

    At least 16 bytes, so that "too small" (cudnnReduceTensor/c31) means something for every shape.
    """
    length = prod(a for a, c in zip(A.dims, C.dims, strict=False) if c == 1)
    partial = (8 if DOUBLE in (A.data_type, C.data_type) else 4) + 4
    return max(16, reduction_segments(length, C.count) * C.count * -(-partial // 8) * 8)
