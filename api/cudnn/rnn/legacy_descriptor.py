"""Implement setters and getters of RNN descriptors that cudnnSetRNNDescriptor_v8 replaced (7.2.18, 7.2.20, 7.2.26, 7.2.27, 7.2.29, 7.2.45, 7.2.46,
7.2.48, 7.2.50 to 7.2.52)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...descriptors import DropoutDescriptor
from ...enumerations import (
    cudnnDataType_t,
    cudnnDirectionMode_t,
    cudnnRNNAlgo_t,
    cudnnRNNInputMode_t,
    cudnnRNNMode_t,
    cudnnRNNPaddingMode_t,
)
from ...functions import documented
from ...operations.rnn import RNNSpec
from ...operations.specs import DOUBLE, FLOAT, HALF
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .descriptor import PADDED, bias_mode_is_supported, projection_is_supported

if TYPE_CHECKING:
    from ...descriptors import AlgorithmDescriptor, RNNDescriptor
    from ...enumerations import cudnnMathType_t, cudnnRNNBiasMode_t
    from ...handle import Handle

V6 = "cudnnSetRNNDescriptor_v6"


@documented(
    invalid={"rnnDesc": "c16", "dropoutDesc": "c15",
             **dict.fromkeys(("inputMode", "direction", "mode", "algo", "mathPrec"), "c14")},
    fresh=["dropoutDesc"],
)  # fmt: skip
def cudnnSetRNNDescriptor_v6(
    handle: Handle,
    rnnDesc: RNNDescriptor,
    hiddenSize: int,
    numLayers: int,
    dropoutDesc: DropoutDescriptor | None,
    inputMode: cudnnRNNInputMode_t,
    direction: cudnnDirectionMode_t,
    mode: cudnnRNNMode_t,
    algo: cudnnRNNAlgo_t,
    mathPrec: cudnnDataType_t,
) -> None:
    """Describe a network, and replace every earlier setting. The data type and the input size come with each call.

    The bias mode is CUDNN_RNN_DOUBLE_BIAS. Padded input and output, projection and clipping are disabled. dropoutDesc:
    NULL disables dropout.
    Errors: BAD_PARAM for sizes below 1 (c13), unknown enumerators (c14), descriptors (c15, c16); NOT_SUPPORTED where
    mathPrec is not a type of the arithmetic (c09). Source: 7.2.48.
    """
    for name, size in {"hiddenSize": hiddenSize, "numLayers": numLayers}.items():
        expect(size > 0, BAD_PARAM, f"{V6}/c13", f"{name} is {size}, not positive")
    expect(mathPrec in (HALF, FLOAT, DOUBLE), NOT_SUPPORTED, f"{V6}/c09", f"mathPrec is {mathPrec.name}")
    spec = RNNSpec(
        algo, mode, direction=direction, input_mode=inputMode, precision=mathPrec,
        hidden=hiddenSize, projected=hiddenSize, layers=numLayers,
    )  # fmt: skip
    rnnDesc.configure(spec, dropoutDesc)


class RNNParametersV6(NamedTuple):
    hiddenSize: int
    numLayers: int
    dropoutDesc: DropoutDescriptor | None
    inputMode: cudnnRNNInputMode_t
    direction: cudnnDirectionMode_t
    cellMode: cudnnRNNMode_t
    algo: cudnnRNNAlgo_t
    mathPrec: cudnnDataType_t


@documented(invalid={"*": "c08"})
def cudnnGetRNNDescriptor_v6(handle: Handle, rnnDesc: RNNDescriptor) -> RNNParametersV6:
    """Return what cudnnSetRNNDescriptor_v6 or _v8 set, without checks. A fresh descriptor returns zeros.

    Errors: BAD_PARAM for NULL (c08). Source: 7.2.20.
    """
    s = rnnDesc.spec
    return RNNParametersV6(s.hidden, s.layers, rnnDesc.dropout, s.input_mode, s.direction, s.cell, s.algo, s.precision)


@documented(invalid={"rnnDesc": "c04", "biasMode": "c05"})
def cudnnSetRNNBiasMode(rnnDesc: RNNDescriptor, biasMode: cudnnRNNBiasMode_t) -> None:
    """Set which biases the network has.

    Errors: BAD_PARAM for NULL (c04) and unknown modes (c05); NOT_SUPPORTED for modes other than CUDNN_RNN_DOUBLE_BIAS
    where the algorithm is not CUDNN_RNN_ALGO_STANDARD (c07). Source: 7.2.46.
    """
    bias_mode_is_supported("cudnnSetRNNBiasMode/c07", rnnDesc.spec.algo, biasMode)
    rnnDesc.change(bias=biasMode)


@documented(invalid={"rnnDesc": "c04"})
def cudnnGetRNNBiasMode(rnnDesc: RNNDescriptor) -> cudnnRNNBiasMode_t:
    """Return the bias mode; a fresh descriptor has CUDNN_RNN_DOUBLE_BIAS.

    Errors: BAD_PARAM for NULL (c04). Source: 7.2.18.
    """
    return rnnDesc.spec.bias


@documented(invalid={"rnnDesc": "c06", "paddingMode": "c07"})
def cudnnSetRNNPaddingMode(rnnDesc: RNNDescriptor, paddingMode: cudnnRNNPaddingMode_t) -> None:
    """Enable or disable padded input and output.

    Errors: BAD_PARAM for NULL (c06) and unknown modes (c07). Source: 7.2.51.
    """
    rnnDesc.change(padded=paddingMode == PADDED)


@documented(invalid={"rnnDesc": "c04"})
def cudnnGetRNNPaddingMode(rnnDesc: RNNDescriptor) -> cudnnRNNPaddingMode_t:
    """Return whether input and output are padded. Errors: BAD_PARAM for NULL (c04). Source: 7.2.27."""
    return cudnnRNNPaddingMode_t(rnnDesc.spec.padded)


@documented(invalid={"*": "c07"})
def cudnnSetRNNMatrixMathType(rnnDesc: RNNDescriptor, mType: cudnnMathType_t) -> None:
    """Set the math type for matrix products, which is a hint.

    Errors: BAD_PARAM for NULL and unknown types (c07). Source: 7.2.50.
    """
    rnnDesc.change(math_type=mType)


@documented(invalid={"rnnDesc": "c04"})
def cudnnGetRNNMatrixMathType(rnnDesc: RNNDescriptor) -> cudnnMathType_t:
    """Return the math type for matrix products. Errors: BAD_PARAM for NULL (c04). Source: 7.2.26."""
    return rnnDesc.spec.math_type


@documented(invalid={"handle": "c12", "rnnDesc": "c12"})
def cudnnSetRNNProjectionLayers(handle: Handle, rnnDesc: RNNDescriptor, recProjSize: int, outProjSize: int) -> None:
    """Project the output of LSTM cells to recProjSize elements; hiddenSize disables the projection.

    Errors: BAD_PARAM for NULL (c12), recProjSize below 1 and outProjSize below 0 (c13); NOT_SUPPORTED for another
    algorithm than CUDNN_RNN_ALGO_STANDARD or another cell than CUDNN_LSTM (c14), more than hiddenSize (c16),
    outProjSize above 0 (c10). Source: 7.2.52.
    """
    name, spec = "cudnnSetRNNProjectionLayers", rnnDesc.spec
    expect(recProjSize > 0, BAD_PARAM, f"{name}/c13", f"recProjSize is {recProjSize}, not positive")
    expect(outProjSize >= 0, BAD_PARAM, f"{name}/c13", f"outProjSize is {outProjSize}, negative")
    expect(
        outProjSize == 0,
        NOT_SUPPORTED,
        f"{name}/c10",
        f"outProjSize is {outProjSize}, output projection does not exist",
    )
    projection_is_supported(
        f"{name}/c14", spec.algo, spec.cell, spec.hidden, recProjSize, beyond=f"{name}/c16", cell_clause=f"{name}/c15"
    )
    rnnDesc.change(projected=recProjSize)


class ProjectionParameters(NamedTuple):
    recProjSize: int
    outProjSize: int


@documented(invalid={"handle": "c06", "rnnDesc": "c06"})
def cudnnGetRNNProjectionLayers(handle: Handle, rnnDesc: RNNDescriptor) -> ProjectionParameters:
    """Return (recProjSize, outProjSize), which is (hiddenSize, 0) without projection.

    Errors: BAD_PARAM for NULL (c06). Source: 7.2.29.
    """
    return ProjectionParameters(rnnDesc.spec.projected, 0)


@documented()
def cudnnSetRNNAlgorithmDescriptor(handle: Handle, rnnDesc: RNNDescriptor, algoDesc: AlgorithmDescriptor) -> None:
    """Set the algorithm from an algorithm descriptor: a cudnnRNNAlgo_t or its number (docs/errata.md, D366).

    Errors: BAD_PARAM for an algorithm of another enumeration; NOT_SUPPORTED for one that does not take the bias mode or
    the projection of the network (cudnnSetRNNBiasMode/c07, cudnnSetRNNProjectionLayers/c14). Source: 7.2.45.
    """
    algorithm, spec = algoDesc.spec.algorithm, rnnDesc.spec
    known = type(algorithm) in (int, cudnnRNNAlgo_t) and algorithm in set(cudnnRNNAlgo_t)
    expect(known, BAD_PARAM, INCORRECT_PARAMETER, f"algoDesc has {algorithm!r}, no cudnnRNNAlgo_t")
    algo = cudnnRNNAlgo_t(algorithm)
    bias_mode_is_supported("cudnnSetRNNBiasMode/c07", algo, spec.bias)
    projection_is_supported("cudnnSetRNNProjectionLayers/c14", algo, spec.cell, spec.hidden, spec.projected)
    rnnDesc.change(algo=algo)
