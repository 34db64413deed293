"""Holds cases of cudnnRNNBackwardData_v8 and cudnnRNNBackwardWeights_v8, which take the reserve space of a forward
call."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnRNNMode_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.calls.derived import arguments
from dualdnn.conformance.cases.rnn.rnn_descriptors import (
    DEFAULT,
    DYNAMIC,
    LSTM,
    ONE_WAY,
    STATIC,
    TANH,
    TWO_WAYS,
)  # fmt: skip
from dualdnn.conformance.cases.rnn.rnn_forward import (
    RAGGED,
    SEQ_MAJOR,
    check_static,
    forward,
    label,
    network,
    wrong_states,
)
from dualdnn.conformance.domains.rnn import backward
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Step, attempt_chain, prepare

DATA, WEIGHTS = "cudnnRNNBackwardData_v8", "cudnnRNNBackwardWeights_v8"


def training(spec=None, layout=SEQ_MAJOR, lengths=RAGGED, longest=None, fill=None, null=()):
    """Return the forward call, the gradients of inputs and states, and the gradients of weights."""
    first = forward(spec, layout, lengths, longest, fill, null=null)
    return first, *backward(first, null)


@shows(f"{DATA}/c01", f"{WEIGHTS}/c01")
@pytest.mark.parametrize("cell", cudnnRNNMode_t, ids=label)
def test_infinite_numbers_of_half(chain, cell):
    """Infinities that meet gradients too small for HALF give infinity, NaN or an undetermined result.

    The same holds for numbers between layers that overflow in HALF.
    """
    for scale, kind in ((1, "infinite"), (4, "normal")):
        steps = training(network(cell, data_type=HALF, direction=ONE_WAY, hidden=17, layers=3, math_type=DEFAULT))
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
def test_layers_without_room_for_each_other(caller, evidence):
    """Two overlapping layers run although one block cannot hold both of their gate matrices."""
    spec = network(LSTM, direction=ONE_WAY, width=4, hidden=612, math_type=DEFAULT)
    found = attempt_chain(caller, [Step(operation) for operation in training(spec, lengths=(1,))[:2]])
    evidence.note(found)
    assert found.passed, found.explanation()


@shows(f"{DATA}/c01")
def test_gates_of_many_units(chain, handle):
    """Blocks share long sums over more steps than they have exchange buffers."""
    device = getattr(getattr(handle, "backend", None), "device", None)
    hidden = 256 if device is not None and device.kind == "gpu" else 16
    spec = network(LSTM, direction=ONE_WAY, width=8, hidden=hidden, layers=1, math_type=DEFAULT)
    chain(*training(spec, lengths=(3, 3, 3, 2, 2, 1, 0, 3))[:2])


@shows(f"{DATA}/c48", f"{WEIGHTS}/c20", f"{DATA}/c49", f"{WEIGHTS}/c21")
@pytest.mark.parametrize("algo", [STATIC, DYNAMIC], ids=label)
def test_persistent_algorithms(chain, refused, algo):
    chain(*training(network(LSTM, algo=algo), lengths=(3, 3)))
    for operation, clause in zip(
        training(network(LSTM, algo=algo), lengths=(3, 2))[1:], (f"{DATA}/c49", f"{WEIGHTS}/c21"), strict=True
    ):
        refused(operation, NOT_SUPPORTED, clause)


def calls_of(caller, operation, name):
    """Return the arguments of a call by the names of its parameters, with the spaces that the subject asks for."""
    from dualdnn.api.document import functions

    operation = sized(caller, operation)
    memory = {
        operand: caller.handle.to_device(np.zeros(operation.nbytes(operand), np.uint8))
        for operand in operation.operands
    }
    values = [value(caller, operation, memory) for value in arguments(name, type(operation))]
    return dict(zip((p.name for p in functions()[name].arguments), values, strict=True))


@shows("cudnnRNNBackwardData_v8/c07 c13 c14 c26 c30 c33-c37 c41-c45 c52-c54")
def test_wrong_arguments_of_data(subject, caller, cudnn, refuses):
    """Wrong descriptors of states, NULL, and buffers that are too small by a byte are refused."""

    def call(**changes):
        getattr(cudnn, DATA)(*{**good, **changes}.values())

    for direction in (ONE_WAY, TWO_WAYS):
        _, operation, _ = training(network(projected=3, direction=direction))
        good = calls_of(caller, operation, DATA)
        for name, size in (("hDesc", 3), ("cDesc", 7)):
            for spec in wrong_states(operation.network, size):
                refuses(BAD_PARAM, f"{DATA}/c53", call, **{name: caller.tensor(spec)})
            refuses(BAD_PARAM, f"{DATA}/c53", call, **{name: None})
    for name in ("rnnDesc", "xDesc", "yDesc"):
        refuses(BAD_PARAM, f"{DATA}/c52", call, **{name: None})
    for name, clause in (("y", "c30"), ("dy", "c30"), ("dx", "c07"), ("devSeqLengths", "c26")):
        if subject.survives_stray_pointers:
            refuses(BAD_PARAM, f"{DATA}/{clause}", call, **{name: None})
    for name in ("weightSpace", "workSpace", "reserveSpace"):
        refuses(BAD_PARAM, f"{DATA}/c54", call, **{f"{name}Size": good[f"{name}Size"] - 1})
        if subject.knows_sizes:
            refuses(BAD_PARAM, f"{DATA}/c54", call, **{name: good[name].slice(0, good[f"{name}Size"] - 4)})
    call(hDesc=None, hx=None, dhy=None, dhx=None)
    call(cDesc=None, cx=None, dcy=None, dcx=None)


@shows(f"{DATA}/c38")
def test_hidden_states_without_projection(caller, cudnn, refuses):
    _, operation, _ = training(network())
    good = calls_of(caller, operation, DATA)
    getattr(cudnn, DATA)(*good.values())
    for spec in wrong_states(operation.network, 7):
        refuses(BAD_PARAM, f"{DATA}/c53", getattr(cudnn, DATA), *{**good, "hDesc": caller.tensor(spec)}.values())


@shows(*(f"{WEIGHTS}/c{i:02}" for i in (6, 7, 14, 22, 23, 24, 25)))
def test_wrong_arguments_of_weights(subject, caller, cudnn, refuses):
    *_, operation = training(network(projected=3))
    good = calls_of(caller, operation, WEIGHTS)

    def call(**changes):
        getattr(cudnn, WEIGHTS)(*{**good, **changes}.values())

    for value in (1, 2, -1):
        refuses(BAD_PARAM, f"{WEIGHTS}/c25", call, addGrad=value)
    for dims in ((4, 3, 4), (3, 3, 3), (4, 2, 3)):
        refuses(BAD_PARAM, f"{WEIGHTS}/c23", call, hDesc=caller.tensor(TensorSpec.packed(FLOAT, dims)))
    for name in ("rnnDesc", "xDesc", "yDesc", "hDesc"):
        refuses(BAD_PARAM, f"{WEIGHTS}/c22", call, **{name: None})
    for name, size in (
        ("dweightSpace", "weightSpaceSize"),
        ("workSpace", "workSpaceSize"),
        ("reserveSpace", "reserveSpaceSize"),
    ):
        refuses(BAD_PARAM, f"{WEIGHTS}/c24", call, **{size: good[size] - 1})
        if subject.knows_sizes:
            refuses(BAD_PARAM, f"{WEIGHTS}/c24", call, **{name: good[name].slice(0, good[size] - 4)})


@shows(f"{DATA}/c51")
def test_double_with_the_static_algorithm(caller, refuses):
    check_static(caller, refuses, training(network(TANH, data_type=DOUBLE), lengths=(3, 3))[1], DATA, "c51")
