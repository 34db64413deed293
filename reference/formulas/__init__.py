"""Evaluate one element of an output from its formula, in plain loops over Python numbers, as the document says.

It shares nothing with the reference's arrays, blocks and formulas, and tests/reference/test_formulas.py checks its imports. So it
can judge the reference itself, and decide which of two backends is outside the bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from dualdnn.api.operations import Operation, OperationGraph

from . import attention, ctc, graphs, normalization, pointwise, recurrent, spatial, sums, windows
from .elements import Elements, Found, Index, Memory, Pages, Untold

MAX_READS = 1 << 16  # elements of the inputs that one element of an output may need
FORMULAS: dict[type[Operation], Any] = {
    kind: formula
    for module in (attention, ctc, graphs, normalization, pointwise, recurrent, spatial, sums, windows)
    for kind, formula in module.FORMULAS.items()
}
# An element of these needs most of the call's inputs, and no rounding bound follows from their formulas.
WHOLE = {kind for module in (attention, ctc, graphs, recurrent) for kind in module.FORMULAS}
_SEQUENCE = (
    "a sequence of operations that have formulas, of which cases compare the reference with the steps made one by one"
)
# These operations have no formula; the text names what checks the reference instead.
MISSING = {
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
    "SetDropoutStates": "states that only later calls read, whose results have formulas",
}


def has_formula(operation: Operation) -> bool:
    return type(operation) in FORMULAS


def has_samples(operation: Operation) -> bool:
    """Return whether a sample of the operation's elements can be judged without computing the rest."""
    return has_formula(operation) and type(operation) not in WHOLE


def element_of(operation: Operation, output: str, index: Index, read: Elements) -> Found:
    """Return the formula's value of an element of an output, before alpha and beta.

    Raises Untold where the formula does not determine it, and ArithmeticError or ValueError where an intermediate
    number is not finite.
    """
    if isinstance(operation, OperationGraph) and operation.single is not None:
        operation, output, read = graphs.single(operation, output, read)
    formula = FORMULAS.get(type(operation))
    if formula is None:
        raise Untold(f"{type(operation).__name__} has no formula")
    read.reads = 0
    with np.errstate(all="ignore"):
        found: Found = formula(operation, output, index, read)
    return found


def blended(operation: Operation, output: str, index: Index, read: Elements, value: float) -> float:
    """Return alpha * value + beta * the prior element, which does not count where beta is 0."""
    alpha, beta = operation.blend_of(output)
    return alpha * value if beta == 0 else alpha * value + beta * read(output, index)


__all__ = [
    "FORMULAS",
    "MISSING",
    "MAX_READS",
    "Elements",
    "Found",
    "Index",
    "Memory",
    "Pages",
    "Untold",
    "blended",
    "element_of",
    "has_formula",
    "has_samples",
]
