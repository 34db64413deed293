"""Holds cases of the sequence data descriptors."""

from __future__ import annotations

from itertools import permutations
from math import prod
from typing import Any

import pytest
from dualdnn.api.enumerations import CUDNN_SEQDATA_DIM_COUNT, cudnnSeqDataAxis_t
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.marks import needs, shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

TIME, BATCH, BEAM, VECT = cudnnSeqDataAxis_t
ORDERS = [(*outer, VECT) for outer in permutations((TIME, BATCH, BEAM))]
DIMS = (4, 3, 2, 5)
LENGTHS = (4, 3, 2, 1, 1, 4)
GOOD: dict[str, Any] = {
    "dataType": FLOAT, "nbDims": 4, "dimA": DIMS, "axes": (TIME, BATCH, BEAM, VECT), "seqLengthArraySize": 6,
    "seqLengthArray": LENGTHS, "paddingFill": None,
}  # fmt: skip
SET = "cudnnSetSeqDataDescriptor"
fresh = fresh_descriptor("SeqData")


def fill(cudnn: Any, descriptor: Any, **changed: Any) -> None:
    cudnn.cudnnSetSeqDataDescriptor(descriptor, *(GOOD | changed).values())


def read(cudnn: Any, descriptor: Any, dims: Any = CUDNN_SEQDATA_DIM_COUNT, lengths: int = 6) -> Any:
    """Return the values of the getter, without the fill."""
    return tuple(cudnn.cudnnGetSeqDataDescriptor(descriptor, dims, lengths))[:6]


@shows("cudnnCreateSeqDataDescriptor/c01 c03 c04", "cudnnDestroySeqDataDescriptor/c01 c04", "cudnnSeqDataDescriptor_t/c06")  # fmt: skip
def test_create_and_destroy(cudnn: Any) -> None:
    """Descriptors are independent of each other and live until they are destroyed."""
    first, second = cudnn.cudnnCreateSeqDataDescriptor(), cudnn.cudnnCreateSeqDataDescriptor()
    fill(cudnn, first)
    fill(cudnn, second, dataType=HALF, dimA=(9, 1, 1, 2), seqLengthArraySize=1, seqLengthArray=(7,))
    cudnn.cudnnDestroySeqDataDescriptor(first)
    assert read(cudnn, second) == (HALF, 4, (9, 1, 1, 2), (TIME, BATCH, BEAM, VECT), 1, (7,))
    cudnn.cudnnDestroySeqDataDescriptor(second)


@shows("cudnnDestroySeqDataDescriptor/c02")
def test_destroy_of_null(cudnn: Any) -> None:
    cudnn.cudnnDestroySeqDataDescriptor(None)


@shows("cudnnCreateSeqDataDescriptor/c01")
def test_fresh_reads_as_zeros(cudnn: Any, fresh: Any) -> None:
    assert read(cudnn, fresh) == (FLOAT, 4, (0,) * 4, (TIME,) * 4, 0, ())


@shows("cudnnSetSeqDataDescriptor/c01-c04 c11 c12 c16 c17 c20-c22", "cudnnGetSeqDataDescriptor/c01 c07 c09-c13 c15 c16 c19",
       "cudnnSeqDataAxis_t/c01-c03", "cudnnSeqDataDescriptor_t/c01 c02 c04 c05")  # fmt: skip
@pytest.mark.parametrize("axes", ORDERS, ids=lambda axes: "".join(axis.name[14:16] for axis in axes))
@pytest.mark.parametrize("data_type", [HALF, FLOAT, DOUBLE], ids=lambda t: t.name)
def test_what_was_set(cudnn: Any, fresh: Any, data_type: Any, axes: Any) -> None:
    """All values read back, and give packed vectors by the strides of the document's sample."""
    fill(cudnn, fresh, dataType=data_type, axes=axes)
    got = read(cudnn, fresh)
    assert got == (data_type, CUDNN_SEQDATA_DIM_COUNT, DIMS, axes, len(LENGTHS), LENGTHS)
    strides, step = {}, 1
    for axis in reversed(got[3]):
        strides[axis] = step
        step *= got[2][axis]
    assert strides[VECT] == 1 and step == prod(DIMS)
    assert [strides[axis] for axis in axes] == sorted(strides.values(), reverse=True)


@shows("cudnnGetSeqDataDescriptor/c01 c14")
@needs("is_python", "C writes a value where this convention returns None")
def test_no_fill(cudnn: Any, fresh: Any) -> None:
    fill(cudnn, fresh)
    found = cudnn.cudnnGetSeqDataDescriptor(fresh, 4, 6)
    assert found.paddingFill is None and found.nbDims == 4


@shows(f"{SET}/c13")
def test_lengths_are_batch_major(cudnn: Any, fresh: Any) -> None:
    """The lengths come back in the order in which they were set, whatever the axes."""
    for axes in ORDERS:
        fill(cudnn, fresh, axes=axes, seqLengthArray=(1, 2, 3, 4, 3, 2))
        assert read(cudnn, fresh)[5] == (1, 2, 3, 4, 3, 2)


@shows(f"{SET}/c13")
def test_lengths_are_copied(cudnn: Any, fresh: Any) -> None:
    lengths = list(LENGTHS)
    fill(cudnn, fresh, seqLengthArray=lengths)
    lengths[0] = 2
    assert read(cudnn, fresh)[5] == LENGTHS


@shows(f"{SET}/c12")
def test_empty_sequences(cudnn: Any, fresh: Any) -> None:
    fill(cudnn, fresh, seqLengthArray=(4, 0, 2, 0, 1, 4))
    assert read(cudnn, fresh)[5] == (4, 0, 2, 0, 1, 4)


@shows("cudnnGetSeqDataDescriptor/c03 c06")
@pytest.mark.parametrize("dims, lengths", [(0, 6), (3, 6), (4, 0), (4, 3), (8, 9), (1, 1)])
def test_as_many_as_are_asked_for(cudnn: Any, fresh: Any, dims: int, lengths: int) -> None:
    fill(cudnn, fresh)
    assert read(cudnn, fresh, dims, lengths) == (FLOAT, 4, DIMS[:dims], GOOD["axes"][:dims], 6, LENGTHS[:lengths])
