"""The documented log disturbs no call, whatever its destination or callback does, and reaches Python's logging."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from dualdnn.api import api_log, cudnn
from dualdnn.api.enumerations import CUDNN_SEV_INFO_EN


@pytest.fixture(autouse=True)
def unlogged(monkeypatch):
    lost = []
    monkeypatch.setattr(api_log.sys, "unraisablehook", lambda what: lost.append(what.exc_value))
    monkeypatch.setattr(api_log, "_emitting", api_log.threading.local())
    yield lost
    cudnn.cudnnSetCallback(0, None, None)


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


def cudnn_error():
    from dualdnn.api.status import CudnnError

    return CudnnError


def test_a_callback_that_raises_disturbs_no_call_and_can_be_removed(unlogged):
    def fails(*_message):
        raise RuntimeError("the callback is broken")

    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, fails)
    assert scale() == [3, 3]
    assert len(unlogged) == 1 and "broken" in str(unlogged[0])  # said once, not for every call
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
def test_a_destination_that_cannot_be_written_disturbs_no_call(unlogged, monkeypatch, destination):
    monkeypatch.setenv("CUDNN_LOGDEST_DBG", destination)
    cudnn.cudnnSetCallback(CUDNN_SEV_INFO_EN, None, None)
    assert scale() == [3, 3] and len(unlogged) == 1 and isinstance(unlogged[0], OSError)


class Unprintable:
    def __repr__(self):
        raise RuntimeError("has no text")


def test_an_argument_without_a_text_is_refused_as_ever(unlogged):
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
