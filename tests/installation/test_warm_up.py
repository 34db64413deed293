"""Test that `dualdnn.warm_up` compiles the kernels of operations or of an API log together, before the first call."""

from __future__ import annotations

import os
import subprocess
import sys

import dualdnn
import pytest
from dualdnn.accelerated.reproducible import level_of
from dualdnn.accelerated.runtime import compiler
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.emulated.device import EmulatedDevice
from dualdnn.api.operations import ScaleTensor, SetTensor, TensorSpec, Unsupported
from dualdnn.api.operations.specs import FLOAT
from dualdnn.conformance.command_line import main
from dualdnn.conformance.kernels import build_ahead, warm_up

X = TensorSpec.packed(FLOAT, (1, 2, 3, 4))


@pytest.fixture
def compiled(monkeypatch):
    """Return a device with no compiled module, and the batches of modules that were to be compiled."""
    batches = []
    made = EmulatedDevice()
    monkeypatch.setattr(warm_up, "open_device", lambda *_: made)
    monkeypatch.setattr(warm_up, "is_built", lambda *_: False)
    monkeypatch.setattr(warm_up, "build_together", lambda modules, device: batches.append(list(modules)))
    return made, batches


CALLS = """
import numpy as np
from dualdnn.api import cudnn
with cudnn.cudnnCreate(backend="reference") as handle:
    t = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(t, cudnn.CUDNN_TENSOR_NCHW, cudnn.CUDNN_DATA_FLOAT, 1, 2, 3, 4)
    y = handle.to_device(np.ones(24, np.float32))
    for _ in range(2):
        cudnn.cudnnScaleTensor(handle, t, y, 2.0)
    cudnn.cudnnSetTensor(handle, t, y, 1.0)
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """Return the path of a log of two computing calls, one of them made twice, and a foreign line."""
    path = tmp_path_factory.mktemp("log") / "api.log"
    environment = {**os.environ, "CUDNN_LOGINFO_DBG": "1", "CUDNN_LOGDEST_DBG": str(path)}
    subprocess.run([sys.executable, "-c", CALLS], check=True, env=environment)
    with open(path, "a") as file:
        file.write("epoch 1\n")
    return path


def test_all_modules_are_compiled_together_and_loaded(compiled):
    device, batches = compiled
    operations = [ScaleTensor(2.0, X), str(SetTensor(1.0, X)), ScaleTensor(3.0, X)]
    assert dualdnn.warm_up(operations, device="emulated") == len(batches[0]) >= 1 and len(batches) == 1
    assert {*batches[0]} == {*device._modules}


def test_the_kernels_of_the_level_are_warmed_up(compiled, monkeypatch):
    """Calls that the level refuses need no kernels."""
    seen = []

    def planned(operation, device):
        seen.append(level_of(device))
        if operation == SetTensor(1.0, X):
            raise Unsupported("dualdnnReproducible/c05", "its level refuses it")

    monkeypatch.setattr(warm_up, "plan", planned)
    for level in ("batch", ""):
        monkeypatch.setenv("DUALDNN_REPRODUCIBLE", level)
        assert dualdnn.warm_up([ScaleTensor(2.0, X), SetTensor(1.0, X)], device="emulated") == 0
    assert seen == ["batch"] * 4 + ["run"] * 4


def test_a_log_is_warmed_up(compiled, log):
    device, batches = compiled
    assert [type(o) for o in warm_up.operations_of_log(log)] == [ScaleTensor, SetTensor]
    assert dualdnn.warm_up(log, device="emulated") == len(batches[0])
    assert {*batches[0]} == {*device._modules}


def test_existing_kernels_are_loaded_without_a_compiler(compiled, monkeypatch):
    device, batches = compiled
    compiler.build_together(warm_up.modules_of([SetTensor(1.0, X)], device), device)
    monkeypatch.setenv("DUALDNN_JIT", "off")
    assert dualdnn.warm_up([SetTensor(1.0, X)], device="emulated") == 0 and batches == [[]]
    assert device._modules


def test_the_kernels_of_a_log_are_built_ahead(log, monkeypatch):
    built = []
    monkeypatch.setattr(build_ahead, "compile_all", lambda modules, *_: built.extend(modules))
    assert main(["build", "--device", "emulated", "--log", str(log)]) == 0
    wanted = [ScaleTensor(2.0, X), SetTensor(1.0, X)]
    assert {*built} == {*warm_up.modules_of(wanted, open_device("emulated"))}


def test_input_without_calls_or_operations_is_refused(compiled, tmp_path):
    (tmp_path / "empty.log").write_text("epoch 1\n")
    with pytest.raises(ValueError, match=r"empty\.log: it has no computing call of an API log"):
        dualdnn.warm_up(tmp_path / "empty.log", device="emulated")
    with pytest.raises(ValueError, match="not the text of an operation"):
        dualdnn.warm_up(["no operation"], device="emulated")
