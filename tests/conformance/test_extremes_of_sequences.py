"""Test that recurrent networks, attention and CTC with the largest 32-bit numbers return exact sizes, or refuse with
a clause.

Their tensors are packed, so that only sizes depend on these numbers. Calls without such memory test the host's arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from dualdnn.api import cudnn as c
from dualdnn.api.status import CudnnError
from dualdnn.conformance.calls import Caller, sized
from dualdnn.conformance.cases.attention import attention_forward
from dualdnn.conformance.cases.rnn import rnn_descriptors, rnn_forward
from dualdnn.conformance.trial import Step, attempt_chain

LARGE = (2**31 - 1, 2**30, 46341, 2**16 + 1)
ADDRESSES = 2**63  # bytes that every size must stay below
REFUSED = "refused"
FLOAT = 0
STANDARD = 0
LSTM = 2
GRU = 3


def extremes(usual: dict[str, int]) -> Iterator[dict[str, int]]:
    """Yield settings in which one, two or all numbers are large."""
    for value in LARGE:
        for count in (1, 2, len(usual)):
            for names in combinations(usual, count):
                yield usual | dict.fromkeys(names, value)


def asked(call: Callable[..., Any], *arguments: Any) -> Any:
    """Return a call's result, or REFUSED if it refuses with a clause. A size must be one that C can represent."""
    try:
        found = call(*arguments)
    except CudnnError as error:
        assert error.clause, error
        return REFUSED
    assert all(
        0 <= size < ADDRESSES for size in (found if isinstance(found, tuple) else (found,)) if isinstance(size, int)
    )
    return found


@pytest.fixture(scope="module", params=[("reference", None), ("accelerated", "emulated")], ids=lambda p: p[0])
def handle(request) -> Any:
    return c.cudnnCreate(backend=request.param[0], device=request.param[1])


@pytest.mark.parametrize("cell", [LSTM, GRU])
@pytest.mark.parametrize("bidirectional", [0, 1])
def test_recurrent_networks(handle, cell, bidirectional):
    """A weight space has the bytes of all layers' weights."""
    network, data, dropout = (
        c.cudnnCreateRNNDescriptor(),
        c.cudnnCreateRNNDataDescriptor(),
        c.cudnnCreateDropoutDescriptor(),
    )
    c.cudnnSetDropoutDescriptor(dropout, handle, 0.0, None, 0, 0)
    gates, directions, served = 4 if cell == LSTM else 3, 1 + bidirectional, 0
    for s in extremes({"input": 3, "hidden": 4, "layers": 2, "steps": 3}):
        size, hidden, layers, steps = s.values()
        c.cudnnSetRNNDescriptor_v8(
            network, STANDARD, cell, c.CUDNN_RNN_DOUBLE_BIAS, bidirectional, 0, FLOAT, FLOAT, 0, size, hidden, hidden, layers, dropout, 0
        )  # fmt: skip
        found = asked(c.cudnnGetRNNWeightSpaceSize, handle, network)
        below = size + (layers - 1) * directions * hidden
        due = 4 * gates * hidden * directions * (below + layers * (hidden + 2))
        assert found == (due if due < ADDRESSES else REFUSED), (s, due)
        asked(c.cudnnSetRNNDataDescriptor, data, FLOAT, 0, steps, 2, size, [3, 3], None)
        for mode in (c.CUDNN_FWD_MODE_INFERENCE, c.CUDNN_FWD_MODE_TRAINING):
            served += asked(c.cudnnGetRNNTempSpaceSizes, handle, network, mode, data) is not REFUSED
    assert served


def test_attention_of_extreme_sizes_is_exact_or_refused(handle):
    attention, weight, served = c.cudnnCreateAttnDescriptor(), c.cudnnCreateTensorDescriptor(), 0
    usual = {"q": 3, "k": 3, "v": 3, "qp": 2, "kp": 2, "vp": 2, "op": 2, "lq": 4, "lk": 4, "batch": 2, "beam": 1}
    for heads in (2, LARGE[-1]):
        for s in extremes(usual):
            made = asked(c.cudnnSetAttnDescriptor, attention, 0, heads, 1.0, FLOAT, FLOAT, 0, None, None, *s.values())
            if made is REFUSED:
                continue
            sizes = asked(c.cudnnGetMultiHeadAttnBuffers, handle, attention)
            for kind in range(8) if sizes is not REFUSED else ():
                asked(c.cudnnGetMultiHeadAttnWeights, handle, attention, kind, sizes[0], 2**40, weight)
            served += sizes is not REFUSED
    assert served


