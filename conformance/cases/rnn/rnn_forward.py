"""Holds cases of cudnnRNNForward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.enumerations import cudnnForwardMode_t, cudnnRNNDataLayout_t, cudnnRNNMode_t
from dualdnn.api.operations import TensorSpec
from dualdnn.api.operations.rnn import RNNClipSpec, RNNSpec
from dualdnn.api.operations.specs import DOUBLE, FLOAT
from dualdnn.api.status import BAD_PARAM, NOT_SUPPORTED
from dualdnn.conformance.calls import sized
from dualdnn.conformance.cases.rnn import rnn_descriptors as rnn
from dualdnn.conformance.domains import rnn as drawn
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Called, prepare

if TYPE_CHECKING:
    from dualdnn.conformance.calls import Caller
    from dualdnn.conformance.subjects import Subject
    from dualdnn.conformance.trial import Trial

SEQ_MAJOR, PACKED, BATCH_MAJOR = cudnnRNNDataLayout_t
INFERENCE, TRAINING = cudnnForwardMode_t
NAME = "cudnnRNNForward"
EXACT = next(kind for kind in type(rnn.DEFAULT) if kind.name == "CUDNN_FMA_MATH")
RAGGED = (3, 1, 2)


def network(cell: Any = rnn.LSTM, bias: Any = rnn.DOUBLE_BIAS, direction: Any = rnn.TWO_WAYS, input_mode: Any = rnn.LINEAR, data_type: Any = FLOAT, *, width: int = 5, hidden: int = 7,
            projected: Any = None, layers: int = 2, math_type: Any = EXACT, precision: Any = None, algo: Any = rnn.STANDARD, padded: bool = True, clip: Any = None) -> RNNSpec:  # fmt: skip
    """Return a network of two layers and two directions with odd sizes."""
    precision = precision or (DOUBLE if data_type == DOUBLE else FLOAT)
    width = hidden if input_mode == rnn.SKIP else width
    return RNNSpec(algo, cell, bias, direction, input_mode, data_type, precision, math_type, width, hidden,
                   projected or hidden, layers, padded, clip or RNNClipSpec())  # fmt: skip


def forward(
    spec: Any = None,
    layout: Any = SEQ_MAJOR,
    lengths: Any = RAGGED,
    longest: Any = None,
    fill: Any = None,
    training: bool = True,
    null: Any = (),
) -> Any:
    """Return the forward operation of a network; ``null`` names the states that the call does not get."""
    return drawn.forward(spec or network(), layout, lengths, longest or max(lengths), fill, training, null)


def label(value: Any) -> Any:
    return getattr(value, "name", None) or str(value)


@shows(f"{NAME}/c12 c14 c19 c22", "cudnnSetRNNDataDescriptor/c03 c06 c07 c10-c12", "cudnnSetRNNDescriptor_v8/c30")
@pytest.mark.parametrize("layout", cudnnRNNDataLayout_t, ids=label)
@pytest.mark.parametrize("fill", [None, -1.5])
def test_layouts(trial: Callable[..., Trial], layout: Any, fill: Any) -> None:
    """Sequences have several lengths, some 0. The padding of x does not count, and that of y gets the fill."""
    lengths = (4, 2, 2, 1) if layout == PACKED else (1, 4, 0, 2)
    for spec in (network(rnn.GRU), network(rnn.LSTM, direction=rnn.ONE_WAY)):
        operation = forward(spec, layout, lengths, fill=fill)
        trial(operation)
        if layout != PACKED:
            trial(forward(spec, layout, lengths, longest=5, fill=fill), before={"x": not_a_number(operation, 5)})


def not_a_number(operation: Any, steps: Any) -> Any:
    """Return numbers in the vectors of the sequences, NaN in the padding."""
    spec = replace(operation.x, max_length=steps)
    valid = np.arange(steps)[:, np.newaxis] < np.asarray(spec.lengths)
    values = np.where(
        valid[..., np.newaxis], np.random.default_rng(3).standard_normal((steps, spec.batch, spec.vector)), np.nan
    )
    ordered = values.swapaxes(0, 1) if spec.layout == BATCH_MAJOR else values
    return np.frombuffer(np.ascontiguousarray(ordered.astype(np.float32)).tobytes(), np.uint8)


def infinite_recurrent(operation: Any, pseudo_layer: int = 3) -> Any:
    """Return weights with an infinity and a NaN in the recurrent matrix of a pseudo-layer."""
    weights, spec = prepare(operation, "normal", 0)["weightSpace"], operation.network
    start = spec.matrix(pseudo_layer, spec.gates).offset
    weights.view(np.float32)[[start, start + 2 * spec.hidden]] = np.inf, np.nan
    return {"weightSpace": weights}


@shows(f"{NAME}/c01", f"{NAME}/c29")
@pytest.mark.parametrize("cell", cudnnRNNMode_t, ids=label)
def test_recurrent_weights_are_nan(trial: Callable[..., Trial], cell: Any) -> None:
    """Initial states of zero times NaN weights give NaN. NULL states may skip these products (docs/errata.md)."""
    for null in ((), ("hx",), ("cx",), ("hx", "cx")):
        operation = forward(network(cell), null=null)
        trial(operation, before=infinite_recurrent(operation))
    operation = forward(network(cell))
    memory = infinite_recurrent(operation)
    found = trial(operation, before=memory | {"hx": np.zeros(operation.nbytes("hx"), np.uint8)})
    hidden = found.after["hy"].view(np.float32).reshape(operation.hy.dims)
    assert np.isfinite(hidden[:3]).all() and np.isnan(hidden[3, :, 0]).all()


@shows("cudnnRNNSetClip_v8/c03 c06-c08", "cudnnRNNClipMode_t/c01")
@pytest.mark.parametrize("nan", [rnn.NOT_PROPAGATE, rnn.PROPAGATE], ids=label)
def test_clipping(trial: Callable[..., Trial], nan: Any) -> None:
    """Every LSTM layer clips its cell state; other cells have no such state. NaN becomes the lower bound or stays."""
    for lower, upper in ((-0.3, 0.2), (0.1, 0.1), (-math.inf, 0.0)):
        clip = RNNClipSpec(rnn.MINMAX, nan, lower, upper)
        trial(forward(network(clip=clip)))
    trial(forward(network(rnn.GRU, clip=clip)))
    operation = forward(
        network(direction=rnn.ONE_WAY, layers=1, clip=RNNClipSpec(rnn.MINMAX, nan, -0.5, 0.25)), lengths=(1,) * 6
    )
    states = np.random.default_rng(1).standard_normal((6, 7)).astype(np.float32)
    states[0, :3], states[3, 2], states[4, 5] = np.nan, np.inf, -np.inf
    trial(operation, before={"cx": np.frombuffer(states.tobytes(), np.uint8)})


@shows(f"{NAME}/c01", f"{NAME}/c40")
@pytest.mark.parametrize("algo", [rnn.STATIC, rnn.DYNAMIC], ids=label)
def test_persistent_algorithms(trial: Callable[..., Trial], refused: Callable[..., None], algo: Any) -> None:
    for cell in (rnn.TANH, rnn.LSTM):
        spec = network(cell, algo=algo)
        trial(forward(spec, lengths=(3, 3)))
        refused(forward(spec, lengths=(3, 2)), NOT_SUPPORTED, f"{NAME}/c41")


@shows(f"{NAME}/c30")
@pytest.mark.parametrize("cell", [rnn.GRU, rnn.TANH], ids=label)
def test_cell_states_of_other_cells(caller: Caller, cell: Any) -> None:
    """Only an LSTM has cell states: other cells ignore their descriptor and memory."""
    call, found = Called(caller, sized(caller, forward(network(cell)))), []
    wrong = {"cDesc": caller.tensor(TensorSpec.packed(DOUBLE, (1, 1, 1))), "cx": call.memory["hx"].slice(0, 4)}
    for states in ({"cDesc": None, "cx": None}, wrong):
        call(**states)
        found.append(call.memory["y"].to_host(np.uint8, call.memory["y"].nbytes))
    np.testing.assert_array_equal(*found)


def wrong_states(spec: Any, size: Any) -> Iterator[Any]:
    """Yield descriptors of three states of this size that have one defect: a dimension, the strides or the type."""
    count = spec.pseudo_layers
    for dims in ((count, 3, size + 1), (count - 1, 3, size), (count, 2, size), (count, 3, size, 2)):
        yield TensorSpec.packed(FLOAT, dims)
    yield TensorSpec(FLOAT, (count, 3, size), (3 * size + 1, size, 1))
    yield TensorSpec.packed(DOUBLE, (count, 3, size))


@shows("cudnnRNNForward/c09 c16 c20 c21 c23-c28 c32-c37 c39 c44-c46", "cudnnGetRNNTempSpaceSizes/c01 c05")
def test_wrong_arguments(
    subject: Subject, caller: Caller, cudnn: Any, handle: Any, refuses: Callable[..., bool]
) -> None:
    """Wrong descriptors of states, NULL, and buffers that are too small by a byte are refused."""
    for direction in (rnn.ONE_WAY, rnn.TWO_WAYS):
        operation = sized(caller, forward(network(projected=3, direction=direction)))
        call = Called(caller, operation)
        for name, size in (("hDesc", 3), ("cDesc", 7)):
            for spec in wrong_states(operation.network, size):
                refuses(BAD_PARAM, f"{NAME}/c45", call, **{name: caller.tensor(spec)})
        other = sized(caller, forward(network(rnn.GRU, direction=direction)))
        gated = Called(caller, other)
        hidden = TensorSpec.packed(FLOAT, (other.network.pseudo_layers, 3, other.network.hidden + 1))
        refuses(BAD_PARAM, f"{NAME}/c45", gated, hDesc=caller.tensor(hidden))
        for made, y in ((call, operation.y), (gated, other.y)):
            refuses(BAD_PARAM, f"{NAME}/c45", made, yDesc=caller.descriptor(replace(y, vector=y.vector + 1)))
    for name in ("rnnDesc", "xDesc", "yDesc", "hDesc"):
        refuses(BAD_PARAM, f"{NAME}/c44", call, **{name: None})
    refuses(BAD_PARAM, f"{NAME}/c16", call, devSeqLengths=None)
    refuses(BAD_PARAM, f"{NAME}/c45", call, cDesc=None)
    refuses_small_spaces(subject, refuses, call, f"{NAME}/c46", "weightSpace", "workSpace", "reserveSpace")
    sizes = cudnn.cudnnGetRNNTempSpaceSizes(handle, call.arguments["rnnDesc"], TRAINING, call.arguments["xDesc"])
    assert tuple(sizes) == (call.arguments["workSpaceSize"], call.arguments["reserveSpaceSize"])


def refuses_small_spaces(subject: Subject, refuses: Callable[..., bool], call: Any, clause: Any, *spaces: Any) -> None:
    """Check that a call refuses spaces of which the size is a byte too small, or the memory an element."""
    for name in spaces:
        size = f"{name.removeprefix('d')}Size"
        refuses(BAD_PARAM, clause, call, **{size: call.arguments[size] - 1})
        if subject.knows_sizes:
            refuses(BAD_PARAM, clause, call, **{name: call.arguments[name].slice(0, call.arguments[size] - 4)})


@shows(*(f"{NAME}/c{n}" for n in (24, 25, 26, 28)))
def test_states_may_be_described_with_dimensions_of_one_behind_the_third(caller: Caller) -> None:
    """Clients describe every tensor with five dimensions, so such states are accepted (docs/errata.md,
    rnn-state-rank)."""
    operation, found = sized(caller, forward(network())), []
    for more in ((), (1,), (1, 1)):
        call = Called(caller, operation)
        described = (
            caller.tensor(TensorSpec.packed(o.data_type, (*o.dims, *more))) for o in (operation.hx, operation.cx)
        )
        call(**dict(zip(("hDesc", "cDesc"), described, strict=True)))
        written = (call.memory[name] for name in ("y", "hy", "cy"))
        found.append([memory.to_host(np.uint8, memory.nbytes).tobytes() for memory in written])
    assert found[0] == found[1] == found[2]


def check_static(caller: Caller, refuses: Callable[..., bool], operation: Any, clause: Any) -> None:
    """Check that a call is refused once its network has the static algorithm, which the setter of version 8 refuses."""
    call, chosen = Called(caller, sized(caller, operation)), caller.cudnn.cudnnCreateAlgorithmDescriptor()
    call()
    static = replace(operation.network, algo=rnn.STATIC)
    refuses(NOT_SUPPORTED, "cudnnSetRNNDescriptor_v8/c34", caller.descriptor, static)
    caller.cudnn.cudnnSetAlgorithmDescriptor(chosen, rnn.STATIC)
    caller.cudnn.cudnnSetRNNAlgorithmDescriptor(caller.handle, call.arguments["rnnDesc"], chosen)
    refuses(NOT_SUPPORTED, clause, call)


@shows(f"{NAME}/c43")
def test_double_with_the_static_algorithm(caller: Caller, refuses: Callable[..., bool]) -> None:
    check_static(caller, refuses, forward(network(rnn.TANH, data_type=DOUBLE), lengths=(3, 3)), f"{NAME}/c43")
