"""Cases of the sequence data descriptors."""

from __future__ import annotations

from itertools import permutations
from math import prod

import pytest
from dualdnn.api.enumerations import CUDNN_SEQDATA_DIM_COUNT, cudnnDataType_t, cudnnSeqDataAxis_t
from dualdnn.api.operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, INT32
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.marks import shows

TIME, BATCH, BEAM, VECT = cudnnSeqDataAxis_t
ORDERS = [(*outer, VECT) for outer in permutations((TIME, BATCH, BEAM))]
DIMS = (4, 3, 2, 5)
LENGTHS = (4, 3, 2, 1, 1, 4)
GOOD = {
    "dataType": FLOAT, "nbDims": 4, "dimA": DIMS, "axes": (TIME, BATCH, BEAM, VECT), "seqLengthArraySize": 6,
    "seqLengthArray": LENGTHS, "paddingFill": None,
}  # fmt: skip
SET = "cudnnSetSeqDataDescriptor"


@pytest.fixture
def fresh(cudnn):
    """A sequence data descriptor that no setter has touched."""
    descriptor = cudnn.cudnnCreateSeqDataDescriptor()
    yield descriptor
    cudnn.cudnnDestroySeqDataDescriptor(descriptor)


def fill(cudnn, descriptor, **changed):
    cudnn.cudnnSetSeqDataDescriptor(descriptor, *(GOOD | changed).values())


def read(cudnn, descriptor, dims=CUDNN_SEQDATA_DIM_COUNT, lengths=6):
    """What the getter gives, the fill left out."""
    return tuple(cudnn.cudnnGetSeqDataDescriptor(descriptor, dims, lengths))[:6]


@pytest.fixture
def refused(subject, cudnn, fresh, refuses):
    """A setting with some arguments changed is refused, and our refused calls leave the descriptor as it was."""

    def check(status, clause, **changed):
        fill(cudnn, fresh)
        before = read(cudnn, fresh)
        clause = clause if "/" in clause else f"{SET}/{clause}"
        refuses(status, clause, cudnn.cudnnSetSeqDataDescriptor, fresh, *(GOOD | changed).values())
        if subject.cites_clauses:
            assert read(cudnn, fresh) == before

    return check


@shows("cudnnCreateSeqDataDescriptor/c01", "cudnnCreateSeqDataDescriptor/c03", "cudnnCreateSeqDataDescriptor/c04",
       "cudnnDestroySeqDataDescriptor/c01", "cudnnDestroySeqDataDescriptor/c04", "cudnnSeqDataDescriptor_t/c06")  # fmt: skip
def test_create_and_destroy(cudnn):
    """Descriptors are independent of each other and live until they are destroyed."""
    first, second = cudnn.cudnnCreateSeqDataDescriptor(), cudnn.cudnnCreateSeqDataDescriptor()
    fill(cudnn, first)
    fill(cudnn, second, dataType=HALF, dimA=(9, 1, 1, 2), seqLengthArraySize=1, seqLengthArray=(7,))
    cudnn.cudnnDestroySeqDataDescriptor(first)
    assert read(cudnn, second) == (HALF, 4, (9, 1, 1, 2), (TIME, BATCH, BEAM, VECT), 1, (7,))
    cudnn.cudnnDestroySeqDataDescriptor(second)


@shows("cudnnDestroySeqDataDescriptor/c02")
def test_destroy_of_null(cudnn):
    cudnn.cudnnDestroySeqDataDescriptor(None)


@shows("cudnnDestroySeqDataDescriptor/c01")
def test_destroyed_is_refused(subject, cudnn, refuses):
    if not subject.survives_stray_pointers:
        pytest.skip("a destroyed descriptor of a foreign library is freed memory")
    descriptor = cudnn.cudnnCreateSeqDataDescriptor()
    cudnn.cudnnDestroySeqDataDescriptor(descriptor)
    refuses(BAD_PARAM, f"{SET}/c23", cudnn.cudnnSetSeqDataDescriptor, descriptor, *GOOD.values())
    refuses(BAD_PARAM, "cudnnGetSeqDataDescriptor/c20", cudnn.cudnnGetSeqDataDescriptor, descriptor, 4, 6)


