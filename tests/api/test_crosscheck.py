"""Test that the crosscheck handle lets agreement pass, names the first disagreement, and saves it for a replay."""

from __future__ import annotations

import pickle
import tempfile

import numpy as np
import pytest
from dualdnn.api import crosscheck, cudnn
from dualdnn.api.crosscheck import BackendsDisagree, loaded
from dualdnn.api.operations import ActivationForward, parse
from dualdnn.api.status import CudnnError
from dualdnn.conformance.command_line import main
from dualdnn.conformance.trial import prepare
from dualdnn.reference import Exact, engine, formulas


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


def test_agreeing_backends_raise_nothing(prepared):
    handle, descriptor, tensor, x = prepared
    y = handle.allocate(480)
    cudnn.cudnnActivationForward(handle, descriptor, 2.0, tensor, x, 0.0, tensor, y)
    assert np.allclose(y.to_host(np.float32, 120), 2 * np.tanh(np.linspace(-3, 3, 120)), atol=1e-6)
    cudnn.cudnnActivationForward(handle, descriptor, 1.0, tensor, x, 1.0, tensor, x)


def test_disagreement_names_everything_and_replays(prepared, monkeypatch, capsys):
    handle, descriptor, tensor, x = prepared
    y = handle.allocate(480)
    broken_accelerated(handle, monkeypatch)
    with pytest.raises(BackendsDisagree) as raised:
        cudnn.cudnnActivationForward(handle, descriptor, 2.0, tensor, x, 0.5, tensor, y)
    error = raised.value
    assert error.verdict.worst.output == "y" and error.verdict.worst.got == 9.0
    assert "ActivationForward(" in str(error) and "allowed error" in str(error) and error.reproduction in str(error)
    operation, memory, shared = loaded(error.path)
    assert operation == error.operation and set(memory) == {"x", "y"} and shared == {}
    assert main(["replay", str(error.path), "--subject", "reference", "--subject", "accelerated:emulated"]) == 0
    assert capsys.readouterr().out.count("passed") == 2


def disagreement(prepared, monkeypatch, spoil):
    """Return what the crosscheck of a tanh raises when one side is spoilt."""
    handle, descriptor, tensor, x = prepared
    spoil(handle, monkeypatch)
    with pytest.raises(BackendsDisagree) as raised:
        cudnn.cudnnActivationForward(handle, descriptor, 2.0, tensor, x, 0.0, tensor, handle.zeros(480))
    return raised.value


def broken_accelerated(handle, monkeypatch):
    right = handle.backend.accelerated.prepare

    def sabotaged(operation):
        run = right(operation)

        def launch(operands, stream):
            run(operands, stream)
            handle.backend.accelerated.device.upload(operands[1].address + 4 * 17, np.float32(9.0).tobytes())

        return launch

    monkeypatch.setattr(handle.backend.accelerated, "prepare", sabotaged)


def broken_reference(_handle, monkeypatch):
    wrong = lambda operation, x: Exact(np.tanh(x) + 1e-3, np.abs(np.tanh(x)), 8)  # noqa: E731
    monkeypatch.setitem(engine._IMPLEMENTATIONS, ActivationForward, wrong)


@pytest.mark.parametrize(
    "spoil, blamed",
    [(broken_accelerated, "the accelerated backend lies"), (broken_reference, "the reference lies")],
    ids=["accelerated", "reference"],
)
def test_the_side_that_is_wrong_is_the_one_that_is_blamed(prepared, monkeypatch, spoil, blamed):
    error = disagreement(prepared, monkeypatch, spoil)
    assert f"{blamed} outside the bound" in str(error), error
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error) and twin.path == error.path


def test_it_says_when_it_cannot_tell(prepared, monkeypatch):
    monkeypatch.setattr(formulas, "FORMULAS", {})
    assert "cannot be told" in str(disagreement(prepared, monkeypatch, broken_reference))


def test_a_failing_reference_fails_the_crosscheck(prepared, monkeypatch):
    handle, descriptor, tensor, x = prepared
    monkeypatch.setitem(engine._IMPLEMENTATIONS, ActivationForward, lambda operation, x: 1 / 0)
    with pytest.raises(CudnnError, match=r"reference could not judge .*ZeroDivisionError"):
        cudnn.cudnnActivationForward(handle, descriptor, 2.0, tensor, x, 0.0, tensor, handle.zeros(480))


def test_a_folder_that_cannot_be_written_takes_no_diagnosis_away(prepared, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(crosscheck.Path, "cwd", lambda: tmp_path / "gone")
    error = disagreement(prepared, monkeypatch, broken_accelerated)
    assert error.path is not None and error.path.parent == tmp_path and loaded(error.path)[0] == error.operation
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    error = disagreement(prepared, monkeypatch, lambda *_: None)
    assert error.path is None and "could not be saved" in str(error) and error.verdict.worst.got == 9.0


def test_half_a_file_does_not_stay(prepared, monkeypatch, tmp_path):
    def full(path, **_):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(crosscheck.np, "savez_compressed", full)
    assert disagreement(prepared, monkeypatch, broken_accelerated).path is None
    assert not list(tmp_path.iterdir())


def test_calls_saved_at_the_same_time_have_different_files(tmp_path, monkeypatch):
    """A name that was free when it was looked up may be taken when it is used."""
    spec = "TensorSpec(data_type=CUDNN_DATA_FLOAT, dims=(2, 4, 5, 6), strides=(120, 1, 24, 4))"
    operation = parse(f"ScaleTensor(alpha=3.0, y={spec})")
    memory = prepare(operation, "normal", 0)
    monkeypatch.setattr(crosscheck.Path, "exists", lambda _: False)
    first, second = (crosscheck.saved(operation, memory, tmp_path) for _ in range(2))
    assert first != second and loaded(first)[0] == loaded(second)[0] == operation


def test_a_file_that_is_not_an_archive_is_refused(tmp_path):
    """The error does not repeat NumPy's advice to load the file unsafely."""
    (tmp_path / "text.npz").write_text("no archive")
    with pytest.raises(ValueError, match=r"text\.npz is not a saved call: neither an \.npz file"):
        loaded(tmp_path / "text.npz")
