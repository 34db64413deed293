"""Holds cases of dropout between the layers of recurrent networks: properties of every library's mask, and our own
random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.api.status import BAD_PARAM
from dualdnn.conformance.calls import Caller, roomy
from dualdnn.conformance.calls.rnn_before_8 import LegacyCaller
from dualdnn.conformance.cases.dropout import SEED, Layer, states
from dualdnn.conformance.cases.rnn import rnn_descriptors as rnn
from dualdnn.conformance.cases.rnn.rnn_backward import training
from dualdnn.conformance.cases.rnn.rnn_forward import BATCH_MAJOR, PACKED, SEQ_MAJOR, forward, label, network
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Step

if TYPE_CHECKING:
    from dualdnn.conformance.trial import Trial

V6 = "cudnnSetRNNDescriptor_v6"
V8 = "cudnnSetRNNDescriptor_v8"
LENGTHS = (5, 5, 5)
UNITS = 16


def dropping(probability: float, *args: Any, **others: Any) -> Any:
    return replace(network(*args, **others), dropout=float(np.float32(probability)))


class Relay:
    """Passes positive vectors from layer to layer unchanged, so that dropout between them shows in y and in the
    gradients.

    Calls of either generation run on memory of this object, with one dropout descriptor.
    """

    def __init__(self, cudnn: Any, handle: Any, legacy: bool, probability: float, layers: int = 2) -> None:
        spec = dropping(
            probability, rnn.RELU, rnn.NO_BIAS, rnn.ONE_WAY, width=UNITS, hidden=UNITS, layers=layers, padded=not legacy
        )
        self.handle, self.dropout = handle, Layer(cudnn, handle, probability)
        layout = PACKED if legacy else SEQ_MAJOR
        self.caller = LegacyCaller(cudnn, handle, False) if legacy else Caller(cudnn, handle)
        self.caller.dropout = self.dropout.descriptor
        calls = (*training(spec, layout, LENGTHS), forward(spec, layout, LENGTHS, training=False))
        self.forward, self.data, self.weights, self.inference = (
            calls if legacy else (roomy(self.caller, call) for call in calls)
        )
        self.x = np.random.default_rng(1).uniform(1, 2, (*self.forward.x.tensor.dims,)).astype(np.float32)
        w = np.zeros(spec.weight_elements, np.float32)
        for layer in range(layers):
            found = spec.matrix(layer, 0)
            w[found.offset : found.end] = np.eye(UNITS).reshape(-1)
        given = {"x": self.x, "weightSpace": w, "dweightSpace": np.zeros_like(w), "dy": np.ones_like(self.x)}
        self.memory = {}
        for operation in (self.forward, self.data, self.weights):
            for name in operation.operands:
                values = given.get(name, np.zeros(-(-operation.nbytes(name) // 4), np.float32))
                self.memory[name] = handle.to_device(values)

    def __call__(self, operation: Any, result: str) -> Any:
        self.caller(operation, {name: self.memory[name] for name in operation.operands})
        return self.memory[result].to_host(np.float32, operation.nbytes(result) // 4)

    def mask(self) -> Any:
        """Return the elements that a training call keeps, after checking that these are scaled and all others zero."""
        y = self(self.forward, "y").reshape(self.x.shape)
        kept = y != 0
        scaled = self.x.astype(np.float64) / (1 - self.forward.network.dropout)
        np.testing.assert_allclose(y, np.where(kept, scaled, 0), rtol=1e-5)
        return kept


generations = pytest.mark.parametrize("legacy", [False, True], ids=["v8", "legacy"])


@shows(f"{V8}/c27 c28", f"{V6}/c05", "cudnnDropoutForward/c02")
@generations
def test_mask_between_layers(cudnn: Any, handle: Any, legacy: Any) -> None:
    """Dropout acts between two layers in training alone. The gradients use the mask of the forward call, not of the
    states."""
    relay = Relay(cudnn, handle, legacy, 0.25)
    np.testing.assert_array_equal(relay(relay.inference, "y").reshape(relay.x.shape), relay.x)
    kept = relay.mask()
    assert 0.6 < kept.mean() < 0.9 and (kept != kept[:, :1]).any()
    last = relay.memory["hy"].to_host(np.float32, (2, 3, UNITS))
    # Dropout leaves the hidden states of the first layer as they are.
    np.testing.assert_array_equal(last[0], relay.x.reshape(5, 3, UNITS)[-1])
    relay.dropout.mask()  # This is another call with the same states.
    scale = np.where(kept, 1 / 0.75, 0)
    np.testing.assert_allclose(relay(relay.data, "dx").reshape(kept.shape), scale, rtol=1e-5)
    gradient = relay(relay.weights, "dweightSpace")
    n = relay.forward.network
    first, second = (
        gradient[found.offset : found.end].reshape(UNITS, UNITS) for found in (n.matrix(0, 0), n.matrix(1, 0))
    )
    vectors, passed = relay.x.reshape(-1, UNITS).astype(float), (relay.x * scale).reshape(-1, UNITS)
    shown = (passed > 0).astype(float)  # The second ReLU passes no gradient where it got 0.
    np.testing.assert_allclose(second, shown.T @ passed, rtol=1e-4)
    np.testing.assert_allclose(first, scale.reshape(-1, UNITS).T @ vectors, rtol=1e-4)


@shows(f"{V8}/c27", f"{V6}/c05")
@generations
def test_calls_and_states(cudnn: Any, handle: Any, legacy: Any) -> None:
    """Every training call draws anew, and copied states draw the same again. A single layer and inference draw
    nothing."""
    relay = Relay(cudnn, handle, legacy, 0.5)
    before = relay.dropout.copy_of_states()
    first, second = relay.mask(), relay.mask()
    assert 0.3 < (first != second).mean() < 0.7
    relay.dropout.restored(0.5, before, SEED)
    relay(relay.inference, "y")
    np.testing.assert_array_equal(relay.mask(), first)
    single = Relay(cudnn, handle, legacy, 0.5, layers=1)
    unused = single.dropout.states.to_host(np.uint8, single.dropout.size)
    np.testing.assert_array_equal(single(single.forward, "y").reshape(single.x.shape), single.x)
    np.testing.assert_array_equal(single.dropout.states.to_host(np.uint8, single.dropout.size), unused)


@shows("cudnnDropoutForward/c15", f"{V8}/c28")
def test_descriptors_without_states(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    """Training is refused, and nothing written; inference works. A descriptor that was never set means no dropout."""
    relay = Relay(cudnn, handle, False, 0.5)
    bare = cudnn.cudnnCreateDropoutDescriptor()
    caller = relay.caller
    caller.dropout = bare
    kept = tuple(relay.memory.values())
    memory = {name: relay.memory[name] for name in relay.forward.operands}
    caller(replace(relay.forward, network=replace(relay.forward.network, dropout=0.0)), memory)
    cudnn.cudnnSetDropoutDescriptor(bare, handle, 0.5, None, 0, 1)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", caller, relay.forward, memory, unchanged=kept)
    caller(relay.inference, memory)


@shows("cudnnDropoutForward/c15")
@pytest.mark.ours
def test_dropout_that_was_destroyed(cudnn: Any, handle: Any, refuses: Callable[..., bool]) -> None:
    """Calls of a network are refused after its dropout descriptor was destroyed."""
    relay = Relay(cudnn, handle, False, 0.5)
    given = relay.caller.values("cudnnRNNForward", relay.forward, relay.memory)
    cudnn.cudnnDestroyDropoutDescriptor(relay.dropout.descriptor)
    refuses(BAD_PARAM, "cudnnStatus_t/c05", cudnn.cudnnRNNForward, *given, unchanged=tuple(relay.memory.values()))


# --- our random numbers, element by element as docs/dropout.md says ---


@shows(f"{V8}/c27", f"{V8}/c28")
@pytest.mark.ours
@pytest.mark.parametrize("cell", [rnn.TANH, rnn.LSTM, rnn.GRU], ids=label)
@pytest.mark.parametrize("layout", [SEQ_MAJOR, PACKED, BATCH_MAJOR], ids=label)
def test_every_layout(chain: Callable[..., Trial], cell: Any, layout: Any) -> None:
    """Three layers in both directions, with sequences of several lengths, drop the same elements in every layout."""
    projected = 3 if cell == rnn.LSTM else None
    spec = dropping(0.4, cell, direction=rnn.TWO_WAYS, layers=3, projected=projected)
    chain(*training(spec, layout, (4, 2, 1)), before=states(SEED, 2**32 - 1))


@shows(f"{V8}/c27")
@pytest.mark.ours
@pytest.mark.parametrize("data_type", [HALF, FLOAT, DOUBLE], ids=label)
def test_every_type(chain: Callable[..., Trial], data_type: Any) -> None:
    """Every type drops the right elements with several blocks of mask. The count carries into its upper word, and
    gradients follow the first call."""
    spec = dropping(0.25, rnn.GRU, data_type=data_type, width=3, hidden=19, layers=2)
    first, data, weights = training(spec, lengths=(3, 3, 1, 2) * 6)
    again = Step(first, {"y": "y2", "hy": "hy2", "reserveSpace": "r2"})
    chain(first, again, data, weights, before=states(SEED, 2**32 - 1))


@shows(f"{V8}/c27", f"{V8}/c28")
@pytest.mark.ours
@pytest.mark.parametrize(
    "data_type, cell, hidden",
    [(HALF, rnn.TANH, 24), (HALF, rnn.LSTM, 24), (HALF, rnn.GRU, 24), (FLOAT, rnn.LSTM, 20), (FLOAT, rnn.GRU, 20)],
    ids=label,
)
def test_layers_that_overlap(chain: Callable[..., Trial], cell: Any, data_type: Any, hidden: int) -> None:
    """Three overlapping layers drop the same elements as layers one after the other.

    A byte of the mask spans two vectors if their size is not a multiple of eight.
    """
    spec = dropping(
        0.4, cell, direction=rnn.ONE_WAY, layers=3, width=16, hidden=hidden, data_type=data_type, math_type=rnn.DEFAULT
    )
    chain(*training(spec, lengths=(3, 1, 2) * 3), before=states(SEED, 7))
