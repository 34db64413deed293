"""Test the judge of the PyTorch client on results with an injected fault."""

from __future__ import annotations

import copy
import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from dualdnn.conformance.kernels import kernel_wheel

FILE = Path(__file__).parents[2] / "examples" / "clients" / "run_pytorch.py"
SPEC = importlib.util.spec_from_file_location("run_pytorch", FILE)
client = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(client)

SAMPLE = {"operation": "conv2d", "sample": 0, "text": "", "dtype": "float16", "layout": "NCHW", "where": "out"}
NETWORK = {"losses": [3 - step / 100 for step in range(200)], "step_ms": 1.0, "first_step_s": 1.0}
FLAT = {"steps": 2000, "gpu_bytes": [2**30] * 10, "host_bytes": [2**30] * 10}


class Told:
    """Stand in for the programs: return NVIDIA's results or ours."""

    limit = 1.0

    def __init__(self, theirs, ours):
        self.theirs, self.ours = theirs, ours

    def __call__(self, name, ours, program, *arguments, variables=None):
        return copy.deepcopy(self.ours if ours else self.theirs)


def rows(error, **other):
    return {"rows": [SAMPLE | {"error": error} | other], "left": 0}


@pytest.mark.parametrize(
    ("theirs", "ours", "wrong"),
    [(0.5, 0.9, 0), (0.5, 1.1, 1), (3.0, 5.9, 0), (3.0, 6.1, 1), (3.0, float("nan"), 1)],
)
def test_an_error_passes_within_the_tolerance_or_twice_nvidias(theirs, ours, wrong):
    assert len(client.operators(Told(rows(theirs), rows(ours)))["failures"]) == wrong


@pytest.mark.parametrize(("of_modules", "wrong"), [(0.9, 0), (1.1, 1), (float("nan"), 1)])
def test_recurrent_networks_in_half_have_the_tolerance_of_pytorchs_own_tests(of_modules, wrong):
    """A sample may exceed NVIDIA's error if it is within the tolerance of PyTorch's module tests."""
    pairs = [(24.0, 4.6), *[(2.0, 3.0)] * 3]
    theirs, ours = (
        {"rows": [SAMPLE | {"sample": i, "error": pair[who], "of_modules_tolerance": of_modules} for i, pair in enumerate(pairs)]}
        for who in (1, 0)
    )  # fmt: skip
    assert len(client.operators(Told(theirs, ours))["failures"]) == wrong


@pytest.mark.parametrize(("worse", "wrong"), [(2, 0), (3, 1)])
def test_an_operation_with_most_samples_worse_than_nvidias_is_wrong(worse, wrong):
    """Each sample alone would pass, but most of them are worse than NVIDIA's."""
    theirs = {"rows": [SAMPLE | {"sample": i, "error": 3.0} for i in range(4)]}
    ours = {"rows": [SAMPLE | {"sample": i, "error": 4.0 if i < worse else 2.0} for i in range(4)]}
    assert len(client.operators(Told(theirs, ours))["failures"]) == wrong


def test_a_sample_that_only_we_refuse_is_wrong():
    refused = {"rows": [SAMPLE | {"refused": "RuntimeError"}], "left": 0}
    assert "RuntimeError" in client.operators(Told(rows(1.0), refused))["failures"][0]
    assert not client.operators(Told(refused, refused))["failures"]
    assert client.operators(Told({}, {}))["failures"]  # A run that compares nothing fails.


def test_losses_away_from_both_runs_are_wrong():
    off = NETWORK | {"losses": [loss * (1.1 if step > 100 else 1) for step, loss in enumerate(NETWORK["losses"])]}
    late = NETWORK | {"losses": [1.01 * NETWORK["losses"][0], *NETWORK["losses"][1:]]}
    for ours, wrong in ((NETWORK, 0), (off, 1), (late, 1)):
        assert len(client.networks(Told({"n": NETWORK}, {"n": ours}), 200, [])["failures"]) == wrong, ours
    assert "not trained by all" in client.networks(Told({"n": NETWORK}, {}), 200, [])["failures"][0]


def test_ways_of_training_must_agree_with_plain_steps():
    served = {"graph": {"largest_difference": 1e-6}}
    for ours, wrong in (
        (served, 0),
        ({"graph": {"largest_difference": 0.1}}, 1),
        ({"graph": {"failed": "x"}}, 1),
        ({}, 1),
    ):
        assert len(client.modes(Told(served, ours), [])["failures"]) == wrong


@pytest.mark.parametrize(
    ("architecture", "installed", "status", "found"),
    [("sm_90", [], 0, True), ("sm_86", ["sm_90a"], 0, True), ("sm_90", ["sm_90a"], 0, False),
     ("sm_90", [], 2, False), ("sm_70", [], 0, False)],
)  # fmt: skip
def test_kernels_are_built_for_the_gpu_unless_a_package_has_them(
    tmp_path, monkeypatch, architecture, installed, status, found
):
    def build(command):
        _, _, _, *options = command
        target = options[options.index("--arch") + 1]
        if not status:
            kernel_wheel.packed(b"archive", target, tmp_path)
        return SimpleNamespace(returncode=status)

    monkeypatch.setattr(client.subprocess, "run", build)
    monkeypatch.setattr(client, "archives", lambda: {Path(f"{name}.zip"): 1 for name in installed})
    monkeypatch.setenv("PYTHONPATH", "before")
    client.add_kernels(tmp_path, architecture)
    *added, before = os.environ["PYTHONPATH"].split(os.pathsep)
    assert before == "before" and len(added) == found
    assert all(list(Path(folder).glob("dualdnn_kernels/sm_*.zip")) for folder in added)


def test_memory_that_grows_is_wrong():
    for place in ("gpu_bytes", "host_bytes"):
        grown = FLAT | {place: [2**30 + step * 2**24 for step in range(10)]}
        assert len(client.memory(Told(FLAT, grown), 2000)["failures"]) == 1
    assert not client.memory(Told(FLAT, FLAT), 2000)["failures"]
