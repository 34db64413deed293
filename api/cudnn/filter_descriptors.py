"""Implement filter descriptors (3.2.10, 3.2.25, 3.2.45 to 3.2.47, 3.2.81, 3.2.82)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..descriptors import FilterDescriptor
from ..enumerations import CUDNN_DIM_MAX, cudnnDataType_t, cudnnTensorFormat_t
from ..functions import documented
from ..operations import FilterSpec
from ..operations.specs import FLOAT, NCHW
from ..status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .tensor_descriptors import entries, vectors_fit_format

MAX_SIZE = 2**64 - 1  # the maximum of size_t, in bytes
MIN_RANK = 3  # dimensions: K, C and one spatial dimension (docs/errata.md, D115)


@documented()
def cudnnCreateFilterDescriptor() -> FilterDescriptor:
    """Return a new filter descriptor, to be filled by cudnnSetFilter4dDescriptor or cudnnSetFilterNdDescriptor. Source: 3.2.10."""
    return FilterDescriptor()


@documented(invalid={"dataType": "c09", "format": "c10"})
def cudnnSetFilter4dDescriptor(
    filterDesc: FilterDescriptor, dataType: cudnnDataType_t, format: cudnnTensorFormat_t, k: int, c: int, h: int, w: int
) -> None:
    """Describe a filter of k output and c input feature maps of h x w, without gaps.

    CUDNN_TENSOR_NCHW is the order KCRS, CUDNN_TENSOR_NHWC is KRSC. CUDNN_TENSOR_NCHW_VECT_C takes INT8x4, UINT8x4 or
    INT8x32 and c, which counts channels, a multiple of 4 or 32.
    Errors: BAD_PARAM for sizes below 1 (c08), unknown or mismatched dataType and format (c09, c10,
    cudnnTensorFormat_t/c06 to c08, cudnnDataType_t/c02 to c05). Source: 3.2.81.
    """
    _set(filterDesc, dataType, format, (k, c, h, w), f"k {k}, c {c}, h {h}, w {w}", "cudnnSetFilter4dDescriptor/c08")


@documented(invalid={"dataType": "c13", "format": "c14"})
def cudnnSetFilterNdDescriptor(
    filterDesc: FilterDescriptor,
    dataType: cudnnDataType_t,
    format: cudnnTensorFormat_t,
    nbDims: int,
    filterDimA: Sequence[int],
) -> None:
    """Describe a filter of nbDims dimensions without gaps; filterDimA is [K, C, spatial ...] whatever the format.

    nbDims: 3 to CUDNN_DIM_MAX (8). Memory order: K, C, spatial for CUDNN_TENSOR_NCHW; K, spatial, C for NHWC.
    Errors: BAD_PARAM for sizes below 1 or too few entries (c12, c10), unknown dataType (c13) or format (c14), nbDims
    below 3; NOT_SUPPORTED for nbDims above 8 (c15). Source: 3.2.82.
    """
    expect(nbDims >= MIN_RANK, BAD_PARAM, INCORRECT_PARAMETER, f"nbDims is {nbDims}, it must be at least {MIN_RANK}")
    expect(nbDims <= CUDNN_DIM_MAX, NOT_SUPPORTED, "cudnnSetFilterNdDescriptor/c15",
           f"nbDims is {nbDims}, at most {CUDNN_DIM_MAX} are supported")  # fmt: skip
    dims = entries("filterDimA", filterDimA, nbDims, "cudnnSetFilterNdDescriptor/c10")
    _set(filterDesc, dataType, format, dims, f"filterDimA {dims}", "cudnnSetFilterNdDescriptor/c12")


class Filter4dParameters(NamedTuple):
    dataType: cudnnDataType_t
    format: cudnnTensorFormat_t
    k: int
    c: int
    h: int
    w: int


@documented(fresh=["filterDesc"])
def cudnnGetFilter4dDescriptor(filterDesc: FilterDescriptor) -> Filter4dParameters:
    """Return (dataType, format, k, c, h, w); a filter of another rank returns its first four dimensions. A fresh
    descriptor returns zeros.

    Source: 3.2.45.
    """
    spec = filterDesc.spec
    if spec is None:
        return Filter4dParameters(FLOAT, NCHW, 0, 0, 0, 0)
    return Filter4dParameters(spec.data_type, spec.format, *(*spec.dims, 0)[:4])


class FilterNdParameters(NamedTuple):
    dataType: cudnnDataType_t
    format: cudnnTensorFormat_t
    nbDims: int
    filterDimA: tuple[int, ...]


@documented(fresh=["wDesc"])
def cudnnGetFilterNdDescriptor(wDesc: FilterDescriptor, nbDimsRequested: int) -> FilterNdParameters:
    """Return (dataType, format, nbDims, filterDimA); the array holds min(nbDimsRequested, nbDims) entries.

    A fresh descriptor returns rank 0. Errors: BAD_PARAM for nbDimsRequested below 1 (c09); NOT_SUPPORTED above
    CUDNN_DIM_MAX (cudnnSetFilterNdDescriptor/c15). Source: 3.2.46.
    """
    expect(nbDimsRequested > 0, BAD_PARAM, "cudnnGetFilterNdDescriptor/c09",
           f"nbDimsRequested is {nbDimsRequested}, it must be at least 1")  # fmt: skip
    expect(nbDimsRequested <= CUDNN_DIM_MAX, NOT_SUPPORTED, "cudnnSetFilterNdDescriptor/c15",
           f"nbDimsRequested is {nbDimsRequested}, at most {CUDNN_DIM_MAX} are supported")  # fmt: skip
    spec = wDesc.spec
    if spec is None:
        return FilterNdParameters(FLOAT, NCHW, 0, ())
    return FilterNdParameters(spec.data_type, spec.format, len(spec.dims), spec.dims[:nbDimsRequested])


@documented(invalid={"filterDesc": "c04"}, fresh=["filterDesc"])
def cudnnGetFilterSizeInBytes(filterDesc: FilterDescriptor) -> int:
    """Return the bytes of memory that the filter occupies; 0 for a fresh descriptor.

    Errors: BAD_PARAM for NULL and for a filter whose bytes no size_t can count (c04). Source: 3.2.47.
    """
    spec = filterDesc.spec
    if spec is None:
        return 0
    expect(spec.nbytes <= MAX_SIZE, BAD_PARAM, "cudnnGetFilterSizeInBytes/c04",
           f"filterDesc {spec.dims} of {spec.data_type.name} needs {spec.nbytes} bytes, size holds {MAX_SIZE} at most")  # fmt: skip
    return spec.nbytes


@documented()
def cudnnDestroyFilterDescriptor(filterDesc: FilterDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.25."""
    filterDesc.destroy()


def _set(descriptor: Any, data_type: Any, tensor_format: Any, dims: Any, shown: Any, clause: Any) -> None:
    """Set the filter for all setters; after an error the descriptor is unchanged."""
    expect(min(dims) > 0, BAD_PARAM, clause, f"{shown}: every size must be at least 1")
    vectors_fit_format(tensor_format, data_type, dims[1])
    descriptor.spec = FilterSpec(data_type, tensor_format, dims)
