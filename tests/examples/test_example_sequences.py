"""Test examples/sequences: its gradients agree with differences, a stopped run resumes, it learns, and the backends
agree.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
from dualdnn.api import cudnn
from imported_example import imported

pytest.importorskip("sklearn", reason="the examples need scikit-learn: pip install 'dualdnn[examples]'")


@pytest.fixture(scope="module")
def example():
    with imported("sequences", "bidirectional") as module:
        yield module


@pytest.fixture
def images(example):
    """Return four batches to learn and one to read."""
    learn = sys.modules["learn"]
    training, held_out = learn.split_digits()
    count = 4 * learn.BATCH
    return learn.Digits(training.images[:count], training.labels[:count]), learn.Digits(
        held_out.images[: learn.EVALUATED], held_out.labels[: learn.EVALUATED]
    )


def test_gradients_agree_with_finite_differences(example, handle, images):
    """Gradients agree with finite differences of a batch's loss, along random directions of each parameter."""
    run, random = example.Run(handle, 1, dropped=0.0), np.random.default_rng(0)
    batch = sys.modules["learn"].BATCH
    x, labels = images[0].images[:batch], images[0].labels[:batch]
    values = {
        name: value + 0.1 * random.standard_normal(value.shape) for name, value in run.parameters.values().items()
    }
    values = {name: value.astype(np.float32) for name, value in values.items()}

    def loss():
        return run.network.step(x, labels)

    for name, value in values.items():
        run.parameters[name] = value
    _, gradients = loss()
    for name, value in values.items():
        direction, losses = np.sign(random.standard_normal(value.shape)).astype(np.float32), []
        for step in (1e-3, -1e-3):
            run.parameters[name] = value + np.float32(step) * direction
            losses.append(loss()[0])
        run.parameters[name] = value
        slope = (losses[0] - losses[1]) / 2e-3
        assert np.sum(gradients[name] * direction, dtype=np.float64) == pytest.approx(slope, rel=2e-2, abs=2e-3), name


def test_a_run_that_is_stopped_goes_on_with_the_same_numbers(example, handle, images, tmp_path):
    """The masks of dropout are the same, too."""
    expected = example.Run(handle, 2).run(*images)
    path = tmp_path / "run.npz"
    assert example.Run(handle, 2, checkpoint=path).run(*images, stop=1) == expected[:1]
    assert example.Run(handle, 2, checkpoint=path).run(*images) == expected


def test_training_reduces_the_loss(example, handle, images):
    """After many steps on one batch, it knows these images by heart and reads some others."""
    learn = sys.modules["learn"]
    run = example.Run(handle, 1, dropped=0.0)
    x, labels = images[0].images[: learn.BATCH], images[0].labels[: learn.BATCH]
    losses = []
    for _ in range(60):
        loss, gradients = run.network.step(x, labels)
        run.descent.step(gradients, 0.2)
        losses.append(loss)
    assert losses[-1] < 0.2 * losses[0] and run.accuracy(images[1]) > 0.2


def test_the_backends_agree(example, handle, images, capsys):
    """Both backends read the same with the same weights, and compute the same gradients of a batch."""
    run = example.Run(handle, 1)
    run.run(*images)
    other = cudnn.cudnnCreate(backend="accelerated", device="emulated")
    sys.modules["learn"].agreement(run, other, *images)
    cudnn.cudnnDestroy(other)
    printed = capsys.readouterr().out
    assert "60 of 60 predictions equal" in printed
    assert float(printed.split()[-1]) < 1e-4
