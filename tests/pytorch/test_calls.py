"""Test that PyTorch's calls of release 9 in a training step run on the emulated device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dualdnn.conformance.recorded import load_recording

HERE = Path(__file__).parent


def test_each_call_succeeds_and_is_judged_and_repeats_its_bytes(built_library):
    """Crosscheck holds every result to the reference. Later steps, which C mostly answers, write the same bytes."""
    library = built_library(9)
    environment = {**os.environ, "DUALDNN_DEVICE": "emulated", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, str(HERE / "runner.py"), str(library)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["judged"] == {
        **dict.fromkeys(("ConvolutionForward", "ConvolutionBackwardData", "ConvolutionBackwardFilter"), 4),
        **dict.fromkeys(("BatchNormalizationForwardTrainingEx", "BatchNormalizationBackwardEx"), 3),
        **{"BatchNormalizationForwardInference": 3, "SetDropoutStates": 1, "RNNForward": 4, "RNNBackwardData": 2},
        **{"RNNBackwardWeights": 2, "CTCLoss": 1, "CTCLoss_v8": 1},
        **{f"SpatialTf{part}{way}": 1 for part in ("GridGenerator", "Sampler") for way in ("Forward", "Backward")},
    }
    assert said["calls"] == 832 and len(set(said["digests"])) == 1, said


@pytest.mark.long
def test_each_call_is_judged_when_it_is_observed(built_library, tmp_path):
    """All that is left out are random numbers, what depends on them, and labels of unknown length. Recording changes nothing."""
    library, recording = built_library(9), tmp_path / "calls.npz"
    environment = {**os.environ, "DUALDNN_RECORD": str(recording), "OPENBLAS_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "dualdnn.conformance",
        "observe",
        "--library",
        str(library),
        "--out",
        str(tmp_path),
    ]
    program = [sys.executable, str(HERE / "runner.py"), "libcudnn.so.9", "once"]
    ran = subprocess.run([*command, "--", *program], env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    summary = (tmp_path / "summary.txt").read_text()
    assert "32 judged, 0 wrong, 0 other statuses, 0 other results" in summary, summary
    left = {line.strip() for line in summary.splitlines() if "not judged" in line}
    assert left == {
        "not judged: cudnnRNNForward: its random numbers are the library's own (1 calls)",
        "not judged: cudnnRNNBackwardData_v8: reserveSpace was not made by an observed call (1 calls)",
        "not judged: cudnnRNNBackwardWeights_v8: reserveSpace was not made by an observed call (1 calls)",
        "not judged: cudnnCTCLoss_v8: nobody knows how much memory labels has (1 calls)",
    }
    assert {record.status for record in load_recording(recording).records} == {0}
