"""Compare the reference CTC loss with the answers of PyTorch and optax (record_ctc.py), up to 2000 time steps and 500 labels.

The calls take 256 labels at most; the reference's formula has no limit.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from ctc_configurations import COUNT, SHORT, least, sequences
from dualdnn.api.enumerations import cudnnCTCLossAlgo_t, cudnnLossNormalizationMode_t, cudnnNanPropagation_t
from dualdnn.api.operations import CTCLoss, CTCLossSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT
from dualdnn.reference import evaluate

NONE, SOFTMAX = cudnnLossNormalizationMode_t


@cache
def computed(number):
    """Return (costs, gradients) of the reference, in its own arithmetic."""
    s = sequences(number)
    spec, costs = TensorSpec.packed(FLOAT, s.x.shape), TensorSpec(FLOAT, s.x.shape[1:2], (1,))
    ctc = CTCLossSpec(FLOAT, SOFTMAX if s.normalizes else NONE, next(iter(cudnnNanPropagation_t)))
    labels = tuple(int(label) for each in s.labels for label in each)
    operation = CTCLoss(ctc, next(iter(cudnnCTCLossAlgo_t)), labels, tuple(map(len, s.labels)), tuple(s.input_lengths), 16,
                        spec, costs, spec)  # fmt: skip
    assert (s.x.astype(np.float32) == s.x).all()
    memory = {"probs": s.x.astype(np.float32), "gradients": np.zeros(s.x.shape, np.float32)}
    found = evaluate(operation, {name: array.reshape(-1).view(np.uint8) for name, array in memory.items()})
    return found["costs"].value, found["gradients"].value


@cache
def recorded(kind):
    """Return a map from number to (costs, weighted gradients)."""
    with np.load(Path(__file__).with_name(f"ctc_{kind}.npz")) as found:
        numbers = found["numbers"].tolist()
        shapes = [sequences(number).x.shape for number in numbers]
        costs = np.split(found["costs"], np.cumsum([count for _, count, _ in shapes])[:-1])
        gradients = np.split(found["gradients"], np.cumsum([times * count for times, count, _ in shapes])[:-1])
        return dict(zip(numbers, zip(costs, gradients, strict=True), strict=True))


@pytest.mark.parametrize("kind", ["torch", "optax"])
@pytest.mark.parametrize(
    "numbers", [range(SHORT), *([number] for number in range(SHORT, COUNT))], ids=lambda r: str(r[0])
)
def test_answers(kind, numbers):
    """Costs agree, and so does a random sum of the gradients of each time step, in which no wrong class can hide."""
    for number in numbers:
        if number not in recorded(kind):
            continue
        costs, gradients = computed(number)
        due, sums = recorded(kind)[number]
        s = sequences(number)
        np.testing.assert_allclose(costs, due, rtol=1e-12, atol=1e-12, err_msg=str(number))
        np.testing.assert_allclose((gradients @ s.weights).ravel(), sums, rtol=1e-9, atol=1e-9, err_msg=str(number))


def test_the_records_include_every_kind():
    every = [sequences(number) for number in range(COUNT)]
    assert set(recorded("torch")) == set(range(COUNT)) and len(recorded("optax")) > 30
    assert {s.normalizes for s in every} == {True, False}
    assert any(len(each) == 0 for s in every for each in s.labels)
    assert max(len(each) for s in every for each in s.labels) == 500 and max(len(s.x) for s in every) == 2000
    pairs = [
        (least(each), times, len(each)) for s in every for each, times in zip(s.labels, s.input_lengths, strict=True)
    ]
    assert any(need == times > count for need, times, count in pairs)  # Some labels repeat, and have one alignment.
