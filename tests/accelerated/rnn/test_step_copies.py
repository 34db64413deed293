"""Tests the copies that recurrent networks make for the products of their steps."""

from __future__ import annotations

import pytest
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.rnn import step_copies
from dualdnn.accelerated.rnn.gradient import GradientSolver
from dualdnn.accelerated.rnn.problem import RNNProblem
from dualdnn.accelerated.rnn.recurrence import RecurrenceSolver
from dualdnn.api.operations.rnn.network import GRU, LSTM, TANH
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.rnn_rows import forward, network, passes
from test_wavefront import assert_close, training_step


@pytest.mark.parametrize("cell, data_type, layers, hidden, directions, lengths", [
    (LSTM, HALF, 2, 21, 2, (3, 1, 0, 2, 3)), (GRU, FLOAT, 1, 18, 2, (4, 4, 2)), (GRU, HALF, 2, 24, 1, (3, 2)),
    (TANH, FLOAT, 1, 15, 1, (2, 4)),
])  # fmt: skip
def test_copies_and_operands_in_place_give_equal_products(
    monkeypatch, cell, data_type, layers, hidden, directions, lengths
):
    """Results agree for sizes that TMA can and cannot read, both directions, and any lengths (0 too)."""
    spec, found = network(cell, hidden, layers, directions, data_type), []
    for copies in (False, True):
        monkeypatch.setattr(step_copies, "saves", lambda _, copies=copies: copies)
        found.append(training_step(spec, lengths, (RecurrenceSolver(), GradientSolver())))
    assert_close(*found, data_type, layers)


def test_many_steps_of_an_odd_size_are_worth_copies(monkeypatch):
    """Rows of 1538 floats are copied once for many steps, so that TMA reads them. Rows of 1536 floats stay in place."""
    device = AcceleratedBackend("emulated").device
    monkeypatch.setattr(device, "multiprocessors", 132)
    for hidden, steps, copied in ((1538, 30, True), (1538, 1, False), (1536, 30, False)):
        first, data, _ = (
            operation for _, operation in passes(forward(network(LSTM, hidden, 1, 1, FLOAT), steps, (steps,) * 37))
        )
        for solver, operation in ((RecurrenceSolver(), first), (GradientSolver(), data)):
            names = [launch.function.name for launch in solver.launches(RNNProblem(operation, device))]
            assert ("gemm_parts_copy" in names) == copied, (hidden, steps, names[:5])
