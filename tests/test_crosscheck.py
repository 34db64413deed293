"""The crosscheck handle: agreement passes, the first disagreement is named and can be replayed."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.api import cudnn
from dualdnn.api.crosscheck import BackendsDisagree, loaded
from dualdnn.conformance.command_line import main


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    handle = cudnn.cudnnCreate(backend="crosscheck", device="emulated")
    descriptor = cudnn.cudnnCreateActivationDescriptor()
    cudnn.cudnnSetActivationDescriptor(descriptor, cudnn.CUDNN_ACTIVATION_TANH, cudnn.CUDNN_PROPAGATE_NAN, 0.0)
    tensor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(tensor, cudnn.CUDNN_TENSOR_NHWC, cudnn.CUDNN_DATA_FLOAT, 2, 3, 4, 5)
    x = handle.to_device(np.linspace(-3, 3, 120, dtype=np.float32))
    return handle, descriptor, tensor, x


def test_agreement(prepared):
    handle, descriptor, tensor, x = prepared
    y = handle.allocate(480)
    cudnn.cudnnActivationForward(handle, descriptor, 2.0, tensor, x, 0.0, tensor, y)
    assert np.allclose(y.to_host(np.float32, 120), 2 * np.tanh(np.linspace(-3, 3, 120)), atol=1e-6)
    cudnn.cudnnActivationForward(handle, descriptor, 1.0, tensor, x, 1.0, tensor, x)


def test_disagreement_names_everything_and_replays(prepared, monkeypatch, capsys):
    handle, descriptor, tensor, x = prepared
    y = handle.allocate(480)
    right = handle.backend.accelerated.prepare

    def sabotaged(operation):
        run = right(operation)

        def launch(operands, stream):
            run(operands, stream)
            handle.backend.accelerated.device.upload(operands[1].address + 4 * 17, np.float32(9.0).tobytes())

        return launch

    monkeypatch.setattr(handle.backend.accelerated, "prepare", sabotaged)
    with pytest.raises(BackendsDisagree) as raised:
        cudnn.cudnnActivationForward(handle, descriptor, 2.0, tensor, x, 0.5, tensor, y)
    error = raised.value
    assert error.verdict.worst.output == "y" and error.verdict.worst.got == 9.0
    assert "ActivationForward(" in str(error) and "allowed error" in str(error) and error.reproduction in str(error)
    operation, memory, shared = loaded(error.path)
    assert operation == error.operation and set(memory) == {"x", "y"} and shared == {}
    assert main(["replay", str(error.path), "--subject", "reference", "--subject", "accelerated:emulated"]) == 0
    assert capsys.readouterr().out.count("passed") == 2
