"""Tests which layers compute the gradients of their weights in one matrix product."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from dualdnn.accelerated.gemm.matrix import MatrixProduct
from dualdnn.accelerated.rnn import weight_gradient
from dualdnn.accelerated.rnn.problem import RNNProblem
from dualdnn.accelerated.rnn.weight_gradient import WeightGradientSolver
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.api import cudnn
from dualdnn.api.operations.rnn.network import GRU, LSTM, TANH
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.rnn_rows import forward, network, passes
from dualdnn.conformance.calls import Caller
from dualdnn.conformance.solvers import ALL, by_solvers
from dualdnn.conformance.trial import Step, attempt_chain, prepare
from test_persistent import elements, run


@pytest.mark.parametrize("cell, width, directions, layers, batches", [
    (LSTM, 24, 1, 3, [(3, 2)]),  # One product computes all layers, and both kinds of matrices.
    (LSTM, 16, 1, 3, [(1, 1), (2, 1), (3, 1)]),  # The first layer has another input size.
    (GRU, 24, 1, 1, [(1, 2), (1, 2)]),  # GRU needs two products.
    (LSTM, 24, 2, 2, [(2, 1)] * 4),  # The directions of a layer are batches.
    (LSTM, 24, 1, 1, [(1, 2)]),
])  # fmt: skip
def test_layers_with_equal_matrices_share_a_product(monkeypatch, cell, width, directions, layers, batches):
    """Layers share a product if their matrices have equal sizes; the suite's cases judge the results."""
    spec = replace(network(cell, 24, layers, directions, HALF), input_size=width)
    assert batches_of(monkeypatch, forward(spec, 3, (3, 2))) == batches


def test_many_vectors_are_not_copied(monkeypatch):
    """One product for both kinds of matrices is not worth copying many inputs."""
    long = forward(network(LSTM, 512, 3, 1, HALF), 128, (128,) * 64)
    assert batches_of(monkeypatch, long) == [(1, 1), (2, 1), (3, 1)]


def test_layers_and_directions_are_batches_of_small_products(monkeypatch):
    """Layers with equal input sizes share a product for both directions, where TMA reads none of them."""
    small = forward(network(LSTM, 21, 3, 2, HALF), 3, (3, 2))
    assert batches_of(monkeypatch, small) == [(2, 1), (2, 2)] * 2
    assert batches_of(monkeypatch, forward(network(LSTM, 512, 3, 2, HALF), 64, (64,) * 64)) == [(2, 1)] * 6


@pytest.mark.parametrize("cell", [LSTM, GRU])
def test_products_of_many_layers_are_those_of_each(monkeypatch, cell):
    """The sums are the same if layers share a product or not."""
    *_, (_, operation) = passes(forward(network(cell, 13, 4, 2, FLOAT), 3, (3, 1, 2)))
    memory, found = prepare(operation, "normal", 0), []
    kept = np.random.default_rng(1).standard_normal(operation.nbytes("reserveSpace") // 4, np.float32)
    memory |= {
        "reserveSpace": kept.view(np.uint8),
        "dweightSpace": np.zeros(operation.nbytes("dweightSpace"), np.uint8),
    }
    for sign in (1, -1):  # fewest or most products
        monkeypatch.setattr(weight_gradient, "_seconds", lambda products, sign=sign: sign * len(list(products)))
        found.append(elements(run(operation, memory, WeightGradientSolver())["dweightSpace"], FLOAT))
    np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-3)
    assert np.isfinite(found[0]).all()


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_infinite_states_in_padding_reach_no_gradient_of_the_layer_above(dropout):
    """The reverse direction keeps the initial states of short sequences in the padding of its output."""
    spec = replace(network(TANH, 8, 2, 2, FLOAT), dropout=dropout)
    operations = [operation for _, operation in passes(forward(spec, 3, (3, 1, 2)))]
    steps = [Step(operation, inputs={"hx": "normal, 32=inf"}) for operation in operations]  # sequence 1, reverse
    caller = Caller(cudnn, cudnn.cudnnCreate(backend="accelerated", device="emulated"))
    before = {"states": np.array([7, 0], "<u8").view(np.uint8)}

    def is_finite(_):
        gradients = attempt_chain(caller, steps, before=before).after["dweightSpace"]
        above = elements(gradients, FLOAT)[spec.matrix(2, 0).offset : spec.matrix(3, 0).end]
        return np.isfinite(above).all() and above.any()

    found = []
    by_solvers(caller.handle, operations, lambda solver: found.append(is_finite(solver)), ALL)
    assert found == [True] * 3  # the preferred solvers, and those that run step by step


def batches_of(monkeypatch, training):
    """Return the batches of each product of weight gradients, on 132 multiprocessors."""
    *_, (_, operation) = passes(training)
    device, found = open_device("emulated"), []
    monkeypatch.setattr(device, "multiprocessors", 132)
    monkeypatch.setattr(MatrixProduct, "launches_in_scratch", lambda product, _=0: found.append(product.batches) or [])
    WeightGradientSolver().launches(RNNProblem(operation, device))
    return found