def test_ctc_of_extreme_sizes_is_exact_or_refused(handle):
    loss, probabilities, served = c.cudnnCreateCTCLossDescriptor(), c.cudnnCreateTensorDescriptor(), 0
    for most in (1, 256, *LARGE):
        asked(c.cudnnSetCTCLossDescriptor_v8, loss, FLOAT, c.CUDNN_LOSS_NORMALIZATION_SOFTMAX, 0, most)
        for s in extremes({"steps": 4, "batch": 2, "symbols": 3}):
            steps, batch, symbols = s.values()
            asked(
                c.cudnnSetTensorNdDescriptor,
                probabilities,
                FLOAT,
                3,
                (steps, batch, symbols),
                (batch * symbols, symbols, 1),
            )
            for algorithm in (0, 1):
                found = asked(c.cudnnGetCTCLossWorkspaceSize_v8, handle, algorithm, loss, probabilities, probabilities)
                served += found is not REFUSED
    assert served


MAX_INT = 2**31 - 1


def ran(handle: Any, *operations: Any) -> None:
    caller = Caller(c, handle)
    trial = attempt_chain(caller, [Step(sized(caller, operation)) for operation in operations])
    assert trial.passed, trial.explanation()


@pytest.mark.parametrize("current", [None, 0, 3])
def test_windows_of_the_largest_and_smallest_numbers(handle, current):
    """A window holds the existing keys between its ends, whatever their distance."""
    low, high = (-MAX_INT - 1, MAX_INT, -1, 2), (MAX_INT, MAX_INT, 0, -MAX_INT - 1)
    ran(handle, attention_forward.forward(low=low, high=high, current=current))


def test_a_packed_container_is_as_long_as_its_longest_sequence():
    data = c.cudnnCreateRNNDataDescriptor()
    call = (c.cudnnSetRNNDataDescriptor, data, FLOAT, 1, MAX_INT, 2, 3, [3, 2], None)
    assert asked(*call) is REFUSED


# Each operand has fewer than 2^31 scalars, but an array between them in the workspace has 2^31.
BETWEEN = {"states": (2**17, 1, 2**13), "vectors": (2**10, 2**20, 1)}  # sequences, steps, hidden size


@pytest.mark.parametrize("name", BETWEEN)
def test_intermediate_results_of_recurrent_networks_are_counted(handle, name):
    """The call is refused before it asks for memory. A quarter of the sequences would be served."""
    batch, steps, hidden = BETWEEN[name]
    network, data, out, dropout = (
        c.cudnnCreateRNNDescriptor(), c.cudnnCreateRNNDataDescriptor(), c.cudnnCreateRNNDataDescriptor(), c.cudnnCreateDropoutDescriptor(),
    )  # fmt: skip
    c.cudnnSetDropoutDescriptor(dropout, handle, 0.0, None, 0, 0)
    c.cudnnSetRNNDescriptor_v8(
        network, STANDARD, LSTM, c.CUDNN_RNN_DOUBLE_BIAS, 0, 0, FLOAT, FLOAT, 0, 1, hidden, hidden, 1, dropout, 0
    )
    states, memory = c.cudnnCreateTensorDescriptor(), handle.allocate(64)
    c.cudnnSetTensorNdDescriptor(states, FLOAT, 3, (1, batch, hidden), (batch * hidden, hidden, 1))
    for desc, size in ((data, 1), (out, hidden)):
        c.cudnnSetRNNDataDescriptor(desc, FLOAT, 0, steps, batch, size, [steps] * batch, None)
    weights = c.cudnnGetRNNWeightSpaceSize(handle, network)
    space, _ = c.cudnnGetRNNTempSpaceSizes(handle, network, c.CUDNN_FWD_MODE_INFERENCE, data)
    with pytest.raises(CudnnError, match=f"{name}.* spans {2**31} scalars") as refusal:
        c.cudnnRNNForward(
            handle, network, c.CUDNN_FWD_MODE_INFERENCE, memory, data, memory, out, memory, states, None, None, states, None, None,
            weights, memory, space, memory, 0, None,
        )  # fmt: skip
    assert refusal.value.clause == "cudnnSetTensor4dDescriptor/c03"
    assert (
        max(
            rnn_forward.network(LSTM, direction=rnn_descriptors.ONE_WAY, hidden=hidden)
            .counts(steps, batch // 4)
            .values()
        )
        < 2**31
    )


@pytest.mark.parametrize("heads, counted", [(2**13, "projected queries"), (2**12, None)])
def test_projections_of_attention_are_counted(heads, counted):
    """The projections of all heads are counted together, and absent projections are not counted."""
    attn = attention_forward.attention((512, 512, 1, 1), (1, 1, 1), heads, 0, longest=(512, 2), batches=1, beams=1)
    operation = attention_forward.forward(attn, (512, 2), 1, 1, (512,), (2,))
    found = [name for name, count in operation.counts.items() if count >= 2**31]
    assert found == ([f"{counted} of all heads"] if counted else [])
    plain = replace(attn, q_projected=0, k_projected=0, q_size=512, k_size=512)
    assert max(replace(operation, attn=plain).counts.values()) < 2**31
