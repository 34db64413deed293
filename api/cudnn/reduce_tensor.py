"""Implement reductions and their descriptor (3.2.14, 3.2.29, 3.2.55 to 3.2.57, 3.2.71, 3.2.87)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..descriptors import ReduceTensorDescriptor
from ..enumerations import (
    cudnnDataType_t,
    cudnnIndicesType_t,
    cudnnNanPropagation_t,
    cudnnReduceTensorIndices_t,
    cudnnReduceTensorOp_t,
)
from ..functions import computing, documented
from ..operations import ReduceTensor, ReduceTensorSpec, TensorSpec
from ..operations.reduce_tensor import (
    FLATTENED,
    INDEX_BYTES,
    INDEXED,
    MIN_WORKSPACE_BYTES,
    reduced_dimensions,
    required_indices,
)
from ..operations.specs import DOUBLE, FLOAT, HALF, INT8
from ..relations import scaling, writable_layout
from ..status import BAD_PARAM, INVALID_VALUE, NOT_SUPPORTED, CudnnError, expect

if TYPE_CHECKING:
    from ..descriptors import TensorDescriptor
    from ..handle import Handle

COMPUTE_TYPES = (FLOAT, DOUBLE, HALF)  # The setter accepts these (docs/errata.md, D121); no call computes in HALF.
SCALAR_TYPES = (FLOAT, DOUBLE, HALF, INT8)  # The document names these types (docs/errata.md, D096).


@documented(invalid={"*": "c03"})
def cudnnCreateReduceTensorDescriptor() -> ReduceTensorDescriptor:
    """Return a new descriptor of a reduction, to be filled by cudnnSetReduceTensorDescriptor.

    Source: 3.2.14, cudnnCreateReduceTensorDescriptor/c01.
    """
    return ReduceTensorDescriptor()


@documented(
    invalid={
        "reduceTensorDesc": "c08",
        "reduceTensorOp": "c09",
        "reduceTensorCompType": "c10",
        "reduceTensorNanOpt": "c11",
        "reduceTensorIndices": "c12",
        "reduceTensorIndicesType": "c13",
    }
)
def cudnnSetReduceTensorDescriptor(
    reduceTensorDesc: ReduceTensorDescriptor,
    reduceTensorOp: cudnnReduceTensorOp_t,
    reduceTensorCompType: cudnnDataType_t,
    reduceTensorNanOpt: cudnnNanPropagation_t,
    reduceTensorIndices: cudnnReduceTensorIndices_t,
    reduceTensorIndicesType: cudnnIndicesType_t,
) -> None:
    """Set the operation, the compute type (FLOAT, DOUBLE, HALF), the NaN propagation and the indices.

    cudnnReduceTensor decides which of these it supports for which tensors.
    Errors: BAD_PARAM for NULL (c08), an unknown operation (c09), a type that nothing is computed in (c10), unknown NaN
    propagation (c11), indices (c12) or type of indices (c13). Source: 3.2.87.
    """
    names = ", ".join(kind.name for kind in COMPUTE_TYPES)
    expect(reduceTensorCompType in COMPUTE_TYPES, BAD_PARAM, "cudnnSetReduceTensorDescriptor/c10",
           f"reduceTensorCompType is {reduceTensorCompType.name}, {names} are supported")  # fmt: skip
    reduceTensorDesc.spec = ReduceTensorSpec(
        reduceTensorOp, reduceTensorCompType, reduceTensorNanOpt, reduceTensorIndices, reduceTensorIndicesType
    )


class ReduceTensorParameters(NamedTuple):
    reduceTensorOp: cudnnReduceTensorOp_t
    reduceTensorCompType: cudnnDataType_t
    reduceTensorNanOpt: cudnnNanPropagation_t
    reduceTensorIndices: cudnnReduceTensorIndices_t
    reduceTensorIndicesType: cudnnIndicesType_t


@documented(invalid={"reduceTensorDesc": "c08"})
def cudnnGetReduceTensorDescriptor(reduceTensorDesc: ReduceTensorDescriptor) -> ReduceTensorParameters:
    """Return (reduceTensorOp, reduceTensorCompType, reduceTensorNanOpt, reduceTensorIndices, reduceTensorIndicesType).

    Source: 3.2.55, c01 to c05; NULL and uninitialised are refused (c08).
    """
    spec = reduceTensorDesc.spec
    return ReduceTensorParameters(spec.op, spec.compute_type, spec.nan, spec.indices, spec.indices_type)


@documented()
def cudnnDestroyReduceTensorDescriptor(tensorDesc: ReduceTensorDescriptor | None) -> None:
    """Destroy the descriptor; NULL does nothing. Source: 3.2.29."""
    if tensorDesc is not None:
        tensorDesc.destroy()


@documented()
def cudnnGetReductionIndicesSize(
    handle: Handle, reduceDesc: ReduceTensorDescriptor, aDesc: TensorDescriptor, cDesc: TensorDescriptor
) -> int:
    """Return the bytes that ``indices`` of cudnnReduceTensor needs: one index of the descriptor's width per element of
    C.

    The result is 0 if the descriptor requests no indices. The shapes are not compared here; cudnnReduceTensor compares
    them.
    Source: 3.2.56, cudnnGetReductionIndicesSize/c01.
    """
    return required_indices(reduceDesc.spec, cDesc.spec)


@documented()
def cudnnGetReductionWorkspaceSize(
    handle: Handle, reduceDesc: ReduceTensorDescriptor, aDesc: TensorDescriptor, cDesc: TensorDescriptor
) -> int:
    """Return the bytes that ``workspace`` of cudnnReduceTensor needs on the handle's backend and device, never 0.

    For tensors that cudnnReduceTensor would refuse, the result is the minimum size.
    Source: 3.2.57, cudnnGetReductionWorkspaceSize/c01.
    """
    reduction, A, C = reduceDesc.spec, aDesc.spec, cDesc.spec
    try:
        _conditions(reduction, A, C)
    except CudnnError:
        return MIN_WORKSPACE_BYTES
    return _workspace_bytes(handle, ReduceTensor(reduction, required_indices(reduction, C), 0, 1.0, 0.0, A, C))


def _workspace_bytes(handle: Any, operation: ReduceTensor) -> int:
    """Return the bytes of workspace that the handle's backend needs."""
    return max(MIN_WORKSPACE_BYTES, handle.backend.workspace_bytes(operation))


