"""Implement transform descriptors and calls (3.2.17, 3.2.32, 3.2.62, 3.2.64, 3.2.95, 3.2.99 to 3.2.101)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ..descriptors import TensorTransformDescriptor
from ..enumerations import CUDNN_DIM_MAX, cudnnFoldingDirection_t, cudnnTensorFormat_t
from ..functions import SameMemory, computing, documented
from ..operations import TransformFilter, TransformSpec, TransformTensor, TransformTensorEx
from ..operations.specs import BFLOAT16, DOUBLE, FLOAT, HALF, INT8, NCHW, NHWC, memory_order
from ..operations.transform import destination_dims, folding_factors, folds, pads, unfolded_blocks, unfolds
from ..relations import same_dims, scaling, writable_layout
from ..status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .tensor_descriptors import TWO_GIGA, entries, packed_tensor, vectors_fit_format

if TYPE_CHECKING:
    from ..descriptors import TensorDescriptor
    from ..handle import Handle
    from ..operations.specs import FilterSpec, TensorSpec

FORMATS = (NCHW, NHWC)
MIN_RANK = 3  # dimensions
MAX_RANK = 6  # dimensions of a tensor that is padded or folded (docs/errata.md, D142)

# NVIDIA's library converts these types into each other, in addition to a type into itself (docs/errata.md, D141).
CONVERTED = (FLOAT, DOUBLE, HALF, BFLOAT16, INT8)
NOT_CONVERTED = ((HALF, BFLOAT16), (BFLOAT16, HALF))


@documented(invalid={"*": "c06"})
def cudnnCreateTensorTransformDescriptor() -> TensorTransformDescriptor:
    """Return a new transform descriptor with all data zero. Source: 3.2.17."""
    return TensorTransformDescriptor()


@documented(invalid={"transformDesc": "c13", "direction": "c14", "destFormat": ("c17", NOT_SUPPORTED)})
def cudnnSetTensorTransformDescriptor(
    transformDesc: TensorTransformDescriptor,
    nbDims: int,
    destFormat: cudnnTensorFormat_t,
    padBeforeA: Sequence[int] | None,
    padAfterA: Sequence[int] | None,
    foldA: Sequence[int] | None,
    direction: cudnnFoldingDirection_t,
) -> None:
    """Describe a transform of tensors with nbDims dimensions [N, C, spatial ...].

    nbDims: 3 to CUDNN_DIM_MAX (8). destFormat: CUDNN_TENSOR_NCHW or CUDNN_TENSOR_NHWC. padBeforeA, padAfterA: nbDims
    entries; None means no padding, negative values crop. foldA: nbDims - 2 factors; None means no folding, and 0 counts
    as 1. direction has no effect if all factors are at most 1.
    Errors: BAD_PARAM for NULL (c13), direction (c14), nbDims below 3 (c15), too few entries (c04, c06, c08);
    NOT_SUPPORTED for nbDims above 8 (c16) or another format (c17). Source: 3.2.95.
    """
    expect(nbDims >= MIN_RANK, BAD_PARAM, "cudnnSetTensorTransformDescriptor/c15",
           f"nbDims is {nbDims}, it must be greater than {MIN_RANK - 1}")  # fmt: skip
    expect(nbDims <= CUDNN_DIM_MAX, NOT_SUPPORTED, "cudnnSetTensorTransformDescriptor/c16",
           f"nbDims is {nbDims}, at most {CUDNN_DIM_MAX} are supported")  # fmt: skip
    expect(destFormat in FORMATS, NOT_SUPPORTED, "cudnnSetTensorTransformDescriptor/c17",
           f"destFormat is {destFormat.name}, CUDNN_TENSOR_NCHW and CUDNN_TENSOR_NHWC are supported")  # fmt: skip
    before = _entries("padBeforeA", padBeforeA, nbDims, "cudnnSetTensorTransformDescriptor/c04")
    after = _entries("padAfterA", padAfterA, nbDims, "cudnnSetTensorTransformDescriptor/c06")
    fold = _entries("foldA", foldA, nbDims - 2, "cudnnSetTensorTransformDescriptor/c08")
    transformDesc.spec = TransformSpec(destFormat, before, after, fold, direction)


class TransformParameters(NamedTuple):
    destFormat: cudnnTensorFormat_t
    padBeforeA: tuple[int, ...]
    padAfterA: tuple[int, ...]
    foldA: tuple[int, ...]
    direction: cudnnFoldingDirection_t


_FRESH = TransformSpec(NCHW, (), (), (), cudnnFoldingDirection_t.CUDNN_TRANSFORM_FOLD)


@documented(invalid={"transformDesc": "c09"}, fresh=["transformDesc"])
def cudnnGetTensorTransformDescriptor(
    transformDesc: TensorTransformDescriptor, nbDimsRequested: int
) -> TransformParameters:
    """Return (destFormat, padBeforeA, padAfterA, foldA, direction): nbDimsRequested paddings, nbDimsRequested - 2 factors.

    Entries beyond the descriptor's own dimensions are 0; a fresh descriptor returns zeros.
    Errors: BAD_PARAM for NULL (c09), nbDimsRequested below 3 (c10) or above CUDNN_DIM_MAX (c11). Source: 3.2.62.
    """
    expect(nbDimsRequested >= MIN_RANK, BAD_PARAM, "cudnnGetTensorTransformDescriptor/c10",
           f"nbDimsRequested is {nbDimsRequested}, it must be at least {MIN_RANK}")  # fmt: skip
    expect(nbDimsRequested <= CUDNN_DIM_MAX, BAD_PARAM, "cudnnGetTensorTransformDescriptor/c11",
           f"nbDimsRequested is {nbDimsRequested}, it must be at most {CUDNN_DIM_MAX}")  # fmt: skip
    spec = transformDesc.spec or _FRESH

    def filled(values: tuple[int, ...], count: int) -> tuple[int, ...]:
        return (*values, *(0,) * count)[:count]

    before, after = filled(spec.pad_before, nbDimsRequested), filled(spec.pad_after, nbDimsRequested)
    return TransformParameters(spec.format, before, after, filled(spec.fold, nbDimsRequested - 2), spec.direction)


@documented()
def cudnnDestroyTensorTransformDescriptor(transformDesc: TensorTransformDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 3.2.32."""
    transformDesc.destroy()


