"""PyTorch's calls of release 9 in a training step run on the emulated device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

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