@computing(
    failed="c32",
    small={"indices": ("c30", INVALID_VALUE), "workspace": ("c31", INVALID_VALUE)},
)
def cudnnReduceTensor(
    handle: Handle, reduceTensorDesc: ReduceTensorSpec, indices: Any, indicesSizeInBytes: int, workspace: Any, workspaceSizeInBytes: int, alpha: float, aDesc: TensorSpec, A: Any, beta: float,
    cDesc: TensorSpec, C: Any,
) -> Any:  # fmt: skip
    """Compute C = alpha * reduce(A) + beta * C over the dimensions where C has extent 1; beta == 0 does not read C.

    A, C: any strides, 3 to 8 dimensions, each of C's equal to A's or 1. Types: DOUBLE for both, computed in DOUBLE, or
    FLOAT, HALF and INT8 (vectorised too) computed in FLOAT, where only FLOAT mixes with the others.
    indices: for MIN and MAX, if the descriptor requests them, one unsigned integer per element of C in row-major order.
    It is the row-major position of the first extremum inside the reduced dimensions. Otherwise indices is not touched
    and may be NULL.
    Errors: NOT_SUPPORTED for other types (c25), the type of the computation (c24), indices that their width cannot hold
    (c08); BAD_PARAM where nothing is reduced (c26), for dimensions that do not fit (c27), indices of another operation
    (c28), DOUBLE beside another type (c29), HALF beside INT8 (c13); INVALID_VALUE for indices (c30) or workspace (c31)
    that are too small. Source: 3.2.71.
    """
    _conditions(reduceTensorDesc, aDesc, cDesc)
    indices_bytes = required_indices(reduceTensorDesc, cDesc)
    alpha, beta = scaling(alpha, cDesc), scaling(beta, cDesc)
    operation = ReduceTensor(reduceTensorDesc, indices_bytes, 0, alpha, beta, aDesc, cDesc)
    workspace_bytes = _workspace_bytes(handle, operation)
    expect(indicesSizeInBytes >= indices_bytes, INVALID_VALUE, "cudnnReduceTensor/c30",
           f"indicesSizeInBytes is {indicesSizeInBytes}, {indices_bytes} are needed for cDesc {cDesc.dims}")  # fmt: skip
    expect(workspaceSizeInBytes >= workspace_bytes, INVALID_VALUE, "cudnnReduceTensor/c31",
           f"workspaceSizeInBytes is {workspaceSizeInBytes}, {workspace_bytes} are needed to reduce {aDesc.dims} to {cDesc.dims}")  # fmt: skip
    return replace(operation, workspace_bytes=workspace_bytes)


