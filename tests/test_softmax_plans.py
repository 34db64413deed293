"""Softmax over long lines in a stream: how the blocks of a device share them."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
from dualdnn.accelerated import softmax as plans
from dualdnn.accelerated.softmax import Problem, _stream

H200 = SimpleNamespace(multiprocessors=132, shared_bytes_per_block=227 * 1024, architecture="sm_90")
SMALL = SimpleNamespace(multiprocessors=20, shared_bytes_per_block=99 * 1024, architecture="sm_86")
LINES = (1, 2, 7, 63, 64, 65, 131, 132, 133, 1000)
PACKS = (4097, 9408, 37632, 100352, 200704, 401408, 802816)


@pytest.mark.parametrize("width", [0, 4, 8])
@pytest.mark.parametrize("queues", [False, True])
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("device", [H200, SMALL], ids=["H200", "small"])
def test_streams_fit_the_device_and_cover_every_line(device, inputs, queues, width):
    found = 0
    for lines, packs in product(LINES, PACKS):
        stream = _stream(Problem(lines, packs, True, 16, inputs), device, 8, plans.LINE_BYTES[1], width, queues)
        if stream is None:
            side_by_side = min(lines, plans.MOST_COLUMNS // width) if width else 1
            held = device.multiprocessors * device.shared_bytes_per_block
            assert side_by_side * packs * inputs * 16 > 0.7 * held  # nothing smaller is refused
            continue
        found += 1
        workers = stream.warps * 32
        assert 1 <= stream.blocks <= device.multiprocessors
        assert max(stream.across * width, 1) <= plans.MOST_COLUMNS
        # parts of a line: enough, of which a tile holds one, and one step fewer would not do
        places = workers * plans.STREAM_PACKS // (inputs * stream.across)
        length = packs + (width == 0)  # a line that starts within a pack has one pack more
        assert stream.blocks * stream.steps * stream.part >= length
        assert stream.part <= places and stream.blocks * (stream.steps - 1) * places < length
        # a tile is written before its place is read into again, and after its whole line was reduced
        assert stream.steps <= stream.delay <= stream.tiles + stream.queue - stream.ahead
        assert stream.queue <= stream.delay
        # the lines between reading and writing have places of their own on the board
        assert stream.delay <= plans.OPEN[width > 0] * stream.steps - 2
        assert device.shared_bytes_per_block / 2 < stream.shared_bytes <= device.shared_bytes_per_block
    assert found
