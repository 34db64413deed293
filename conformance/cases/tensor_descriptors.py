"""Holds cases of the tensor descriptors, data types and formats."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import pytest
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, NCHW, NCHW_VECT_C, NHWC
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.layouts import SCALARS, VECTORS
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

if TYPE_CHECKING:
    from dualdnn.conformance.subjects import Subject

DIMS = (2, 3, 4, 5)


tensor = fresh_descriptor("Tensor")


@shows("cudnnCreateTensorDescriptor/c01-c03 c06", "cudnnTensorDescriptor_t/c01")
def test_a_fresh_descriptor_is_all_zeros(cudnn: Any, tensor: Any) -> None:
    assert tuple(cudnn.cudnnGetTensor4dDescriptor(tensor)) == (FLOAT, 0, 0, 0, 0, 0, 0, 0, 0)
    assert cudnn.cudnnGetTensorNdDescriptor(tensor, 8).nbDims == 0
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 0


@shows("cudnnDestroyTensorDescriptor/c01-c03")
def test_destroy(subject: Subject, cudnn: Any, refuses: Callable[..., bool]) -> None:
    descriptor = cudnn.cudnnCreateTensorDescriptor()
    assert cudnn.cudnnDestroyTensorDescriptor(descriptor) is None
    assert cudnn.cudnnDestroyTensorDescriptor(None) is None
    if subject.survives_stray_pointers:
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnDestroyTensorDescriptor, descriptor)
        refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnGetTensorSizeInBytes, descriptor)


@shows("cudnnSetTensor4dDescriptor/c01 c02 c04 c05", "cudnnTensorFormat_t/c01-c03", "cudnnTensorDescriptor_t/c02", "cudnnDataType_t/c01",
       "cudnnGetTensor4dDescriptor/c01-c09 c11", "cudnnGetTensorSizeInBytes/c01 c03")  # fmt: skip
@pytest.mark.parametrize("data_type", list(SCALARS), ids=by_name)
@pytest.mark.parametrize("tensor_format, strides", [(NCHW, (60, 20, 5, 1)), (NHWC, (60, 1, 15, 3))], ids=by_name)
def test_packed_4d(cudnn: Any, tensor: Any, data_type: Any, tensor_format: Any, strides: Any) -> None:
    cudnn.cudnnSetTensor4dDescriptor(tensor, tensor_format, data_type, *DIMS)
    assert tuple(cudnn.cudnnGetTensor4dDescriptor(tensor)) == (data_type, *DIMS, *strides)
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == prod(DIMS) * SCALARS[data_type]


@shows("cudnnTensorFormat_t/c04-c08")
@pytest.mark.parametrize("data_type", list(VECTORS), ids=by_name)
def test_vectorised_channels(cudnn: Any, tensor: Any, data_type: Any) -> None:
    _, length = VECTORS[data_type]
    cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW_VECT_C, data_type, 2, 64, 3, 5)
    planes = 64 // length
    assert tuple(cudnn.cudnnGetTensor4dDescriptor(tensor)) == (data_type, 2, 64, 3, 5, planes * 15, 15, 5, 1)
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 2 * 64 * 15


@shows("cudnnSetTensor4dDescriptor/c03", "cudnnSetTensorNdDescriptor/c02")
@pytest.mark.parametrize("data_type", VECTORS, ids=by_name)
def test_two_giga_elements_of_vectors(cudnn: Any, tensor: Any, refuses: Callable[..., bool], data_type: Any) -> None:
    """An element of a vector type is a whole vector, for the limit of 2 giga-elements (docs/errata.md, D125)."""
    _, length = VECTORS[data_type]
    cudnn.cudnnSetTensor4dDescriptor(tensor, NCHW_VECT_C, data_type, 2**31 - 1, length, 1, 1)
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == (2**31 - 1) * length
    cudnn.cudnnSetTensorNdDescriptorEx(tensor, NCHW_VECT_C, data_type, 4, (2**16, 2**11 * length, 1, 7))
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 2**27 * 7 * length
    beyond = (NCHW_VECT_C, data_type, 2**16, 2**11 * length, 1, 16)
    refuses(NOT_SUPPORTED, "cudnnSetTensor4dDescriptor/c09", cudnn.cudnnSetTensor4dDescriptor, tensor, *beyond)
    many = (NCHW_VECT_C, data_type, 4, beyond[2:])
    refuses(NOT_SUPPORTED, "cudnnSetTensorNdDescriptorEx/c07", cudnn.cudnnSetTensorNdDescriptorEx, tensor, *many)


@shows("cudnnSetTensor4dDescriptorEx/c01-c03 c07 c08", "cudnnTensorDescriptor_t/c02", "cudnnSetTensorNdDescriptor/c08",
       "cudnnGetTensorSizeInBytes/c01")  # fmt: skip
@pytest.mark.parametrize(
    "strides", [(60, 20, 5, 1), (1, 2, 6, 24), (1000, 300, 50, 7), (60, 20, 5, 2), (1, 1, 1, 1)], ids=str
)
def test_explicit_strides(cudnn: Any, tensor: Any, strides: Any) -> None:
    span = 1 + sum((d - 1) * s for d, s in zip(DIMS, strides, strict=True))
    cudnn.cudnnSetTensor4dDescriptorEx(tensor, DOUBLE, *DIMS, *strides)
    assert tuple(cudnn.cudnnGetTensor4dDescriptor(tensor)) == (DOUBLE, *DIMS, *strides)
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 8 * span
    cudnn.cudnnSetTensorNdDescriptor(tensor, HALF, 4, DIMS, strides)
    assert cudnn.cudnnGetTensorNdDescriptor(tensor, 4).strideA == strides
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 2 * span


@shows("cudnnGetTensor4dDescriptor/c01")
@pytest.mark.parametrize("dims, strides", [((2, 3, 5), (31, 7, 1)), ((2, 3, 4, 5, 6), (720, 240, 60, 12, 2))], ids=str)
def test_4d_getter_of_another_rank(cudnn: Any, tensor: Any, dims: Any, strides: Any) -> None:
    """The 4-D getter gives the first four dimensions, and a zero if there are three (docs/errata.md, D074)."""
    cudnn.cudnnSetTensorNdDescriptor(tensor, HALF, len(dims), dims, strides)
    found = cudnn.cudnnGetTensor4dDescriptor(tensor)
    assert tuple(found) == (HALF, *(*dims, 0)[:4], *(*strides, 0)[:4])


@shows("cudnnSetTensorNdDescriptor/c01 c06 c07 c09", "cudnnTensorDescriptor_t/c02", "cudnnGetTensorNdDescriptor/c01-c07 c09")  # fmt: skip
@pytest.mark.parametrize("rank", range(3, 9))
def test_nd_round_trip(cudnn: Any, tensor: Any, rank: int) -> None:
    dims = tuple(range(2, 2 + rank))
    strides = tuple(prod(dims[i + 1 :]) for i in range(rank))
    cudnn.cudnnSetTensorNdDescriptor(tensor, FLOAT, rank, dims, strides)
    for requested in (1, rank - 1, rank, 8, 20, 0, -1):
        read = cudnn.cudnnGetTensorNdDescriptor(tensor, requested)
        assert read.dataType == FLOAT and read.nbDims == rank
        assert read.dimA == dims[: max(requested, 0)] and read.strideA == strides[: max(requested, 0)]


@shows("cudnnSetTensorNdDescriptorEx/c01 c03 c04")
@pytest.mark.parametrize(
    "tensor_format, strides", [(NCHW, (360, 120, 30, 6, 1)), (NHWC, (360, 1, 90, 18, 3))], ids=by_name
)
def test_nd_ex_derives_strides(cudnn: Any, tensor: Any, tensor_format: Any, strides: Any) -> None:
    cudnn.cudnnSetTensorNdDescriptorEx(tensor, tensor_format, HALF, 5, (2, 3, 4, 5, 6))
    read = cudnn.cudnnGetTensorNdDescriptor(tensor, 5)
    assert (read.dimA, read.strideA) == ((2, 3, 4, 5, 6), strides)
    assert cudnn.cudnnGetTensorSizeInBytes(tensor) == 2 * 720
