"""Test that the documented log disturbs no call, whatever its destination or callback does, and reaches Python's
logging.
"""

from __future__ import annotations

import io
import logging

import numpy as np
import pytest
from dualdnn.api import api_log, cudnn
from dualdnn.api.enumerations import CUDNN_SEV_INFO_EN, cudnnSeverity_t


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(api_log, "_emitting", api_log.threading.local())
    yield
    cudnn.cudnnSetCallback(0, None, None)


def lost(capsys):
    """Return what the log said of its own failures, which it reports once if they are alike."""
    text = capsys.readouterr().err
    assert text.count("this message is lost") == 1
    return text


def scale():
    handle = cudnn.cudnnCreate(backend="reference")
    tensor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensor4dDescriptor(tensor, 0, 0, 1, 1, 1, 2)
    x = handle.to_device(np.ones(2, np.float32))
    cudnn.cudnnScaleTensor(handle, tensor, x, 3.0)
    return x.to_host(np.float32, -1).tolist()


def test_valid_integers_are_named():
    messages = []
    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, lambda *message: messages.append(message[3]))
    scale()
    described = next(text for text in messages if "cudnnSetTensor4dDescriptor" in text)
    assert "CUDNN_TENSOR_NCHW (0)" in described and "CUDNN_DATA_FLOAT (0)" in described and "invalid" not in described
    with pytest.raises(cudnn_error()):
        cudnn.cudnnSetTensor4dDescriptor(cudnn.cudnnCreateTensorDescriptor(), 99, 0, 1, 1, 1, 2)
    assert "invalid (99)" in messages[-1]


def test_a_clock_that_goes_back(monkeypatch):
    """The time since the start, which is unsigned in C, does not become negative."""
    messages = []
    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, lambda *message: messages.append(message[2]))
    monkeypatch.setattr(api_log.time, "time", lambda: 1e9)
    scale()
    assert messages and all(message.time_sec == 10**9 and message.time_delta >= 0 for message in messages)


def cudnn_error():
    from dualdnn.api.status import CudnnError

    return CudnnError


def test_a_callback_that_raises_disturbs_no_call_and_can_be_removed(capsys):
    def fails(*_message):
        raise RuntimeError("the callback is broken")

    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, fails)
    assert scale() == [3, 3]
    assert "RuntimeError: the callback is broken" in lost(capsys)
    cudnn.cudnnSetCallback(0, None, None)
    assert cudnn.cudnnGetCallback() == (0, None, None)


def test_a_callback_may_call():
    seen = []

    def asks(_severity, _udata, _metadata, message):
        seen.append(message.split("(", 2)[1])
        cudnn.cudnnGetVersion()

    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, asks)
    assert scale() == [3, 3] and len(seen) == 3


@pytest.mark.parametrize("destination", ["/nowhere/at/all.txt", "/", "/dev/full"])
def test_a_destination_that_cannot_be_written_disturbs_no_call(capsys, monkeypatch, destination):
    monkeypatch.setenv("CUDNN_LOGDEST_DBG", destination)
    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, None)
    assert scale() == [3, 3]
    assert f"CUDNN_LOGDEST_DBG={destination}" in lost(capsys)


@pytest.mark.parametrize("stderr", [None, io.StringIO()])
def test_a_log_that_fails_without_stderr_disturbs_no_call(monkeypatch, stderr):
    if stderr is not None:
        stderr.close()
    monkeypatch.setattr("sys.stderr", stderr)
    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, lambda *_message: 1 / 0)
    assert scale() == [3, 3]


@pytest.mark.parametrize("severity", cudnnSeverity_t)
def test_every_severity_reaches_the_built_in_destination_and_logging(tmp_path, monkeypatch, caplog, severity):
    monkeypatch.setenv("CUDNN_LOGDEST_DBG", str(tmp_path / "log.txt"))
    api_log._emit(severity, ["first", "second"], None, 0)
    mark = "FEWI"[severity]
    lines = (tmp_path / "log.txt").read_text().splitlines()
    assert lines[:2] == [f"{mark}! first", f"{mark.lower()}! second"]
    api_log.send_to_logging()
    with caplog.at_level(logging.INFO, "dualdnn"):
        api_log._emit(severity, ["first"], None, 0)
    assert [record.levelname for record in caplog.records] == [("CRITICAL", "ERROR", "WARNING", "INFO")[severity]]


def test_numbers_of_numpy_print_as_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDNN_LOGDEST_DBG", str(tmp_path / "log.txt"))
    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, None)
    tensor = cudnn.cudnnCreateTensorDescriptor()
    cudnn.cudnnSetTensorNdDescriptor(tensor, 0, np.int64(4), np.array([1, 2, 3, 4], np.int32), [24, 12, 4, np.int32(1)])
    text = (tmp_path / "log.txt").read_text()
    assert "nbDims: type=int; val=4;" in text and "val=[1, 2, 3, 4];" in text and "val=[24, 12, 4, 1];" in text


class Unprintable:
    def __repr__(self):
        raise RuntimeError("has no text")


def test_an_argument_without_a_text_is_refused_as_ever():
    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, lambda *message: None)
    with pytest.raises(cudnn_error(), match="not an integer"):
        cudnn.cudnnSetTensor4dDescriptor(cudnn.cudnnCreateTensorDescriptor(), 0, 0, 1, 1, 1, Unprintable())


def test_python_s_logging_gets_the_calls(caplog):
    with caplog.at_level(logging.INFO, "dualdnn"):
        api_log.send_to_logging()
        assert scale() == [3, 3]
        cudnn.cudnnSetCallback(0, None, None)
        scale()
    names = [record.message.split("function ")[1].split("(")[0] for record in caplog.records]
    assert names == [
        "cudnnCreateTensorDescriptor",
        "cudnnSetTensor4dDescriptor",
        "cudnnScaleTensor",
        "cudnnSetCallback",
    ]
    assert all(
        record.levelno == logging.INFO and record.cudnn.pid > 0 and "\0" not in record.message
        for record in caplog.records
    )