@documented(invalid={"srcDesc": "c06", "destDesc": "c07"})
def cudnnInitTransformDest(
    transformDesc: TensorTransformDescriptor, srcDesc: TensorDescriptor, destDesc: TensorDescriptor
) -> int:
    """Describe in destDesc the result of applying transformDesc to srcDesc, packed in destFormat; return its size in
    bytes.

    Folding pads first and divides; unfolding multiplies and pads last (docs/errata.md, D077). The data type is
    unchanged.
    Errors: BAD_PARAM for NULL (c06, c07), a rank other than transformDesc's (c08), sizes that cropping leaves below 1;
    NOT_SUPPORTED for other ranks than 4 (c09) or from 2 Giga-elements. Source: 3.2.64.
    """
    transform, source = transformDesc.spec, srcDesc.spec
    rank = len(transform.pad_before)
    expect(source.rank == rank, BAD_PARAM, "cudnnInitTransformDest/c08",
           f"srcDesc has {source.rank} dimensions {source.dims}, transformDesc was set for {rank}")  # fmt: skip
    expect(source.rank == 4, NOT_SUPPORTED, "cudnnInitTransformDest/c09",
           f"srcDesc has {source.rank} dimensions {source.dims}, only 4 are supported")  # fmt: skip
    dims = destination_dims(transform, source.dims)
    expect(
        min(dims) > 0,
        BAD_PARAM,
        INCORRECT_PARAMETER,
        f"transformDesc {transform} makes {dims} of srcDesc {source.dims}",
    )
    vectors_fit_format(transform.format, source.data_type, dims[1])
    made = f"transformDesc {transform} makes {dims} of srcDesc {source.dims}"
    clause = "cudnnSetTensorNdDescriptorEx/c07"
    destDesc.spec = packed_tensor(source.data_type, dims, transform.format, clause, made)
    return destDesc.spec.nbytes


