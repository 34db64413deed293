"""Implement RNN descriptors (7.2.6, 7.2.11, 7.2.21, 7.2.49)."""

from __future__ import annotations

from typing import NamedTuple

from ...descriptors import DropoutDescriptor, RNNDescriptor
from ...enumerations import (
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnMathType_t,
    cudnnRNNAlgo_t,
    cudnnRNNBiasMode_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
    cudnnRNNPaddingMode_t,
)
from ...functions import documented
from ...operations.rnn import RNNSpec
from ...operations.rnn.network import DOUBLE_BIAS, LSTM, PERSIST_STATIC, STANDARD
from ...operations.specs import DOUBLE, FLOAT, HALF
from ...status import BAD_PARAM, NOT_INITIALIZED, NOT_SUPPORTED, expect

PADDED = cudnnRNNPaddingMode_t.CUDNN_RNN_PADDED_IO_ENABLED
# PRECISIONS maps dataType to the supported mathPrec (7.2.49).
PRECISIONS = {HALF: (HALF, FLOAT), FLOAT: (FLOAT,), DOUBLE: (DOUBLE,)}
SET = "cudnnSetRNNDescriptor_v8"


@documented()
def cudnnCreateRNNDescriptor() -> RNNDescriptor:
    """Return a new RNN descriptor with two bias vectors and everything else zero. Source: 7.2.6."""
    return RNNDescriptor()


@documented()
def cudnnDestroyRNNDescriptor(rnnDesc: RNNDescriptor) -> None:
    """Destroy the descriptor; any later use is BAD_PARAM. Source: 7.2.11."""
    rnnDesc.destroy()


@documented(invalid={"*": "c32"}, fresh=["dropoutDesc"])
def cudnnSetRNNDescriptor_v8(
    rnnDesc: RNNDescriptor, algo: cudnnRNNAlgo_t, cellMode: cudnnRNNMode_t, biasMode: cudnnRNNBiasMode_t, dirMode: cudnnDirectionMode_t, inputMode: cudnnRNNInputMode_t, dataType: cudnnDataType_t, mathPrec: cudnnDataType_t, mathType: cudnnMathType_t,
    inputSize: int, hiddenSize: int, projSize: int, numLayers: int, dropoutDesc: DropoutDescriptor | None, auxFlags: int,
) -> None:  # fmt: skip
    """Describe a network of numLayers layers; this replaces every earlier setting, including the clipping.

    inputSize, hiddenSize: lengths of the input vectors and of the states. projSize: length of a cell's output;
    hiddenSize disables the recurrent projection. dropoutDesc: NULL disables dropout. auxFlags: a cudnnRNNPaddingMode_t.
    mathType is a hint; every type is accepted.
    Errors: BAD_PARAM for NULL, unknown enumerators and flags, sizes below 1 (c32); NOT_SUPPORTED for combinations
    (c34): types, a projection of another cell or algorithm or beyond hiddenSize, a bias mode other than
    CUDNN_RNN_DOUBLE_BIAS or DOUBLE data of a persistent algorithm that does not take it. Source: 7.2.49.
    """
    sizes = {"inputSize": inputSize, "hiddenSize": hiddenSize, "projSize": projSize, "numLayers": numLayers}
    for name, size in sizes.items():
        expect(size > 0, BAD_PARAM, f"{SET}/c32", f"{name} is {size}, not positive")
    expect(auxFlags in (0, PADDED), BAD_PARAM, f"{SET}/c32", f"auxFlags is {auxFlags:#x}, the only flag is {PADDED:#x}")
    expect(mathPrec in PRECISIONS.get(dataType, ()), NOT_SUPPORTED, f"{SET}/c34",
           f"dataType {dataType.name} with mathPrec {mathPrec.name}")  # fmt: skip
    projection_is_supported(f"{SET}/c34", algo, cellMode, hiddenSize, projSize)
    bias_mode_is_supported(f"{SET}/c34", algo, biasMode)
    expect(not (algo == PERSIST_STATIC and dataType == DOUBLE), NOT_SUPPORTED, f"{SET}/c34",
           f"{algo.name} does not take DOUBLE data")  # fmt: skip
    spec = RNNSpec(
        algo, cellMode, biasMode, dirMode, inputMode, dataType, mathPrec, mathType,
        inputSize, hiddenSize, projSize, numLayers, auxFlags == PADDED,
    )  # fmt: skip
    rnnDesc.configure(spec, dropoutDesc)


def projection_is_supported(
    clause: str,
    algo: cudnnRNNAlgo_t,
    cell: cudnnRNNMode_t,
    hidden: int,
    projected: int,
    cell_clause: str = "",
    beyond: str = "",
) -> None:
    """Raise an error unless a recurrent projection uses CUDNN_LSTM, CUDNN_RNN_ALGO_STANDARD and at most ``hidden``
    elements."""
    if projected == hidden:
        return
    expect(
        projected < hidden,
        NOT_SUPPORTED,
        beyond or clause,
        f"projection to {projected} elements, hiddenSize is {hidden}",
    )
    expect(algo == STANDARD, NOT_SUPPORTED, clause, f"projection with {algo.name}")
    expect(cell == LSTM, NOT_SUPPORTED, cell_clause or clause, f"projection of {cell.name} cells")


def bias_mode_is_supported(clause: str, algo: cudnnRNNAlgo_t, bias: cudnnRNNBiasMode_t) -> None:
    """Raise an error for a persistent algorithm with another bias mode than CUDNN_RNN_DOUBLE_BIAS."""
    expect(algo == STANDARD or bias == DOUBLE_BIAS, NOT_SUPPORTED, clause, f"{bias.name} with {algo.name}")


class RNNParameters(NamedTuple):
    algo: cudnnRNNAlgo_t
    cellMode: cudnnRNNMode_t
    biasMode: cudnnRNNBiasMode_t
    dirMode: cudnnDirectionMode_t
    inputMode: cudnnRNNInputMode_t
    dataType: cudnnDataType_t
    mathPrec: cudnnDataType_t
    mathType: cudnnMathType_t
    inputSize: int
    hiddenSize: int
    projSize: int
    numLayers: int
    dropoutDesc: DropoutDescriptor | None
    auxFlags: int


def configured_by_v8(name: str, clause: str, spec: RNNSpec) -> None:
    """Raise an error unless cudnnSetRNNDescriptor_v8 was the last setter to configure the network."""
    text = "rnnDesc was not configured by cudnnSetRNNDescriptor_v8"
    expect(spec.data_type is not None, NOT_INITIALIZED, f"{name}/{clause}", text)


@documented(invalid={"rnnDesc": "c10"})
def cudnnGetRNNDescriptor_v8(rnnDesc: RNNDescriptor) -> RNNParameters:
    """Return the parameters in the order of cudnnSetRNNDescriptor_v8.

    Errors: BAD_PARAM for NULL (c10), NOT_INITIALIZED if another setter, or none, configured it (c11). Source: 7.2.21.
    """
    s = rnnDesc.spec
    configured_by_v8("cudnnGetRNNDescriptor_v8", "c11", s)
    return RNNParameters(
        s.algo, s.cell, s.bias, s.direction, s.input_mode, s.data_type, s.precision, s.math_type,
        s.input_size, s.hidden, s.projected, s.layers, rnnDesc.dropout, int(s.padded),
    )  # fmt: skip