@shows("cudnnCreateSeqDataDescriptor/c01")
def test_fresh_reads_as_zeros(cudnn, fresh):
    assert read(cudnn, fresh) == (FLOAT, 4, (0,) * 4, (TIME,) * 4, 0, ())


@shows(*(f"{SET}/c{i}" for i in ("01", "02", "03", "04", "11", "12", "16", "17", "20", "21", "22")),
       *(f"cudnnGetSeqDataDescriptor/c{i}" for i in ("01", "07", "09", "10", "11", "12", "13", "15", "16", "19")),
       "cudnnSeqDataAxis_t/c01", "cudnnSeqDataAxis_t/c02", "cudnnSeqDataAxis_t/c03",
       "cudnnSeqDataDescriptor_t/c01", "cudnnSeqDataDescriptor_t/c04", "cudnnSeqDataDescriptor_t/c05")  # fmt: skip
@pytest.mark.parametrize("axes", ORDERS, ids=lambda axes: "".join(axis.name[14:16] for axis in axes))
@pytest.mark.parametrize("data_type", [HALF, FLOAT, DOUBLE], ids=lambda t: t.name)
def test_what_was_set(cudnn, fresh, data_type, axes):
    """All comes back, and the strides that the document's sample makes of it are those of packed vectors."""
    fill(cudnn, fresh, dataType=data_type, axes=axes)
    got = read(cudnn, fresh)
    assert got == (data_type, CUDNN_SEQDATA_DIM_COUNT, DIMS, axes, len(LENGTHS), LENGTHS)
    strides, step = {}, 1
    for axis in reversed(got[3]):
        strides[axis] = step
        step *= got[2][axis]
    assert strides[VECT] == 1 and step == prod(DIMS)
    assert [strides[axis] for axis in axes] == sorted(strides.values(), reverse=True)


@shows("cudnnGetSeqDataDescriptor/c14")
def test_no_fill(subject, cudnn, fresh):
    if not subject.is_python:
        pytest.skip("C writes a value where this convention returns None")
    fill(cudnn, fresh)
    found = cudnn.cudnnGetSeqDataDescriptor(fresh, 4, 6)
    assert found.paddingFill is None and found.nbDims == 4


@shows(f"{SET}/c13")
def test_lengths_are_batch_major(cudnn, fresh):
    """Whatever the axes, the lengths come back in the order in which they were set."""
    for axes in ORDERS:
        fill(cudnn, fresh, axes=axes, seqLengthArray=(1, 2, 3, 4, 3, 2))
        assert read(cudnn, fresh)[5] == (1, 2, 3, 4, 3, 2)


@shows(f"{SET}/c13")
def test_lengths_are_copied(cudnn, fresh):
    lengths = list(LENGTHS)
    fill(cudnn, fresh, seqLengthArray=lengths)
    lengths[0] = 2
    assert read(cudnn, fresh)[5] == LENGTHS


@shows(f"{SET}/c12")
def test_empty_sequences(cudnn, fresh):
    fill(cudnn, fresh, seqLengthArray=(4, 0, 2, 0, 1, 4))
    assert read(cudnn, fresh)[5] == (4, 0, 2, 0, 1, 4)


@shows("cudnnGetSeqDataDescriptor/c03", "cudnnGetSeqDataDescriptor/c06")
@pytest.mark.parametrize("dims, lengths", [(0, 6), (3, 6), (4, 0), (4, 3), (8, 9), (1, 1)])
def test_as_many_as_are_asked_for(cudnn, fresh, dims, lengths):
    fill(cudnn, fresh)
    assert read(cudnn, fresh, dims, lengths) == (FLOAT, 4, DIMS[:dims], GOOD["axes"][:dims], 6, LENGTHS[:lengths])


@shows("cudnnGetSeqDataDescriptor/c20")
def test_wrong_requests(cudnn, fresh, refuses):
    fill(cudnn, fresh)
    refuses(BAD_PARAM, "cudnnGetSeqDataDescriptor/c20", cudnn.cudnnGetSeqDataDescriptor, fresh, -1, 6)
    refuses(BAD_PARAM, "cudnnGetSeqDataDescriptor/c20", cudnn.cudnnGetSeqDataDescriptor, None, 4, 6)