@computing(memory=[SameMemory("x", "y", "c03")], failed="c12")
def cudnnTransformTensor(
    handle: Handle, alpha: float, xDesc: TensorSpec, x: Any, beta: float, yDesc: TensorSpec, y: Any
) -> TransformTensor:
    """Compute y = alpha * x + beta * y; beta == 0 does not read y. With (1, 0) the data is copied bit by bit.

    x, y: equal dimensions and data types (all of them; CUDNN_TENSOR_NCHW_VECT_C counts as its scalar type), any
    strides, no shared memory.
    Errors: BAD_PARAM for differing dimensions (c10) or types (c11), overlap (c03); NOT_SUPPORTED where the strides of y
    overlap (c09, cudnnSetTensor4dDescriptorEx/c04). Source: 3.2.100.
    """
    same_dims("cudnnTransformTensor/c10", xDesc=xDesc, yDesc=yDesc)
    expect(xDesc.scalar_type == yDesc.scalar_type, BAD_PARAM, "cudnnTransformTensor/c11",
           f"data types differ: xDesc {xDesc.data_type.name}, yDesc {yDesc.data_type.name}",
           is_converted=_is_converted(xDesc.scalar_type, yDesc.scalar_type))  # fmt: skip
    writable_layout(yDesc=yDesc)
    return TransformTensor(scaling(alpha, yDesc), scaling(beta, yDesc), xDesc, yDesc)


@computing(
    invalid={"transDesc": "c13", "srcDesc": "c13", "destDesc": "c13"},
    memory=[SameMemory("srcData", "destData", "c05")],
    failed="c17",
)
def cudnnTransformTensorEx(
    handle: Handle,
    transDesc: Any,
    alpha: float,
    srcDesc: TensorSpec,
    srcData: Any,
    beta: float,
    destDesc: TensorSpec,
    destData: Any,
) -> TransformTensorEx:
    """Compute destData = alpha * T(srcData) + beta * destData; T pads with zeros, folds or unfolds (docs/errata.md,
    D132).

    T folds a spatial dimension of size S by a factor F into S / F. The element at s moves to s // F of channel (s % F)
    * C + c; the offset of the last spatial dimension varies fastest. Zeros fill sizes that are not multiples of F.
    Unfolding is the reverse.
    Spatial padding precedes folding and follows unfolding. Channels are padded last: folding adds (padBefore +
    padAfter) * factors channels, of which padBefore come first.
    srcData, destData: destDesc has the dimensions of cudnnInitTransformDest; up to 6 dimensions if T changes anything.
    Data types are equal, or converted among FLOAT, DOUBLE, HALF, BFLOAT16 and INT8, except between HALF and BFLOAT16.
    No shared memory. destDesc has transDesc's format if T changes anything.
    Errors: BAD_PARAM for NULL or uninitialised descriptors or a transDesc for another rank (c13), differing ranks
    (c14), dimensions (c04), overlap (c05); NOT_SUPPORTED for (alpha, beta) other than (1, 0) with folding or padding
    (c16), for other ranks, types and layouts, and for blocks of unfolding of 2 Giga-elements (c15). Source: 3.2.101.
    """
    _check("cudnnTransformTensorEx", transDesc, alpha, srcDesc, beta, destDesc)
    writable_layout(destDesc=destDesc)
    expect(not _changes(transDesc) or _ordered_as(destDesc, transDesc.format), NOT_SUPPORTED, "cudnnTransformTensorEx/c15",
           f"destDesc has strides {destDesc.strides}, transDesc asks for {transDesc.format.name}")  # fmt: skip
    alpha, beta = scaling(alpha, srcDesc, destDesc), scaling(beta, srcDesc, destDesc)
    return TransformTensorEx(transDesc, alpha, beta, srcDesc, destDesc)


@computing(
    invalid={"transDesc": "c13", "srcDesc": "c13", "destDesc": "c13"},
    memory=[SameMemory("srcData", "destData", "c05")],
    failed="c17",
)
def cudnnTransformFilter(
    handle: Handle,
    transDesc: Any,
    alpha: float,
    srcDesc: FilterSpec,
    srcData: Any,
    beta: float,
    destDesc: FilterSpec,
    destData: Any,
) -> TransformFilter:
    """Do the same as cudnnTransformTensorEx, on filters: [K, C, spatial ...] in place of [N, C, spatial ...].

    Errors: BAD_PARAM for NULL or uninitialised descriptors or a transDesc for another rank (c13), differing ranks
    (c14), dimensions that disagree with transDesc (c04), overlap (c05); NOT_SUPPORTED for (alpha, beta) other than (1,
    0) with folding or padding (c16), for other ranks, types and formats and from 2 Giga-elements (c15). Source: 3.2.99.
    """
    _check("cudnnTransformFilter", transDesc, alpha, srcDesc, beta, destDesc)
    expect(not _changes(transDesc) or destDesc.format == transDesc.format, NOT_SUPPORTED, "cudnnTransformFilter/c15",
           f"destDesc has format {destDesc.format.name}, transDesc asks for {transDesc.format.name}")  # fmt: skip
    elements = max(prod(srcDesc.dims), prod(destDesc.dims))
    expect(elements < TWO_GIGA, NOT_SUPPORTED, "cudnnTransformFilter/c15",
           f"srcDesc {srcDesc.dims} or destDesc {destDesc.dims} has {elements} elements, fewer than {TWO_GIGA} are supported")  # fmt: skip
    alpha, beta = scaling(alpha, srcDesc, destDesc), scaling(beta, srcDesc, destDesc)
    return TransformFilter(transDesc, alpha, beta, srcDesc, destDesc)


