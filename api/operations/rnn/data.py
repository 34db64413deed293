"""What an RNN data descriptor holds: a batch of sequences."""

from __future__ import annotations

from ...enumerations import cudnnDataType_t, cudnnRNNDataLayout_t
from ..records import record

PACKED = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED


@record
class RNNDataSpec:
    """A batch of sequences of vectors (7.2.47). ``padding_fill`` is None where padding of an output is undefined."""

    data_type: cudnnDataType_t
    layout: cudnnRNNDataLayout_t
    max_length: int
    batch: int
    vector: int
    lengths: tuple[int, ...]
    padding_fill: float | None = None
