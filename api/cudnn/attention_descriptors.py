"""Implement descriptors of multi-head attention (7.2.3, 7.2.8, 7.2.14, 7.2.43)."""

from __future__ import annotations

from typing import NamedTuple

from ..descriptors import AttnDescriptor, DropoutDescriptor
from ..enumerations import (
    CUDNN_ATTN_ENABLE_PROJ_BIASES,
    CUDNN_ATTN_QUERYMAP_ONE_TO_ONE,
    cudnnDataType_t,
    cudnnMathType_t,
)
from ..functions import documented
from ..operations import AttnSpec
from ..operations.specs import FLOAT
from ..status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from ..support.attention import DEFAULT, PRECISIONS

FLAGS = CUDNN_ATTN_QUERYMAP_ONE_TO_ONE | CUDNN_ATTN_ENABLE_PROJ_BIASES
SET = "cudnnSetAttnDescriptor"


@documented()
def cudnnCreateAttnDescriptor() -> AttnDescriptor:
    """Return a new attention descriptor, to be filled by cudnnSetAttnDescriptor. Source: 7.2.3."""
    return AttnDescriptor()


@documented()
def cudnnDestroyAttnDescriptor(attnDesc: AttnDescriptor | None) -> None:
    """Destroy the descriptor; None does nothing; any later use is BAD_PARAM. Source: 7.2.8."""
    if attnDesc is not None:
        attnDesc.destroy()


@documented(invalid={"dataType": "c44", "computePrec": "c44", "mathType": "c44"},
            fresh=["attnDropoutDesc", "postDropoutDesc"])  # fmt: skip
def cudnnSetAttnDescriptor(
    attnDesc: AttnDescriptor, attnMode: int, nHeads: int, smScaler: float, dataType: cudnnDataType_t, computePrec: cudnnDataType_t, mathType: cudnnMathType_t, attnDropoutDesc: DropoutDescriptor | None, postDropoutDesc: DropoutDescriptor | None,
    qSize: int, kSize: int, vSize: int, qProjSize: int, kProjSize: int, vProjSize: int, oProjSize: int,
    qoMaxSeqLength: int, kvMaxSeqLength: int, maxBatchSize: int, maxBeamSize: int,
) -> None:  # fmt: skip
    """Describe multi-head attention; a projected size of 0 disables that projection.

    attnMode: CUDNN_ATTN_QUERYMAP_ flags and CUDNN_ATTN_ENABLE_PROJ_BIASES. Sizes are vector lengths in elements; maxima
    bound the sequence data of the calls. smScaler multiplies the argument of the softmax.
    Errors: BAD_PARAM for unknown flags (c26), sizes and maxima below 1 (c45), negative projected sizes, a smScaler that
    is negative or NaN (c46), queries and keys that differ in length after projection (c43), unknown types (c44);
    NOT_SUPPORTED for types outside table 40 (c47) and for dropouts with a probability above 0 (c39), as in training
    where it is set later. Source: 7.2.43.
    """
    expect(not attnMode & ~FLAGS, BAD_PARAM, f"{SET}/c26", f"attnMode is {attnMode:#x}, the flags are {FLAGS:#x}")
    positive = {
        "nHeads": nHeads, "qSize": qSize, "kSize": kSize, "vSize": vSize, "qoMaxSeqLength": qoMaxSeqLength,
        "kvMaxSeqLength": kvMaxSeqLength, "maxBatchSize": maxBatchSize, "maxBeamSize": maxBeamSize,
    }  # fmt: skip
    for name, value in positive.items():
        expect(value > 0, BAD_PARAM, f"{SET}/c45", f"{name} is {value}, it must be at least 1")
    for name, value in {"qProjSize": qProjSize, "kProjSize": kProjSize, "vProjSize": vProjSize}.items():
        expect(value >= 0, BAD_PARAM, f"{SET}/c46", f"{name} is {value}, it must not be negative")
    expect(oProjSize >= 0, BAD_PARAM, INCORRECT_PARAMETER, f"oProjSize is {oProjSize}, it must not be negative")
    expect(smScaler >= 0, BAD_PARAM, f"{SET}/c46", f"smScaler is {smScaler}, it must be 0 or positive")
    spec = AttnSpec(
        attnMode, nHeads, smScaler, dataType, computePrec, mathType, qSize, kSize, vSize,
        qProjSize, kProjSize, vProjSize, oProjSize, qoMaxSeqLength, kvMaxSeqLength, maxBatchSize, maxBeamSize,
    )  # fmt: skip
    expect(spec.query_size == spec.key_size, BAD_PARAM, f"{SET}/c43",
           f"queries have {spec.query_size} elements after projection, keys {spec.key_size}")  # fmt: skip
    expect(mathType in PRECISIONS.get((dataType, computePrec), ()), NOT_SUPPORTED, f"{SET}/c47",
           f"dataType {dataType.name}, computePrec {computePrec.name}, mathType {mathType.name} are not in table 40")  # fmt: skip
    dropouts = {"attnDropoutDesc": attnDropoutDesc, "postDropoutDesc": postDropoutDesc}
    for name, dropout in dropouts.items():
        expect(dropout is None or dropout.said == 0, NOT_SUPPORTED, f"{SET}/c39",
               f"the dropout of {name} is {dropout and dropout.said}, dropout in attention is not supported")  # fmt: skip
    attnDesc.spec, attnDesc.dropouts = spec, (attnDropoutDesc, postDropoutDesc)


class AttnParameters(NamedTuple):
    attnMode: int
    nHeads: int
    smScaler: float
    dataType: cudnnDataType_t
    computePrec: cudnnDataType_t
    mathType: cudnnMathType_t
    attnDropoutDesc: DropoutDescriptor | None
    postDropoutDesc: DropoutDescriptor | None
    qSize: int
    kSize: int
    vSize: int
    qProjSize: int
    kProjSize: int
    vProjSize: int
    oProjSize: int
    qoMaxSeqLength: int
    kvMaxSeqLength: int
    maxBatchSize: int
    maxBeamSize: int


@documented(invalid={"attnDesc": "c10"}, fresh=["attnDesc"])
def cudnnGetAttnDescriptor(attnDesc: AttnDescriptor) -> AttnParameters:
    """Return the parameters in the order of cudnnSetAttnDescriptor. A fresh descriptor returns zeros.

    Errors: BAD_PARAM for NULL (c10). Source: 7.2.14.
    """
    s = attnDesc.spec or AttnSpec(0, 0, 0.0, FLOAT, FLOAT, DEFAULT, *(0,) * 11)
    return AttnParameters(
        s.mode, s.heads, s.scaler, s.data_type, s.compute_type, s.math_type, *attnDesc.dropouts, s.q_size, s.k_size, s.v_size,
        s.q_projected, s.k_projected, s.v_projected, s.o_projected, s.qo_longest, s.kv_longest, s.max_batches, s.max_beams,
    )  # fmt: skip
