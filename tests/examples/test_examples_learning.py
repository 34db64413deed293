"""Test examples/digits/learn.py: its steps equal PyTorch's, a stopped run resumes with the same numbers, and it
learns.
"""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api import cudnn
from imported_example import EXAMPLES, imported

pytest.importorskip("sklearn", reason="the examples need scikit-learn: pip install 'dualdnn[examples]'")
DIGITS = EXAMPLES / "digits"


@pytest.fixture(scope="module")
def learn():
    with imported("digits", "learn") as module:
        yield module


def test_the_first_steps_are_those_of_pytorch(learn, handle):
    """Without dropout, the steps equal those that torch_steps.py recorded in float64."""
    training, _ = learn.split_digits()
    with np.load(DIGITS / "torch_steps.npz") as file:
        recorded = dict(file)
    run = learn.Training(handle, learn.EPOCHS, dropped=0.0)
    losses = run.steps(training, 0, len(recorded["losses"]))
    np.testing.assert_allclose(losses, recorded["losses"], rtol=1e-4)
    for name, value in run.parameters.values().items():
        apart = np.abs(value - recorded[name]).max() / np.abs(recorded[name]).max()
        # A bias before a normalization changes nothing, so that its gradient is only rounding error.
        assert apart < 1e-4 or name in ("first_bias", "second_bias"), name


def few(learn, count):
    """Return the first training images, and the held-out images of one batch."""
    training, held_out = learn.split_digits()
    return learn.Digits(training.images[:count], training.labels[:count]), learn.Digits(
        held_out.images[: learn.EVALUATED], held_out.labels[: learn.EVALUATED]
    )


def test_a_run_that_is_stopped_goes_on_with_the_same_numbers(learn, handle, tmp_path):
    """Dropout, the momenta and the order of the images go on where they were."""
    images = few(learn, 4 * learn.BATCH)
    whole = learn.Training(handle, 2)
    expected = whole.run(*images)
    path = tmp_path / "run.npz"
    assert learn.Training(handle, 2, checkpoint=path).run(*images, stop=1) == expected[:1]
    resumed = learn.Training(handle, 2, checkpoint=path)
    assert resumed.run(*images) == expected
    for name, value in whole.parameters.values().items():
        np.testing.assert_array_equal(resumed.parameters.values()[name], value, err_msg=name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_two_passes_read_nine_of_ten_digits(learn, handle, tmp_path):
    """Two passes suffice to read nine of ten held-out digits. The example's twelve passes read 98 of 100."""
    training, held_out = learn.split_digits()
    run = learn.Training(handle, 2)
    history = run.run(training, held_out)
    assert history[1].loss < history[0].loss and history[1].accuracy > 0.9
    learn.plot(history, tmp_path / "learning.png")
    assert (tmp_path / "learning.png").read_bytes().startswith(b"\x89PNG")


def test_the_backends_agree(learn, handle, capsys):
    """Both backends read the same with the same weights, and compute the same gradients of a batch."""
    training, held_out = few(learn, learn.BATCH)
    run = learn.Training(handle, 1)
    run.run(training, held_out)
    other = cudnn.cudnnCreate(backend="accelerated", device="emulated")
    learn.agreement(run, other, training, held_out)
    cudnn.cudnnDestroy(other)
    printed = capsys.readouterr().out
    assert "60 of 60 predictions equal" in printed
    assert float(printed.split()[-1]) < 1e-4
