"""One element of an output from its formula, in plain loops over Python's numbers, written from the document.

It shares nothing with the reference's arrays, blocks and formulas (tests/test_formulas.py holds its imports to that), so that it can judge
the reference itself, and say, where two backends disagree, which of them is outside of the bound.
"""

from __future__ import annotations

from typing import Any

from dualdnn.api.operations import Operation

from . import normalization, pointwise, spatial, sums, windows
from .elements import Elements, Found, Index, Memory, Pages, Untold

MOST_READS = 1 << 16  # elements of the inputs that one element of an output may be made of
FORMULAS: dict[type[Operation], Any] = {
    kind: formula
    for module in (normalization, pointwise, spatial, sums, windows)
    for kind, formula in module.FORMULAS.items()
}
_CHAIN = "a chain of products over time, of which recorded calls of NVIDIA's library and the oracles of tests/ judge the reference"
_SEQUENCE = (
    "a sequence of operations that have formulas, of which cases compare the reference with the steps made one by one"
)
# Operations without a formula: by name, and what judges the reference instead.
MISSING = {
    **dict.fromkeys(("RNNForward", "RNNBackwardData", "RNNBackwardWeights"), _CHAIN),
    **dict.fromkeys(
        ("MultiHeadAttnForward", "MultiHeadAttnStep", "MultiHeadAttnBackwardData", "MultiHeadAttnBackwardWeights"),
        _CHAIN,
    ),
    **dict.fromkeys(("CTCLoss", "CTCLoss_v8"), "a sum over all alignments, which the oracles of tests/ enumerate"),
    **dict.fromkeys(
        (
            "BnFinalizeStatisticsTraining",
            "BnFinalizeStatisticsInference",
            "ScaleBiasAddActivationGenBitmask",
            "DactivationForkDbatchnorm",
            "ScaleBiasActivationConvBnstats",
            "ScaleBiasActivationWgrad",
            "ConvScaleBiasAddActivation",
        ),
        _SEQUENCE,
    ),
    **dict.fromkeys(("ReorderFilter", "ReorderFilterAndBias"), "an order of bytes, which cases compare byte by byte"),
    "OperationGraph": "a graph of operations that have formulas, of which cases compare the reference with its nodes",
    "SetDropoutStates": "states that only later calls read, whose results have formulas",
}


def has_formula(operation: Operation) -> bool:
    return type(operation) in FORMULAS


def element_of(operation: Operation, output: str, index: Index, read: Elements) -> Found:
    """Return what the formula says of an element of an output, before alpha and beta.

    Errors: Untold where it does not say; ArithmeticError and ValueError where a number on the way is not finite.
    """
    formula = FORMULAS.get(type(operation))
    if formula is None:
        raise Untold(f"{type(operation).__name__} has no formula")
    read.reads = 0
    found: Found = formula(operation, output, index, read)
    return found


def blended(operation: Operation, output: str, index: Index, read: Elements, value: float) -> float:
    """alpha * value + beta * the element that was there; where beta is 0 that does not count."""
    alpha, beta = operation.blend_of(output)
    return alpha * value if beta == 0 else alpha * value + beta * read(output, index)


__all__ = [
    "FORMULAS",
    "MISSING",
    "MOST_READS",
    "Elements",
    "Found",
    "Index",
    "Memory",
    "Pages",
    "Untold",
    "blended",
    "element_of",
    "has_formula",
]
