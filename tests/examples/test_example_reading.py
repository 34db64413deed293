"""Test examples/reading: its gradients agree with differences, it reads columns correctly, and a few steps teach it
something.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from imported_example import imported

pytest.importorskip("sklearn", reason="the examples need scikit-learn: pip install 'dualdnn[examples]'")


@pytest.fixture(scope="module")
def example():
    with imported("reading", "train") as module:
        yield module


@pytest.fixture(scope="module")
def strings(example):
    """Return a few strings in float32."""
    digits, _ = sys.modules["data"].split_digits()
    return sys.modules["strings"].drawn(digits, 128, 3)


def test_the_likeliest_labels_are_merged_without_blanks():
    """Reading takes the likeliest class of each step, merges repetitions, and drops blanks."""
    with imported("reading", "layers_of_sequences") as module:
        read = module.read
    steps = np.array([[0, 4, 4, 0, 4, 1, 1], [0, 0, 0, 0, 0, 0, 0], [10, 10, 9, 0, 0, 9, 9]])
    activations = np.eye(11)[steps.T]
    assert read(activations) == ["330", "", "988"]


@pytest.mark.parametrize("variant, weights", [("Run", "recurrent_weights"), ("AttentiveRun", "attention_weights")])
def test_gradients_agree_with_finite_differences(example, handle, strings, variant, weights):
    """Gradients agree with finite differences of a batch's loss, along random directions of some parameters."""
    run, random = getattr(example, variant)(handle, 1), np.random.default_rng(0)
    batch = sys.modules["learn"].BATCH
    images, labels = strings.images[:batch], strings.labels[:batch]
    classifier = 0.2 * random.standard_normal(run.parameters.dims["classifier_filter"])
    run.parameters["classifier_filter"] = classifier.astype(np.float32)
    values = run.parameters.values()
    _, gradients = run.network.step(images, labels)
    for name in (weights, "first_filter", *(["positions"] if variant == "AttentiveRun" else [])):
        direction, losses = np.sign(random.standard_normal(values[name].shape)).astype(np.float32), []
        for step in (3e-4, -3e-4):  # Steps this small change few rectified values and maxima.
            run.parameters[name] = values[name] + np.float32(step) * direction
            losses.append(run.network.step(images, labels)[0])
        run.parameters[name] = values[name]
        slope = (losses[0] - losses[1]) / 6e-4
        assert np.sum(gradients[name] * direction, dtype=np.float64) == pytest.approx(slope, rel=5e-2, abs=5e-2), name


@pytest.mark.long
def test_training_reduces_the_loss(example, handle, strings):
    """The loss falls in three passes over four batches of strings."""
    run = example.Run(handle, 3)
    first, _, last = (np.mean(run.steps(strings, epoch, 4)) for epoch in range(3))
    assert last < 0.8 * first
