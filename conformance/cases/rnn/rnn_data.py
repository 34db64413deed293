"""Holds cases of RNN data descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnRNNDataLayout_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.marks import shows

SET = "cudnnSetRNNDataDescriptor"
GET = "cudnnGetRNNDataDescriptor"
SEQ_MAJOR = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED
PACKED = cudnnRNNDataLayout_t.CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED
TYPES = {HALF: np.float16, FLOAT: np.float32, DOUBLE: np.float64}


def descriptor(
    cudnn: Any,
    data_type: Any = FLOAT,
    layout: Any = SEQ_MAJOR,
    longest: int = 4,
    batch: int = 3,
    vector: int = 5,
    lengths: Any = (4, 0, 2),
    fill: Any = None,
) -> Any:
    made = cudnn.cudnnCreateRNNDataDescriptor()
    cudnn.cudnnSetRNNDataDescriptor(made, data_type, layout, longest, batch, vector, lengths, fill)
    return made


@shows("cudnnCreateRNNDataDescriptor/c01 c02", "cudnnDestroyRNNDataDescriptor/c01 c02", "cudnnRNNDataDescriptor_t/c01 c02",
       "cudnnRNNDataLayout_t/c01", "cudnnSetRNNDataDescriptor/c01-c03 c06-c08 c11 c13", "cudnnGetRNNDataDescriptor/c01-c06 c08 c09")  # fmt: skip
@pytest.mark.parametrize("layout", cudnnRNNDataLayout_t, ids=lambda kind: kind.name)
@pytest.mark.parametrize("data_type", TYPES, ids=lambda t: t.name)
def test_round_trip(cudnn: Any, data_type: Any, layout: Any) -> None:
    """The values of the setter come back; the fill is a number of the data type; a second setting replaces the
    first."""
    made = descriptor(cudnn, layout=SEQ_MAJOR, longest=9, batch=1, vector=1, lengths=(7,))
    cudnn.cudnnSetRNNDataDescriptor(made, data_type, layout, 4, 3, 5, (4, 2, 0), 0.1)
    found = cudnn.cudnnGetRNNDataDescriptor(made, 3)
    assert tuple(found[:5]) == (data_type, layout, 4, 3, 5)
    assert tuple(found[5]) == (4, 2, 0)
    assert found[6] == float(TYPES[data_type](0.1))
    cudnn.cudnnDestroyRNNDataDescriptor(made)


@shows(f"{GET}/c06", f"{GET}/c07")
@pytest.mark.parametrize("requested", [0, 1, 2])
def test_requested_lengths(cudnn: Any, requested: int) -> None:
    found = cudnn.cudnnGetRNNDataDescriptor(descriptor(cudnn), requested)
    assert tuple(found[5]) == (4, 0, 2)[:requested] and found[2] == 4


@shows(f"{SET}/c02 c04 c05 c09")
def test_packed_and_padded(cudnn: Any, refuses: Callable[..., bool]) -> None:
    """Padding counts in maxSeqLength of unpacked sequences only; the setter takes any order of lengths."""
    assert cudnn.cudnnGetRNNDataDescriptor(descriptor(cudnn, lengths=(1, 3, 2)), 3)[2] == 4
    assert tuple(cudnn.cudnnGetRNNDataDescriptor(descriptor(cudnn, layout=PACKED, lengths=(2, 1, 4)), 3)[5]) == (
        2,
        1,
        4,
    )
    refuses(BAD_PARAM, f"{SET}/c05", descriptor, cudnn, layout=PACKED, lengths=(3, 2, 1))
