"""Test that on our backends a case fails if its outputs are within their worst case but statistically suspect."""

from __future__ import annotations

import os
import subprocess
import sys

CASES = """
import numpy as np
from dualdnn.api.operations import ConvolutionForward, FilterSpec, TensorSpec
from dualdnn.api.operations.specs import FLOAT, NCHW
from dualdnn.api.enumerations import cudnnConvolutionFwdAlgo_t
from dualdnn.conformance.cases.convolution.convolution import convolution_spec
from dualdnn.conformance.marks import shows
from dualdnn.conformance.trial import Chain

FORWARD = ConvolutionForward(convolution_spec(2, FLOAT), cudnnConvolutionFwdAlgo_t(0), 0, 1.0, 0.0, TensorSpec.packed(FLOAT, (2, 64, 8, 8)),
                             FilterSpec(FLOAT, NCHW, (8, 64, 3, 3)), TensorSpec.packed(FLOAT, (2, 8, 8, 8)))


@shows("cudnnConvolutionForward/c01")
def test_rounded_too_often(trial, monkeypatch):
    def tamper(operation, before, kept, now, begins):
        y = now["y"][begins["y"] :][: operation.y.nbytes].view(np.float32)
        y *= np.float32(1 + 24 * 2.0**-23)

    monkeypatch.setattr(Chain, "tamper", staticmethod(tamper))
    trial(FORWARD)
"""


def test_a_suspect_case_fails(tmp_path):
    (tmp_path / "some_cases.py").write_text(CASES)
    command = [sys.executable, "-m", "pytest", "-p", "dualdnn.conformance.plugin", "-p", "no:cacheprovider", "-rA"]
    command += ["--subject", "reference", "--rootdir", str(tmp_path), "some_cases.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    assert "FAILED some_cases.py::test_rounded_too_often[reference]" in done.stdout
    assert "suspect: y: " in done.stdout and "elements are wrong" not in done.stdout
