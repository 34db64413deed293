"""Implement tensor descriptors (3.2.16, 3.2.31, 3.2.59 to 3.2.61, 3.2.91 to 3.2.94)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..descriptors import TensorDescriptor
from ..enumerations import CUDNN_DIM_MAX, cudnnDataType_t
from ..functions import documented
from ..operations import TensorSpec
from ..operations.specs import FLOAT, NCHW_VECT_C, VECTORS, vector_length
from ..status import BAD_PARAM, NOT_SUPPORTED, expect

if TYPE_CHECKING:
    from ..enumerations import cudnnTensorFormat_t

TWO_GIGA = 2**31  # elements, the exclusive limit of "2 Giga-elements" (docs/errata.md, D125)
MIN_RANK = 3  # dimensions; the status list says 4, but the RNN sections need 3 (docs/errata.md, D128)


@documented(invalid={"*": "c04"})
def cudnnCreateTensorDescriptor() -> TensorDescriptor:
    """Return a new tensor descriptor with all data zero. Source: 3.2.16."""
    return TensorDescriptor()


@documented(invalid={"format": "c07", "dataType": "c08"})
def cudnnSetTensor4dDescriptor(
    tensorDesc: TensorDescriptor, format: cudnnTensorFormat_t, dataType: cudnnDataType_t, n: int, c: int, h: int, w: int
) -> None:
    """Describe a 4-D tensor without gaps in the order of ``format``.

    n, c, h, w: images, feature maps, height, width; each at least 1. With CUDNN_TENSOR_NCHW_VECT_C the type must be
    INT8x4, UINT8x4 or INT8x32 and c, which counts channels, a multiple of 4 or 32.
    Errors: BAD_PARAM for sizes below 1 (c06), unknown or mismatched format and type (c07, c08, cudnnTensorFormat_t/c06,
    cudnnDataType_t/c02 to c05); NOT_SUPPORTED from 2 Giga-elements (c09). Source: 3.2.91.
    """
    dims = (n, c, h, w)
    names = dict(zip("nchw", dims, strict=True))
    expect(
        min(dims) > 0, BAD_PARAM, "cudnnSetTensor4dDescriptor/c06", f"{_shown(names)}: every size must be at least 1"
    )
    vectors_fit_format(format, dataType, c)
    tensorDesc.spec = packed_tensor(dataType, dims, format, "cudnnSetTensor4dDescriptor/c09", _shown(names))


@documented(invalid={"dataType": "c11"})
def cudnnSetTensor4dDescriptorEx(
    tensorDesc: TensorDescriptor,
    dataType: cudnnDataType_t,
    n: int,
    c: int,
    h: int,
    w: int,
    nStride: int,
    cStride: int,
    hStride: int,
    wStride: int,
) -> None:
    """Describe a 4-D tensor with explicit strides in elements: offset = n*nStride + c*cStride + h*hStride + w*wStride.

    Sizes and strides are at least 1; the stride of a dimension of size 1 may be 0. Strides may leave gaps, permute the
    dimensions and overlap; calls that cannot write such a layout refuse it.
    Errors: BAD_PARAM for sizes (c09), strides (c10), types (c11); NOT_SUPPORTED from 2 Giga-elements, gaps counted
    (c12). Source: 3.2.92.
    """
    dims, strides = (n, c, h, w), (nStride, cStride, hStride, wStride)
    expect(min(dims) > 0, BAD_PARAM, "cudnnSetTensor4dDescriptorEx/c09",
           f"{_shown(dict(zip('nchw', dims, strict=True)))}: every size must be at least 1")  # fmt: skip
    named = dict(zip(("nStride", "cStride", "hStride", "wStride"), strides, strict=True))
    set_strided(
        tensorDesc,
        dataType,
        dims,
        strides,
        _shown(named),
        "cudnnSetTensor4dDescriptorEx/c10",
        "cudnnSetTensor4dDescriptorEx/c12",
    )


@documented(invalid={"dataType": "c11", "dimA": "c10"})
def cudnnSetTensorNdDescriptor(
    tensorDesc: TensorDescriptor, dataType: cudnnDataType_t, nbDims: int, dimA: Sequence[int], strideA: Sequence[int]
) -> None:
    """Describe a tensor of nbDims dimensions [N, C, (D,) H, W] with explicit strides in the same order.

    nbDims: 3 to CUDNN_DIM_MAX (8). dimA, strideA: at least nbDims entries, rules as in cudnnSetTensor4dDescriptorEx.
    Errors: BAD_PARAM for sizes below 1 or too few entries (c10), types (c11), strides; NOT_SUPPORTED for nbDims (c12)
    or from 2 Giga-elements (c13). Source: 3.2.93.
    """
    _rank(nbDims, "cudnnSetTensorNdDescriptor/c12")
    dims = entries("dimA", dimA, nbDims, "cudnnSetTensorNdDescriptor/c06")
    strides = entries("strideA", strideA, nbDims, "cudnnSetTensorNdDescriptor/c08")
    expect(min(dims) > 0, BAD_PARAM, "cudnnSetTensorNdDescriptor/c10", f"dimA is {dims}: every size must be at least 1")
    set_strided(
        tensorDesc, dataType, dims, strides, f"strideA {strides}", "cudnnStatus_t/c05", "cudnnSetTensorNdDescriptor/c13"
    )


@documented(invalid={"tensorDesc": "c05", "*": "c06"})
def cudnnSetTensorNdDescriptorEx(
    tensorDesc: TensorDescriptor,
    format: cudnnTensorFormat_t,
    dataType: cudnnDataType_t,
    nbDims: int,
    dimA: Sequence[int],
) -> None:
    """Describe a tensor of nbDims dimensions without gaps in the order of ``format``; dimA is [N, C, spatial ...].

    Errors: BAD_PARAM for a wrong descriptor (c05) or input (c06); NOT_SUPPORTED for nbDims outside 3..8 or from 2
    Giga-elements (c07). Source: 3.2.94.
    """
    _rank(nbDims, "cudnnSetTensorNdDescriptorEx/c07")
    dims = entries("dimA", dimA, nbDims, "cudnnSetTensorNdDescriptorEx/c03")
    expect(
        min(dims) > 0, BAD_PARAM, "cudnnSetTensorNdDescriptorEx/c06", f"dimA is {dims}: every size must be at least 1"
    )
    vectors_fit_format(format, dataType, dims[1])
    tensorDesc.spec = packed_tensor(dataType, dims, format, "cudnnSetTensorNdDescriptorEx/c07", f"dimA is {dims}")


class Tensor4dParameters(NamedTuple):
    dataType: cudnnDataType_t
    n: int
    c: int
    h: int
    w: int
    nStride: int
    cStride: int
    hStride: int
    wStride: int


@documented(fresh=["tensorDesc"])
def cudnnGetTensor4dDescriptor(tensorDesc: TensorDescriptor) -> Tensor4dParameters:
    """Return (dataType, n, c, h, w, nStride, cStride, hStride, wStride); a tensor of another rank returns its first
    four dimensions.

    A fresh descriptor returns zeros.
    Source: 3.2.59.
    """
    spec = tensorDesc.spec
    if spec is None:
        return Tensor4dParameters(FLOAT, 0, 0, 0, 0, 0, 0, 0, 0)
    dims, strides = (*spec.dims, 0)[:4], (*spec.strides, 0)[:4]
    return Tensor4dParameters(spec.data_type, *dims, *strides)


class TensorNdParameters(NamedTuple):
    dataType: cudnnDataType_t
    nbDims: int
    dimA: tuple[int, ...]
    strideA: tuple[int, ...]


@documented(invalid={"tensorDesc": "c10"}, fresh=["tensorDesc"])
def cudnnGetTensorNdDescriptor(tensorDesc: TensorDescriptor, nbDimsRequested: int) -> TensorNdParameters:
    """Return (dataType, nbDims, dimA, strideA); the arrays hold min(nbDimsRequested, nbDims) entries.

    A fresh descriptor returns rank 0. Errors: BAD_PARAM for NULL (c10). Source: 3.2.60.
    """
    spec = tensorDesc.spec
    if spec is None:
        return TensorNdParameters(FLOAT, 0, (), ())
    filled = max(0, min(nbDimsRequested, spec.rank))
    return TensorNdParameters(spec.data_type, spec.rank, spec.dims[:filled], spec.strides[:filled])


@documented(fresh=["tensorDesc"])
def cudnnGetTensorSizeInBytes(tensorDesc: TensorDescriptor) -> int:
    """Return the bytes of memory that the tensor occupies, gaps included; 0 for a fresh descriptor. Source: 3.2.61."""
    return 0 if tensorDesc.spec is None else tensorDesc.spec.nbytes


@documented()
def cudnnDestroyTensorDescriptor(tensorDesc: TensorDescriptor | None) -> None:
    """Destroy the descriptor; NULL does nothing. Source: 3.2.31."""
    if tensorDesc is not None:
        tensorDesc.destroy()


def packed_tensor(data_type: Any, dims: Any, tensor_format: Any, size_clause: Any, shown: Any) -> Any:
    """Return a packed tensor; raise NOT_SUPPORTED if it has 2 Giga-elements or more."""
    spec = TensorSpec.packed(data_type, dims, tensor_format)
    expect(spec.elements < TWO_GIGA, NOT_SUPPORTED, size_clause,
           f"{shown}: {spec.elements} elements of {data_type.name}, fewer than {TWO_GIGA} are supported")  # fmt: skip
    return spec


def set_strided(
    descriptor: Any, data_type: Any, dims: Any, strides: Any, shown: Any, strides_clause: Any, size_clause: Any
) -> None:
    """Set a tensor with explicit strides for all setters; after an error the descriptor is unchanged."""
    expect(data_type not in VECTORS, BAD_PARAM, _vector_clause(data_type),
           f"dataType {data_type.name} is supported with CUDNN_TENSOR_NCHW_VECT_C only, which explicit strides cannot name")  # fmt: skip
    usable = all(stride > 0 or (stride == 0 and extent == 1) for stride, extent in zip(strides, dims, strict=True))
    expect(usable, BAD_PARAM, strides_clause, f"{shown}: strides must be at least 1 (0 where the size is 1)")
    spec = TensorSpec(data_type, dims, strides)
    expect(spec.span < TWO_GIGA, NOT_SUPPORTED, size_clause,
           f"sizes {dims} with {shown} span {spec.span} elements, fewer than {TWO_GIGA} are supported")  # fmt: skip
    descriptor.spec = spec


def vectors_fit_format(tensor_format: Any, data_type: Any, channels: Any) -> None:
    """Raise an error unless vector types and CUDNN_TENSOR_NCHW_VECT_C occur together, with whole vectors of channels."""
    if tensor_format != NCHW_VECT_C:
        expect(data_type not in VECTORS, BAD_PARAM, _vector_clause(data_type),
               f"dataType {data_type.name} is supported with CUDNN_TENSOR_NCHW_VECT_C only, format is {tensor_format.name}")  # fmt: skip
        return
    names = ", ".join(kind.name for kind in VECTORS)
    expect(data_type in VECTORS, BAD_PARAM, "cudnnTensorFormat_t/c06",
           f"format CUDNN_TENSOR_NCHW_VECT_C takes {names}, dataType is {data_type.name}")  # fmt: skip
    length = vector_length(data_type)
    clause = "cudnnTensorFormat_t/c07" if length == 32 else "cudnnTensorFormat_t/c08"
    expect(
        channels % length == 0,
        BAD_PARAM,
        clause,
        f"c is {channels}, not a multiple of {length} as {data_type.name} needs",
    )


def entries(name: Any, values: Any, count: Any, clause: Any) -> Any:
    """Return the first ``count`` entries of an array argument; raise BAD_PARAM if there are fewer."""
    expect(len(values) >= count, BAD_PARAM, clause, f"{name} has {len(values)} entries, {count} are needed")
    return tuple(values[:count])


def _rank(nb_dims: Any, clause: Any) -> None:
    expect(MIN_RANK <= nb_dims <= CUDNN_DIM_MAX, NOT_SUPPORTED, clause,
           f"nbDims is {nb_dims}, {MIN_RANK} to {CUDNN_DIM_MAX} are supported")  # fmt: skip


def _vector_clause(data_type: Any) -> Any:
    return {"CUDNN_DATA_INT8x4": "cudnnDataType_t/c02", "CUDNN_DATA_INT8x32": "cudnnDataType_t/c03"}.get(
        data_type.name, "cudnnDataType_t/c05"
    )


def _shown(values: Any) -> Any:
    return ", ".join(f"{name} {value}" for name, value in values.items())
