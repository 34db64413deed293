"""Which layers share a product of the gradients of their weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dualdnn.accelerated.rnn import inputs
from dualdnn.accelerated.rnn.problem import RNNProblem
from dualdnn.accelerated.rnn.weight_gradient import WeightGradientSolver
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.api.operations.rnn.network import GRU, LSTM
from dualdnn.api.operations.specs import HALF
from dualdnn.conformance.bench.rnn_rows import forward, network, passes


@pytest.mark.parametrize("cell, width, directions, layers, batches", [
    (LSTM, 24, 1, 3, [1, 2, 3]),  # the first layer has x, the others what lies below them
    (LSTM, 16, 1, 3, [1, 2, 3]),  # from one recurrent matrix to the next it is as far
    (GRU, 24, 1, 2, [1, 1, 2, 2]),  # two products of recurrent matrices
    (LSTM, 24, 2, 2, [2, 2, 2, 2]),  # directions are batches
    (LSTM, 24, 1, 1, [1, 1]),
])  # fmt: skip
def test_layers_that_lie_alike_are_one_product(monkeypatch, cell, width, directions, layers, batches):
    """By the number of batches of each product; where each batch begins, the cases of the suite judge."""
    spec = replace(network(cell, 24, layers, directions, HALF), input_size=width)
    *_, operation = (operation for _, operation in passes(forward(spec, 3, (3, 2))))
    found = []
    monkeypatch.setattr(inputs, "multiply", lambda *_, batches, **__: found.append(max(batches)) or [])
    WeightGradientSolver().launches(RNNProblem(operation, open_device("emulated")))
    assert found == batches
