"""Runs operations that give the arguments of kernels other values than the rest of the suite does.

drawn_operations.json maps families to operations. They were chosen among some thousands at random, the most telling
first. In their launches, an extent, stride, step or factor has a value of its own; in every other case it is one and
the same number. A kernel that takes that argument for a constant, or another one for it, is right in all other cases.

"several_tiles": kernels have a second tile, part or group, where all others have one. "conditions": a condition of a
planner is true, or false, as in no other case. "kernels": an operator of a kernel sees values that it sees in no other
case; some operands begin behind an aligned address. "chains": calls of training steps. "multiprocessors": the effect
shows only where planners divide the work among so many.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import pytest
from dualdnn.api.enumerations import cudnnNanPropagation_t
from dualdnn.api.operations import PoolingBackward, ReduceTensor, parse
from dualdnn.conformance.calls import sized
from dualdnn.conformance.cases.pooling.pooling import pooled
from dualdnn.conformance.cases.reduce_tensor import kind
from dualdnn.conformance.solvers import divided_among

FAMILIES: dict[str, list[Any]] = json.loads(
    resources.files(__package__).joinpath("drawn_operations.json").read_text(encoding="utf-8")
)
CHAINS = FAMILIES.pop("chains")
DIVIDED: list[tuple[Any, ...]] = FAMILIES.pop("multiprocessors")
OPERATIONS = {f"{family}-{i}": entry for family, entries in FAMILIES.items() for i, entry in enumerate(entries)}


def inputs_of(operation: Any) -> str | dict[str, str]:
    """Return the kinds of numbers that say something about the operation: NaN in the bias before a ReLU that
    propagates it."""
    activation = getattr(operation, "activation", None)
    bias = next((name for name in ("eqBias", "zEqBias") if name in operation.operands), None)
    if bias and activation and activation.relu_nan == cudnnNanPropagation_t.CUDNN_PROPAGATE_NAN:
        return {**dict.fromkeys(operation.operands, "normal"), bias: "ties_and_nan"}
    return kind(operation.reduction.op) if isinstance(operation, ReduceTensor) else "normal"


def attempted(trial: Any, caller: Any, entry: Any) -> None:
    """Run an operation that is given as a text, or as a text and the offsets of operands."""
    text, offsets = (entry, None) if isinstance(entry, str) else entry
    operation = sized(caller, parse(text))
    before = pooled(operation) if isinstance(operation, PoolingBackward) else None
    trial(operation, inputs_of(operation), before=before, offsets=offsets)


@pytest.mark.ours
@pytest.mark.parametrize("name", OPERATIONS)
def test_arguments_that_differ(trial, caller, name):
    with divided_among(caller.handle, 1):  # The chain was drawn for a device of one multiprocessor.
        attempted(trial, caller, OPERATIONS[name])


@pytest.mark.ours
@pytest.mark.parametrize("number", range(len(CHAINS)))
def test_chains_with_arguments_that_differ(chain, caller, number):
    with divided_among(caller.handle, 1):
        chain(*map(parse, CHAINS[number]))


@pytest.mark.ours
@pytest.mark.parametrize("number", range(len(DIVIDED)))
def test_work_divided_among_multiprocessors(trial, chain, caller, number):
    multiprocessors, *texts = DIVIDED[number]
    with divided_among(caller.handle, multiprocessors):
        if len(texts) == 1:
            attempted(trial, caller, texts[0])
        else:
            chain(*(sized(caller, parse(text)) for text in texts))
