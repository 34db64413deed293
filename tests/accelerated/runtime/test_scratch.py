"""Scratch memory of streams."""

from __future__ import annotations

import threading

import pytest
from dualdnn.accelerated.runtime.devices import open_device


@pytest.fixture
def device():
    return open_device("emulated")


def test_a_stream_has_one_piece(device):
    stream = device.new_stream()
    with device.scratch.of(stream, 1000) as first:
        assert first.nbytes >= 1000
    with device.scratch.of(stream, 10) as second:
        assert second is first
    with device.scratch.of(None, 10) as default, device.scratch.of(device.default_stream, 10) as same:
        assert default is same and default is not first


def test_what_was_outgrown_stays(device):
    """Launches that are in flight may still use it."""
    stream = device.new_stream()
    with device.scratch.of(stream, 1) as small:
        pass
    with device.scratch.of(stream, small.nbytes + 1) as large:
        assert large.nbytes > small.nbytes and large.address != small.address
    device.upload(small.address, b"\1" * small.nbytes)  # refused had it been freed
    assert device.download(small.address, 4) == b"\1" * 4


def test_launches_of_two_threads_do_not_mix(device):
    """Another thread waits until the first has issued all launches of its call."""
    stream, order = device.new_stream(), []
    entered, waiting = threading.Event(), threading.Event()

    def other():
        entered.wait(60)
        waiting.set()
        with device.scratch.of(stream, 1):
            order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    with device.scratch.of(stream, 1):
        entered.set()
        waiting.wait(60)
        thread.join(0.2)
        order.append("first")
    thread.join(60)
    assert order == ["first", "other"]
