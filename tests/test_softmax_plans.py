"""Softmax over long lines in a stream: how the blocks of a device share them."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
from dualdnn.accelerated import softmax as plans
from dualdnn.accelerated.softmax import Problem, _block_team, _stream, _whole_stream

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


@pytest.mark.parametrize("lead", plans.LEADS)
@pytest.mark.parametrize("inputs", [1, 2])
def test_streams_of_whole_packs_fit_and_cover_every_line(inputs, lead):
    found, device = 0, H200
    for lines, packs in product(LINES, PACKS):
        stream = _whole_stream(Problem(lines, packs, True, 16, inputs), device, 8, lead)
        if stream is None:
            continue
        found += 1
        # parts of a line: enough, whole warps, and no more than the workers of a block take
        assert stream.blocks * stream.steps * stream.part >= packs and stream.part % 32 == 0
        assert stream.part * inputs <= plans.WHOLE_WORKERS * plans.STREAM_PACKS
        # a tile has a place until it was written, others are on their way meanwhile
        assert stream.steps <= stream.delay and stream.delay + stream.ahead <= stream.tiles <= plans.MOST_TILES
        # the lines between reading and writing have places of their own on the board
        assert stream.delay <= plans.OPEN[False] * stream.steps - 2
        assert stream.tiles * stream.part * inputs * 16 < stream.shared_bytes <= device.shared_bytes_per_block
    assert found


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("pack_bytes", [16, 32], ids=["float", "half"])
def test_lines_in_the_registers_of_a_block(pack_bytes, inputs):
    """Every pack has a thread, in as few threads as whole warps allow; few lines are shared by clusters."""
    for lines, packs in product(LINES, (129, 1568, 3136, 6400, 12544)):
        team = _block_team(Problem(lines, packs, True, 16, inputs), H200, pack_bytes)
        values = packs * pack_bytes * inputs / plans.MOST_BLOCK_THREADS  # bytes of a thread
        assert (team is not None) == (lines <= H200.multiprocessors and values <= plans.BLOCK_VALUE_BYTES)
        if team is None:
            continue
        assert team.grid == lines * team.cluster and team.cluster == (8 if lines <= plans.FEW_LINES else 1)
        assert team.threads % 32 == 0 and team.threads <= plans.MOST_BLOCK_THREADS
        assert team.cluster * team.groups * team.threads >= packs
        assert team.cluster * team.groups * (team.threads - 32) < packs
        assert team.groups in (1, 2, 4, 8) and team.groups * pack_bytes * inputs <= plans.BLOCK_VALUE_BYTES
