"""Implement sequence data descriptors (7.2.7, 7.2.12, 7.2.34, 7.2.53)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..descriptors import SeqDataDescriptor
from ..enumerations import CUDNN_SEQDATA_DIM_COUNT, cudnnDataType_t, cudnnSeqDataAxis_t
from ..functions import documented
from ..operations import SeqDataSpec
from ..operations.specs import DOUBLE, FLOAT, HALF
from ..status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .tensor_descriptors import entries

TIME, BATCH, BEAM, VECT = cudnnSeqDataAxis_t
SET = "cudnnSetSeqDataDescriptor"


@documented()
def cudnnCreateSeqDataDescriptor() -> SeqDataDescriptor:
    """Return a new sequence data descriptor, to be filled by cudnnSetSeqDataDescriptor. Source: 7.2.7."""
    return SeqDataDescriptor()


@documented()
def cudnnDestroySeqDataDescriptor(seqDataDesc: SeqDataDescriptor | None) -> None:
    """Destroy the descriptor; None does nothing; any later use is BAD_PARAM. Source: 7.2.12."""
    if seqDataDesc is not None:
        seqDataDesc.destroy()


@documented(invalid={"seqDataDesc": "c23", "dataType": "c24", "axes": "c16", "seqLengthArray": "c27"})
def cudnnSetSeqDataDescriptor(
    seqDataDesc: SeqDataDescriptor,
    dataType: cudnnDataType_t,
    nbDims: int,
    dimA: Sequence[int],
    axes: cudnnSeqDataAxis_t,
    seqLengthArraySize: int,
    seqLengthArray: Sequence[int],
    paddingFill: Any,
) -> None:
    """Describe packed sequences of vectors.

    dimA: sizes indexed by cudnnSeqDataAxis_t. axes: the axes from the outermost to the innermost, which is
    CUDNN_SEQDATA_VECT_DIM.
    seqLengthArray: time-steps of each sequence, entry batch * beams + beam, copied. dataType: HALF, FLOAT or DOUBLE.
    Errors: BAD_PARAM for nbDims below 1 (c25), sizes below 1, axes that are not in such an order (c16, c17), another number of
    lengths (c26), lengths outside 0 to the size of TIME (c27); NOT_SUPPORTED for nbDims other than 4 (c28), other types
    (c20), a paddingFill (c29). Source: 7.2.53.
    """
    expect(nbDims > 0, BAD_PARAM, f"{SET}/c25", f"nbDims is {nbDims}, it must be {CUDNN_SEQDATA_DIM_COUNT}")
    expect(nbDims == CUDNN_SEQDATA_DIM_COUNT, NOT_SUPPORTED, f"{SET}/c28",
           f"nbDims is {nbDims}, only {CUDNN_SEQDATA_DIM_COUNT} is supported")  # fmt: skip
    dims, order = entries("dimA", dimA, nbDims, f"{SET}/c04"), entries("axes", axes, nbDims, f"{SET}/c04")
    expect(min(dims) > 0, BAD_PARAM, INCORRECT_PARAMETER, f"dimA {dims}: every size must be at least 1")
    names = [axis.name for axis in order]
    expect(
        sorted(order) == sorted(cudnnSeqDataAxis_t), BAD_PARAM, f"{SET}/c16", f"axes {names} do not list each axis once"
    )
    expect(order[-1] == VECT, BAD_PARAM, f"{SET}/c17", f"axes {names}: the innermost must be {VECT.name}")
    sequences = dims[BATCH] * dims[BEAM]
    expect(seqLengthArraySize == sequences, BAD_PARAM, f"{SET}/c26",
           f"seqLengthArraySize is {seqLengthArraySize}, {dims[BATCH]} batches of {dims[BEAM]} beams are {sequences}")  # fmt: skip
    lengths = entries("seqLengthArray", seqLengthArray, sequences, f"{SET}/c11")
    wrong = next((length for length in lengths if not 0 <= length <= dims[TIME]), None)
    expect(
        wrong is None, BAD_PARAM, f"{SET}/c27", f"seqLengthArray holds {wrong}, outside 0 to dimA[TIME] {dims[TIME]}"
    )
    expect(dataType in (HALF, FLOAT, DOUBLE), NOT_SUPPORTED, f"{SET}/c20",
           f"dataType is {dataType.name}, HALF, FLOAT and DOUBLE are supported")  # fmt: skip
    expect(paddingFill is None, NOT_SUPPORTED, f"{SET}/c29", "paddingFill is given, only NULL is supported")
    seqDataDesc.spec = SeqDataSpec(dataType, dims, order, lengths)


class SeqDataParameters(NamedTuple):
    dataType: cudnnDataType_t
    nbDims: int
    dimA: tuple[int, ...]
    axes: tuple[cudnnSeqDataAxis_t, ...]
    seqLengthArraySize: int
    seqLengthArray: tuple[int, ...]
    paddingFill: None


@documented(invalid={"*": "c20"}, fresh=["seqDataDesc"])
def cudnnGetSeqDataDescriptor(
    seqDataDesc: SeqDataDescriptor, nbDimsRequested: int, seqLengthSizeRequested: int
) -> SeqDataParameters:
    """Return (dataType, nbDims, dimA, axes, seqLengthArraySize, seqLengthArray, paddingFill); arrays have the requested
    number of entries.

    A fresh descriptor returns zeros, without lengths. paddingFill is None, because no fill is supported.
    Errors: BAD_PARAM for NULL and a negative nbDimsRequested (c20). Source: 7.2.34.
    """
    expect(nbDimsRequested >= 0, BAD_PARAM, "cudnnGetSeqDataDescriptor/c20", f"nbDimsRequested is {nbDimsRequested}")
    none = (0,) * CUDNN_SEQDATA_DIM_COUNT
    spec = seqDataDesc.spec or SeqDataSpec(FLOAT, none, (TIME,) * CUDNN_SEQDATA_DIM_COUNT, ())
    return SeqDataParameters(
        spec.data_type, len(spec.dims), spec.dims[:nbDimsRequested], spec.axes[:nbDimsRequested],
        len(spec.lengths), spec.lengths[:seqLengthSizeRequested], None,
    )  # fmt: skip