def _entries(name: Any, values: Any, count: Any, clause: Any) -> Any:
    return (0,) * count if values is None else entries(name, values, count, clause)


def _changes(transform: Any) -> Any:
    """Return whether the transform pads, folds or unfolds; otherwise it copies."""
    return pads(transform) or folds(transform) or unfolds(transform)


def _check(function: Any, transform: Any, alpha: Any, source: Any, beta: Any, destination: Any) -> None:
    """Raise an error unless the arguments meet the requirements that tensor and filter transforms share; their clause
    numbers agree."""
    rank = len(source.dims)
    expect(rank == len(destination.dims), BAD_PARAM, f"{function}/c14",
           f"numbers of dimensions differ: srcDesc {source.dims}, destDesc {destination.dims}")  # fmt: skip
    expect(rank == len(transform.pad_before), BAD_PARAM, f"{function}/c13",
           f"transDesc was set for {len(transform.pad_before)} dimensions, srcDesc has {source.dims}")  # fmt: skip
    dims = destination_dims(transform, source.dims)
    expect(dims == destination.dims, BAD_PARAM, f"{function}/c04",
           f"destDesc has dimensions {destination.dims}, transDesc {transform} makes {dims} of srcDesc {source.dims}")  # fmt: skip
    expect(not _changes(transform) or rank <= MAX_RANK, NOT_SUPPORTED, f"{function}/c15",
           f"srcDesc has {rank} dimensions {source.dims}, padded and folded are up to {MAX_RANK}")  # fmt: skip
    for name, spec in (("srcDesc", source), ("destDesc", destination)):
        expect(spec.format in FORMATS if hasattr(spec, "format") else spec.vector_length == 1, NOT_SUPPORTED, f"{function}/c15",
               f"{name} has data type {spec.data_type.name} in CUDNN_TENSOR_NCHW_VECT_C, NCHW and NHWC are supported")  # fmt: skip
    blocks = unfolded_blocks(transform, dims) if unfolds(transform) else []
    whole = prod(dims[:2]) * prod(len(found) * f for found, f in zip(blocks, folding_factors(transform), strict=False))
    expect(whole < TWO_GIGA, NOT_SUPPORTED, f"{function}/c15",
           f"the blocks of {transform} that reach into destDesc {dims} have {whole} elements, fewer than {TWO_GIGA} are supported")  # fmt: skip
    kinds = (source.data_type, destination.data_type)
    expect(
        kinds[0] == kinds[1] or _is_converted(*kinds),
        NOT_SUPPORTED,
        f"{function}/c15",
        f"srcDesc has type {kinds[0].name}, it is not converted into {kinds[1].name} of destDesc",
    )
    expect(unfolds(transform) or not _changes(transform) or (alpha, beta) == (1, 0), NOT_SUPPORTED, f"{function}/c16",
           f"alpha is {alpha} and beta is {beta}, folding and padding take 1 and 0 only")  # fmt: skip


def _is_converted(source: Any, destination: Any) -> Any:
    """Return whether the call converts one type into another."""
    kinds = (source, destination)
    return all(kind in CONVERTED for kind in kinds) and kinds not in NOT_CONVERTED


def _ordered_as(spec: Any, tensor_format: Any) -> bool:
    """Return whether the strides decrease in the memory order of the format, ignoring dimensions of size 1."""
    strides = [spec.strides[d] for d in memory_order(tensor_format, spec.rank) if spec.dims[d] > 1]
    return strides == sorted(strides, reverse=True)
