"""Define what an RNN data descriptor holds: a batch of sequences."""

from __future__ import annotations

from functools import cached_property

from ...enumerations import cudnnDataType_t, cudnnRNNDataLayout_t
from ..records import record
from ..specs import TensorSpec

PACKED = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
BATCH_MAJOR = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED


@record
class RNNDataSpec:
    """Describe a batch of sequences of vectors (7.2.47). ``padding_fill`` is None if the padding of an output is
    undefined."""

    data_type: cudnnDataType_t
    layout: cudnnRNNDataLayout_t
    max_length: int
    batch: int
    vector: int
    lengths: tuple[int, ...]
    padding_fill: float | None = None

    @cached_property
    def batches(self) -> tuple[int, ...]:
        """Return, for each step, how many sequences have a vector at it."""
        return tuple(sum(length > step for length in self.lengths) for step in range(self.max_length))

    @cached_property
    def tensor(self) -> TensorSpec:
        """Return the container as a tensor (step, sequence, vector) with padding; packed vectors form one step."""
        if self.layout == PACKED:
            return TensorSpec.packed(self.data_type, (1, sum(self.lengths), self.vector))
        dims = (self.max_length, self.batch, self.vector)
        steps = (self.vector, self.max_length * self.vector, 1)
        return (
            TensorSpec(self.data_type, dims, steps)
            if self.layout == BATCH_MAJOR
            else TensorSpec.packed(self.data_type, dims)
        )

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    @property
    def is_ragged(self) -> bool:
        """Return whether a sequence is shorter than the container."""
        return min(self.lengths) < self.max_length
