"""Holds cases of cudnnRNNBackwardData_v8 and cudnnRNNBackwardWeights_v8, which take the reserve space of a forward
call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnRNNMode_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.cases.rnn import rnn_descriptors as rnn
from dualdnn.conformance.cases.rnn.rnn_forward import (
    RAGGED,
    SEQ_MAJOR,
    check_static,
    forward,
    label,
    network,
    refuses_small_spaces,
    wrong_states,
)
from dualdnn.conformance.domains.rnn import backward
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Called, Step, attempt_chain, prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.suite.evidence import Evidence
    from dualdnn.conformance.trial import Trial

DATA = "cudnnRNNBackwardData_v8"
WEIGHTS = "cudnnRNNBackwardWeights_v8"


def training(
    spec: Any = None,
    layout: Any = SEQ_MAJOR,
    lengths: Any = RAGGED,
    longest: Any = None,
    fill: Any = None,
    null: Any = (),
) -> Any:
    """Return the forward call, the gradients of inputs and states, and the gradients of weights."""
    first = forward(spec, layout, lengths, longest, fill, null=null)
    return first, *backward(first, null)


@shows(f"{DATA}/c01", f"{WEIGHTS}/c01")
@pytest.mark.parametrize("cell", cudnnRNNMode_t, ids=label)
def test_infinite_numbers_of_half(chain: Callable[..., Trial], cell: Any) -> None:
    """Infinities that meet gradients too small for HALF give infinity, NaN or an undetermined result.

    The same holds for numbers between layers that overflow in HALF.
    """
    for scale, kind in ((1, "infinite"), (4, "normal")):
        steps = training(
            network(cell, data_type=HALF, direction=rnn.ONE_WAY, hidden=17, layers=3, math_type=rnn.DEFAULT)
        )
        weights = prepare(steps[0], "normal", 0)["weightSpace"]
        weights.view(np.float16)[...] *= scale
        states = {"x": kind, "hx": "normal", "cx": "normal"}
        chain(
            Step(steps[0], {}, states),
            Step(steps[1], {}, {"dy": "infinite"}),
            steps[2],
            before={"weightSpace": weights},
        )


@pytest.mark.ours
@shows(f"{DATA}/c01")
def test_two_layers_larger_than_a_block(caller: Caller, evidence: Evidence) -> None:
    """Two overlapping layers run although one block cannot hold both of their gate matrices."""
    spec = network(rnn.LSTM, direction=rnn.ONE_WAY, width=4, hidden=612, math_type=rnn.DEFAULT)
    found = attempt_chain(caller, [Step(operation) for operation in training(spec, lengths=(1,))[:2]])
    evidence.note(found)
    assert found.passed, found.explanation()


@shows(f"{DATA}/c01")
def test_gates_of_many_units(chain: Callable[..., Trial], handle: Any) -> None:
    """Blocks share long sums over more steps than they have exchange buffers."""
    device = getattr(getattr(handle, "backend", None), "device", None)
    hidden = 256 if device is not None and device.kind == "gpu" else 16
    spec = network(rnn.LSTM, direction=rnn.ONE_WAY, width=8, hidden=hidden, layers=1, math_type=rnn.DEFAULT)
    chain(*training(spec, lengths=(3, 3, 3, 2, 2, 1, 0, 3))[:2])


@shows(f"{DATA}/c48 c49", f"{WEIGHTS}/c20 c21")
@pytest.mark.parametrize("algo", [rnn.STATIC, rnn.DYNAMIC], ids=label)
def test_persistent_algorithms(chain: Callable[..., Trial], refused: Callable[..., None], algo: Any) -> None:
    chain(*training(network(rnn.LSTM, algo=algo), lengths=(3, 3)))
    for operation, clause in zip(
        training(network(rnn.LSTM, algo=algo), lengths=(3, 2))[1:], (f"{DATA}/c49", f"{WEIGHTS}/c21"), strict=True
    ):
        refused(operation, NOT_SUPPORTED, clause)


@shows(f"{DATA}/c23")
def test_lengths_on_the_device_are_not_compared(caller: Caller) -> None:
    """A call does not notice that lengths on the device differ from those of the descriptors."""
    _, operation, _ = training(network())
    call = Called(caller, sized(caller, operation))
    call(devSeqLengths=caller.handle.to_device(np.ones(len(operation.y.lengths), np.int32)))


@shows("cudnnRNNBackwardData_v8/c07 c13 c14 c26 c30 c33-c37 c41-c45 c52-c54")
def test_wrong_arguments_of_data(subject: Subject, caller: Caller, refuses: Callable[..., bool]) -> None:
    """Wrong descriptors of states, NULL, and buffers that are too small by a byte are refused."""
    for direction in (rnn.ONE_WAY, rnn.TWO_WAYS):
        _, operation, _ = training(network(projected=3, direction=direction))
        call = Called(caller, sized(caller, operation))
        for name, size in (("hDesc", 3), ("cDesc", 7)):
            for spec in wrong_states(operation.network, size):
                refuses(BAD_PARAM, f"{DATA}/c53", call, **{name: caller.tensor(spec)})
            refuses(BAD_PARAM, f"{DATA}/c53", call, **{name: None})
    for name in ("rnnDesc", "xDesc", "yDesc"):
        refuses(BAD_PARAM, f"{DATA}/c52", call, **{name: None})
    for name, clause in (("y", "c30"), ("dy", "c30"), ("dx", "c07"), ("devSeqLengths", "c26")):
        if subject.survives_stray_pointers:
            refuses(BAD_PARAM, f"{DATA}/{clause}", call, **{name: None})
    refuses_small_spaces(subject, refuses, call, f"{DATA}/c54", "weightSpace", "workSpace", "reserveSpace")
    call(hDesc=None, hx=None, dhy=None, dhx=None)
    call(cDesc=None, cx=None, dcy=None, dcx=None)


@shows(f"{DATA}/c38")
def test_hidden_states_without_projection(caller: Caller, refuses: Callable[..., bool]) -> None:
    for cell in (rnn.LSTM, rnn.GRU):
        _, operation, _ = training(network(cell))
        call = Called(caller, sized(caller, operation))
        call()
        for spec in wrong_states(operation.network, 7):
            refuses(BAD_PARAM, f"{DATA}/c53", call, hDesc=caller.tensor(spec))


@shows(f"{WEIGHTS}/c06 c07 c14 c22-c25")
def test_wrong_arguments_of_weights(subject: Subject, caller: Caller, refuses: Callable[..., bool]) -> None:
    *_, operation = training(network(projected=3))
    call = Called(caller, sized(caller, operation))
    for value in (1, 2, -1):
        refuses(BAD_PARAM, f"{WEIGHTS}/c25", call, addGrad=value)
    wrong = [TensorSpec.packed(FLOAT, dims) for dims in ((4, 3, 4), (3, 3, 3), (4, 2, 3))]
    for spec in (*wrong, TensorSpec(FLOAT, (4, 3, 3), (10, 3, 1))):
        refuses(BAD_PARAM, f"{WEIGHTS}/c23", call, hDesc=caller.tensor(spec))
    for name in ("rnnDesc", "xDesc", "yDesc", "hDesc"):
        refuses(BAD_PARAM, f"{WEIGHTS}/c22", call, **{name: None})
    refuses_small_spaces(subject, refuses, call, f"{WEIGHTS}/c24", "dweightSpace", "workSpace", "reserveSpace")


@shows(f"{DATA}/c51")
def test_double_with_the_static_algorithm(caller: Caller, refuses: Callable[..., bool]) -> None:
    check_static(caller, refuses, training(network(rnn.TANH, data_type=DOUBLE), lengths=(3, 3))[1], f"{DATA}/c51")