@shows(f"{SET}/c23")
def test_null(cudnn, refuses):
    refuses(BAD_PARAM, f"{SET}/c23", cudnn.cudnnSetSeqDataDescriptor, None, *GOOD.values())


@pytest.mark.parametrize("name", ["dimA", "axes", "seqLengthArray"])
def test_null_arrays(subject, refused, name):
    if not subject.cites_clauses:
        pytest.skip("NVIDIA's library reads the array")
    clause = {"axes": "c16", "seqLengthArray": "c27"}.get(name, "cudnnStatus_t/c05")
    refused(BAD_PARAM, clause, **{name: None})


@shows(f"{SET}/c25", f"{SET}/c28", f"{SET}/c03")
def test_numbers_of_dimensions(refused):
    for count in (0, -1):
        refused(BAD_PARAM, "c25", nbDims=count)
    for count in (1, 3):
        refused(NOT_SUPPORTED, "c28", nbDims=count)
    for count in (5, 8):
        refused(NOT_SUPPORTED, "c28", nbDims=count, dimA=(*DIMS, 1, 1, 1, 1), axes=(*GOOD["axes"], *GOOD["axes"]))


@shows(f"{SET}/c24")
def test_unknown_types(refused):
    for value in (-1, max(cudnnDataType_t) + 90):
        refused(BAD_PARAM, "c24", dataType=value)


@shows(f"{SET}/c20")
@pytest.mark.parametrize("data_type", [INT8, INT32, BFLOAT16], ids=lambda t: t.name)
def test_other_types(refused, data_type):
    refused(NOT_SUPPORTED, "c20", dataType=data_type)


@pytest.mark.parametrize("size", [0, -1, -(2**31)])
@pytest.mark.parametrize("axis", list(cudnnSeqDataAxis_t), ids=lambda a: a.name)
def test_sizes_must_be_positive(refused, axis, size):
    refused(BAD_PARAM, "cudnnStatus_t/c05", dimA=(*DIMS[:axis], size, *DIMS[axis + 1 :]))


@shows(f"{SET}/c16", f"{SET}/c17")
@pytest.mark.parametrize("axes", list(permutations(range(4))), ids=str)
def test_the_vector_is_innermost(cudnn, fresh, refused, axes):
    """18 of the 24 orders are refused."""
    if axes[-1] == VECT:
        fill(cudnn, fresh, axes=axes)
    else:
        refused(BAD_PARAM, "c17", axes=axes)


@shows(f"{SET}/c16")
@pytest.mark.parametrize("axes", [(0, 0, 1, 3), (3, 3, 3, 3), (0, 1, 2, 4), (-1, 1, 2, 3)], ids=str)
def test_axes_that_are_no_order(refused, axes):
    refused(BAD_PARAM, "c16", axes=axes)


@shows(f"{SET}/c26", f"{SET}/c11")
@pytest.mark.parametrize("count", [0, 5, 7, 2**40])
def test_numbers_of_lengths(refused, count):
    refused(BAD_PARAM, "c26", seqLengthArraySize=count, seqLengthArray=(*LENGTHS, 1))


@shows(f"{SET}/c27", f"{SET}/c12")
@pytest.mark.parametrize("position", range(6))
@pytest.mark.parametrize("length", [-1, 5, 2**31 - 1])
def test_lengths_beyond_their_range(refused, length, position):
    refused(BAD_PARAM, "c27", seqLengthArray=(*LENGTHS[:position], length, *LENGTHS[position + 1 :]))


def test_too_few_entries(subject, refused):
    if not subject.is_python:
        pytest.skip("a C array has no length to check")
    refused(BAD_PARAM, "c04", dimA=DIMS[:3])
    refused(BAD_PARAM, "c04", axes=GOOD["axes"][:3])
    refused(BAD_PARAM, "c11", seqLengthArray=LENGTHS[:5])


@shows(f"{SET}/c08", f"{SET}/c29")
def test_fill(subject, refused):
    if not subject.is_python:
        pytest.skip("C takes a pointer to the value")
    refused(NOT_SUPPORTED, "c29", paddingFill=0.0)
    refused(BAD_PARAM, "c27", paddingFill=0.0, seqLengthArray=(-1, *LENGTHS[1:]))
