"""How threads, blocks and devices share the lines of a softmax."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace

import pytest
from dualdnn.accelerated.softmax import persistent as softmax_streams
from dualdnn.accelerated.softmax import problem as softmax_walk
from dualdnn.accelerated.softmax import register_resident as softmax_registers
from dualdnn.accelerated.softmax import staged as softmax_teams
from dualdnn.accelerated.softmax.persistent import held_columns_of, leads_of, stream_of, whole_stream_of
from dualdnn.accelerated.softmax.problem import Problem, walk_of
from dualdnn.accelerated.softmax.register_resident import narrow_registers_of, registers_of
from dualdnn.accelerated.softmax.staged import block_team, many_team, pair_tile, short_tile, tile_of
from dualdnn.api.enumerations import cudnnDataType_t, cudnnSoftmaxAlgorithm_t, cudnnSoftmaxMode_t
from dualdnn.api.operations import SoftmaxForward, TensorSpec
from dualdnn.api.operations.specs import NCHW, NHWC

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
        stream = stream_of(
            Problem(lines, packs, True, 16, inputs), device, 8, softmax_streams.LINE_BYTES[1], width, queues
        )
        if stream is None:
            side_by_side = min(lines, softmax_streams.MOST_COLUMNS // width) if width else 1
            held = device.multiprocessors * device.shared_bytes_per_block
            assert side_by_side * packs * inputs * 16 > 0.7 * held  # nothing smaller is refused
            continue
        found += 1
        workers = stream.warps * 32
        assert 1 <= stream.blocks <= device.multiprocessors
        assert max(stream.across * width, 1) <= softmax_streams.MOST_COLUMNS
        # parts of a line: enough, of which a tile holds one, and one step fewer would not do
        places = workers * softmax_streams.STREAM_PACKS // (inputs * stream.across)
        length = packs + (width == 0)  # a line that starts within a pack has one pack more
        assert stream.blocks * stream.steps * stream.part >= length
        assert stream.part <= places and stream.blocks * (stream.steps - 1) * places < length
        # a tile is written before its place is read into again, and after its whole line was reduced
        assert stream.steps <= stream.delay <= stream.tiles + stream.queue - stream.ahead
        assert stream.queue <= stream.delay
        # the lines between reading and writing have places of their own on the board
        assert stream.delay <= softmax_streams.OPEN[width > 0] * stream.steps - 2
        assert device.shared_bytes_per_block / 2 < stream.shared_bytes <= device.shared_bytes_per_block
    assert found


def channels(dims, data_type, tensor_format):
    spec = TensorSpec.packed(cudnnDataType_t[f"CUDNN_DATA_{data_type}"], dims, tensor_format)
    algorithm, mode = cudnnSoftmaxAlgorithm_t.CUDNN_SOFTMAX_ACCURATE, cudnnSoftmaxMode_t.CUDNN_SOFTMAX_MODE_CHANNEL
    return SoftmaxForward(algorithm, mode, 1.0, 0.0, spec, spec), spec


@pytest.mark.parametrize("data_type, width", [("FLOAT", 4), ("HALF", 8), ("HALF", 4), ("DOUBLE", 2)])
@pytest.mark.parametrize("tensor_format", [NCHW, NHWC], ids=lambda f: f.name)
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("device", [H200, SMALL], ids=["H200", "small"])
def test_registers_hold_every_pack_once(device, inputs, tensor_format, data_type, width):
    found = 0
    for images, length, side in product((1, 8, 64), (1, 3, 4, 8, 64, 72, 128, 256, 512), (2, 14, 56, 224)):
        operation, spec = channels((images, length, side, side), data_type, tensor_format)
        walk = walk_of(operation, [spec] * (inputs + 1), width)
        held = registers_of(walk, spec.scalar_bytes, inputs, device)
        if held is None:
            continue
        found += 1
        packs = walk.along.row if walk.columns else walk.along.row // width
        shares = held.threads // held.team if walk.columns else held.team
        assert shares * held.packs >= packs > 0 and held.packs <= softmax_registers.COLUMN_PACKS
        assert held.threads in (32, 64, 128, 256) and held.team & (held.team - 1) == 0
        # the blocks have all lines, and none of them nothing
        at_once = held.team if walk.columns else held.threads // held.team
        assert (held.grid - 1) * at_once < walk.lines.packs <= held.grid * at_once
        # what warps hand over, where several share lines: a statistic of every line
        warps = held.threads // max(held.team, 32) if walk.columns else 1
        assert warps == 1 or held.parts == warps * held.team * width
    assert found > 10


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("scalar_bytes", [2, 4])
def test_tiles_are_whole_warps_of_lines(scalar_bytes, inputs):
    for lines, length in product((1, 1000, 47027, 10**6), (3, 4, 5, 31, 67, 131, 255)):
        lanes, of_tile = tile_of(lines, length, inputs, scalar_bytes, H200)
        assert lanes * softmax_teams.MORE[inputs - 1] >= length
        assert (
            of_tile % (softmax_teams.TILE_THREADS // lanes) == 0
        )  # so that all lanes of a warp agree, and tiles begin at packs
        if length <= softmax_walk.SHORT_LINE:
            of_tile = short_tile(lines, length, inputs, scalar_bytes, H200)
            assert of_tile % (softmax_teams.TILE_THREADS * 16 // scalar_bytes) == 0
        assert of_tile * length * scalar_bytes * inputs <= max(
            H200.shared_bytes_per_block // 6, softmax_teams.TILE_THREADS * 16 * length * inputs
        )


@pytest.mark.parametrize("data_type", ["FLOAT", "HALF"])
@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("device", [H200, SMALL], ids=["H200", "small"])
def test_columns_that_all_multiprocessors_hold(device, inputs, data_type):
    found = 0
    for dims in product((1, 2, 4, 16, 48), (1030, 8000, 32000, 65536), ((8, 8), (4, 4), (14, 14), (16, 16))):
        operation, spec = channels((*dims[:2], *dims[2]), data_type, NCHW)
        width = 16 // spec.scalar_bytes
        walk = walk_of(operation, [spec] * (inputs + 1), width)
        problem = Problem(walk.lines.packs, walk.along.row, True, 16, inputs)
        held = held_columns_of(problem, walk, device, 8, width)
        if held is None:
            continue
        found += 1
        assert 1 <= held.blocks <= device.multiprocessors and held.across * width <= softmax_streams.MOST_COLUMNS
        # every row has a block, and the groups of packs that a block's rows take have places
        assert held.blocks * held.part >= walk.along.row > (held.blocks - 1) * (held.part - 1)
        rows_of_group = softmax_streams.HELD_THREADS // held.across * softmax_streams.GROUP_PACKS // inputs
        assert (held.kept + softmax_streams.REGISTER_GROUPS) * rows_of_group >= held.part
        assert held.kept <= softmax_streams.MOST_HELD_GROUPS and held.shared_bytes <= device.shared_bytes_per_block
        bundles, groups = -(-walk.lines.packs // held.across), device.multiprocessors // held.blocks
        assert -(-bundles // groups) <= softmax_streams.MOST_ROUNDS
    assert found > 10


@pytest.mark.parametrize("data_type", ["FLOAT", "HALF"])
def test_single_elements_in_registers_hold_every_position_once(data_type):
    found = 0
    for images, length, side in product((1, 8, 64), (1, 4, 5, 21, 64, 67, 90, 128, 129, 256, 300), (5, 29, 57)):
        operation, spec = channels((images, length, side, side), data_type, NCHW)
        walk = walk_of(operation, [spec, spec], 16 // spec.scalar_bytes)
        held = narrow_registers_of(walk, spec.scalar_bytes, H200)
        longest = softmax_registers.LONGEST_NARROW[data_type == "HALF"]
        assert (held is not None) == (softmax_walk.SHORT_LINE < length <= longest and not walk.wide)
        if held is None:
            continue
        found += 1
        shares = held.threads // held.team
        assert held.packs in softmax_registers.NARROW_PACKS and shares * held.packs >= length
        assert held.threads in (128, 256) and held.team & (held.team - 1) == 0
        assert (held.grid - 1) * held.team < walk.lines.packs <= held.grid * held.team
    assert found > 10


@pytest.mark.parametrize("inputs", [1, 2])
def test_tiles_of_pairs(inputs):
    """Whole packs, whole warps of lanes, and no more threads than a block has."""
    for length in range(5, 257):
        lanes, of_tile = pair_tile(length, inputs)
        assert lanes * softmax_teams.PER_LINE_LANE >= length and lanes & (lanes - 1) == 0
        assert of_tile * lanes <= softmax_teams.TILE_THREADS and of_tile % 32 == 0
        assert of_tile * length * 2 * inputs <= max(softmax_teams.PAIR_TILE_BYTES, 32 * length * 2 * inputs)


def test_tiles_of_a_large_tensor_run_at_once():
    lines, length = 31 * 37 * 41, 67
    _, of_tile = tile_of(lines, length, 2, 4, H200)
    assert -(-lines // of_tile) <= softmax_teams.TILE_BLOCKS * H200.multiprocessors < -(-lines // (of_tile // 2))


@pytest.mark.parametrize("queue", [0, softmax_streams.WHOLE_QUEUE])
@pytest.mark.parametrize(
    "inputs, lead", sorted({(n, lead) for n in (1, 2) for stays in (0, 1) for lead, _ in leads_of(n, stays, True)})
)
def test_streams_of_whole_packs_fit_and_cover_every_line(inputs, lead, queue):
    found, device = 0, H200
    for lines, packs in product(LINES, PACKS):
        stream = whole_stream_of(Problem(lines, packs, True, 16, inputs), device, 8, lead, queue)
        if stream is None:
            continue
        found += 1
        # parts of a line: enough, whole warps, and no more than the workers of a block take
        assert stream.blocks * stream.steps * stream.part >= packs and stream.part % 32 == 0
        assert stream.part * inputs <= softmax_streams.WHOLE_WORKERS * softmax_streams.STREAM_PACKS
        # a tile has a place until it was written, in registers at last, others are in flight meanwhile
        assert max(stream.steps, queue) <= stream.delay and stream.tiles <= softmax_streams.MOST_TILES
        assert stream.delay - queue + stream.ahead <= stream.tiles
        # the lines between reading and writing have places of their own on the board
        assert stream.delay <= softmax_streams.OPEN[False] * stream.steps - 2
        assert stream.tiles * stream.part * inputs * 16 < stream.shared_bytes <= device.shared_bytes_per_block
    assert found


def test_a_queue_holds_lines_that_shared_memory_does_not():
    problem = Problem(8, 802816, True, 16, 2)  # gradients of 8x64x16x56x56 in float
    assert all(whole_stream_of(problem, H200, 8, lead) is None for lead in softmax_streams.LEADS[2])
    assert any(
        whole_stream_of(problem, H200, 8, lead, softmax_streams.WHOLE_QUEUE) for lead in softmax_streams.LEADS[2]
    )


def test_long_lines_of_floats_lie_in_registers_rather_than_follow_each_other_closely():
    problem = Problem(8, 802816, True, 16, 1)  # 8x64x16x56x56 in float
    ways = [(whole_stream_of(problem, H200, 8, lead, queue), queue) for lead, queue in leads_of(1, False, True)]
    stream, queue = next(way for way in ways if way[0])
    assert queue == softmax_streams.WHOLE_QUEUE
    assert (stream.delay - stream.steps) * stream.part * 16 >= softmax_streams.QUEUE_LEAD[stream.blocks > 1]
    assert any(stream and not queue for stream, queue in ways)  # a shorter lead would do without
    assert not any(queue for _, queue in leads_of(1, False, False))
    assert all(lead in softmax_streams.LEADS[2] for lead, _ in leads_of(2, False, True))
    assert leads_of(1, True, True)[0] == (softmax_streams.KEPT_LEAD, 0)


def test_what_stays_in_the_cache_is_less_than_it_holds():
    for nbytes in (1 << 20, 24 << 20, 38 << 20, 48 << 20, 49 << 20, 1 << 30):
        sixteenths = softmax_streams.staying(nbytes)
        assert 0 <= sixteenths <= 16 and sixteenths * nbytes <= 16 * softmax_streams.STAYING_RESULTS
        assert (sixteenths > 0) == (nbytes <= softmax_streams.MOST_RESULTS)


@pytest.mark.parametrize("inputs", [1, 2])
@pytest.mark.parametrize("pack_bytes", [16, 32], ids=["float", "half"])
def test_lines_in_the_registers_of_a_block(pack_bytes, inputs):
    """Every pack has a thread, in as few threads as whole warps allow."""
    for lines, packs in product(LINES, (129, 1568, 3136, 6400, 12544)):
        team = block_team(Problem(lines, packs, True, 16, inputs), H200, pack_bytes)
        values = packs * pack_bytes * inputs / softmax_teams.MOST_BLOCK_THREADS  # bytes of a thread
        assert (team is not None) == (lines <= H200.multiprocessors and values <= softmax_teams.BLOCK_VALUE_BYTES)
        if team is None:
            continue
        assert team.grid == lines and team.cluster == 1
        assert team.threads % 32 == 0 and team.threads <= softmax_teams.MOST_BLOCK_THREADS
        assert team.groups * team.threads >= packs > team.groups * (team.threads - 32)
        assert team.groups in (1, 2, 4, 8) and team.groups * pack_bytes * inputs <= softmax_teams.BLOCK_VALUE_BYTES


@pytest.mark.parametrize("pack_bytes", [16, 32], ids=["float", "half"])
def test_lines_in_the_registers_of_clusters(pack_bytes):
    """Of more lines than there are multiprocessors, longer than what a block holds, every pack has a thread."""
    found, held = 0, softmax_teams.MANY_THREADS * softmax_teams.BLOCK_VALUE_BYTES // pack_bytes  # by a block
    for lines, packs in product(LINES, (500, 1025, 2048, 4000, 4097, 8000, 16000, 32769)):
        team = many_team(Problem(lines, packs, True, 16, 1), H200, pack_bytes)
        assert (team is not None) == (lines > H200.multiprocessors and held < packs <= 8 * held)
        assert many_team(Problem(lines, packs, True, 16, 2), H200, pack_bytes) is None
        if team is None:
            continue
        found += 1
        assert team.cluster in (2, 4, 8) and team.grid == lines * team.cluster
        assert team.threads % 32 == 0 and team.threads <= softmax_teams.MANY_THREADS
        assert team.groups * pack_bytes <= softmax_teams.BLOCK_VALUE_BYTES
        assert team.cluster * team.groups * (team.threads - 32) < packs <= team.cluster * team.groups * team.threads
    assert found > 5
