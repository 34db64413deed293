"""The shares that the pooling kernels give to threads and blocks."""

from __future__ import annotations

import numpy as np
import pytest
from dualdnn.accelerated.pooling.problem import Axis, column_bits, fit
from dualdnn.api.enumerations import cudnnPoolingMode_t as Mode

INCLUDE = Mode.CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING
EXCLUDE = Mode.CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING


def axes() -> list[Axis]:
    random = np.random.default_rng(0)
    drawn = [random.integers(low, high, 400).tolist() for low, high in ((1, 12), (1, 8), (1, 7), (1, 5), (-2, 4))]
    return [Axis(i, o, w, s, p, x_stride=1, y_stride=1) for i, o, w, s, p in zip(*drawn, strict=True)]


def covered(axis: Axis, output: int) -> range:
    start = output * axis.stride - axis.padding
    return range(start, start + axis.window)


def test_windows_of_one_phase_do_not_overlap():
    """They add to sums at the same time; a race would show on a GPU only, and not always."""
    for axis in axes():
        for output in range(axis.output):
            later = output + axis.overlapping
            assert later >= axis.output or not set(covered(axis, output)) & set(covered(axis, later))


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


def test_shares_fit_and_cover_everything():
    for planes, rows, budget in [(1, 100, 1000), (1000, 10, 1000), (3, 1, 50), (7, 200, 777), (500, 8, 10**6)]:
        share = fit(planes, rows, 2, budget, lambda p, r: p * (10 * r + 30), multiprocessors=4)
        assert share is not None
        assert share.planes * (10 * share.rows + 30) <= budget
        assert share.planes == 1 or share.rows == rows
    assert fit(1, 100, 10, 100, lambda p, r: p * 10 * (r + 3), multiprocessors=4) is None


def test_columns_waste_few_threads():
    for extent in range(1, 400):
        for lane_bits in (0, 3, 8):
            bits = column_bits(extent, lane_bits)
            assert 0 <= bits <= min(5, 8 - lane_bits)
            assert -(-extent // 2**bits) * 2**bits * 3 <= extent * 4 or bits == 0
