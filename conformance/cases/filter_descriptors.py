"""Holds cases of the filter descriptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnFoldingDirection_t
from dualdnn.api.operations import FilterSpec, TransformFilter, TransformSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF, INT8, NCHW, NCHW_VECT_C, NHWC
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.layouts import SCALARS, VECTORS
from dualdnn.conformance.marks import by_name, shows
from dualdnn.conformance.suite.fixtures import fresh_descriptor

FORMATS = [NCHW, NHWC]
SIZES = (5, 3, 2, 7)
fresh = fresh_descriptor("Filter")


@shows("cudnnCreateFilterDescriptor/c01 c02", "cudnnFilterDescriptor_t/c01", "cudnnDestroyFilterDescriptor/c01 c02")
def test_create_and_destroy(cudnn: Any) -> None:
    """Descriptors are independent of each other and live until they are destroyed."""
    first, second = cudnn.cudnnCreateFilterDescriptor(), cudnn.cudnnCreateFilterDescriptor()
    cudnn.cudnnSetFilter4dDescriptor(first, FLOAT, NCHW, 1, 2, 3, 4)
    cudnn.cudnnSetFilter4dDescriptor(second, HALF, NHWC, 5, 6, 7, 8)
    cudnn.cudnnDestroyFilterDescriptor(first)
    assert tuple(cudnn.cudnnGetFilter4dDescriptor(second)) == (HALF, NHWC, 5, 6, 7, 8)
    cudnn.cudnnDestroyFilterDescriptor(second)


@shows("cudnnFilterDescriptor_t/c02")
def test_fresh_reads_as_zeros(cudnn: Any, fresh: Any) -> None:
    assert tuple(cudnn.cudnnGetFilter4dDescriptor(fresh)) == (FLOAT, NCHW, 0, 0, 0, 0)
    assert cudnn.cudnnGetFilterNdDescriptor(fresh, 4).nbDims == 0
    assert cudnn.cudnnGetFilterSizeInBytes(fresh) == 0


@shows("cudnnSetFilter4dDescriptor/c01 c02 c06 c07", "cudnnGetFilter4dDescriptor/c01-c06 c08", "cudnnGetFilterSizeInBytes/c01 c03",
       "cudnnFilterDescriptor_t/c02", "cudnnDataType_t/c01")  # fmt: skip
@pytest.mark.parametrize("tensor_format", FORMATS, ids=by_name)
@pytest.mark.parametrize("data_type", SCALARS, ids=by_name)
def test_4d(cudnn: Any, fresh: Any, data_type: Any, tensor_format: Any) -> None:
    cudnn.cudnnSetFilter4dDescriptor(fresh, data_type, tensor_format, *SIZES)
    assert cudnn.cudnnGetFilter4dDescriptor(fresh) == (data_type, tensor_format, *SIZES)
    assert cudnn.cudnnGetFilterSizeInBytes(fresh) == 5 * 3 * 2 * 7 * SCALARS[data_type]


@shows("cudnnSetFilterNdDescriptor/c01 c02 c10 c11", "cudnnGetFilterNdDescriptor/c01-c06 c08", "cudnnGetFilterSizeInBytes/c01",
       "cudnnFilterDescriptor_t/c02")  # fmt: skip
@pytest.mark.parametrize("rank", range(3, 9))
@pytest.mark.parametrize("tensor_format", FORMATS, ids=by_name)
def test_nd(cudnn: Any, fresh: Any, tensor_format: Any, rank: int) -> None:
    """The dimensions read back as set, K and C first in both formats, no more than requested."""
    dims = (4, 3, 2, 5, 1, 3, 2, 2)[:rank]
    cudnn.cudnnSetFilterNdDescriptor(fresh, HALF, tensor_format, rank, dims)
    assert cudnn.cudnnGetFilterNdDescriptor(fresh, rank) == (HALF, tensor_format, rank, dims)
    assert cudnn.cudnnGetFilterNdDescriptor(fresh, 8) == (HALF, tensor_format, rank, dims)
    assert cudnn.cudnnGetFilterNdDescriptor(fresh, 2) == (HALF, tensor_format, rank, dims[:2])
    assert cudnn.cudnnGetFilterSizeInBytes(fresh) == 2 * int(np.prod(dims))


@shows("cudnnGetFilter4dDescriptor/c08")
def test_4d_getter_of_other_ranks(cudnn: Any, fresh: Any) -> None:
    """The 4-D getter gives the first four dimensions, and zeros for missing ones."""
    cudnn.cudnnSetFilterNdDescriptor(fresh, FLOAT, NCHW, 3, (4, 3, 2))
    assert cudnn.cudnnGetFilter4dDescriptor(fresh)[2:] == (4, 3, 2, 0)
    cudnn.cudnnSetFilterNdDescriptor(fresh, FLOAT, NCHW, 5, (4, 3, 2, 5, 6))
    assert cudnn.cudnnGetFilter4dDescriptor(fresh)[2:] == (4, 3, 2, 5)


@shows("cudnnTensorFormat_t/c06", "cudnnGetFilterSizeInBytes/c01", "cudnnGetFilter4dDescriptor/c04")
@pytest.mark.parametrize("data_type", VECTORS, ids=by_name)
def test_vectors_4d_getter(cudnn: Any, fresh: Any, data_type: Any) -> None:
    """c counts channels; the size is that of one byte per channel."""
    cudnn.cudnnSetFilter4dDescriptor(fresh, data_type, NCHW_VECT_C, 2, 64, 3, 5)
    assert cudnn.cudnnGetFilter4dDescriptor(fresh) == (data_type, NCHW_VECT_C, 2, 64, 3, 5)
    assert cudnn.cudnnGetFilterNdDescriptor(fresh, 4) == (data_type, NCHW_VECT_C, 4, (2, 64, 3, 5))
    assert cudnn.cudnnGetFilterSizeInBytes(fresh) == 2 * 64 * 3 * 5


@shows("cudnnGetFilterSizeInBytes/c03")
@pytest.mark.parametrize("data_type", [FLOAT, HALF, INT8, DOUBLE], ids=by_name)
def test_sizes_exceed_size_t(cudnn: Any, fresh: Any, refuses: Callable[..., bool], data_type: Any) -> None:
    """A filter size that size_t cannot hold is refused, not wrapped (D069)."""
    nbytes = SCALARS[data_type]
    cudnn.cudnnSetFilter4dDescriptor(fresh, data_type, NCHW, 2**30, 2**30, 15, 1)
    if nbytes == 1:
        assert cudnn.cudnnGetFilterSizeInBytes(fresh) == 15 * 2**60
    for dims in ((2**30, 2**30, 16 // nbytes, 1), (2**31 - 1,) * 4, (2**16, 2**16, 2**16, 2**16 // nbytes)):
        cudnn.cudnnSetFilter4dDescriptor(fresh, data_type, NCHW, *dims)
        refuses(BAD_PARAM, "cudnnGetFilterSizeInBytes/c04", cudnn.cudnnGetFilterSizeInBytes, fresh)
    cudnn.cudnnSetFilter4dDescriptor(fresh, data_type, NCHW, 2**30, 2**30, max(16 // nbytes - 1, 1), 1)
    assert cudnn.cudnnGetFilterSizeInBytes(fresh) == max(16 // nbytes - 1, 1) * nbytes * 2**60


def converted(caller: Caller, source: FilterSpec, destination: FilterSpec) -> np.ndarray:
    """Return the memory of a filter of 0, 1, 2 ... after its conversion into another format."""
    rank = len(source.dims)
    transform = TransformSpec(
        destination.format, (0,) * rank, (0,) * rank, (0,) * (rank - 2), cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD
    )
    count = int(np.prod(source.dims))
    memory = caller.handle.to_device(np.arange(count, dtype=np.float32))
    result = caller.handle.allocate(4 * count)
    caller(TransformFilter(transform, 1.0, 0.0, source, destination), {"srcData": memory, "destData": result})
    return result.to_host(np.float32, count)


class FourDimensional(Caller):
    """Describes filters by the setter of four dimensions."""

    def descriptor(self, spec: Any) -> Any:
        if not isinstance(spec, FilterSpec):
            return super().descriptor(spec)
        made = self.cudnn.cudnnCreateFilterDescriptor()
        self.cudnn.cudnnSetFilter4dDescriptor(made, spec.data_type, spec.format, *spec.dims)
        return made


@shows("cudnnSetFilter4dDescriptor/c02 c04 c05", "cudnnSetFilterNdDescriptor/c02 c04 c07")
@pytest.mark.parametrize("kind", [Caller, FourDimensional], ids=["nd", "4d"])
def test_memory_order(caller: Caller, kind: Any) -> None:
    """NCHW stores KCRS and NHWC stores KRSC, element by element as documented."""
    caller = kind(caller.cudnn, caller.handle)
    _, c_, r_, s_ = dims = (3, 5, 2, 4)
    got = converted(caller, FilterSpec(FLOAT, NCHW, dims), FilterSpec(FLOAT, NHWC, dims))
    for k, c, r, s in np.ndindex(*dims):
        assert got[((k * r_ + r) * s_ + s) * c_ + c] == ((k * c_ + c) * r_ + r) * s_ + s, (k, c, r, s)
    got = converted(caller, FilterSpec(FLOAT, NHWC, dims), FilterSpec(FLOAT, NCHW, dims))
    for k, c, r, s in np.ndindex(*dims):
        assert got[((k * c_ + c) * r_ + r) * s_ + s] == ((k * r_ + r) * s_ + s) * c_ + c, (k, c, r, s)


@shows("cudnnSetFilterNdDescriptor/c05 c06 c08 c09")
@pytest.mark.parametrize("dims", [(3, 5, 4), (3, 5, 2, 4, 3), (2, 3, 2, 4, 3, 2)], ids=str)
def test_memory_order_of_other_ranks(caller: Caller, dims: Any) -> None:
    """NCHW is KCR and KCRS..., NHWC is KRC and KRS...C."""
    count = np.prod(dims)
    got = converted(caller, FilterSpec(FLOAT, NCHW, dims), FilterSpec(FLOAT, NHWC, dims))
    spatial = range(2, len(dims))
    assert np.array_equal(got, np.arange(count).reshape(dims).transpose(0, *spatial, 1).ravel())