def _conditions(reduction: ReduceTensorSpec, A: TensorSpec, C: TensorSpec) -> None:
    """Raise CudnnError unless cudnnReduceTensor reduces A to C."""
    _types(reduction, A, C)
    _dimensions(A, C)
    _indices(reduction, A, C)
    writable_layout(cDesc=C)


def _types(reduction: ReduceTensorSpec, A: TensorSpec, C: TensorSpec) -> None:
    kinds = {A.scalar_type, C.scalar_type}
    shown = f"aDesc has data type {A.data_type.name}, cDesc {C.data_type.name}"
    names = ", ".join(kind.name for kind in SCALAR_TYPES)
    expect(kinds <= set(SCALAR_TYPES), NOT_SUPPORTED, "cudnnReduceTensor/c25", f"{shown}, {names} are supported")
    expect(DOUBLE not in kinds or len(kinds) == 1, BAD_PARAM, "cudnnReduceTensor/c29", f"{shown}: both must be double")
    expect(kinds != {HALF, INT8}, BAD_PARAM, "cudnnReduceTensor/c13", f"{shown}: each mixes with FLOAT only")
    needed = DOUBLE if DOUBLE in kinds else FLOAT
    expect(reduction.compute_type == needed, NOT_SUPPORTED, "cudnnReduceTensor/c24",
           f"reduceTensorCompType is {reduction.compute_type.name}, {shown}: it must be {needed.name}")  # fmt: skip


def _dimensions(A: TensorSpec, C: TensorSpec) -> None:
    fits = A.rank == C.rank and all(c in (a, 1) for a, c in zip(A.dims, C.dims, strict=True))
    expect(fits, BAD_PARAM, "cudnnReduceTensor/c27",
           f"cDesc has dimensions {C.dims}, each must be 1 or that of aDesc {A.dims}")  # fmt: skip
    expect(A.dims != C.dims, BAD_PARAM, "cudnnReduceTensor/c26",
           f"aDesc and cDesc both have dimensions {A.dims}: nothing is reduced")  # fmt: skip


def _indices(reduction: ReduceTensorSpec, A: TensorSpec, C: TensorSpec) -> None:
    if reduction.indices != FLATTENED:
        return
    expect(reduction.op in INDEXED, BAD_PARAM, "cudnnReduceTensor/c28",
           f"reduceTensorIndices is {reduction.indices.name}, reduceTensorOp {reduction.op.name}: only MIN and MAX have indices")  # fmt: skip
    length = 1
    for dimension in reduced_dimensions(A, C):
        length *= A.dims[dimension]
    most = 256 ** INDEX_BYTES[reduction.indices_type]
    expect(length <= most, NOT_SUPPORTED, "cudnnReduceTensor/c08",
           f"reduceTensorIndicesType is {reduction.indices_type.name}, which cannot hold indices up to {length - 1}: {A.dims} to {C.dims}")  # fmt: skip
