"""Tests how pooling solvers divide tensors among blocks and threads."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from dualdnn.accelerated.pooling.generic.generic import index_shape
from dualdnn.accelerated.pooling.generic.generic_tile import tile_of
from dualdnn.accelerated.pooling.max_backward import max_backward
from dualdnn.accelerated.pooling.problem import Axis
from dualdnn.accelerated.pooling.static_average_backward import GATHERED_IMAGES, gathered_tiles
from dualdnn.accelerated.pooling.static_forward import StaticForward
from dualdnn.accelerated.pooling.static_window import WINDOWS, access_of, static_shape
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode
from dualdnn.api.operations.specs import FLOAT, HALF
from dualdnn.conformance.bench.rows import pooling
from dualdnn.conformance.cases.pooling import pooling as cases
from pooling_support import problem_of

INCLUDE = Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
EXCLUDE = Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING


@pytest.mark.parametrize(("channels", "depth"), [(150, 4), (152, 8), (172, 8)])
def test_volumes_slide_where_half_as_deep_ones_would_wait(channels, depth):
    """Depth 8 has enough threads to fill the device from 152 channels on; below, the depth is halved."""
    volume = pooling("MAX", 3, 2, 1, False)(FLOAT, (1, channels, 16, 56, 56), "nchw")
    assert StaticForward().configuration(problem_of(volume)).arguments.depth == depth


def axes() -> list[Axis]:
    random = np.random.default_rng(0)
    drawn = [random.integers(low, high, 400).tolist() for low, high in ((1, 12), (1, 8), (1, 7), (1, 5), (-2, 4))]
    return [Axis(i, o, w, s, p, x_stride=1, y_stride=1) for i, o, w, s, p in zip(*drawn, strict=True)]


def covered(axis: Axis, output: int) -> range:
    start = output * axis.stride - axis.padding
    return range(start, start + axis.window)


@pytest.mark.parametrize("mode", [INCLUDE, EXCLUDE], ids=lambda m: m.name)
def test_a_constant_divisor_is_that_of_every_window(mode):
    constant = 0
    for axis in axes():
        margin = max(axis.padding, 0) if mode == INCLUDE else 0
        counts = {
            sum(-margin <= p < axis.input + margin for p in covered(axis, output)) for output in range(axis.output)
        }
        divisor = axis.divisor(mode)
        assert divisor == 0 or counts == {divisor}
        constant += divisor > 0
    assert constant > 20


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_indices_are_packed_in_the_order_of_x(layout):
    """Every window has its own index; the indices are contiguous along channels if x is NHWC."""
    geometry = cases.Geometry((2, 8, 9, 12), (3, 3), (1, 1), (2, 2))
    shape = problem_of(cases.backward(Mode.CUDNN_POOLING_MAX, geometry, FLOAT, layout, layout)).shape
    found = index_shape(shape)
    extents = [*shape.extents, *(axis.output for axis in shape.axes)]
    steps = [*found.y_steps, *(axis.y_stride for axis in found.axes)]
    offsets = sum(i * step for i, step in zip(np.indices(extents), steps, strict=True))
    assert sorted(offsets.ravel()) == list(range(prod(extents)))
    assert (found.y_steps[-1] == 1) == (layout == "nhwc")


def static_axes(size: int):
    for window, stride, padding in WINDOWS:
        output = 1 + (size + 2 * padding - window) // stride
        if output >= 1:
            yield Axis(size, output, window, stride, padding, 1, 1)


def test_tiles_keep_the_windows_over_their_inputs():
    """A block keeps every window that covers an input of its tile, also at the edges of the tensor."""
    random, split = np.random.default_rng(2), 0
    for _ in range(300):
        sizes, window, stride = (random.integers(1, high, 2).tolist() for high in (60, 7, 6))
        padding = random.integers(-2, 4, 2).tolist()
        outputs = [1 + (i + 2 * p - w) // s for i, w, s, p in zip(sizes, window, stride, padding, strict=True)]
        if min(outputs) < 1:
            continue
        geometry = cases.Geometry((1, 8, *sizes), tuple(window), tuple(padding), tuple(stride))
        layout = str(random.choice(["nchw", "nhwc"]))
        operation = cases.backward(Mode.CUDNN_POOLING_MAX, geometry, FLOAT, layout, layout)
        tile = tile_of(problem_of(operation), 4, 2, 2)
        for axis, size, kept in zip(tile.axes, tile.targets, tile.sources, strict=True) if tile else ():
            split += size < axis.input
            for begin in range(0, axis.input, size):
                inputs = range(begin, min(begin + size, axis.input))
                over = [o for o in range(axis.output) if any(i in covered(axis, o) for i in inputs)]
                low = (begin + axis.padding - axis.window) // axis.stride + 1
                origin = max(low, 0) * axis.stride - axis.padding
                assert all(origin <= covered(axis, o)[0] and covered(axis, o)[-1] < origin + kept for o in over)
    assert split > 50


def test_blocks_scan_all_windows_over_what_they_write():
    random = np.random.default_rng(0)
    for size, parts, each in random.integers((1, 1, 1), (60, 9, 4), (300, 3)).tolist():
        for axis in static_axes(size):
            tiles = max_backward.Side.of(axis, each, parts)
            assert tiles.parts * tiles.written * each * axis.stride >= size
            for i in range(size):
                over = [w for w in range(axis.output) if i in covered(axis, w)]
                begin = i // (tiles.written * each * axis.stride) * tiles.written - tiles.first
                assert all(begin * each <= w < (begin + tiles.scanned) * each for w in over)


@pytest.mark.parametrize(
    ("data_type", "dims", "tiles"),
    [
        (HALF, (70, 300, 10, 56), 18 * 7),  # A row has 3.5 sectors.
        (FLOAT, (200, 50, 12, 12), 21 * 6),
        (HALF, (20, 300, 4, 8, 24), 0),  # The depth has a stride, too.
        (HALF, (200, 300, 9, 56), 0),  # The stride does not divide the height.
        (HALF, (200, 300, 10, 64), 0),  # A row has 4 full sectors.
        (FLOAT, (2, 5, 12, 12), 0),  # The tensor is small.
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["nchw", "gaps"])
def test_rows_that_end_within_sectors_are_written_together(data_type, dims, tiles, layout):
    problem = problem_of(pooling("AVERAGE_COUNT_EXCLUDE_PADDING", 3, 2, 1, True)(data_type, dims, layout))
    static = static_shape(problem.shape)
    assert gathered_tiles(static, access_of(problem, static, GATHERED_IMAGES)) == (tiles if layout == "nchw" else 0)
