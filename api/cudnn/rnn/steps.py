"""Check arrays with one tensor descriptor per step, as the calls before version 8 take them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ...enumerations import cudnnDataType_t
from ...operations import TensorSpec
from ...operations.rnn import RNNSpec
from ...operations.specs import DOUBLE, FLOAT, HALF
from ...status import BAD_PARAM, INCORRECT_PARAMETER, NOT_SUPPORTED, expect
from .descriptor import PRECISIONS


def packed(name: str, spec: TensorSpec, clause: str) -> None:
    """Raise an error unless the descriptor of a step is packed {batch, vector, 1}."""
    expect(
        spec.dims[2:] == (1,),
        BAD_PARAM,
        clause,
        f"{name} has dimensions {spec.dims}, not 3 with the last 1",
    )
    expect(spec.strides == TensorSpec.packed(spec.data_type, spec.dims).strides, BAD_PARAM, clause,
           f"{name} has strides {spec.strides} of {spec.dims}, which are not packed")  # fmt: skip


def check_steps(
    name: str, steps: Sequence[TensorSpec], length: int, same: str, falling: str, gaps: str, types: str
) -> None:
    """Raise an error unless there are ``length`` packed steps with one vector length and data type, and batches do not
    grow."""
    expect(length > 0, BAD_PARAM, INCORRECT_PARAMETER, f"seqLength is {length}, not positive")
    expect(
        len(steps) == length,
        BAD_PARAM,
        INCORRECT_PARAMETER,
        f"{name} has {len(steps)} descriptors, seqLength is {length}",
    )
    first = steps[0]
    for i, spec in enumerate(steps):
        kinds = (spec.data_type, *spec.dims[1:], *spec.strides)
        expect(kinds == (first.data_type, *first.dims[1:], *first.strides), BAD_PARAM, same,
               f"{name}[{i}] is {spec}, {name}[0] is {first}")  # fmt: skip
        batch = steps[i - 1].dims[0] if i else spec.dims[0]
        expect(
            spec.dims[0] <= batch,
            BAD_PARAM,
            falling,
            f"{name}[{i}] has a batch of {spec.dims[0]}, the step before {batch}",
        )
    packed(f"{name}[0]", first, gaps)
    kind = first.data_type
    expect(kind in (HALF, FLOAT, DOUBLE), NOT_SUPPORTED, types, f"{name} has data type {kind.name}")


def completed(
    spec: RNNSpec,
    vector: int,
    data_type: cudnnDataType_t,
    size_clause: str,
    type_clause: str,
    type_status: Any = BAD_PARAM,
) -> RNNSpec:
    """Return the network with the input size and data type of the arguments; raise an error if it already has different
    ones."""
    expect(spec.layers > 0, BAD_PARAM, size_clause, "rnnDesc has not been initialised")
    known = spec.input_size
    expect(
        known in (None, vector), BAD_PARAM, size_clause, f"xDesc has vectors of {vector} elements, rnnDesc of {known}"
    )
    fits = spec.data_type in (None, data_type) and spec.precision in PRECISIONS.get(data_type, ())
    expect(fits, type_status, type_clause, f"data type {data_type.name} does not fit {spec}")
    return replace(spec, input_size=vector, data_type=data_type)
