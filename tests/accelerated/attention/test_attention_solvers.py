"""Checks that TMA-fed tensor cores serve attention for any vector size and alignment, except in double."""

from __future__ import annotations

import pytest
from dualdnn.accelerated.attention import online_tma
from dualdnn.accelerated.attention.tma_items import WARPGROUP
from dualdnn.accelerated.backend import AcceleratedBackend
from dualdnn.accelerated.solver import SOLVER_FAMILIES
from dualdnn.api.operations.specs import DOUBLE, FLOAT, HALF
from dualdnn.conformance.bench.attention_rows import forward, gradients, spec, step


@pytest.fixture
def device():
    return AcceleratedBackend("emulated").device


def served(device, operation, aligned=True):
    family = SOLVER_FAMILIES[type(operation)]
    return family.solver(family.problem(operation, device, aligned)).name


@pytest.mark.parametrize("aligned", [True, False], ids=["aligned", "anywhere"])
@pytest.mark.parametrize("projected", [True, False], ids=["projected", "core"])
@pytest.mark.parametrize("size", [3, 20, 64, 160, 256])
@pytest.mark.parametrize("data_type", [HALF, FLOAT], ids=lambda t: t.name)
def test_vectors_of_any_size_and_address_reach_tensor_cores(device, data_type, size, projected, aligned):
    attn = spec(data_type, 3, size, 3 * size, (70, 80), 2, projected)
    training = forward(attn, (70, 80), 2, True, True)
    assert served(device, training, aligned) == "attention.online_tma"
    assert served(device, dict(gradients(training))["data"], aligned) == "attention.gradients_tma"
    assert served(device, step(attn, 5, 70, 2), aligned) == "attention.online_tma"


@pytest.mark.parametrize("size", [64, 160])
@pytest.mark.parametrize("data_type", [HALF, FLOAT], ids=lambda t: t.name)
def test_items_that_fit_at_once_have_one_warpgroup(device, monkeypatch, data_type, size):
    """Smaller blocks use multiprocessors that larger ones would leave idle."""
    monkeypatch.setattr(device, "multiprocessors", 8)
    attn = spec(data_type, 1, size, size, (256, 256), 2, False)
    for batches, fits in ((2, True), (3, False)):
        training = forward(attn, (256, 256), batches, False, True)
        problem = SOLVER_FAMILIES[type(training)].problem(training, device)
        (threads, _, _) = online_tma.core(problem)[-1].block
        assert (threads == 2 * WARPGROUP) == fits


def test_double_takes_any_call(device):
    training = forward(spec(DOUBLE, 1, 8, 8, (4, 4), 1, False), (4, 4), 1, False, True)
    assert served(device, training) == "attention.online"
    assert served(device, dict(gradients(training))["data"]) == "attention.gradients"
