"""Softmax over long lines in a stream: how the blocks of a device share them, and the counts that launches leave behind."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from dualdnn.accelerated import softmax as plans
from dualdnn.accelerated.softmax import Problem, _stream

H200 = SimpleNamespace(multiprocessors=132, shared_bytes_per_block=227 * 1024, architecture="sm_90")
SMALL = SimpleNamespace(multiprocessors=20, shared_bytes_per_block=99 * 1024, architecture="sm_86")
LINES = (1, 2, 7, 63, 64, 65, 131, 132, 133, 1000)
PACKS = (4097, 9408, 37632, 100352, 200704, 401408, 802816)


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("device", [H200, SMALL], ids=["H200", "small"])
def test_streams_fit_the_device_and_cover_every_line(device, inputs):
    found = 0
    for lines in LINES:
        for packs in PACKS:
            stream = _stream(Problem(lines, packs, True, 16, inputs), device, 8)
            if stream is None:
                held = device.multiprocessors * device.shared_bytes_per_block
                assert packs * inputs * 16 > 0.75 * held  # nothing shorter is refused
                continue
            found += 1
            step = stream.warps * 32 * plans.STREAM_PACKS // inputs
            assert 1 <= stream.blocks <= device.multiprocessors
            assert stream.blocks * stream.chunk >= packs + 1, "a line that starts within a pack has one pack more"
            assert (stream.steps - 1) * step < stream.chunk <= stream.steps * step
            # a tile is written before its place is read into again, and after its whole line was reduced
            assert stream.steps <= stream.delay <= stream.tiles - stream.ahead
            # the lines between reading and writing have places of their own among the slots
            assert stream.delay <= plans.OPEN[False] * stream.steps - 2
            assert device.shared_bytes_per_block / 2 < stream.shared_bytes <= device.shared_bytes_per_block
    assert found
