"""Test examples/digits: the committed weights are what the script trains, and they classify on both backends."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn", reason="the examples need scikit-learn: pip install 'dualdnn[examples]'")
DIGITS = Path(__file__).parents[2] / "examples/digits"
PICTURE = "misclassified.svg"


def printed(script, *arguments):
    """Return what a script prints. It has one thread, as its matrices are small and other tests run meanwhile."""
    command = [sys.executable, "-W", "error::RuntimeWarning", str(DIGITS / script), *map(str, arguments)]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def train(monkeypatch):
    """Yield the module. Its neighbours may share names with other modules."""
    monkeypatch.syspath_prepend(DIGITS)
    before = set(sys.modules)
    yield importlib.import_module("train")
    for name in ("train", "data"):
        if name not in before:
            sys.modules.pop(name, None)


def test_gradients_are_the_slopes_of_the_loss(train):
    random = np.random.default_rng(0)
    images, labels = random.random((3, 1, 8, 8)), np.array([1, 5, 1])
    weights = {}
    for layer, dims in train.FILTERS.items():
        weights[f"{layer}_filter"] = random.standard_normal(dims) / 4
        weights[f"{layer}_bias"] = random.standard_normal((1, dims[0], 1, 1)) / 4
    found = train.gradients(images, labels, weights)
    for name, value in weights.items():
        direction, step = random.standard_normal(value.shape), 1e-6
        ahead, behind = (
            train.loss(images, labels, {**weights, name: value + move * direction}) for move in (step, -step)
        )
        assert (ahead - behind) / (2 * step) == pytest.approx(np.sum(found[name] * direction), rel=1e-6)


@pytest.mark.long
def test_the_weights_are_what_the_script_trains(tmp_path):
    output = printed("train.py", "--out", tmp_path / "weights.npz")
    assert float(re.search(r"([\d.]+)% of 360 held-out images", output).group(1)) >= 97
    with np.load(DIGITS / "weights.npz") as committed, np.load(tmp_path / "weights.npz") as trained:
        assert set(committed) == set(trained)
        for name in committed:
            # Another BLAS adds in another order, which changes the last digits of float64 and grows over 900 steps.
            np.testing.assert_allclose(trained[name], committed[name], rtol=0, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("backend, math, most", [("crosscheck", "default", 1e-2), ("reference", "fma", 1e-5)])
def test_both_backends_classify_alike(tmp_path, backend, math, most):
    output = printed(
        "classify.py", "--backend", backend, "--device", "emulated", "--math", math, "--picture", tmp_path / PICTURE
    )
    accuracies = re.findall(r"accuracy ([\d.]+)%", output)
    assert len(accuracies) == 2 and min(map(float, accuracies)) >= 97
    equal, difference = re.search(r"agreement: (\d+) of 360 .* ([\d.e-]+)$", output, re.MULTILINE).groups()
    assert int(equal) == 360 and float(difference) <= most
    assert (tmp_path / PICTURE).read_text() == (DIGITS / PICTURE).read_text()
