"""Tests scratch memory of streams."""

from __future__ import annotations

import threading

import pytest
from dualdnn.accelerated.runtime.devices import open_device
from dualdnn.accelerated.runtime.scratch import Scratch


@pytest.fixture
def device():
    return open_device("emulated")


@pytest.fixture
def scratch(device):
    """Return scratch memory as GPUs use it."""
    return Scratch(device)


def lent(scratch, stream, nbytes):
    found = []
    scratch.lend(stream, nbytes, found.append)
    return found[0]


def test_a_stream_has_one_piece(device, scratch):
    stream = device.new_stream()
    first = lent(scratch, stream, 1000)
    assert first.nbytes >= 1000 and lent(scratch, stream, 10) is first
    default = lent(scratch, None, 10)
    assert default is lent(scratch, device.default_stream, 10) and default is not first


def test_a_replaced_buffer_stays_valid(device, scratch):
    """A buffer that a larger one replaced stays valid, because launches in flight may use it."""
    stream = device.new_stream()
    small = lent(scratch, stream, 1)
    large = lent(scratch, stream, small.nbytes + 1)
    assert large.nbytes > small.nbytes and large.address != small.address
    device.upload(small.address, b"\1" * small.nbytes)  # A freed buffer would be refused.
    assert device.download(small.address, 4) == b"\1" * 4


def test_a_graph_has_its_own_memory(device, scratch):
    """A graph may run at the same time as its stream or another graph, so each has separate memory."""
    stream, pieces = device.new_stream(), []
    for capture in (0, 1, 1, 2, 0):
        stream.capture = lambda capture=capture: capture
        pieces.append(lent(scratch, stream, 10))
    assert pieces[1] is pieces[2] and pieces[0] is pieces[4] and len({id(piece) for piece in pieces}) == 3


def test_launches_of_two_threads_do_not_mix(device, scratch):
    """A second thread gets the memory only after the first has issued all launches of its call."""
    stream, order = device.new_stream(), []
    entered, waiting = threading.Event(), threading.Event()

    def other():
        entered.wait(60)
        waiting.set()
        scratch.lend(stream, 1, lambda _: order.append("other"))

    def first(_memory):
        entered.set()
        waiting.wait(60)
        thread.join(0.2)
        order.append("first")

    thread = threading.Thread(target=other)
    thread.start()
    scratch.lend(stream, 1, first)
    thread.join(60)
    assert order == ["first", "other"]


def test_the_emulated_device_has_no_more_than_is_asked_for(device):
    """Each call gets new memory of the exact size, filled with 0xFF."""
    for nbytes in (64, 16):
        memory = lent(device.scratch, None, nbytes)
        assert memory.nbytes == nbytes and set(device.download(memory.address, nbytes)) == {0xFF}
        device.fill(memory.address, nbytes, 0)
