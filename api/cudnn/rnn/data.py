"""Implement RNN data descriptors (7.2.5, 7.2.10, 7.2.19, 7.2.47)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...descriptors import RNNDataDescriptor
from ...enumerations import cudnnDataType_t, cudnnRNNDataLayout_t
from ...functions import documented
from ...operations.rnn import RNNDataSpec
from ...operations.rnn.data import PACKED
from ...operations.specs import DOUBLE, FLOAT, HALF
from ...status import BAD_PARAM, NOT_SUPPORTED, expect

KINDS: dict[cudnnDataType_t, type[np.floating]] = {HALF: np.float16, FLOAT: np.float32, DOUBLE: np.float64}


@documented()
def cudnnCreateRNNDataDescriptor() -> RNNDataDescriptor:
    """Return a new, uninitialised RNN data descriptor. Source: 7.2.5."""
    return RNNDataDescriptor()


@documented()
def cudnnDestroyRNNDataDescriptor(RNNDataDesc: RNNDataDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 7.2.10."""
    RNNDataDesc.destroy()


@documented(invalid={"RNNDataDesc": "c15", "layout": "c18"})
def cudnnSetRNNDataDescriptor(
    RNNDataDesc: RNNDataDescriptor,
    dataType: cudnnDataType_t,
    layout: cudnnRNNDataLayout_t,
    maxSeqLength: int,
    batchSize: int,
    vectorSize: int,
    seqLengthArray: Sequence[int],
    paddingFill: Any,
) -> None:
    """Describe a batch of sequences of vectors.

    layout: (time, sequence, element) or (sequence, time, element), both padded to maxSeqLength vectors per sequence.
    The packed layout holds the vectors of step 0 of all sequences, then of step 1, without padding.
    seqLengthArray: batchSize lengths, 0 to maxSeqLength. In the packed layout, the greatest equals maxSeqLength.
    paddingFill: a number, stored in dataType, that fills the padding of an output; NULL leaves padding undefined.
    Errors: NOT_SUPPORTED for types other than HALF, FLOAT, DOUBLE (c14); BAD_PARAM for NULL (c15), sizes below 1 (c16),
    lengths outside their range (c17) or another number of them (c08), packed ones all below maxSeqLength (c05).
    Source: 7.2.47.
    """
    name = "cudnnSetRNNDataDescriptor"
    expect(dataType in KINDS, NOT_SUPPORTED, f"{name}/c14", f"dataType is {dataType.name}, not HALF, FLOAT or DOUBLE")
    for parameter, size in {"maxSeqLength": maxSeqLength, "batchSize": batchSize, "vectorSize": vectorSize}.items():
        expect(size > 0, BAD_PARAM, f"{name}/c16", f"{parameter} is {size}, not positive")
    expect(len(seqLengthArray) == batchSize, BAD_PARAM, f"{name}/c08",
           f"seqLengthArray has {len(seqLengthArray)} entries, batchSize is {batchSize}")  # fmt: skip
    lowest, greatest = min(seqLengthArray), max(seqLengthArray)
    expect(lowest >= 0 and greatest <= maxSeqLength, BAD_PARAM, f"{name}/c17",
           f"seqLengthArray has {lowest} to {greatest}, the range is 0 to maxSeqLength {maxSeqLength}")  # fmt: skip
    expect(layout != PACKED or greatest == maxSeqLength, BAD_PARAM, f"{name}/c05",
           f"maxSeqLength is {maxSeqLength}, the greatest of the packed seqLengthArray is {greatest}")  # fmt: skip
    if paddingFill is not None:
        with np.errstate(over="ignore"):
            paddingFill = float(KINDS[dataType](paddingFill))
    RNNDataDesc.spec = RNNDataSpec(dataType, layout, maxSeqLength, batchSize, vectorSize, seqLengthArray, paddingFill)


class RNNDataParameters(NamedTuple):
    dataType: cudnnDataType_t
    layout: cudnnRNNDataLayout_t
    maxSeqLength: int
    batchSize: int
    vectorSize: int
    seqLengthArray: tuple[int, ...]
    paddingFill: np.floating


@documented(invalid={"RNNDataDesc": "c10"})
def cudnnGetRNNDataDescriptor(RNNDataDesc: RNNDataDescriptor, arrayLengthRequested: int) -> RNNDataParameters:
    """Return what was set, with at most arrayLengthRequested entries of seqLengthArray.

    paddingFill is a number of the data type, or 0 if NULL was given.
    Errors: BAD_PARAM for NULL (c10), arrayLengthRequested below 0 (c12). Source: 7.2.19.
    """
    expect(arrayLengthRequested >= 0, BAD_PARAM, "cudnnGetRNNDataDescriptor/c12",
           f"arrayLengthRequested is {arrayLengthRequested}, negative")  # fmt: skip
    spec = RNNDataDesc.spec
    return RNNDataParameters(
        spec.data_type, spec.layout, spec.max_length, spec.batch, spec.vector, spec.lengths[:arrayLengthRequested],
        KINDS[spec.data_type](spec.padding_fill or 0.0),
    )  # fmt: skip
